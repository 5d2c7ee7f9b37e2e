// SPDX-License-Identifier: Apache-2.0
// Problems: what the kinds of input are, determinism, and sizes that are refused.
#include "verify/random_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "verify/numeric.h"
#include "verify/reference.h"

namespace attnjit::verify {
namespace {

AttentionSpec spec_of(int heads, int group, int depth) {
  AttentionSpec spec;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = depth;
  return spec;
}

double score(const Problem& p, int row, int h, int key) {
  const int depth = p.spec.qk_depth;
  double dot = 0;
  for (int d = 0; d < depth; ++d) {
    dot +=
        double{load_float(p.at("q"), (std::int64_t{row} * p.spec.num_q_heads + h) * depth + d)} *
        double{load_float(
            p.at("k"), (std::int64_t{key} * p.spec.num_kv_heads() + h / p.spec.group) * depth + d)};
  }
  return dot * p.scale;
}

Problem problem_of(const AttentionSpec& spec, InputKind input, std::int64_t q, std::int64_t kv) {
  ProblemRequest request;
  request.q_lens = {q};
  request.kv_lens = {kv};
  request.input = input;
  request.seed = 5;
  return make_problem(spec, request).value();
}

TEST(RandomInputs, LargeScoresHaveDeviationEight) {
  for (const int depth : {64, 128, 256}) {
    const Problem problem = problem_of(spec_of(2, 1, depth), InputKind::kLarge, 40, 100);
    double squares = 0;
    for (int row = 0; row < 40; ++row) {
      for (int key = 0; key < 100; ++key) squares += std::pow(score(problem, row, 0, key), 2);
    }
    EXPECT_NEAR(std::sqrt(squares / 4000), 8, 0.8) << depth;
  }
}

TEST(RandomInputs, NormalScoresHaveDeviationOne) {
  const Problem problem = problem_of(spec_of(2, 1, 128), InputKind::kNormal, 40, 100);
  double squares = 0;
  for (int row = 0; row < 40; ++row) {
    for (int key = 0; key < 100; ++key) squares += std::pow(score(problem, row, 1, key), 2);
  }
  EXPECT_NEAR(std::sqrt(squares / 4000), 1, 0.1);
}

// Of a window over pages of 16: those that lie before all that the rows see are nobody's, and that
// which the window begins in is the sequence's.
TEST(RandomInputs, PagesBehindAWindowAreNobodys) {
  AttentionSpec spec = spec_of(2, 1, 64);
  spec.page_size = 16;
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  spec.mask.window = 50;
  const Problem problem = problem_of(spec, InputKind::kNormal, 20, 300);
  const int first = 300 - 20 - 50 + 1;
  for (int key = 0; key < 300; ++key) {
    for (const char* name : {"k", "v"}) {
      const float value = load_float(problem.at(name), problem.kv_row(0, key) * 2 * 64 + key % 128);
      EXPECT_EQ(std::isnan(value), key < first / 16 * 16) << name << " of key " << key;
    }
  }
}

TEST(RandomInputs, RisingMakesEveryTileRescale) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3}) {
    AttentionSpec spec = spec_of(4, 2, 128);
    spec.qkv_dtype = dtype;
    if (dtype == Dtype::kE4m3) spec.scales = Scales::kHead;
    const Problem problem = problem_of(spec, InputKind::kRising, 3, 1024);
    for (int row = 0; row < 3; ++row) {
      for (int h = 0; h < 4; ++h) {
        double scale = 1;
        if (problem.has("q_scale")) {
          scale = double{problem.at("q_scale").as<float>()[h]} *
                  double{problem.at("k_scale").as<float>()[h / 2]};
        }
        double before = -std::numeric_limits<double>::infinity();
        for (int tile = 0; tile < 1024; tile += 64) {
          double maximum = -std::numeric_limits<double>::infinity();
          for (int key = tile; key < tile + 64; ++key) {
            maximum = std::max(maximum, scale * score(problem, row, h, key));
          }
          // By more than a factor of 2 each tile of 64 keys, whatever the row and head.
          EXPECT_GT(maximum, before + 1) << to_string(dtype) << " tile " << tile;
          before = maximum;
        }
      }
    }
  }
}

TEST(RandomInputs, FallingIsRisingFromTheLastKey) {
  AttentionSpec spec = spec_of(4, 2, 128);
  spec.page_size = 16;
  ProblemRequest request;
  request.q_lens = {2};
  request.kv_lens = {1000, 300};  // of every sequence its own last key
  request.input = InputKind::kFalling;
  const Problem problem = make_problem(spec, request).value();
  for (int b = 0; b < 2; ++b) {
    double after = -std::numeric_limits<double>::infinity();
    for (int last = problem.kv_lens[b] - 1; last >= 64; last -= 64) {
      double maximum = -std::numeric_limits<double>::infinity();
      for (int key = last; key > last - 64; --key) {
        double dot = 0;
        for (int d = 0; d < 128; ++d) {
          dot += double{load_float(problem.at("q"), std::int64_t{b} * 2 * 4 * 128 + d)} *
                 double{load_float(problem.at("k"), problem.kv_row(b, key) * 2 * 128 + d)};
        }
        maximum = std::max(maximum, dot * problem.scale);
      }
      EXPECT_GT(maximum, after + 1) << "sequence " << b << " tile that ends at " << last;
      after = maximum;
    }
  }
}

// By more than the 8 powers of two within which FA4 puts a rescale off, in either direction.
TEST(RandomInputs, RaisedKeysComeLastToKernelsOfEitherDirection) {
  const Problem problem = problem_of(spec_of(2, 1, 64), InputKind::kRaised, 3, 700);
  for (int row = 0; row < 3; ++row) {
    for (int h = 0; h < 2; ++h) {
      const auto largest = [&](int begin, int end) {
        double maximum = -std::numeric_limits<double>::infinity();
        for (int key = begin; key < end; ++key) {
          maximum = std::max(maximum, score(problem, row, h, key));
        }
        return maximum;
      };
      const double first = largest(0, 350), second = largest(350, 700);
      const bool backwards = (row + h) % 2 == 0;
      EXPECT_GT(backwards ? first - second : second - first, 8 * std::log(2.0)) << row << ' ' << h;
      // Every tile of that half has one.
      for (int key = backwards ? 0 : 350; key + 64 <= (backwards ? 350 : 700); key += 64) {
        EXPECT_NEAR(largest(key, key + 64), 6.6, 0.1) << row << ' ' << h << ' ' << key;
      }
    }
  }
}

// Weights of 0 hide large values, and a maximum hides a NaN: each kind of input has one of them.
TEST(RandomInputs, DeadMemoryIsNanInNormalInputsAndLargeInOthers) {
  AttentionSpec spec = spec_of(1, 1, 64);
  spec.page_size = 32;
  for (const InputKind input : kInputKinds) {
    ProblemRequest request;
    request.q_lens = {1};
    request.kv_lens = {33, 7};
    request.input = input;
    const Problem problem = make_problem(spec, request).value();
    std::set<std::int64_t> live;
    for (int b = 0; b < 2; ++b) {
      for (int key = 0; key < problem.kv_lens[b]; ++key) live.insert(problem.kv_row(b, key));
    }
    for (const char* name : {"k", "v"}) {
      const Tensor& tensor = problem.at(name);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const float value = load_float(tensor, i);
        if (live.count(i / 64) != 0) {
          ASSERT_TRUE(std::isfinite(value)) << name << ' ' << i;
        } else if (input == InputKind::kNormal) {
          ASSERT_TRUE(std::isnan(value)) << name << ' ' << i;
        } else {
          ASSERT_EQ(std::fabs(value), 96) << name << ' ' << i;
        }
      }
    }
  }
}

TEST(RandomInputs, UsualLengthsKeepTheSpecsBounds) {
  AttentionSpec spec = spec_of(4, 2, 64);
  EXPECT_EQ(shape_problem(spec, {})->q_lens, std::vector{256});
  EXPECT_EQ(shape_problem(spec, {})->kv_lens, std::vector{512});
  spec.max_q_len = 4;
  spec.max_seq_len = 100;
  EXPECT_EQ(shape_problem(spec, {})->q_lens, std::vector{4});
  EXPECT_EQ(shape_problem(spec, {})->kv_lens, std::vector{100});
  ProblemRequest longer;
  longer.q_lens = {5};
  EXPECT_EQ(shape_problem(spec, longer).error().field, "q_len");
}

TEST(RandomInputs, SpikesStandOut) {
  const Problem problem = problem_of(spec_of(4, 2, 64), InputKind::kSpike, 3, 500);
  for (int h = 0; h < 4; ++h) {
    int spikes = 0;
    for (int key = 0; key < 500; ++key) {
      if (score(problem, 0, h, key) > 12) ++spikes;
    }
    EXPECT_GE(spikes, 1);
    EXPECT_LE(spikes, 30);
  }
}

AttentionSpec scaled_spec(Scales scales) {
  AttentionSpec spec = spec_of(4, 2, 64);
  spec.qkv_dtype = Dtype::kE4m3;
  spec.scales = scales;
  return spec;
}

// Real tensors have scales of which the largest element is e4m3's: about 2^-7, and less.
TEST(RandomInputs, SmallScalesAreThoseOfRealTensors) {
  for (const Scales scales : {Scales::kTensor, Scales::kHead, Scales::kToken}) {
    const Problem problem = problem_of(scaled_spec(scales), InputKind::kSmall, 20, 30);
    for (const char* name : {"q_scale", "k_scale", "v_scale"}) {
      const Tensor& scale = problem.at(name);
      float least = 1;
      for (std::int64_t i = 0; i < scale.elements(); ++i) {
        ASSERT_GT(scale.as<float>()[i], 0) << name;
        ASSERT_LE(scale.as<float>()[i], 0x1p-7F) << name;
        least = std::min(least, scale.as<float>()[i]);
      }
      EXPECT_EQ(least == 0x1p-14F, scale.elements() >= 4) << name;
    }
    // What is stored is of usual size.
    double squares = 0;
    const Tensor& v = problem.at("v");
    for (std::int64_t i = 0; i < v.elements(); ++i) squares += std::pow(load_float(v, i), 2);
    EXPECT_GT(std::sqrt(squares / double(v.elements())), 64);
  }
}

TEST(RandomInputs, OneScaleInThreeIsZero) {
  for (const Scales scales : {Scales::kTensor, Scales::kHead, Scales::kToken}) {
    std::set<std::string> some;  // tensors of which a scale is 0, over three seeds
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      ProblemRequest request;
      request.q_lens = {5};
      request.kv_lens = {7};
      request.input = InputKind::kZero;
      request.seed = seed;
      const Problem problem = make_problem(scaled_spec(scales), request).value();
      for (const char* name : {"q_scale", "k_scale", "v_scale"}) {
        const Tensor& scale = problem.at(name);
        const std::int64_t zeros =
            std::count(scale.as<float>(), scale.as<float>() + scale.elements(), 0.0F);
        if (zeros > 0) some.insert(name);
        EXPECT_LT(zeros, std::max<std::int64_t>(scale.elements(), 2)) << name;
      }
    }
    // V's rows have none (docs/spec.md).
    EXPECT_EQ(some.size(), scales == Scales::kToken ? 2U : 3U);
    EXPECT_EQ(some.count("v_scale"), scales == Scales::kToken ? 0U : 1U);
  }
}

TEST(RandomInputs, FarScoresHaveBothSignsAndSinksLieOnBothSides) {
  AttentionSpec spec = spec_of(4, 2, 64);
  spec.sink = true;
  const Problem problem = problem_of(spec, InputKind::kFar, 4, 30);
  std::set<bool> signs;
  bool near = false, further = false;
  for (int row = 0; row < 4; ++row) {
    for (int h = 0; h < 4; ++h) {
      const double some = score(problem, row, h, 7);
      signs.insert(some > 0);
      EXPECT_GT(std::fabs(some), 4e3);
      near = near || std::fabs(some) < 7e3;
      further = further || std::fabs(some) > 4e7;
    }
  }
  EXPECT_EQ(signs.size(), 2U);
  EXPECT_TRUE(near && further);
  const float* sinks = problem.at("sink").as<float>();
  EXPECT_EQ(*std::max_element(sinks, sinks + 4), 3e38F);
  EXPECT_EQ(*std::min_element(sinks, sinks + 4), -1e20F);
}

// Of three sequences the last and the first lie outside; what the second has is right, but for
// what it does not read.
TEST(RandomInputs, StrayTablesAreThoseOfTheFirstAndTheLastSequence) {
  AttentionSpec spec = spec_of(2, 1, 64);
  spec.page_size = 16;
  spec.ragged = true;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    ProblemRequest request;
    request.q_lens = {3, 4, 5};
    request.kv_lens = {100, 70, 90};
    request.input = InputKind::kStray;
    request.seed = seed;
    const Problem problem = make_problem(spec, request).value();
    EXPECT_EQ(problem.stray, (std::vector<bool>{true, false, true}));
    const auto* table = problem.at("page_table").as<std::int32_t>();
    const auto outside = [&](std::int32_t page) { return page < 0 || page >= problem.num_pages; };
    for (const int b : {0, 1, 2}) {
      const int used = (problem.kv_lens[b] + 15) / 16;
      int strays = 0;
      for (int i = 0; i < used; ++i) {
        if (outside(table[b * problem.max_pages + i])) ++strays;
      }
      EXPECT_EQ(strays > 0, b != 1) << b;
      for (int i = used; i < problem.max_pages; ++i) {
        EXPECT_TRUE(outside(table[b * problem.max_pages + i])) << b << " " << i;
      }
    }
    const auto* lens = problem.at("kv_lens").as<std::int32_t>();
    EXPECT_LT(lens[0], 0);
    EXPECT_EQ(lens[1], 70);
    EXPECT_GT(lens[2], problem.max_kv_len);
    const auto* offsets = problem.at("q_offsets").as<std::int32_t>();
    EXPECT_LT(offsets[0], 0);
    EXPECT_EQ(offsets[1], 3);
    EXPECT_EQ(offsets[2], 7);
    EXPECT_GT(offsets[3], problem.total_q);
    // The inputs are laid out by what is right.
    EXPECT_EQ(problem.first_q_row(0), 0);
    for (int b = 0; b < 3; ++b) {
      for (int key = 0; key < problem.kv_lens[b]; ++key) {
        ASSERT_GE(problem.kv_row(b, key), 0);
        ASSERT_LT(problem.kv_row(b, key), problem.num_pages * 16);
      }
    }
  }
  EXPECT_TRUE(problem_of(spec_of(2, 1, 64), InputKind::kStray, 3, 30).stray.empty());
}

TEST(RandomInputs, SameSeedSameBytesOnAnyThreads) {
  AttentionSpec spec = spec_of(4, 2, 64);
  spec.page_size = 16;
  spec.sink = true;
  ProblemRequest request;
  request.q_lens = {33};
  request.kv_lens = {50, 129};
  request.threads = 1;
  const Problem one = make_problem(spec, request).value();
  request.threads = 5;
  const Problem five = make_problem(spec, request).value();
  ASSERT_EQ(one.tensors.size(), five.tensors.size());
  for (const auto& [name, tensor] : one.tensors) EXPECT_EQ(tensor.bytes, five.at(name).bytes);
  request.seed = 1;
  EXPECT_NE(make_problem(spec, request).value().at("q").bytes, one.at("q").bytes);
}

// A problem of one block of the mask: where that were hidden, all rows would see nothing.
TEST(RandomInputs, SmallMaterializedMasksShowSomething) {
  AttentionSpec spec = spec_of(2, 1, 64);
  spec.mask.kind = MaskSpec::Kind::kMaterialized;
  spec.mask.dtype = Dtype::kU8;
  ProblemRequest request;
  request.q_lens = {100};
  request.kv_lens = {100};
  for (request.seed = 0; request.seed < 32; request.seed += 4) {  // one mask for all heads
    const Problem problem = make_problem(spec, request).value();
    int seen = 0;
    for (const std::uint8_t byte : problem.at("mask").bytes) seen += byte != 0 ? 1 : 0;
    EXPECT_GT(seen, 0) << request.seed;
  }
}

TEST(RandomInputs, KeepsTheBytesItGaveYesterday) {
  // A changed generator would silently invalidate every recorded proof.
  const Problem problem = problem_of(spec_of(1, 1, 64), InputKind::kNormal, 1, 1);
  std::uint32_t hash = 2166136261U;
  for (const char* name : {"q", "k", "v"}) {
    for (const std::uint8_t byte : problem.at(name).bytes) hash = (hash ^ byte) * 16777619U;
  }
  EXPECT_EQ(hash, 344837894U);
}

TEST(RandomInputs, PageTablesAreAPermutationWithASpare) {
  AttentionSpec spec = spec_of(1, 1, 64);
  spec.page_size = 32;
  ProblemRequest request;
  request.q_lens = {1};
  request.kv_lens = {65, 0, 32};
  const Problem problem = make_problem(spec, request).value();
  EXPECT_EQ(problem.max_pages, 4);
  EXPECT_EQ(problem.num_pages, 6);
  const std::int32_t* table = problem.at("page_table").as<std::int32_t>();
  const std::set<std::int32_t> used{table[0], table[1], table[2], table[8]};
  EXPECT_EQ(used.size(), 4U);
  for (int i = 0; i < 12; ++i) {
    EXPECT_GE(table[i], 0);
    EXPECT_LT(table[i], 6);
  }
  for (const int i : {3, 4, 5, 6, 7, 9, 10, 11}) EXPECT_EQ(used.count(table[i]), 0U);
}

// Of a row's own sequence, none twice, with some hidden, and rows that hide all.
TEST(RandomInputs, ListsNameKeysOfTheirSequenceOnce) {
  AttentionSpec spec = spec_of(16, 16, 128);
  spec.mla = Mla::kDecode;
  spec.page_size = 16;
  spec.topk = 64;
  ProblemRequest request;
  request.q_lens = {40};
  request.kv_lens = {100, 30, 0};
  const Problem p = make_problem(spec, request).value();
  int empty = 0;
  for (int b = 0; b < 3; ++b) {
    std::set<std::int64_t> rows;
    for (int key = 0; key < p.kv_lens[b]; ++key) rows.insert(p.kv_row(b, key));
    for (int row = 0; row < 40; ++row) {
      std::set<std::int64_t> named;
      int shown = 0;
      for (int place = 0; place < 64; ++place) {
        const std::int64_t key = p.listed_row(b, row, place);
        if (key < 0) continue;
        ++shown;
        named.insert(key);
        EXPECT_TRUE(rows.count(key) == 1) << b << " " << row << " " << place;
      }
      EXPECT_EQ(named.size(), static_cast<std::size_t>(shown));
      EXPECT_LT(shown, 64);
      if (b < 2 && shown == 0) ++empty;
    }
  }
  EXPECT_GT(empty, 2);
  EXPECT_LT(empty, 30);
}

TEST(RandomInputs, ParametersAreDrawnOrTaken) {
  AttentionSpec spec = spec_of(1, 1, 64);
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "m";
  spec.mask.custom.code = "p.doc[q_idx] < p.n && p.m[0][0] == 1 && p.w[0] < p.x";
  spec.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array},
                             {"n", ParamSpec::Type::kI32},
                             {"x", ParamSpec::Type::kF32},
                             {"w", ParamSpec::Type::kF32Array},
                             {"m", ParamSpec::Type::kI32Matrix}};
  ProblemRequest request;
  request.q_lens = {3};
  request.kv_lens = {90};
  Tensor n = make_tensor(Dtype::kI32, {});
  *n.as<std::int32_t>() = 42;
  request.params = {{"n", n}};
  const Problem problem = make_problem(spec, request).value();
  EXPECT_EQ(*problem.at("param_n").as<std::int32_t>(), 42);
  EXPECT_EQ(problem.at("param_doc").shape, (std::vector<std::int64_t>{90}));
  EXPECT_EQ(problem.at("param_m").shape, (std::vector<std::int64_t>{90, 90}));
  std::set<std::int32_t> values;
  for (int i = 0; i < 90; ++i) values.insert(problem.at("param_doc").as<std::int32_t>()[i]);
  EXPECT_EQ(values, (std::set<std::int32_t>{0, 1, 2, 3}));
  for (int i = 0; i < 90; ++i) {
    EXPECT_LE(std::fabs(problem.at("param_w").as<float>()[i]), 1);
  }
  const std::vector<UserParamShape> given = problem.param_values();
  ASSERT_EQ(given.size(), 5U);
  EXPECT_EQ(given[0].extent[0], 90);
  EXPECT_EQ(std::get<std::int32_t>(given[1].scalar), 42);
  EXPECT_EQ(given[4].extent[1], 90);

  request.params = {{"doc", n}};
  EXPECT_FALSE(make_problem(spec, request).ok());  // a scalar for an array
  request.params = {{"none", n}};
  EXPECT_FALSE(make_problem(spec, request).ok());
  request.params = {{"n", n}, {"n", n}};
  EXPECT_FALSE(make_problem(spec, request).ok());
}

TEST(RandomInputs, BadSizesAreNamed) {
  struct Case {
    std::optional<std::int64_t> batch;
    std::vector<std::int64_t> q, kv;
    const char* field;
  };
  for (const Case& one : {
           Case{std::nullopt, {-1}, {5}, "q_len"},
           Case{std::nullopt, {5}, {-3}, "kv_len"},
           Case{-1, {5}, {5}, "batch"},
           Case{3, {5, 5}, {5}, "q_len"},
           Case{std::nullopt, {5, 5}, {5, 5, 5}, "q_len"},
           Case{std::nullopt, {5, 6}, {5}, "q_len"},  // not ragged
           Case{std::nullopt, {std::int64_t{1} << 40}, {5}, "q_len"},
           Case{std::int64_t{1} << 40, {5}, {5}, "batch"},
           Case{std::nullopt, {1 << 28}, {1 << 28}, "batch, q_len, kv_len"},
           Case{1 << 20, {1 << 20}, {1}, "batch"},
       }) {
    ProblemRequest request;
    request.batch = one.batch;
    request.q_lens = one.q;
    request.kv_lens = one.kv;
    Result<Problem> problem = make_problem(spec_of(32, 8, 128), request);
    ASSERT_FALSE(problem.ok());
    EXPECT_EQ(problem.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(problem.error().field, one.field);
  }
}

TEST(RandomInputs, MaxSeqLenBindsKvLen) {
  AttentionSpec spec = spec_of(1, 1, 64);
  spec.max_seq_len = 100;
  ProblemRequest request;
  request.kv_lens = {101};
  request.q_lens = {1};
  EXPECT_FALSE(make_problem(spec, request).ok());
  request.kv_lens = {100};
  EXPECT_TRUE(make_problem(spec, request).ok());
}

TEST(RandomInputs, StorageThatTheLayoutsLackIsUnsupported) {
  AttentionSpec spec = spec_of(4, 1, 192);
  spec.ov_depth = 128;
  spec.qkv_dtype = Dtype::kE4m3;
  spec.rope_dtype = Dtype::kBf16;
  EXPECT_EQ(make_problem(spec, {}).error().code, ErrorCode::kUnsupported);
  spec.mla = Mla::kPrefill;
  EXPECT_TRUE(make_problem(spec, {}).ok());
  spec.rope_gmem_dtype = Dtype::kE4m3;
  EXPECT_EQ(make_problem(spec, {}).error().field, "rope_gmem_dtype");
}

TEST(RandomInputs, LaunchValuesFillWhatTheSpecLeavesOpen) {
  AttentionSpec spec = spec_of(1, 1, 64);
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  ProblemRequest request;
  EXPECT_EQ(make_problem(spec, request).value().launch_scalars().values,
            (std::vector<double>{128, 50}));
  request.scalars["window"] = 33;
  request.scalars["cap"] = 20;
  const LaunchScalars scalars = make_problem(spec, request).value().launch_scalars();
  EXPECT_EQ(scalars.values, (std::vector<double>{33, 20}));
  EXPECT_EQ(scalars.scale, 0.125F);
}

}  // namespace
}  // namespace attnjit::verify
