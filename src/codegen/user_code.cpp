// SPDX-License-Identifier: Apache-2.0
// Prints a spec's mask and score modification as CUDA C++.
#include "codegen/user_code.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <type_traits>
#include <vector>

#include "spec/expression.h"
#include "spec/expression_ranges.h"
#include "spec/interpreted_code.h"
#include "spec/kinds.h"
#include "spec/names.h"
#include "spec/resolved_spec.h"
#include "spec/scalars.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using spec::Holds;
using spec::SnippetKind;

class Printer {
 public:
  Printer(const ResolvedSpec& spec, std::string_view file, int first_line)
      : spec_(*spec),
        snippets_(spec.state().snippets),
        scalars_(spec::spec_scalars(spec)),
        file_(file),
        first_line_(first_line) {}

  UserCode print() {
    if (spec::interprets_mask(spec_)) {
      out_.mask = "attnjit::InterpretedMask";
      while (next_scalar_ < scalars_.size() && scalars_[next_scalar_].in_code) ++next_scalar_;
    } else {
      out_.mask = type_of(spec_.mask, "mask");
    }
    out_.score_mod = spec::interprets_score_mod(spec_) ? "attnjit::InterpretedScoreMod"
                                                       : type_of(spec_.score_mod, "score_mod");
    if (spec::adds_to_scores(spec_.mask)) {
      out_.score_mod = fmt::format("attnjit::AddedScoreMod<{}, {}>", out_.score_mod,
                                   mask_tensor(spec::materialized(spec_.mask)->dtype));
    }
    if (!body_.empty()) {
      out_.functions = std::string(kHead) + body_ + "\n}  // namespace attnjit_user\n";
    }
    return std::move(out_);
  }

 private:
  static constexpr std::string_view kHead =
      "namespace attnjit_user {\n"
      "using namespace attnjit;\n";
  static constexpr std::string_view kTotalRow = "total_row";

  /// The type of a mask or a score modification. Called in the order of spec_scalars() and of the
  /// snippets.
  template <class Node>
  std::string type_of(const Node& node, const std::string& field) {
    const spec::KindRow<Node>& row = spec::row_of(node);
    std::string type = fmt::format("attnjit::{}", spec::type_of(node));
    std::vector<std::string> arguments;
    for (std::size_t i = 0; i < spec::scalars_of(node).size(); ++i) {
      const spec::SpecScalar& scalar = scalars_[next_scalar_++];
      arguments.push_back(scalar.constant ? "Config::" + scalar.constant_name
                                          : "&Scalars::" + scalar.name);
    }
    if (row.holds == Holds::kCode) {
      constexpr bool kMask = std::is_same_v<Node, MaskSpec>;
      arguments.push_back(
          "attnjit_user::" +
          function(node.custom, kMask ? SnippetKind::kMask : SnippetKind::kScoreMod, field));
    }
    if constexpr (std::is_same_v<Node, MaskSpec>) {
      if (row.holds == Holds::kOperands) return tree_type(node, type, field);
      if (row.holds == Holds::kDtype) {
        // What a mask adds to scores is the score modification's, and hides with -inf.
        if (spec::adds_to_scores(node)) type = "attnjit::AddedMask";
        arguments.push_back(mask_tensor(node.dtype));
      }
    } else {
      if (row.holds == Holds::kSlopes && node.slopes) {
        type = "attnjit::AlibiSlopesScoreMod";
        arguments.emplace_back("&Scalars::slopes");
      }
    }
    if (arguments.empty()) return type;
    return fmt::format("{}<{}>", type, fmt::join(arguments, ", "));
  }

  /// The tensor of a materialized mask as a type.
  static std::string mask_tensor(Dtype dtype) {
    const char* const element = dtype == Dtype::kU8     ? "unsigned char"
                                : dtype == Dtype::kBits ? "attnjit::Bits"
                                : dtype == Dtype::kBf16 ? "attnjit::Bf16"
                                : dtype == Dtype::kFp16 ? "attnjit::Fp16"
                                                        : "float";
    return fmt::format(
        "attnjit::MaskTensor<{}, &Scalars::mask, &Scalars::mask_batch_bytes, "
        "&Scalars::mask_head_bytes, &Scalars::mask_row_bytes>",
        element);
  }

  /// AndMask<a, AndMask<b, c>>.
  std::string tree_type(const MaskSpec& mask, const std::string& type, const std::string& field) {
    std::string text;
    for (std::size_t i = 0; i < mask.of.size(); ++i) {
      const std::string child = type_of(mask.of[i], fmt::format("{}.of[{}]", field, i));
      const bool last = i + 1 == mask.of.size();
      text += last ? child : fmt::format("{}<{}, ", type, child);
    }
    return text + std::string(mask.of.size() - 1, '>');
  }

  /// Prints one snippet as a struct; gives its name.
  std::string function(const CustomCode& custom, SnippetKind kind, const std::string& field) {
    const std::optional<spec::Expression>& expression = snippets_[next_snippet_++];
    const bool mask = kind == SnippetKind::kMask;
    if (names_total_row(custom, expression)) define_total_row();
    std::string name = unique((mask ? "Mask_" : "ScoreMod_") + custom.name);
    const std::string signature =
        mask ? "__device__ __forceinline__ static bool visible(const Coord& c, const Params& p)"
             : "__device__ __forceinline__ static float apply(float score, const Coord& c, const "
               "Params& p)";
    const bool decides = mask && !custom.trusted && spec::decides_tiles(*expression);
    std::string head = fmt::format("\nstruct {} {{\n", name);
    if (mask) head += fmt::format("  static constexpr bool kDecidesTiles = {};\n", decides);
    std::string text;
    if (custom.trusted) {
      text = trusted_body(head, signature, custom.code, field + ".code");
      out_.trusted = true;
    } else {
      text = fmt::format("{}  {} {{\n    return {};\n  }}\n", head, signature,
                         spec::print_cuda(*expression));
      if (decides || (mask && spec::reads_arrays(*expression))) {
        text += fmt::format(
            "  template <class Tile>\n"
            "  __device__ __forceinline__ static IntRange tiles(const Tile& t, const Params& p) "
            "{{\n    return {};\n  }}\n",
            spec::print_cuda_ranges(*expression));
      }
      text += "};\n";
    }
    body_ += text;
    out_.key +=
        fmt::format("{}:{}:{}", custom.trusted ? "trusted" : "expression", text.size(), text);
    return name;
  }

  static bool names_total_row(const CustomCode& custom,
                              const std::optional<spec::Expression>& expression) {
    return expression ? spec::names(*expression, spec::Coord::kTotalRow)
                      : custom.code.find(kTotalRow) != std::string::npos;
  }

  /// Prints what the first function that names total_row calls.
  void define_total_row() {
    if (has_total_row_) return;
    has_total_row_ = true;
    out_.reads_offsets = spec_.ragged;
    // NOTE: `Scalars::`, as a user's parameter may have the same name.
    body_ += fmt::format(
        "\n"
        "template <class Place>\n"
        "__device__ __forceinline__ auto total_row(const Place& at, const Params& p) {{\n"
        "  return row_of_batch(at, {});\n"
        "}}\n",
        spec_.ragged ? "p.Scalars::q_offsets[at.b]" : "expr_mul(at.b, at.q_len)");
  }

  /// NOTE: the body gets a block of its own, so that it may reuse the names of the coordinates; the
  /// braces that close it still count as the snippet's, for that is where a compiler misses a
  /// return.
  std::string trusted_body(const std::string& head, const std::string& signature,
                           const std::string& code, const std::string& code_field) const {
    std::string text = fmt::format(
        "{}  {} {{\n"
        "    [[maybe_unused]] const int b = c.b, h = c.h, kv_h = c.kv_h, q_idx = c.q_idx,\n"
        "                               kv_idx = c.kv_idx, q_row = c.q_row(), q_len = c.q_len,\n"
        "                               kv_len = c.kv_len;\n"
        "{}"
        "    {{\n"
        "#line 1 \"user:{}\"\n{}\n    }}\n  }}\n",
        head, signature,
        code.find(kTotalRow) == std::string::npos
            ? ""
            : "    [[maybe_unused]] const int total_row = attnjit_user::total_row(c, p);\n",
        code_field, code);
    const auto lines = [](std::string_view part) {
      return static_cast<int>(std::count(part.begin(), part.end(), '\n'));
    };
    // The line after the #line itself.
    const int next = first_line_ + lines(kHead) + lines(body_) + lines(text) + 1;
    text += fmt::format("#line {} \"{}\"\n}};\n", next, file_);
    return text;
  }

  std::string unique(std::string name) {
    const std::string base = name;
    for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    return name;
  }

  const AttentionSpec& spec_;
  const spec::Snippets& snippets_;
  std::size_t next_snippet_ = 0;
  const std::vector<spec::SpecScalar> scalars_;
  std::size_t next_scalar_ = 0;
  std::string_view file_;
  int first_line_;
  std::set<std::string> names_;
  bool has_total_row_ = false;
  std::string body_;
  UserCode out_;
};

}  // namespace

UserCode print_user_code(const ResolvedSpec& spec, std::string_view file, int first_line) {
  return Printer(spec, file, first_line).print();
}

}  // namespace attnjit
