// SPDX-License-Identifier: Apache-2.0
// Tests of what useful snippets mean: each is compared with a C++ function of the same meaning.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "interpreted.h"
#include "spec/expression.h"

namespace attnjit::spec {
namespace {

using Type = ParamSpec::Type;

/// The parameters that every case may declare, by name.
struct Values {
  std::vector<std::int32_t> doc{0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
  std::vector<std::int32_t> prefix{5, 3, 0};
  std::vector<std::int32_t> parent{-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7};
  std::vector<std::int32_t> table{1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1};  // 4 x 4
  std::vector<float> bias{0.5F, 0.25F, -0.125F, -1.0F, 2.0F, 0.75F, 3.0F, -4.0F};
  std::vector<float> slopes{0.5F, 0.25F, 0.125F, 0.0625F};
  std::int32_t w = 5;
  std::int32_t n = 3;
  float x = 0.75F;

  ParamView view(const std::string& name) const {
    ParamView made;
    if (name == "w") made.i32 = w;
    if (name == "n") made.i32 = n;
    if (name == "x") made.f32 = x;
    if (name == "doc") made = ints(doc);
    if (name == "prefix") made = ints(prefix);
    if (name == "parent") made = ints(parent);
    if (name == "bias") made = floats(bias);
    if (name == "slopes") made = floats(slopes);
    if (name == "table") {
      made = ints(table);
      made.rows = 4;
      made.columns = 4;
    }
    return made;
  }
  static ParamView ints(const std::vector<std::int32_t>& data) {
    ParamView made;
    made.i32_data = data.data();
    made.rows = static_cast<std::int64_t>(data.size());
    return made;
  }
  static ParamView floats(const std::vector<float>& data) {
    ParamView made;
    made.f32_data = data.data();
    made.rows = static_cast<std::int64_t>(data.size());
    return made;
  }
};

const Values kValues;

Type type_of(const std::string& name) {
  if (name == "w" || name == "n") return Type::kI32;
  if (name == "x") return Type::kF32;
  if (name == "bias" || name == "slopes") return Type::kF32Array;
  if (name == "table") return Type::kI32Matrix;
  return Type::kI32Array;
}

std::vector<ParamSpec> declare(const std::vector<std::string>& names) {
  std::vector<ParamSpec> params;
  for (const std::string& name : names) params.push_back({name, type_of(name)});
  return params;
}

std::vector<ParamView> views(const std::vector<std::string>& names) {
  std::vector<ParamView> all;
  for (const std::string& name : names) all.push_back(kValues.view(name));
  return all;
}

template <class T>
T at(const std::vector<T>& array, std::int64_t i) {
  return i >= 0 && i < static_cast<std::int64_t>(array.size()) ? array[i] : T(0);
}
int table_at(int i, int j) {
  return i >= 0 && i < 4 && j >= 0 && j < 4 ? kValues.table[4 * i + j] : 0;
}

/// Calls `visit` at every place of a small problem whose rows begin before the first key.
void for_each_place(const std::function<void(const Coordinates&)>& visit) {
  for (const int kv_len : {9, 16}) {
    for (const int q_len : {12, 1}) {
      for (int row = 0; row < q_len; ++row) {
        for (int kv = 0; kv < kv_len; ++kv) {
          for (int h = 0; h < 4; ++h) {
            visit({.b = h % 3,
                   .h = h,
                   .kv_h = h / 2,
                   .q_idx = row + kv_len - q_len,
                   .kv_idx = kv,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .first_row = 5 * (h % 3)});
          }
        }
      }
    }
  }
}

struct MaskCase {
  const char* about;
  const char* code;
  std::vector<std::string> params;
  bool (*expected)(const Coordinates&);
};

const std::vector<MaskCase>& masks() {
  using C = Coordinates;
  static const std::vector<MaskCase> cases = {
      {"causal", "kv_idx <= q_idx", {}, [](const C& c) { return c.kv_idx <= c.q_idx; }},
      {"everything", "true", {}, [](const C&) { return true; }},
      {"nothing", "!true || false", {}, [](const C&) { return false; }},
      {"document",
       "p.doc[q_idx] == p.doc[kv_idx]",
       {"doc"},
       [](const C& c) { return at(kValues.doc, c.q_idx) == at(kValues.doc, c.kv_idx); }},
      {"causal document",
       "kv_idx <= q_idx && p.doc[q_idx] == p.doc[kv_idx]",
       {"doc"},
       [](const C& c) {
         return c.kv_idx <= c.q_idx && at(kValues.doc, c.q_idx) == at(kValues.doc, c.kv_idx);
       }},
      {"prefix LM, a length a sequence",
       "kv_idx <= q_idx || kv_idx < p.prefix[b]",
       {"prefix"},
       [](const C& c) { return c.kv_idx <= c.q_idx || c.kv_idx < at(kValues.prefix, c.b); }},
      {"prefix LM, a scalar",
       "kv_idx < p.n || q_idx >= kv_idx",
       {"n"},
       [](const C& c) { return c.kv_idx < 3 || c.q_idx >= c.kv_idx; }},
      {"a row of the batch",
       "p.table[total_row - 9][kv_idx] > p.doc[total_row]",
       {"table", "doc"},
       [](const C& c) {
         const int row = c.q_idx - c.kv_len + c.q_len + c.first_row;
         return table_at(row - 9, c.kv_idx) > at(kValues.doc, row);
       }},
      {"sliding window",
       "kv_idx <= q_idx && q_idx - kv_idx < p.w",
       {"w"},
       [](const C& c) { return c.kv_idx <= c.q_idx && c.q_idx - c.kv_idx < 5; }},
      {"two-sided window",
       "abs(q_idx - kv_idx) <= p.w",
       {"w"},
       [](const C& c) { return std::abs(c.q_idx - c.kv_idx) <= 5; }},
      {"dilated",
       "kv_idx <= q_idx && (q_idx - kv_idx) % p.n == 0",
       {"n"},
       [](const C& c) { return c.kv_idx <= c.q_idx && (c.q_idx - c.kv_idx) % 3 == 0; }},
      {"local and global (attention sinks)",
       "kv_idx <= q_idx && (q_idx - kv_idx < p.w || kv_idx < 2)",
       {"w"},
       [](const C& c) { return c.kv_idx <= c.q_idx && (c.q_idx - c.kv_idx < 5 || c.kv_idx < 2); }},
      {"chunked, by division",
       "q_idx >= kv_idx && q_idx / 4 == kv_idx / 4",
       {},
       [](const C& c) { return c.q_idx >= c.kv_idx && c.q_idx / 4 == c.kv_idx / 4; }},
      {"block-sparse table",
       "p.table[q_idx / 4][kv_idx / 4] != 0",
       {"table"},
       [](const C& c) { return table_at(c.q_idx / 4, c.kv_idx / 4) != 0; }},
      {"block-sparse table by shifts, causal",
       "(p.table[q_idx >> 2][kv_idx >> 2] > 0) & (kv_idx <= q_idx)",
       {"table"},
       [](const C& c) { return table_at(c.q_idx >> 2, c.kv_idx >> 2) > 0 && c.kv_idx <= c.q_idx; }},
      {"tree attention: self, parent, grandparent",
       "kv_idx == q_idx || kv_idx == p.parent[q_idx] || kv_idx == p.parent[p.parent[q_idx]]",
       {"parent"},
       [](const C& c) {
         const int parent = at(kValues.parent, c.q_idx);
         return c.kv_idx == c.q_idx || c.kv_idx == parent || c.kv_idx == at(kValues.parent, parent);
       }},
      {"even heads causal, odd heads local",
       "h % 2 == 0 ? kv_idx <= q_idx : kv_idx <= q_idx && kv_idx > q_idx - 3",
       {},
       [](const C& c) { return c.kv_idx <= c.q_idx && (c.h % 2 == 0 || c.kv_idx > c.q_idx - 3); }},
      {"head mask from bits",
       "((p.w >> h) & 1) != 0",
       {"w"},
       [](const C& c) { return ((5 >> c.h) & 1) != 0; }},
      {"strided and local (sparse transformer)",
       "(kv_idx <= q_idx) && ((q_idx - kv_idx) < 4 || (kv_idx + 1) % 4 == 0)",
       {},
       [](const C& c) {
         return c.kv_idx <= c.q_idx && (c.q_idx - c.kv_idx < 4 || (c.kv_idx + 1) % 4 == 0);
       }},
      {"image grid neighbourhood of width 4",
       "abs(q_idx / 4 - kv_idx / 4) <= 1 && abs(q_idx % 4 - kv_idx % 4) <= 1",
       {},
       [](const C& c) {
         return std::abs(c.q_idx / 4 - c.kv_idx / 4) <= 1 &&
                std::abs(c.q_idx % 4 - c.kv_idx % 4) <= 1;
       }},
      {"the last keys only",
       "kv_idx >= kv_len - p.n",
       {"n"},
       [](const C& c) { return c.kv_idx >= c.kv_len - 3; }},
      {"the first rows see all",
       "q_idx - (kv_len - q_len) < 2 || kv_idx <= q_idx",
       {},
       [](const C& c) { return c.q_idx - (c.kv_len - c.q_len) < 2 || c.kv_idx <= c.q_idx; }},
      {"float threshold that f32 decides",
       "kv_idx * 0.1 <= q_idx * 0.1f",
       {},
       [](const C& c) {
         return static_cast<float>(c.kv_idx) * 0.1F <= static_cast<float>(c.q_idx) * 0.1F;
       }},
      {"exponentially dilated",
       "kv_idx <= q_idx && ((q_idx - kv_idx) & (q_idx - kv_idx - 1)) == 0",
       {},
       [](const C& c) {
         const int d = c.q_idx - c.kv_idx;
         return d >= 0 && (d & (d - 1)) == 0;
       }},
      {"xor of booleans",
       "(kv_idx <= q_idx) ^ (kv_h == 1)",
       {},
       [](const C& c) { return (c.kv_idx <= c.q_idx) != (c.kv_h == 1); }},
      {"int used as condition",
       "q_idx % 2 ? kv_idx <= q_idx : (bool)(kv_idx & 1)",
       {},
       [](const C& c) { return c.q_idx % 2 != 0 ? c.kv_idx <= c.q_idx : (c.kv_idx & 1) != 0; }},
      {"logic of ints",
       "(q_idx & 4) && !(kv_idx & 2)",
       {},
       [](const C& c) { return (c.q_idx & 4) != 0 && (c.kv_idx & 2) == 0; }},
  };
  return cases;
}

TEST(UsefulMasks, EachMeansWhatItSays) {
  for (const MaskCase& mask : masks()) {
    const Result<Expression> parsed =
        parse_expression(mask.code, SnippetKind::kMask, declare(mask.params));
    ASSERT_TRUE(parsed) << mask.about << ": " << parsed.error().to_string();
    Evaluator evaluator(*parsed, views(mask.params));
    const Interpreted interpreted(*parsed, views(mask.params));
    int wrong = 0, wrongly_interpreted = 0;
    for_each_place([&](const Coordinates& c) {
      wrong += evaluator.visible(c) != mask.expected(c) ? 1 : 0;
      wrongly_interpreted += interpreted.visible(c) != mask.expected(c) ? 1 : 0;
    });
    EXPECT_EQ(wrong, 0) << mask.about;
    EXPECT_EQ(wrongly_interpreted, 0) << mask.about;
  }
}

struct ScoreCase {
  const char* about;
  const char* code;
  std::vector<std::string> params;
  double (*expected)(const Coordinates&, double);
};

const std::vector<ScoreCase>& scores() {
  using C = Coordinates;
  static const std::vector<ScoreCase> cases = {
      {"identity", "score", {}, [](const C&, double s) { return s; }},
      {"a constant int", "3", {}, [](const C&, double) { return 3.0; }},
      {"soft cap",
       "30.0f * tanh(score / 30.0f)",
       {},
       [](const C&, double s) { return 30.0 * std::tanh(s / 30.0); }},
      {"soft cap with a parameter",
       "p.x * tanh(score / p.x)",
       {"x"},
       [](const C&, double s) { return 0.75 * std::tanh(s / 0.75); }},
      {"ALiBi by hand",
       "score - exp2(-8.0f * (h + 1) / 4) * abs(q_idx - kv_idx)",
       {},
       [](const C& c, double s) {
         return s - std::exp2(-8.0 * (c.h + 1) / 4) * std::abs(c.q_idx - c.kv_idx);
       }},
      {"ALiBi with slopes",
       "score - p.slopes[h] * (q_idx - kv_idx)",
       {"slopes"},
       [](const C& c, double s) {
         return s - static_cast<double>(at(kValues.slopes, c.h)) * (c.q_idx - c.kv_idx);
       }},
      {"relative bias table",
       "score + p.bias[q_idx - kv_idx + 3]",
       {"bias"},
       [](const C& c, double s) {
         return s + static_cast<double>(at(kValues.bias, c.q_idx - c.kv_idx + 3));
       }},
      {"clamped relative bias",
       "score + p.bias[max(0, min(7, q_idx - kv_idx + 3))]",
       {"bias"},
       [](const C& c, double s) {
         return s + static_cast<double>(
                        at(kValues.bias, std::max(0, std::min(7, c.q_idx - c.kv_idx + 3))));
       }},
      {"log bucket bias (T5)",
       "score + p.bias[(int)log2f((float)(abs(q_idx - kv_idx) + 1))]",
       {"bias"},
       [](const C& c, double s) {
         const auto bucket = static_cast<int>(std::log2(std::abs(c.q_idx - c.kv_idx) + 1.0));
         return s + static_cast<double>(at(kValues.bias, bucket));
       }},
      {"a penalty by ?:",
       "q_idx == kv_idx ? score - 10.0 : score",
       {},
       [](const C& c, double s) { return c.q_idx == c.kv_idx ? s - 10.0 : s; }},
      {"scaled by length",
       "score * log((float)kv_len) / logf(16.0f)",
       {},
       [](const C& c, double s) {
         return s * std::log(static_cast<double>(c.kv_len)) / std::log(16.0);
       }},
      {"clamp",
       "fmaxf(-1.0f, fminf(score, 1.0f))",
       {},
       [](const C&, double s) { return std::max(-1.0, std::min(s, 1.0)); }},
      {"int beside float",
       "score + h / 2 + 1 / 2.0f",
       {},
       [](const C& c, double s) { return s + c.h / 2 + 0.5; }},
      {"bool in arithmetic",
       "score + (kv_idx > q_idx) * 2",
       {},
       [](const C& c, double s) { return s + (c.kv_idx > c.q_idx ? 2 : 0); }},
      {"decay",
       "score - 0.1f * pow((float)abs(q_idx - kv_idx), 0.5f)",
       {},
       [](const C& c, double s) {
         return s - static_cast<double>(0.1F) * std::sqrt(std::abs(c.q_idx - c.kv_idx));
       }},
      {"every function",
       "sin(score) + cos(score) + sqrt(abs(score)) + rsqrt(1 + fabs(score)) + floor(score) + "
       "ceil(score) + trunc(score) + round(score) + exp(-abs(score)) + log(1 + abs(score)) + "
       "erf(score) + fma(score, 2, 1) + fmod(score, 3) + fmin(score, 0.5) + fmax(score, 0.25)",
       {},
       [](const C&, double s) {
         return std::sin(s) + std::cos(s) + std::sqrt(std::fabs(s)) +
                1 / std::sqrt(1 + std::fabs(s)) + std::floor(s) + std::ceil(s) + std::trunc(s) +
                std::round(s) + std::exp(-std::fabs(s)) + std::log(1 + std::fabs(s)) + std::erf(s) +
                (2 * s + 1) + std::fmod(s, 3) + std::fmin(s, 0.5) + std::fmax(s, 0.25);
       }},
  };
  return cases;
}

TEST(UsefulScoreMods, EachMeansWhatItSays) {
  for (const ScoreCase& mod : scores()) {
    const Result<Expression> parsed =
        parse_expression(mod.code, SnippetKind::kScoreMod, declare(mod.params));
    ASSERT_TRUE(parsed) << mod.about << ": " << parsed.error().to_string();
    Evaluator evaluator(*parsed, views(mod.params));
    const Interpreted interpreted(*parsed, views(mod.params));
    for_each_place([&](const Coordinates& c) {
      for (const double score : {-7.3, -0.6, 0.0, 0.4, 2.9, 11.7}) {
        const double expected = mod.expected(c, score);
        ASSERT_NEAR(evaluator.score(c, score), expected, 1e-6 * (1 + std::fabs(expected)))
            << mod.about << " at q " << c.q_idx << " kv " << c.kv_idx << " h " << c.h;
        const float given = static_cast<float>(score);
        ASSERT_NEAR(static_cast<double>(interpreted.score(c, given)), expected,
                    3e-5 * (1 + std::fabs(expected)))
            << mod.about << ", interpreted";
      }
    });
  }
}

TEST(UsefulSnippets, ThereAreEnough) { EXPECT_GE(masks().size() + scores().size(), 30U); }

// --- the meanings that C leaves open -------------------------------------------------------------

/// NOTE: the evaluator computes in double what depends on the score.
enum class Rounds { kAsTheKernel, kLess };

double value_of(const std::string& code, Rounds rounds = Rounds::kLess) {
  const Result<Expression> parsed =
      parse_expression(code, SnippetKind::kScoreMod, declare({"w", "x", "doc", "table", "bias"}));
  EXPECT_TRUE(parsed) << code << ": " << (parsed ? "" : parsed.error().to_string());
  if (!parsed) return std::nan("");
  Evaluator evaluator(*parsed, views({"w", "x", "doc", "table", "bias"}));
  const Coordinates at{.b = 0,
                       .h = -7,
                       .kv_h = 2,
                       .q_idx = std::numeric_limits<int>::min(),
                       .kv_idx = std::numeric_limits<int>::max(),
                       .q_len = 0,
                       .kv_len = -1};
  const double value = evaluator.score(at, 1.5);
  if (rounds == Rounds::kAsTheKernel) {
    const Interpreted interpreted(*parsed, views({"w", "x", "doc", "table", "bias"}));
    EXPECT_FLOAT_EQ(interpreted.score(at, 1.5F), static_cast<float>(value)) << code;
  }
  return value;
}

TEST(Meanings, AreThoseOfTheDesign) {
  struct Case {
    const char* code;
    double value;
  };
  // Here h is -7, q_idx INT_MIN, kv_idx INT_MAX, q_len 0, kv_len -1, b 0, score 1.5.
  const Case cases[] = {
      {"h / 2", -3},
      {"h % 2", -1},
      {"h % -4", -3},
      {"7 / q_len", 0},
      {"7 % q_len", 0},
      {"q_idx / kv_len", -2147483648.0},
      {"q_idx % kv_len", 0},
      {"q_idx % -1", 0},
      {"kv_idx + 1", -2147483648.0},
      {"q_idx - 1", 2147483647.0},
      {"-q_idx", -2147483648.0},
      {"abs(q_idx)", -2147483648.0},
      {"kv_idx * 2", -2},
      {"1 << (q_len + 33)", 2},
      {"1 << kv_len", -2147483648.0},
      {"h >> 1", -4},
      {"h >> (q_len + 32)", -7},
      {"1 << 31", -2147483648.0},
      {"-2147483648", -2147483648.0},
      {"- 2147483648 + 1", -2147483647.0},
      {"(int)(score * 1e30f)", 2147483647.0},
      {"(int)(score * -1e30f)", -2147483648.0},
      {"(int)(sqrt(-score))", 0},
      {"(int)-1.9f", -1},
      {"int(1.9f) + int(score)", 2},
      {"(int)(float)kv_idx", 2147483647.0},
      {"(float)16777217", 16777216},
      {"(bool)score + (bool)q_len + bool(0.25)", 2},
      {"p.doc[-1] + p.doc[16] + p.doc[q_idx] + p.doc[kv_idx]", 0},
      {"p.doc[15]", 4},
      {"p.table[0][4] + p.table[1][-1] + p.table[-1][5] + p.table[4][0]", 0},
      {"p.table[3][3]", 1},
      {"p.bias[q_idx] + p.bias[7]", -4},
      {"p.doc[true]", 0},
      {"true + true", 2},
      {"-true", -1},
      {"+true", 1},
      {"(true & true) + (true | false) + (true ^ true)", 2},
      {"(true & 3) + (2 | false)", 3},
      {"~5", -6},
      {"!0.5f + !0 + !q_len", 2},
      {"1 ? 2 : 3.5", 2},
      {"0 ? 2 : 3.5", 3.5},
      {"1 - 2 - 3", -4},
      {"2 + 3 * 4 % 5", 4},
      {"1 | 2 ^ 3 & 5", 3},
      {"1 < 2 == 1", 1},
      {"(1 ? 0 : 1) ? 5 : 0 ? 6 : 7", 7},
      {"0x1F + 0XaB", 202},
      {"1e2 + .5 + 5. + 1.5e-1f", 105.65000000596046},
      {"0xE+1", 15},
      {"min(1, 2.5) + max(true, false)", 2},
      {"fmin(sqrt(-score), 4) + fmax(5, sqrt(-score))", 9},
      {"1.17549435e-38 > 0 ? 1 : 2", 1},
      {"1e-60 == 0 ? 1 : 2", 1},
      {"p . w\n+\tp.w", 10},
      {"q_idx - 1 == 2147483647", 1},
      {"(int)(float)kv_idx == 2147483647", 1},
      {"-2147483648 + 1 == -2147483647", 1},
      {"(u32)-1", 4294967295.0},
      {"u32(1) - 2 > 0", 1},
      {"(u32)h >> 31", 1},
      {"h >> (u32)31", -1},
      {"(u32)-7 / 2 == 2147483644", 1},
      {"(u32)7 % (u32)q_len + (u32)7 / (u32)q_len", 0},
      {"-1 < (u32)1", 0},
      {"min((u32)1, -1)", 1},
      {"max((u32)1, -1)", 4294967295.0},
      {"abs((u32)-1)", 4294967295.0},
      {"-(u32)1", 4294967295.0},
      {"~(u32)0", 4294967295.0},
      {"(u32)1 << 33 - q_len", 2},
      {"(u32)(score * 1e30f)", 4294967295.0},
      {"(u32)-score", 0},
      {"(u32)sqrt(-score)", 0},
      {"(int)(u32)-5", -5},
      {"(float)(u32)-1", 4294967296.0},
      {"(u32)65536 * 65537", 65536},
      {"(1 ? (u32)-1 : 0) > 0", 1},
      {"p.doc[(u32)15] + p.doc[(u32)-1]", 4},
  };
  for (const Case& one : cases) {
    // An int result becomes an f32.
    EXPECT_EQ(
        static_cast<float>(value_of("(" + std::string(one.code) + ") + 0", Rounds::kAsTheKernel)),
        static_cast<float>(one.value))
        << one.code;
  }
}

TEST(Meanings, WhatDoesNotDependOnTheScoreRoundsToF32) {
  // In double, ten times the f32 nearest to 0.1 is above 1.
  EXPECT_EQ(value_of("10 * (p.x + 0.1f - p.x) <= 1 ? 1 : 2", Rounds::kAsTheKernel), 2);
  EXPECT_EQ(value_of("(b + 10) * 0.1f <= 1 ? 1 : 2", Rounds::kAsTheKernel), 1);
  EXPECT_EQ(value_of("score + 1e-9f - score"), 1.5 + static_cast<double>(1e-9F) - 1.5);
  EXPECT_EQ(value_of("p.x + 1e-9f - p.x", Rounds::kAsTheKernel), 0);
}

TEST(Evaluator, MissingParametersAndEmptyArraysReadZero) {
  const Result<Expression> parsed = parse_expression(
      "p.doc[0] + p.w + p.table[0][0] == 0", SnippetKind::kMask, declare({"doc", "w", "table"}));
  ASSERT_TRUE(parsed);
  Evaluator evaluator(*parsed, {});
  EXPECT_TRUE(evaluator.visible({}));
}

// --- printing ------------------------------------------------------------------------------------

TEST(PrintCuda, PrintsWhatTheTemplatesDefine) {
  struct Case {
    const char* code;
    const char* printed;
    SnippetKind kind = SnippetKind::kMask;
  };
  const Case cases[] = {
      {"kv_idx<=q_idx", "(c.kv_idx <= c.q_idx)"},
      {"p.doc[q_idx] == p.doc[kv_idx]", "(array_at(p.doc, c.q_idx) == array_at(p.doc, c.kv_idx))"},
      {"p.table[b][h]", "(matrix_at(p.table, c.b, c.h) != 0)"},
      {"(bool)(q_idx + 1)", "(expr_add(c.q_idx, 1) != 0)"},
      {"q_idx - p.w < kv_idx", "(expr_sub(c.q_idx, p.w) < c.kv_idx)"},
      {"-q_idx / 2 % 3 * 4 << 1 >> 2 == -2147483648",
       "(expr_shr(expr_shl(expr_mul(expr_mod(expr_div(expr_neg(c.q_idx), 2), 3), 4), 1), 2) == "
       "(-2147483647 - 1))"},
      {"(q_idx & ~1 | 2 ^ 3) != 0", "(((c.q_idx & (~1)) | (2 ^ 3)) != 0)"},
      {"(h == 1) & (b == 1) | !(h == 2) ^ true",
       "(((c.h == 1) & (c.b == 1)) | ((!(c.h == 2)) != true))"},
      // Both sides of && are computed: no score has a branch.
      {"h == 1 && b == 1 || h == 2", "(((c.h == 1) & (c.b == 1)) | (c.h == 2))"},
      {"p.x * kv_idx + 1 > 2", "((expr_mul(p.x, to_f32(c.kv_idx)) + to_f32(1)) > to_f32(2))"},
      {"-score * 0.1 - +1e20f / score", "(((-score) * 0.1f) - (1e+20f / score))",
       SnippetKind::kScoreMod},
      {"h > 1 ? score : 2", "((c.h > 1) ? score : to_f32(2))", SnippetKind::kScoreMod},
      {"tanhf(score) + min(h, 2) + abs(score)",
       "((expr_tanh(score) + to_f32(expr_min(c.h, 2))) + expr_abs(score))", SnippetKind::kScoreMod},
      {"((u32)h >> 3 & 5) / (u32)2 != -1",
       "(expr_div((expr_shr(to_u32(c.h), to_u32(3)) & to_u32(5)), to_u32(2)) != "
       "to_u32(expr_neg(1)))"},
      {"score + (int)score + 16777216.0", "((score + to_f32(to_i32(score))) + 16777216.0f)",
       SnippetKind::kScoreMod},
  };
  for (const Case& one : cases) {
    std::string code = one.code;
    if (code == "p.table[b][h]") code = "(bool)" + code;
    const Result<Expression> parsed =
        parse_expression(code, one.kind, declare({"doc", "w", "x", "table"}));
    ASSERT_TRUE(parsed) << code << ": " << parsed.error().to_string();
    EXPECT_EQ(print_cuda(*parsed), one.printed) << code;
  }
}

TEST(PrintCuda, FloatLiteralsReadBackAsTheSameValue) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(random()) & 0x7fffffffU;
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    char text[64];
    std::snprintf(text, sizeof(text), "%.9ef + score", static_cast<double>(value));
    const Result<Expression> parsed = parse_expression(text, SnippetKind::kScoreMod, {});
    ASSERT_TRUE(parsed) << text << parsed.error().to_string();
    const std::string printed = print_cuda(*parsed);
    EXPECT_EQ(std::strtof(printed.c_str() + 1, nullptr), value) << text << " " << printed;
  }
}

}  // namespace
}  // namespace attnjit::spec
