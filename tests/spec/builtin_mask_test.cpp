// SPDX-License-Identifier: Apache-2.0
// Which expressions are built-in masks, and that what is said of triangles holds for every score.
#include "spec/builtin.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "../in_proof.h"
#include "../sanitized.h"
#include "spec/triangle_values.h"

namespace attnjit::spec {
namespace {

using Kind = MaskSpec::Kind;

Expression parsed(const std::string& code) {
  const Result<Expression> made = parse_expression(code, SnippetKind::kMask, {});
  EXPECT_TRUE(made) << code << ": " << (made ? "" : made.error().to_string());
  return made ? *made : *parse_expression("h == 3", SnippetKind::kMask, {});
}

TEST(BuiltinMask, CausalInAnySpelling) {
  for (const char* code : {"kv_idx <= q_idx",
                           "(q_idx) >= kv_idx",
                           "kv_idx < q_idx + 1",
                           "q_idx - kv_idx >= 0",
                           "q_idx - kv_idx > -1",
                           "!(kv_idx > q_idx)",
                           "2 * q_idx + 1 >= kv_idx * 2",
                           "kv_idx - q_idx <= 0 && kv_idx >= 0",
                           "kv_idx <= q_idx && q_idx < kv_len",
                           "kv_idx <= q_idx && kv_idx < kv_len && q_row >= 0",
                           "kv_idx > q_idx ? false : true",
                           "kv_idx <= q_row + (kv_len - q_len)",
                           "q_row - q_len >= kv_idx - kv_len",
                           "max(kv_idx, q_idx) == q_idx",
                           "min(q_idx, kv_idx) == kv_idx",
                           "abs(q_idx - kv_idx) == q_idx - kv_idx",
                           "(kv_idx <= q_idx) & (kv_idx < kv_len)",
                           "kv_idx <= q_idx || kv_len < q_len && kv_idx < 0",
                           "(kv_idx > q_idx) == false",
                           "int(kv_idx > q_idx) == 0",
                           "(kv_idx > q_idx) ^ true",
                           "-q_idx <= -kv_idx"}) {
    EXPECT_EQ(builtin_mask(parsed(code)), Kind::kCausal) << code;
  }
}

TEST(BuiltinMask, NullWhereEveryKeyIsSeen) {
  for (const char* code :
       {"true", "kv_idx >= 0", "kv_idx > -1 || q_idx / 3 == h", "kv_idx < 2147483647",
        "kv_idx < kv_len", "q_len > 0", "q_idx < kv_len", "kv_idx <= q_idx || kv_idx > q_idx",
        "q_row < q_len && kv_idx - kv_len < 0", "kv_idx * 2 + 1 > kv_idx", "(kv_idx & 7) < 8",
        "q_idx - kv_idx < kv_len", "q_idx - q_row == kv_len - q_len"}) {
    EXPECT_EQ(builtin_mask(parsed(code)), Kind::kNull) << code;
  }
}

TEST(BuiltinMask, NoneWhereAScoreMayDiffer) {
  for (const char* code :
       {"kv_idx < q_idx", "q_idx <= kv_idx", "q_row >= kv_idx", "q_idx >= 0", "kv_idx >= 1",
        "false", "b >= 0", "max(q_idx, 0) >= kv_idx", "kv_idx <= q_idx && q_idx < 1073741823",
        "kv_idx <= q_idx && kv_len < 1073741824", "kv_idx <= q_idx || q_len == 1073741824",
        "kv_idx <= abs(q_idx)", "kv_idx <= q_idx && kv_len > 1", "kv_idx <= q_idx + h",
        // These wrap, or may.
        "kv_idx + 2147483647 >= 0", "kv_idx * 2 + 2 > kv_idx", "kv_idx * 4 <= q_idx * 4",
        "kv_len + q_len > 0", "kv_len * 2 > 0", "float(kv_idx) <= float(q_idx)",
        "u32(kv_idx) <= u32(q_idx)"}) {
    EXPECT_EQ(builtin_mask(parsed(code)), std::nullopt) << code;
  }
}

/// Random masks of sums of positions and lengths, and random scores of either triangle.
class Masks {
 public:
  std::string sum() {
    constexpr std::array kNames{"kv_idx", "q_idx", "q_row", "kv_len", "q_len"};
    std::string text = std::to_string(below(7) - 3);
    for (int i = 1 + below(3); i > 0; --i) {
      text += below(2) == 0 ? " + " : " - ";
      if (below(4) == 0) text += std::to_string(1 + below(3)) + " * ";
      text += kNames[static_cast<std::size_t>(below(5))];
    }
    switch (below(8)) {
      case 0:
        return "abs(" + text + ")";
      case 1:
        return "min(" + text + ", kv_idx)";
      case 2:
        return "max(q_idx, " + text + ")";
      default:
        return text;
    }
  }
  std::string test() {
    constexpr std::array kOps{"<", "<=", ">", ">=", "==", "!="};
    return "(" + sum() + " " + kOps[static_cast<std::size_t>(below(6))] + " " + sum() + ")";
  }
  std::string mask(int depth) {
    if (depth == 0) return below(3) == 0 ? "(kv_idx <= q_idx)" : test();
    const std::string a = mask(depth - 1), b = mask(depth - 1);
    switch (below(6)) {
      case 0:
        return "(" + a + " && " + b + ")";
      case 1:
        return "(" + a + " || " + b + ")";
      case 2:
        return "(" + a + " ^ " + b + ")";
      case 3:
        return "!" + a;
      case 4:
        return "(" + a + " ? " + b + " : " + mask(depth - 1) + ")";
      default:
        return a;
    }
  }

  Coordinates score(Triangle triangle) {
    Coordinates at;
    do {
      at.q_len = length();
      at.kv_len = length();
      const std::int32_t row = position(at.q_len);
      at.q_idx = row + at.kv_len - at.q_len;
      at.kv_idx = position(at.kv_len);
      if (below(2) == 0) {  // near the diagonal
        const std::int32_t near = at.q_idx + below(3) - 1;
        if (near >= 0 && near < at.kv_len) at.kv_idx = near;
      }
    } while ((at.kv_idx <= at.q_idx) != (triangle == Triangle::kSeen));
    return at;
  }

 private:
  std::int32_t below(std::int32_t n) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(n));
  }
  std::int32_t length() {
    switch (below(4)) {
      case 0:
        return kMostLength - below(3);
      case 1:
        return 1 + below(kMostLength);
      default:
        return 1 + below(6);
    }
  }
  std::int32_t position(std::int32_t length) {
    switch (below(3)) {
      case 0:
        return 0;
      case 1:
        return length - 1;
      default:
        return below(length);
    }
  }

  std::mt19937 random_{12};
};

TEST(BuiltinMask, WhatIsSaidOfTrianglesHoldsForTheirScores) {
  Masks masks;
  const int count = proof::in_proof() ? 200000 : kSanitized ? 1500 : 6000;
  int decided = 0, sharp = 0;
  for (int n = 0; n < count; ++n) {
    const std::string code = masks.mask(n % 3);
    const Result<Expression> mask = parse_expression(code, SnippetKind::kMask, {});
    if (!mask) continue;  // two comparisons of which C would warn
    Evaluator evaluator(*mask, {});
    for (const Triangle triangle : {Triangle::kSeen, Triangle::kHidden}) {
      const std::optional<bool> said = value_in(*mask, triangle);
      std::array<bool, 2> met{};
      for (int i = 0; i < 60; ++i) {
        const Coordinates at = masks.score(triangle);
        const bool visible = evaluator.visible(at);
        met[visible ? 1 : 0] = true;
        ASSERT_TRUE(!said || *said == visible)
            << code << " at q_idx " << at.q_idx << ", kv_idx " << at.kv_idx << ", q_len "
            << at.q_len << ", kv_len " << at.kv_len;
      }
      decided += said ? 1 : 0;
      sharp += met[0] != met[1] ? 1 : 0;
    }
  }
  // Of those that no score contradicts most are decided: the others are of operands that may wrap.
  EXPECT_GT(decided, count / 4);
  EXPECT_GT(decided, sharp / 2);
}

}  // namespace
}  // namespace attnjit::spec
