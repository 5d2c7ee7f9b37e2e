// SPDX-License-Identifier: Apache-2.0
// The reference against a second, naive implementation and against cases worked out by hand: one
// test for each meaning of docs/spec.md.
#include "verify/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "verify/gemm.h"
#include "verify/mask_and_score_mod.h"
#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Where {
  int b, h, kv_h, q_idx, kv_idx, q_len, kv_len, row;
};
using Sees = std::function<bool(const Where&)>;
using Mod = std::function<double(double, const Where&)>;

bool everything(const Where&) { return true; }
double unchanged(double score, const Where&) { return score; }

AttentionSpec small(int heads = 4, int group = 2, int depth = 64) {
  AttentionSpec spec;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = depth;
  spec.return_lse = true;
  return spec;
}

ProblemRequest shapes(std::vector<std::int64_t> q, std::vector<std::int64_t> kv,
                      InputKind input = InputKind::kNormal) {
  ProblemRequest request;
  request.q_lens = std::move(q);
  request.kv_lens = std::move(kv);
  request.seed = 11;
  request.input = input;
  return request;
}

// Two passes, no blocks, its own addressing of pages and sequences.
Reference naive(const Problem& p, const Sees& sees, const Mod& mod) {
  const AttentionSpec& s = p.spec;
  Reference out;
  const int kv_heads = s.num_q_heads / s.group;
  std::int64_t base = 0;
  std::int64_t rows = 0;
  for (const int length : p.q_lens) rows += length;
  out.o.assign(static_cast<std::size_t>(rows * s.num_q_heads * s.ov_depth), 0);
  out.lse.assign(static_cast<std::size_t>(rows * s.num_q_heads), 0);
  const Tensor q = widened(p.at("q")), k = widened(p.at("k")), v = widened(p.at("v"));
  const float *q_at = q.as<float>(), *k_at = k.as<float>(), *v_at = v.as<float>();
  const auto tensor_scale = [&](const char* name, int b, int heads, int head) {
    if (s.scales == Scales::kNone) return 1.0;
    return double{p.at(name).as<float>()[s.scales == Scales::kHead ? b * heads + head : 0]};
  };
  for (int b = 0; b < p.batch; ++b) {
    const int q_len = p.q_lens[b];
    const int kv_len = p.kv_lens[b];
    for (int row = 0; row < q_len; ++row) {
      for (int h = 0; h < s.num_q_heads; ++h) {
        const int kv_h = h / s.group;
        std::vector<double> scores(static_cast<std::size_t>(kv_len), kMinusInfinity);
        const auto key_row = [&](int j) -> std::int64_t {
          if (s.page_size == 0) return std::int64_t{b} * p.max_kv_len + j;
          const int page = p.at("page_table").as<std::int32_t>()[b * p.max_pages + j / s.page_size];
          return std::int64_t{page} * s.page_size + j % s.page_size;
        };
        double maximum = kMinusInfinity;
        for (int j = 0; j < kv_len; ++j) {
          const Where at{b, h, kv_h, row + kv_len - q_len, j, q_len, kv_len, row};
          if (!sees(at)) continue;
          double dot = 0;
          const float* q_row = q_at + ((base + row) * s.num_q_heads + h) * s.qk_depth;
          const float* k_row = k_at + (key_row(j) * kv_heads + kv_h) * s.qk_depth;
          for (int d = 0; d < s.qk_depth; ++d) dot += double{q_row[d]} * double{k_row[d]};
          dot *= double{p.scale} * tensor_scale("q_scale", b, s.num_q_heads, h) *
                 tensor_scale("k_scale", b, kv_heads, kv_h);
          scores[j] = mod(dot, at);
          maximum = std::max(maximum, scores[j]);
        }
        double sum = 0;
        if (s.sink) {
          const double sink = p.at("sink").as<float>()[h];
          maximum = std::max(maximum, sink);
          sum = std::exp(sink - maximum);
        }
        const double without = sum;
        for (int j = 0; j < kv_len; ++j) {
          if (scores[j] != kMinusInfinity) sum += std::exp(scores[j] - maximum);
        }
        double* o = &out.o[((base + row) * s.num_q_heads + h) * s.ov_depth];
        for (int j = 0; j < kv_len; ++j) {
          if (scores[j] == kMinusInfinity) continue;
          const double weight =
              std::exp(scores[j] - maximum) / sum * tensor_scale("v_scale", b, kv_heads, kv_h);
          const float* v_row = v_at + (key_row(j) * kv_heads + kv_h) * s.ov_depth;
          for (int d = 0; d < s.ov_depth; ++d) o[d] += weight * double{v_row[d]};
        }
        const double counted = s.lse_includes_sink ? sum : sum - without;
        const double lse = counted > 0 ? maximum + std::log(counted) : kMinusInfinity;
        const std::int64_t index =
            s.ragged ? h * rows + base + row : (std::int64_t{b} * s.num_q_heads + h) * q_len + row;
        out.lse[index] = lse;
      }
    }
    base += q_len;
  }
  return out;
}

void expect_equal(const Reference& got, const Reference& want) {
  ASSERT_EQ(got.o.size(), want.o.size());
  ASSERT_EQ(got.lse.size(), want.lse.size());
  for (std::size_t i = 0; i < got.o.size(); ++i) {
    ASSERT_NEAR(got.o[i], want.o[i], 1e-10) << "o element " << i;
  }
  for (std::size_t i = 0; i < got.lse.size(); ++i) {
    if (want.lse[i] == kMinusInfinity) {
      ASSERT_EQ(got.lse[i], kMinusInfinity) << "lse " << i;
    } else {
      ASSERT_NEAR(got.lse[i], want.lse[i], 1e-9) << "lse " << i;
    }
  }
}

void check(const AttentionSpec& spec, const ProblemRequest& request, const Sees& sees = everything,
           const Mod& mod = unchanged) {
  Result<Problem> problem = make_problem(spec, request);
  ASSERT_TRUE(problem.ok()) << problem.error().to_string();
  Result<Reference> reference = compute_reference(*problem, 2);
  ASSERT_TRUE(reference.ok()) << reference.error().to_string();
  expect_equal(*reference, naive(*problem, sees, mod));
}

TEST(Gemm, AgreesWithThreeLoops) {
  for (const auto& [m, n, k] : {std::array{1, 1, 1}, std::array{4, 8, 5}, std::array{7, 19, 33},
                                std::array{64, 64, 128}, std::array{3, 64, 2}}) {
    std::vector<double> a, b, c, want;
    for (int i = 0; i < m * k; ++i) a.push_back(std::sin(i));
    for (int i = 0; i < k * n; ++i) b.push_back(std::cos(i));
    for (int i = 0; i < m * n; ++i) c.push_back(i);
    want = c;
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        for (int p = 0; p < k; ++p) want[i * n + j] += a[i * k + p] * b[p * n + j];
      }
    }
    gemm_add(m, n, k, a.data(), k, b.data(), n, c.data(), n);
    for (int i = 0; i < m * n; ++i) ASSERT_NEAR(c[i], want[i], 1e-11);
  }
}

TEST(Reference, NullMaskInEveryInputAndDtype) {
  for (const InputKind input : kInputKinds) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3}) {
      AttentionSpec spec = small();
      spec.qkv_dtype = dtype;
      if (dtype == Dtype::kE4m3) spec.scales = Scales::kHead;
      check(spec, shapes({37}, {150}, input));
    }
  }
}

TEST(Reference, OneKeyIsItsValue) {
  const Problem problem = make_problem(small(2, 1), shapes({1}, {1})).value();
  const Reference reference = compute_reference(problem).value();
  for (int i = 0; i < 128; ++i) EXPECT_EQ(reference.o[i], load_float(problem.at("v"), i));
  double dot = 0;
  for (int d = 0; d < 64; ++d) {
    dot += double{load_float(problem.at("q"), d)} * double{load_float(problem.at("k"), d)};
  }
  EXPECT_NEAR(reference.lse[0], dot * 0.125, 1e-12);
}

TEST(Reference, EqualScoresGiveTheMean) {
  Problem problem = make_problem(small(1, 1), shapes({1}, {3})).value();
  Tensor& q = problem.tensors["q"];
  for (int d = 0; d < 64; ++d) store_float(q, d, 0);
  const Reference reference = compute_reference(problem).value();
  for (int d = 0; d < 64; ++d) {
    double mean = 0;
    for (int j = 0; j < 3; ++j) mean += load_float(problem.at("v"), j * 64 + d) / 3.0;
    EXPECT_NEAR(reference.o[d], mean, 1e-12);
  }
  EXPECT_NEAR(reference.lse[0], std::log(3.0), 1e-12);
}

TEST(Reference, CausalIsAlignedAtTheEnd) {
  AttentionSpec spec = small();
  spec.mask.kind = MaskSpec::Kind::kCausal;
  for (const auto& [q, kv] : {std::pair{70, 70}, std::pair{5, 130}, std::pair{1, 65}}) {
    check(spec, shapes({q}, {kv}),
          [](const Where& at) { return at.kv_idx <= at.row + at.kv_len - at.q_len; });
  }
}

TEST(Reference, RowsBeforeTheFirstKey) {
  // q_len 5, kv_len 3: rows 0 and 1 have q_idx -2 and -1.
  AttentionSpec spec = small(2, 1);
  const Problem null = make_problem(spec, shapes({5}, {3})).value();
  const Reference every = compute_reference(null).value();
  for (const double lse : every.lse) EXPECT_TRUE(std::isfinite(lse));
  check(spec, shapes({5}, {3}));

  spec.mask.kind = MaskSpec::Kind::kCausal;
  const Problem causal = make_problem(spec, shapes({5}, {3})).value();
  const Reference reference = compute_reference(causal).value();
  for (int row = 0; row < 5; ++row) {
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(reference.lse[h * 5 + row] == kMinusInfinity, row < 2);
      EXPECT_EQ(reference.o[(row * 2 + h) * 64] == 0, row < 2);
    }
  }
}

TEST(Reference, SlidingWindow) {
  AttentionSpec spec = small();
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  for (const int window : {1, 7, 64, 500}) {
    spec.mask.window = window;
    check(spec, shapes({90}, {200}),
          [&](const Where& at) { return at.q_idx - window < at.kv_idx && at.kv_idx <= at.q_idx; });
  }
  const auto sides = [&](int left, int right) {
    spec.mask.window = left;
    spec.mask.window_right = right;
    check(spec, shapes({30}, {70}), [&](const Where& at) {
      return (left == -1 || at.q_idx - left < at.kv_idx) &&
             (right == -1 || at.kv_idx <= at.q_idx + right);
    });
  };
  sides(7, 5);
  sides(-1, 5);
  sides(7, -1);
  sides(-1, 0);
  sides(-1, -1);
  spec.mask.window_right = 0;
  // A window of one key sees exactly that key.
  spec.mask.window = 1;
  const Problem problem = make_problem(spec, shapes({1}, {9})).value();
  const Reference reference = compute_reference(problem).value();
  EXPECT_EQ(reference.o[0], load_float(problem.at("v"), 8 * 2 * 64));
}

TEST(Reference, ChunkIsTheFloor) {
  EXPECT_EQ(floor_divide(-1, 4), -1);
  EXPECT_EQ(floor_divide(-4, 4), -1);
  EXPECT_EQ(floor_divide(-5, 4), -2);
  EXPECT_EQ(floor_divide(3, 4), 0);
  AttentionSpec spec = small();
  spec.mask.kind = MaskSpec::Kind::kChunked;
  spec.mask.chunk = 16;
  check(spec, shapes({40}, {100}), [](const Where& at) { return at.q_idx / 16 == at.kv_idx / 16; });
  // Rows with q_idx -1 to -3 are in chunk -1 and see nothing; truncation would give them chunk 0.
  spec.mask.chunk = 4;
  const Problem problem = make_problem(spec, shapes({8}, {5})).value();
  const Reference reference = compute_reference(problem).value();
  for (int row = 0; row < 8; ++row) {
    EXPECT_EQ(reference.lse[row] == kMinusInfinity, row < 3) << row;
  }
}

TEST(Reference, AndOr) {
  AttentionSpec spec = small();
  MaskSpec causal, chunked, window;
  causal.kind = MaskSpec::Kind::kCausal;
  chunked.kind = MaskSpec::Kind::kChunked;
  chunked.chunk = 24;
  window.kind = MaskSpec::Kind::kSlidingWindow;
  window.window = 5;
  const auto in_chunk = [](const Where& at) {
    return floor_divide(at.q_idx, 24) == floor_divide(at.kv_idx, 24);
  };
  const auto in_window = [](const Where& at) {
    return at.q_idx - 5 < at.kv_idx && at.kv_idx <= at.q_idx;
  };
  spec.mask.kind = MaskSpec::Kind::kAnd;
  spec.mask.of = {causal, chunked};
  check(spec, shapes({60}, {100}),
        [&](const Where& at) { return at.kv_idx <= at.q_idx && in_chunk(at); });
  spec.mask.kind = MaskSpec::Kind::kOr;
  spec.mask.of = {window, chunked};
  check(spec, shapes({60}, {100}), [&](const Where& at) { return in_window(at) || in_chunk(at); });
  MaskSpec inner = spec.mask;
  spec.mask.kind = MaskSpec::Kind::kAnd;
  spec.mask.of = {causal, inner};
  check(spec, shapes({100}, {60}),
        [&](const Where& at) { return at.kv_idx <= at.q_idx && (in_window(at) || in_chunk(at)); });
}

TEST(Reference, SoftcapComesBeforeTheMask) {
  AttentionSpec spec = small();
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  spec.score_mod.cap = 3;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  check(
      spec, shapes({33}, {80}, InputKind::kLarge),
      [](const Where& at) { return at.kv_idx <= at.q_idx; },
      [](double score, const Where&) { return 3 * std::tanh(score / 3); });
}

TEST(Reference, Alibi) {
  // Press et al.: for 8 heads 1/2, 1/4, ... 1/256.
  for (int h = 0; h < 8; ++h) EXPECT_EQ(alibi_slope(h, 8), std::exp2(-(h + 1)));
  EXPECT_EQ(alibi_slope(0, 16), std::exp2(-0.5));
  // 12 heads: the 8 of 8, then every second one of 16.
  EXPECT_EQ(alibi_slope(7, 12), std::exp2(-8));
  EXPECT_EQ(alibi_slope(8, 12), std::exp2(-0.5));
  EXPECT_EQ(alibi_slope(9, 12), std::exp2(-1.5));
  AttentionSpec spec = small(6, 1);
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  check(spec, shapes({30}, {20}), everything, [](double score, const Where& at) {
    const double slopes[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    return score - slopes[at.h] * std::abs(at.row + at.kv_len - at.q_len - at.kv_idx);
  });
}

TEST(Reference, SinkIsOnlyInTheDenominator) {
  AttentionSpec spec = small();
  spec.sink = true;
  check(spec, shapes({20}, {100}));
  spec.lse_includes_sink = false;
  check(spec, shapes({20}, {100}));

  // Two keys of score 0 and a sink of log 2: weights 1/4 each.
  AttentionSpec one = small(1, 1);
  one.sink = true;
  Problem problem = make_problem(one, shapes({1}, {2})).value();
  for (int d = 0; d < 64; ++d) store_float(problem.tensors["q"], d, 0);
  problem.tensors["sink"].as<float>()[0] = std::log(2.0F);
  const Reference reference = compute_reference(problem).value();
  EXPECT_NEAR(reference.o[0],
              0.25 * (load_float(problem.at("v"), 0) + load_float(problem.at("v"), 64)), 1e-7);
  EXPECT_NEAR(reference.lse[0], std::log(4.0), 1e-7);
}

TEST(Reference, SinkIsNotScaled) {
  AttentionSpec spec = small();
  spec.sink = true;
  ProblemRequest request = shapes({4}, {50});
  request.scale = 0.01F;
  check(spec, request);
}

TEST(Reference, EmptyRowsWithASink) {
  AttentionSpec spec = small(2, 1);
  spec.sink = true;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  Problem problem = make_problem(spec, shapes({4}, {2})).value();
  Reference reference = compute_reference(problem).value();
  for (int h = 0; h < 2; ++h) {
    EXPECT_EQ(reference.o[h * 64], 0);
    EXPECT_DOUBLE_EQ(reference.lse[h * 4], problem.at("sink").as<float>()[h]);
  }
  problem.spec.lse_includes_sink = false;
  reference = compute_reference(problem).value();
  EXPECT_EQ(reference.lse[0], kMinusInfinity);
}

TEST(Reference, NoKeysAtAll) {
  const Problem problem = make_problem(small(), shapes({3}, {0})).value();
  const Reference reference = compute_reference(problem).value();
  for (const double value : reference.o) EXPECT_EQ(value, 0);
  for (const double value : reference.lse) EXPECT_EQ(value, kMinusInfinity);
}

TEST(Reference, RaggedSequencesAreApart) {
  AttentionSpec spec = small();
  spec.ragged = true;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  check(spec, shapes({3, 0, 70, 1}, {90, 5, 60, 0}),
        [](const Where& at) { return at.kv_idx <= at.q_idx; });
}

TEST(Reference, DifferentKvLensWithoutRagged) { check(small(), shapes({6}, {90, 5, 1})); }

TEST(Reference, PagedEqualsContiguous) {
  AttentionSpec spec = small();
  const auto request = shapes({4, 4, 4}, {90, 5, 64});
  const Reference contiguous = compute_reference(make_problem(spec, request).value()).value();
  for (const int page : {16, 64}) {
    spec.page_size = page;
    check(spec, request);
    expect_equal(compute_reference(make_problem(spec, request).value()).value(), contiguous);
  }
}

TEST(Reference, Materialized) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kU8, Dtype::kBits, Dtype::kBf16, Dtype::kFp16}) {
      AttentionSpec spec = small();
      spec.mask.kind = MaskSpec::Kind::kMaterialized;
      spec.mask.dtype = dtype;
      ProblemRequest request = shapes({9}, {70});
      request.batch = 2;
      request.seed = seed;
      const Problem problem = make_problem(spec, request).value();
      const Tensor& mask = problem.at("mask");
      EXPECT_EQ(mask.shape[0], (seed & 1) != 0 ? 2 : 1);
      EXPECT_EQ(mask.shape[1], (seed & 2) != 0 ? 4 : 1);
      const auto element = [&](const Where& at) {
        const int b = mask.shape[0] == 1 ? 0 : at.b;
        const int h = mask.shape[1] == 1 ? 0 : at.h;
        const std::int64_t row =
            (b * mask.shape[1] + h) * mask.shape[2] + (mask.shape[2] == 1 ? 0 : at.row);
        const std::int64_t index = row * 70 + at.kv_idx;
        if (dtype == Dtype::kBits) {
          const int byte = mask.bytes[static_cast<std::size_t>(row * 9 + at.kv_idx / 8)];
          return (byte >> at.kv_idx % 8 & 1) != 0 ? 0.0 : -1.0 / 0.0;
        }
        return dtype == Dtype::kU8 ? double{mask.as<std::uint8_t>()[index] != 0 ? 0.0 : -1.0 / 0.0}
                                   : double{load_float(mask, index)};
      };
      check(
          spec, request, [&](const Where& at) { return element(at) != kMinusInfinity; },
          [&](double score, const Where& at) { return score + element(at); });
    }
  }
}

MaskSpec custom_mask(std::string code, std::vector<ParamSpec> params = {}) {
  MaskSpec mask;
  mask.kind = MaskSpec::Kind::kCustom;
  mask.custom.name = "mine";
  mask.custom.code = std::move(code);
  mask.custom.params = std::move(params);
  return mask;
}

TEST(Reference, CustomMaskSeesEveryCoordinate) {
  AttentionSpec spec = small(4, 2);
  spec.mask = custom_mask(
      "kv_idx <= q_idx && (kv_idx + h * 3 + kv_h + b) % 4 != 0 && kv_idx * 2 < kv_len + q_len");
  check(spec, shapes({30, 30}, {70, 70}), [](const Where& at) {
    return at.kv_idx <= at.q_idx && (at.kv_idx + at.h * 3 + at.kv_h + at.b) % 4 != 0 &&
           at.kv_idx * 2 < at.kv_len + at.q_len;
  });
}

TEST(Reference, CustomMaskReadsItsParameters) {
  AttentionSpec spec = small();
  MaskSpec causal;
  causal.kind = MaskSpec::Kind::kCausal;
  const MaskSpec document =
      custom_mask("p.doc[q_idx] == p.doc[kv_idx] && p.m[q_idx][kv_idx] < p.limit",
                  {{"doc", ParamSpec::Type::kI32Array},
                   {"m", ParamSpec::Type::kI32Matrix},
                   {"limit", ParamSpec::Type::kI32}});
  spec.mask.kind = MaskSpec::Kind::kAnd;
  spec.mask.of = {causal, document};
  ProblemRequest request = shapes({50}, {40});
  Tensor limit = make_tensor(Dtype::kI32, {});
  *limit.as<std::int32_t>() = 2;
  request.params = {{"limit", limit}};
  const Problem problem = make_problem(spec, request).value();
  const Tensor& doc = problem.at("param_doc");
  const Tensor& m = problem.at("param_m");
  ASSERT_EQ(doc.shape[0], 50);
  // Outside the array reads 0: rows with a negative q_idx are among them, but causal hides those.
  check(spec, request, [&](const Where& at) {
    if (at.kv_idx > at.q_idx) return false;
    return doc.as<std::int32_t>()[at.q_idx] == doc.as<std::int32_t>()[at.kv_idx] &&
           m.as<std::int32_t>()[at.q_idx * 50 + at.kv_idx] < 2;
  });
}

TEST(Reference, CustomScoreMod) {
  AttentionSpec spec = small();
  spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
  spec.score_mod.custom.name = "bias";
  spec.score_mod.custom.code = "score * 0.5f + p.w[kv_idx] - p.x * (q_idx > kv_idx)";
  spec.score_mod.custom.params = {{"w", ParamSpec::Type::kF32Array}, {"x", ParamSpec::Type::kF32}};
  const ProblemRequest request = shapes({20}, {60});
  const Problem problem = make_problem(spec, request).value();
  const float* w = problem.at("param_w").as<float>();
  const double x = *problem.at("param_x").as<float>();
  // The part without the score is rounded to f32 in the reference, as the kernel has it.
  const Reference got = compute_reference(problem, 3).value();
  const Reference want = naive(problem, everything, [&](double score, const Where& at) {
    return score * 0.5 + w[at.kv_idx] - (at.q_idx > at.kv_idx ? x : 0);
  });
  for (std::size_t i = 0; i < got.o.size(); ++i) ASSERT_NEAR(got.o[i], want.o[i], 1e-5);
}

TEST(Reference, TrustedBodies) {
  AttentionSpec spec = small();
  spec.mask = custom_mask("return kv_idx <= q_idx;");
  spec.mask.custom.trusted = true;
  check(spec, shapes({20}, {60}), [](const Where& at) { return at.kv_idx <= at.q_idx; });
  spec.mask.custom.code = "int x = kv_idx; return x <= q_idx;";
  const Problem problem = make_problem(spec, shapes({20}, {60})).value();
  EXPECT_EQ(compute_reference(problem).error().code, ErrorCode::kUnsupported);
}

TEST(Reference, DepthsOfMla) {
  AttentionSpec prefill = small(4, 1, 192);
  prefill.ov_depth = 128;
  prefill.mla = Mla::kPrefill;
  check(prefill, shapes({20}, {70}));
  AttentionSpec decode = small(16, 16, 576);
  decode.ov_depth = 512;
  decode.mla = Mla::kDecode;
  check(decode, shapes({2}, {70}));
  // Absorbed: V is the first 512 elements of K.
  const Problem problem = make_problem(decode, shapes({1}, {9})).value();
  for (int j = 0; j < 9; ++j) {
    for (int d = 0; d < 512; ++d) {
      ASSERT_EQ(load_float(problem.at("v"), j * 512 + d), load_float(problem.at("k"), j * 576 + d));
    }
  }
}

AttentionSpec with_lists(int topk) {
  AttentionSpec spec = small(16, 16, 128);
  spec.mla = Mla::kDecode;
  spec.page_size = 16;
  spec.topk = topk;
  return spec;
}

// A rope part of its own type is the rest of each row; K's is every head's.
TEST(Reference, RopePartsOfTheirOwnTypeEndTheRows) {
  AttentionSpec spec = small(4, 2, 192);
  spec.ov_depth = 128;
  spec.qkv_dtype = Dtype::kE4m3;
  spec.rope_dtype = Dtype::kBf16;
  spec.mla = Mla::kPrefill;
  for (const Scales scales : {Scales::kNone, Scales::kHead, Scales::kToken}) {
    for (const int page_size : {0, 16}) {
      spec.scales = scales;
      spec.page_size = page_size;
      const Problem problem = make_problem(spec, shapes({5, 5}, {40, 70})).value();
      EXPECT_EQ(problem.at("q").shape.back(), 128);
      EXPECT_EQ(problem.at("k").shape.back(), 128);
      EXPECT_EQ(problem.at("q_rope").dtype, Dtype::kBf16);
      EXPECT_EQ(problem.at("q_rope").shape, (std::vector<std::int64_t>{2, 5, 4, 64}));
      std::vector<std::int64_t> shape = problem.at("k").shape;
      shape[2] = 1;
      shape[3] = 64;
      EXPECT_EQ(problem.at("k_rope").shape, shape);
      EXPECT_EQ(problem.at("k_rope").dtype, Dtype::kBf16);
      // The same in rows that are whole.
      Problem whole = problem;
      whole.spec.rope_dtype = Dtype::kE4m3;
      for (const auto& [name, heads] : {std::pair{"q", 1}, std::pair{"k", 2}}) {
        const Tensor& rows = problem.at(name);
        const Tensor& rope = problem.at(std::string(name) + "_rope");
        shape = rows.shape;
        shape.back() = 192;
        Tensor joined = make_tensor(Dtype::kF32, shape);
        for (std::int64_t i = 0; i < joined.elements(); ++i) {
          const std::int64_t row = i / 192, d = i % 192;
          joined.as<float>()[i] = d < 128 ? load_float(rows, row * 128 + d)
                                          : load_float(rope, row / heads * 64 + d - 128);
        }
        whole.tensors[name] = std::move(joined);
      }
      const Reference got = compute_reference(problem, 2).value();
      expect_equal(got, compute_reference(whole, 2).value());
      // And elements of the rope part are seen.
      Problem other = problem;
      store_float(other.tensors.at("q_rope"), 63, 4);
      EXPECT_NE(compute_reference(other, 2).value().lse[0], got.lse[0]);
    }
  }
}

// A row sees what its list names, in whatever order, and nothing else.
TEST(Reference, ListsSayWhatARowSees) {
  const Problem problem = make_problem(with_lists(64), shapes({9}, {100, 30, 0})).value();
  const auto listed = [&](const Where& at) {
    for (int place = 0; place < 64; ++place) {
      if (problem.listed_row(at.b, at.row, place) == problem.kv_row(at.b, at.kv_idx)) return true;
    }
    return false;
  };
  const Result<Reference> reference = compute_reference(problem, 2);
  ASSERT_TRUE(reference.ok()) << reference.error().to_string();
  expect_equal(*reference, naive(problem, listed, unchanged));
}

// A key that is named twice counts twice; rows that the pool has not are hidden.
TEST(Reference, ListsMayNameAKeyTwiceAndRowsThatAreNot) {
  Problem problem = make_problem(with_lists(64), shapes({1}, {100})).value();
  auto* const list = problem.tensors.at("topk_indices").as<std::int32_t>();
  const auto fill = [&](std::vector<std::int32_t> rows) {
    std::fill_n(list, 64, -1);
    std::copy(rows.begin(), rows.end(), list);
    return compute_reference(problem, 1).value();
  };
  const auto key = [&](int kv_idx) { return static_cast<std::int32_t>(problem.kv_row(0, kv_idx)); };
  const Reference once = fill({key(3)});
  EXPECT_NEAR(fill({key(3), key(3)}).lse[0], once.lse[0] + std::log(2.0), 1e-9);
  expect_equal(fill({-7, problem.num_pages * 16, 1 << 30, key(3)}), once);
  EXPECT_EQ(fill({}).lse[0], kMinusInfinity);
}

TEST(Reference, E4m3HasTheScalesThatTheSpecSays) {
  AttentionSpec spec = small(4, 2);
  spec.qkv_dtype = Dtype::kE4m3;
  const ProblemRequest request = shapes({5}, {40});
  for (const Scales scales : {Scales::kNone, Scales::kTensor, Scales::kHead}) {
    spec.scales = scales;
    check(spec, request);
    const Problem problem = make_problem(spec, request).value();
    EXPECT_EQ(problem.has("q_scale"), scales != Scales::kNone);
    if (scales == Scales::kNone) continue;
    using Shape = std::vector<std::int64_t>;
    const bool head = scales == Scales::kHead;
    EXPECT_EQ(problem.at("q_scale").shape, head ? (Shape{1, 4}) : Shape{1});
    EXPECT_EQ(problem.at("k_scale").shape, head ? (Shape{1, 2}) : Shape{1});
    EXPECT_EQ(problem.at("v_scale").shape, head ? (Shape{1, 2}) : Shape{1});
  }
}

TEST(Reference, E4m3ScalesAreOfSequenceAndHead) {
  AttentionSpec spec = small(4, 2);
  spec.qkv_dtype = Dtype::kE4m3;
  spec.scales = Scales::kHead;
  ProblemRequest request = shapes({5}, {40});
  request.batch = 3;
  check(spec, request);
  Problem problem = make_problem(spec, request).value();
  const Reference before = compute_reference(problem).value();
  problem.tensors["v_scale"].as<float>()[1 * 2 + 1] *= 2;  // sequence 1, key-value head 1
  const Reference after = compute_reference(problem).value();
  for (std::size_t i = 0; i < before.o.size(); ++i) {
    const bool concerned = i / (5 * 4 * 64) == 1 && i / 64 % 4 >= 2;
    ASSERT_DOUBLE_EQ(after.o[i], before.o[i] * (concerned ? 2 : 1));
  }
}

TEST(Reference, E4m3ScalesAreOfRows) {
  AttentionSpec spec = small(4, 2);
  spec.qkv_dtype = Dtype::kE4m3;
  spec.scales = Scales::kToken;
  spec.page_size = 16;
  const ProblemRequest request = shapes({5}, {40, 70});
  Problem problem = make_problem(spec, request).value();
  EXPECT_EQ(problem.at("q_scale").shape, (std::vector<std::int64_t>{2, 5, 4}));
  EXPECT_EQ(problem.at("k_scale").shape, (std::vector<std::int64_t>{problem.num_pages, 16, 2}));
  // Elements by their rows' scales, stored as f32: the same without any.
  Problem widened_problem = problem;
  widened_problem.spec.scales = Scales::kNone;
  const std::pair<const char*, const char*> tensors[] = {
      {"q", "q_scale"}, {"k", "k_scale"}, {"v", "v_scale"}};
  for (const auto& [name, scale_name] : tensors) {
    Tensor all = widened(problem.at(name));
    const Tensor& scale = problem.at(scale_name);
    for (std::int64_t i = 0; i < all.elements(); ++i) {
      all.as<float>()[i] *= scale.as<float>()[i / all.shape.back()];
    }
    widened_problem.tensors[name] = std::move(all);
    widened_problem.tensors.erase(scale_name);
  }
  const Reference by_row = compute_reference(problem).value();
  const Reference plain = compute_reference(widened_problem).value();
  for (std::size_t i = 0; i < by_row.o.size(); ++i) {
    ASSERT_NEAR(by_row.o[i], plain.o[i], 1e-6) << i;
  }
  for (std::size_t i = 0; i < by_row.lse.size(); ++i) {
    ASSERT_NEAR(by_row.lse[i], plain.lse[i], 1e-6) << i;
  }
}

TEST(Reference, E4m3OutputsAreDividedAndSaturate) {
  AttentionSpec spec = small(4, 2);
  ProblemRequest request = shapes({5}, {40});
  const Problem plain = make_problem(spec, request).value();
  EXPECT_FALSE(plain.has("output_scale"));
  const Reference before = compute_reference(plain).value();
  spec.output_dtype = Dtype::kE4m3;
  Problem problem = make_problem(spec, request).value();
  EXPECT_EQ(problem.at("output_scale").shape, (std::vector<std::int64_t>{1}));
  for (const float scale : {0.03125F, 0x1p-12F}) {
    *problem.tensors["output_scale"].as<float>() = scale;
    const Reference after = compute_reference(problem).value();
    int saturated = 0;
    for (std::size_t i = 0; i < before.o.size(); ++i) {
      const double divided = before.o[i] / scale;
      saturated += std::fabs(divided) > 448 ? 1 : 0;
      ASSERT_NEAR(after.o[i], std::clamp(divided, -448.0, 448.0), 1e-9);
    }
    EXPECT_EQ(after.lse, before.lse);
    EXPECT_EQ(saturated > 0, scale < 0.01F);
  }
}

TEST(Reference, PartitionsDoNotChangeTheResult) {
  AttentionSpec spec = small();
  spec.sink = true;
  const Reference one = compute_reference(make_problem(spec, shapes({3}, {200})).value()).value();
  spec.num_partitions = 7;
  expect_equal(compute_reference(make_problem(spec, shapes({3}, {200})).value()).value(), one);
}

// LSEs of which no power is a number of float64: the greatest decides.
TEST(Reference, MergesOfFarLogarithmsAreNumbers) {
  AttentionSpec spec = small();
  spec.merge = true;
  ProblemRequest request = shapes({12}, {});
  request.input = InputKind::kFar;
  request.pairs = 3;
  const Problem problem = make_problem(spec, request).value();
  const Reference reference = compute_reference(problem).value();
  const float* lse = problem.at("pairs_lse").as<float>();
  const auto rows = static_cast<std::int64_t>(reference.lse.size());
  bool above = false;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float top = std::max({lse[i], lse[rows + i], lse[2 * rows + i]});
    above = above || top > 1e29F;
    const double got = reference.lse[static_cast<std::size_t>(i)];
    if (std::isinf(top)) {
      EXPECT_EQ(got, kMinusInfinity);
    } else {
      EXPECT_NEAR(got, top, 2 + 1e-6 * std::fabs(top)) << i;
    }
  }
  EXPECT_TRUE(above);
  for (const double value : reference.o) ASSERT_TRUE(std::isfinite(value));
}

// What is added from -1e30 on hides, as -inf does (docs/spec.md).
TEST(Reference, LeastNumbersHide) {
  AttentionSpec spec = small();
  spec.mask.kind = MaskSpec::Kind::kMaterialized;
  spec.mask.dtype = Dtype::kF32;
  Problem problem = make_problem(spec, shapes({3}, {40})).value();
  Tensor& mask = problem.tensors.at("mask");
  std::fill_n(mask.as<float>(), mask.elements(), 0.0F);
  const std::int64_t columns = mask.shape[3];
  const auto lse_with = [&](float hidden) {
    for (std::int64_t i = 0; i < mask.elements(); ++i)
      if (i % columns > 4) mask.as<float>()[i] = hidden;
    return compute_reference(problem).value().lse;
  };
  const std::vector<double> want = lse_with(-std::numeric_limits<float>::infinity());
  EXPECT_EQ(lse_with(std::numeric_limits<float>::lowest()), want);
  EXPECT_EQ(lse_with(-1e30F), want);
  for (std::int64_t i = 0; i < mask.elements(); ++i) mask.as<float>()[i] = -1e30F;
  EXPECT_EQ(compute_reference(problem).value().lse[0], kMinusInfinity);
  for (std::int64_t i = 0; i < mask.elements(); ++i) mask.as<float>()[i] = -1e10F;
  EXPECT_NEAR(compute_reference(problem).value().lse[0], -1e10, 100);
}

TEST(Reference, ThreadsDoNotChangeABit) {
  const Problem problem = make_problem(small(8, 4), shapes({50}, {300})).value();
  const Reference one = compute_reference(problem, 1).value();
  const Reference many = compute_reference(problem, 7).value();
  EXPECT_EQ(one.o, many.o);
  EXPECT_EQ(one.lse, many.lse);
}

// An accumulator of 13 bits loses what is less than 2^-13 of its largest term.
TEST(Reference, CoarseSumsMoveTheLogarithm) {
  AttentionSpec spec = small(1, 1, 64);
  spec.arch = Arch::kSm90a;
  spec.qkv_dtype = Dtype::kE4m3;
  ProblemRequest request = shapes({1}, {1});
  request.scale = 1.0F;
  Problem problem = make_problem(spec, request).value();
  for (const char* tensor : {"q", "k"}) {
    for (int d = 0; d < 64; ++d) store_float(problem.tensors.at(tensor), d, 0);
  }
  // 256 * 32 = 2^13, whose last bit is 1: 31 products of 15/16 vanish, and one of 1 stays.
  store_float(problem.tensors.at("q"), 0, 256);
  store_float(problem.tensors.at("k"), 0, 32);
  for (int d = 1; d < 32; ++d) store_float(problem.tensors.at("q"), d, d == 1 ? 1 : 0.9375F);
  for (int d = 1; d < 32; ++d) store_float(problem.tensors.at("k"), d, 1);
  const auto reference_of = [&] { return compute_reference(problem, 1).value(); };
  EXPECT_EQ(reference_of().lse, std::vector<double>{8193 + 30 * 0.9375});
  EXPECT_EQ(reference_of().lse_moved, std::vector<double>{30 * 0.9375});
  problem.spec.arch = Arch::kSm100a;
  EXPECT_TRUE(reference_of().lse_moved.empty());
  problem.spec.arch = Arch::kSm90a;
  problem.spec.return_lse = false;
  EXPECT_TRUE(reference_of().lse_moved.empty());
}

}  // namespace
}  // namespace attnjit::verify
