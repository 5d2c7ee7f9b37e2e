// SPDX-License-Identifier: Apache-2.0
// Tests of stack code: how long it is, what of the stack it needs, and what is refused.
#include "spec/stack_code.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "interpreted.h"
#include "tile_check.h"

namespace attnjit::spec {
namespace {

Expression parsed(const std::string& code, SnippetKind kind,
                  const std::vector<ParamSpec>& params = {}) {
  Result<Expression> expression = parse_expression(code, kind, params);
  EXPECT_TRUE(expression) << code;
  return expression ? *expression : Expression{};
}

Result<StackProgram> compiled(const std::string& mask, const std::vector<ParamSpec>& params = {}) {
  const std::vector<ParamView> values(params.size());
  const Expression expression = parsed(mask, SnippetKind::kMask, params);
  return compile_stack_code(&expression, nullptr, values);
}

TEST(StackCode, TakesLeavesAsOperands) {
  EXPECT_EQ(compiled("kv_idx <= q_idx")->code.mask_end, 2);
  EXPECT_EQ(compiled("100 > kv_idx")->code.mask_end, 2);
  EXPECT_EQ(compiled("true")->code.mask_end, 1);
  EXPECT_EQ(compiled("kv_idx <= q_idx && q_idx - kv_idx < 100")->code.mask_end, 6);
}

TEST(StackCode, HoldsBothOneBehindAnother) {
  const Expression mask = parsed("kv_idx <= q_idx", SnippetKind::kMask);
  const Expression mod = parsed("score * 2", SnippetKind::kScoreMod);
  const Result<StackProgram> both = compile_stack_code(&mask, &mod, {});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->code.mask_end, 2);
  EXPECT_EQ(both->code.score_end, 4);
  const Result<StackProgram> none = compile_stack_code(nullptr, nullptr, {});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->code.score_end, 0);
}

TEST(StackCode, ComputesTheDeeperOperandFirst) {
  // Each bracket would be a value on the stack if it came after what it is added to.
  std::string right = "q_idx", left = "q_idx";
  for (int i = 0; i < 60; ++i) {
    right = "(h - kv_h) * (" + right + " + b)";
    left = "(" + left + " + b) * (h - kv_h)";
  }
  const Result<StackProgram> code = compiled(right + " == " + left);
  ASSERT_FALSE(code);  // too long, not too deep
  EXPECT_NE(code.error().message.find("longer than the 256"), std::string::npos)
      << code.error().message;
  std::string fits = "q_idx";
  for (int i = 0; i < 40; ++i) fits = "(h - kv_h) * (" + fits + " + b)";
  EXPECT_TRUE(compiled(fits + " == 0"));
}

TEST(StackCode, IsBounded) {
  const auto sum = [](int terms) {
    std::string text = "q_idx";
    for (int i = 1; i < terms; ++i) text += " + h";
    return text;
  };
  EXPECT_EQ(compiled(sum(128) + " == " + sum(127))->code.mask_end, kStackInstructions);
  const Result<StackProgram> longer = compiled(sum(128) + " == " + sum(128));
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(longer.error().field, "mask");

  // A full binary tree of sums needs a value of the stack for each level.
  const auto tree = [](auto&& self, int levels) -> std::string {
    if (levels == 0) return "q_idx";
    return "(" + self(self, levels - 1) + " + " + self(self, levels - 1) + ")";
  };
  EXPECT_TRUE(compiled(tree(tree, 6) + " == 0"));
  // A selection keeps its condition and its first alternative on the stack.
  std::string deep = "q_idx";
  for (int i = 0; i < 8; ++i) deep = "h > 1 ? q_idx : (" + deep + " * 3)";
  EXPECT_TRUE(compiled("(" + deep + ") == 0"));
  const Result<StackProgram> deeper = compiled("(h > 2 ? kv_idx : (" + deep + " + 1)) == 0");
  ASSERT_FALSE(deeper);
  EXPECT_EQ(deeper.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(deeper.error().message.find("stack"), std::string::npos);

  std::vector<ParamSpec> params;
  std::string arrays = "0";
  for (int i = 0; i < 9; ++i) {
    if (i == 8) {
      EXPECT_TRUE(compiled(arrays + " == 0", params));
    }
    params.push_back({"a" + std::to_string(i), ParamSpec::Type::kI32Array});
    arrays += " + p.a" + std::to_string(i) + "[q_idx]";
  }
  const Result<StackProgram> many = compiled(arrays + " == 0", params);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::kUnsupported);
}

TEST(StackCode, FindsWhereASequenceBegins) {
  const Expression mask =
      parsed("total_row == 12 || (kv_idx - total_row) * total_row == 40", SnippetKind::kMask);
  Evaluator evaluator(mask, {});
  const std::vector<std::int32_t> offsets{0, 5, 11, 20};
  for (const bool ragged : {false, true}) {
    const Interpreted interpreted(mask, {}, ragged ? offsets : std::vector<std::int32_t>());
    int visible = 0;
    for (std::int32_t b = 0; b < 3; ++b) {
      for (std::int32_t row = 0; row < 5; ++row) {
        for (std::int32_t key = 0; key < 30; ++key) {
          Coordinates at{b, 0, 0, row + 2, key, 5, 7, ragged ? offsets[b] : 5 * b};
          ASSERT_EQ(interpreted.visible(at), evaluator.visible(at)) << b << " " << row;
          visible += interpreted.visible(at);
          const ScoreTile tile{b, 0, {0, 0},      {row + 2, row + 3}, {key, key + 4},
                               5, 7, at.first_row};
          const TileStatus found = status_by_scores(evaluator, tile);
          EXPECT_TRUE(holds(interpreted.status(tile), found)) << text_of(tile);
        }
      }
    }
    EXPECT_GT(visible, 30);
  }
  // It counts as an array.
  std::vector<ParamSpec> params;
  std::string arrays = "total_row";
  for (int i = 0; i < kStackArrays; ++i) {
    params.push_back({"a" + std::to_string(i), ParamSpec::Type::kI32Array});
    arrays += " + p.a" + std::to_string(i) + "[q_idx]";
  }
  const Expression many = parsed(arrays + " == 0", SnippetKind::kMask, params);
  const std::vector<ParamView> values(params.size());
  EXPECT_TRUE(compile_stack_code(&many, nullptr, values));
  EXPECT_FALSE(compile_stack_code(&many, nullptr, values, 4));
}

TEST(StackCode, KnowsTheExtentsOfItsArrays) {
  const std::vector<ParamSpec> params{{"doc", ParamSpec::Type::kI32Array},
                                      {"cube", ParamSpec::Type::kU32Cube},
                                      {"unused", ParamSpec::Type::kF32Array}};
  std::vector<ParamView> values(3);
  values[0].rows = 7;
  values[1].planes = 2, values[1].rows = 3, values[1].columns = 4;
  const Expression mask =
      parsed("p.cube[h][1][2] == p.doc[p.doc[q_idx]]", SnippetKind::kMask, params);
  const Result<StackProgram> code = compile_stack_code(&mask, nullptr, values);
  ASSERT_TRUE(code);
  EXPECT_EQ(code->arrays, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_EQ(code->code.extents[0][0], 2);
  EXPECT_EQ(code->code.extents[0][1], 3);
  EXPECT_EQ(code->code.extents[0][2], 4);
  EXPECT_EQ(code->code.extents[1][0], 7);
}

TEST(StackCode, KnowsTheOrderOfFloatsInArrays) {
  const std::vector<ParamSpec> params = {{"f", ParamSpec::Type::kF32Array}};
  const std::vector<float> elements{-3.0F, -2.5F, 2.0F};
  std::vector<ParamView> views(1);
  views[0].f32_data = elements.data();
  views[0].rows = 3;
  const auto status = [&](const std::string& code, std::int32_t last) {
    const Expression mask = parsed(code, SnippetKind::kMask, params);
    return Interpreted(mask, views)
        .status({0, 0, {0, 0}, {0, 0}, {0, last}, 3, 3}, ArrayRanges::kKnown);
  };
  EXPECT_EQ(status("p.f[kv_idx] < -2.75f", 2), (TileStatus{true, true}));
  EXPECT_EQ(status("p.f[kv_idx] <= -2.5f", 1), (TileStatus{true, false}));
  EXPECT_EQ(status("p.f[kv_idx] < -3.0f", 2), (TileStatus{false, true}));
  EXPECT_EQ(status("p.f[kv_idx] <= 2.0f", 2), (TileStatus{true, false}));
}

}  // namespace
}  // namespace attnjit::spec
