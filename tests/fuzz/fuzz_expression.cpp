// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the expression parser, printer and evaluator.
#include <string>
#include <vector>

#include "fuzz_check.h"
#include "fuzz_targets.h"
#include "spec/expression.h"
#include "spec/text.h"

namespace attnjit::fuzz {

void fuzz_expression(std::string_view input) {
  using Type = ParamSpec::Type;
  static const std::vector<ParamSpec> params = {{"w", Type::kI32},
                                                {"x", Type::kF32},
                                                {"doc", Type::kI32Array},
                                                {"bias", Type::kF32Array},
                                                {"table", Type::kI32Matrix}};
  static const std::vector<std::int32_t> ints = {3, -1, 4, 1};
  static const std::vector<float> floats = {0.5F, -0.25F, 1e30F};
  if (input.empty()) return;
  const auto kind =
      (input.front() & 1) != 0 ? spec::SnippetKind::kScoreMod : spec::SnippetKind::kMask;
  const std::string_view code = input.substr(1);

  const Result<spec::Expression> parsed = spec::parse_expression(code, kind, params);
  if (!parsed) {
    const Error& error = parsed.error();
    require(error.code == ErrorCode::kInvalid && !error.message.empty());
    require(error.line >= 1 && error.column >= 1);
    for (const char c : error.to_string()) require(c >= 0x20 && c <= 0x7e);
    (void)spec::caret_excerpt(code, error.line, error.column);
    return;
  }
  for (std::size_t n = 0; n < parsed->nodes.size(); ++n) {
    const spec::ExprNode& node = parsed->nodes[n];
    for (int i = 0; i < node.num_args; ++i) {
      require(node.args[i] >= 0 && node.args[i] < static_cast<int>(n));
    }
  }
  const std::string printed = spec::print_cuda(*parsed);
  int depth = 0;
  for (const char c : printed) {
    require(c >= 0x20 && c <= 0x7e);
    require(std::string_view("#\"'\\;{}@$`[]").find(c) == std::string_view::npos);
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    require(depth >= 0);
  }
  require(depth == 0);
  for (const char* spelling : {"%:", "<:", "<%", "//", "/*", "??", "::", "->", "++", "--", "= ="}) {
    require(printed.find(spelling) == std::string::npos);
  }

  std::vector<spec::ParamView> views(5);
  views[0].i32 = 7;
  views[1].f32 = 0.75F;
  views[2].i32_data = ints.data();
  views[2].rows = 4;
  views[3].f32_data = floats.data();
  views[3].rows = 3;
  views[4].i32_data = ints.data();
  views[4].rows = 2;
  views[4].columns = 2;
  spec::Evaluator evaluator(*parsed, views);
  for (const std::int32_t at : {0, 1, -3, INT32_MIN, INT32_MAX}) {
    const spec::Coordinates c{at, 2, 1, at, 5, at, at};
    if (kind == spec::SnippetKind::kMask) {
      (void)evaluator.visible(c);
    } else {
      (void)evaluator.score(c, 1e3 * at);
    }
  }
}

}  // namespace attnjit::fuzz
