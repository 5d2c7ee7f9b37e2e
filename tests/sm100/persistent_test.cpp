// SPDX-License-Identifier: Apache-2.0
// CTAs that walk several work tiles, whose products overlap: of uneven lengths, of one query tile
// and two, of rows that see nothing. In the emulator under the isa model. Skipped without NVRTC.
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "attnjit/tuning.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

struct Case {
  const char* what;
  int qk_depth, ov_depth;
  Dtype dtype, output;
};

class Sm100Persistent : public KernelTest {
 protected:
  static void expect_all(const MaskSpec& mask, const Tuning* tuning) {
    // Three tiles of 256 rows, the last of which has one query tile; more queries than keys: rows,
    // halves and tiles that see none; a tile of keys; no keys at all.
    const std::vector<Lengths> batches = {{{600}, {600}},
                                          {{700}, {200}},
                                          {{141, 141}, {300, 300}},
                                          {{530}, {0}},
                                          {{300, 300}, {100, 100}}};
    const std::vector<Case> all = {
        {"two tiles of K and of V", 128, 128, Dtype::kBf16, Dtype::kBf16},
        {"a block of O", 64, 64, Dtype::kFp16, Dtype::kFp16},
        {"O of f32, of two blocks", 64, 64, Dtype::kBf16, Dtype::kF32},
        {"O of e4m3, of part of a block", 80, 80, Dtype::kBf16, Dtype::kE4m3},
        {"O over Q", 192, 192, Dtype::kBf16, Dtype::kBf16},
        {"a single accumulator", 256, 256, Dtype::kBf16, Dtype::kBf16}};
    for (const Case& one : some_of(all)) {
      SCOPED_TRACE(one.what);
      AttentionSpec spec;
      spec.arch = Arch::kSm100a;
      spec.num_q_heads = 2;
      spec.qk_depth = one.qk_depth;
      spec.ov_depth = one.ov_depth;
      spec.qkv_dtype = one.dtype;
      spec.output_dtype = one.output;
      spec.return_lse = true;
      spec.mask = mask;
      expect_passes_on(spec, batches, tuning);
    }
  }

  // The first rows see nothing, the last ones what lies to both sides of a gap.
  static MaskSpec sinks_and_window() {
    MaskSpec mask;
    mask.kind = MaskSpec::Kind::kCustom;
    mask.custom.name = "sinks_and_window";
    mask.custom.code =
        "q_idx > 10 && kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 70) && q_idx / 256 != 1";
    return mask;
  }

  // One CTA and two, in as many orders.
  static void expect_passes_on(const AttentionSpec& spec, const std::vector<Lengths>& batches,
                               const Tuning* tuning) {
    const auto kernel = compiled(spec, tuning);
    ASSERT_TRUE(kernel);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      SCOPED_TRACE(i);
      const auto problem = problem_of(spec, batches[i], static_cast<InputKind>(i % 4), i);
      ASSERT_TRUE(problem);
      for (std::uint64_t seed = i; seed < i + seeds(); ++seed) {
        const LaunchSequence sequence = launches_of(*kernel, *problem, problem->launch_shapes(),
                                                    1 + static_cast<int>(seed % 2));
        const auto done = run(*kernel, *problem, sequence, seed);
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
      }
    }
  }
};

TEST_F(Sm100Persistent, Causal) {
  const Result<Tuning> tuning = tuning_from_json(R"({"rows": [{"choose": {"persistent": 1}}]})");
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  MaskSpec causal;
  causal.kind = MaskSpec::Kind::kCausal;
  expect_all(causal, &*tuning);
}

// CTAs that steal the work tiles of others, of which some have not started when they ask: the
// last is asked for by who has keys, few or none.
TEST_F(Sm100Persistent, StealsTiles) {
  const Result<Tuning> tuning =
      tuning_from_json(R"({"rows": [{"choose": {"persistent": 2, "pair_cta": 0}}]})");
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  expect_all(mask_of(Kind::kCausal), &*tuning);
}

// The warp that publishes what is stolen asks an expression what it shows of it, too.
TEST_F(Sm100Persistent, StealsTilesOfAnExpression) {
  const Result<Tuning> tuning =
      tuning_from_json(R"({"rows": [{"choose": {"persistent": 2, "pair_cta": 0}}]})");
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  expect_all(sinks_and_window(), &*tuning);
}

// What the rows that the library carries choose, for two groups of heads.
TEST_F(Sm100Persistent, RowsOfTheLibrary) {
  const Result<Tuning> tuning = tuning_from_json(kModelledTuning);
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  ASSERT_FALSE(tuning->rows.empty());
  for (const TuningRow& row : some_of(tuning->rows)) {
    const int group = std::stoi(row.match.at("group"));
    std::string text = R"({"num_q_heads": )" + std::to_string(2 * group);
    for (const auto& [name, value] : row.match) text += ", \"" + name + "\": " + value;
    SCOPED_TRACE(text);
    const Result<ResolvedSpec> spec = ResolvedSpec::from_json(text + "}");
    ASSERT_TRUE(spec) << spec.error().to_string();
    expect_passes_on(spec->given(), {{{200}, {200}}, {{70, 70}, {100, 100}}}, &*tuning);
  }
}

// A warp asks what an expression shows, and publishes the work tiles.
TEST_F(Sm100Persistent, TilesThatAnExpressionHides) {
  const MaskSpec mask = sinks_and_window();
  expect_all(mask, nullptr);
  // A work tile has 128 positions of both heads. Five of them see 1, 2, 0, 0 and 3 tiles of K and
  // V, 32 KiB each, where Q has as much. On many SMs they have half of the rows: ten see 12.
  const auto kernel = compiled(base_spec(Arch::kSm100a, 2, 2, 64, mask));
  ASSERT_TRUE(kernel);
  EXPECT_EQ(loaded_bytes_of(*kernel, {{600}, {600}}, 1), (6 + 3) * 32 * 1024);
  EXPECT_EQ(loaded_bytes_of(*kernel, {{600}, {600}}, 132), (12 + 6 / 2) * 32 * 1024);
}

TEST_F(Sm100Persistent, Window) {
  MaskSpec window;
  window.kind = MaskSpec::Kind::kSlidingWindow;
  window.window = 150;
  expect_all(window, nullptr);
}

}  // namespace
}  // namespace attnjit::sm100
