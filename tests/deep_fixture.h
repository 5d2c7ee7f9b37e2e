// SPDX-License-Identifier: Apache-2.0
// head_dim above 256, whose V is a tensor of its own, on one architecture, beside the reference:
// groups, depths, types, masks, pages, ragged batches, partitions, and specs drawn at random.
#pragma once

#include <gtest/gtest-spi.h>

#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernel_fixture.h"
#include "sm100/damaged.h"
#include "verify/compare.h"

namespace attnjit::kernel_test {

class DeepTest : public KernelTest {
 protected:
  explicit DeepTest(Arch arch) : arch_(arch) {}

  AttentionSpec spec_of(int heads, int group, int depth = 512,
                        const MaskSpec& mask = mask_of(Kind::kCausal)) const {
    return base_spec(arch_, heads, group, depth, mask);
  }
  AttentionSpec decode_of(int heads, int group, int page_size, int max_q_len) const {
    AttentionSpec spec = of_sequences(spec_of(heads, group), page_size, false);
    spec.max_q_len = max_q_len;
    return spec;
  }

  // Odd numbers of KV tiles and even ones, more queries than keys, no keys; several work tiles for
  // a CTA, of two key-value heads.
  void check_dense() {
    expect_passes(spec_of(2, 1, 512, mask_of(Kind::kNull)),
                  {{{70}, {129}}, {{1}, {64}}, {{3}, {0}}, {{65, 65}, {200, 200}}});
    expect_passes(spec_of(2, 1), {{{141}, {200}}, {{100}, {60}}, {{64, 64}, {64, 64}}});
  }

  // Rows of all the heads of a group, and of one head where a group would waste rows.
  void check_groups() {
    for (const int group : some_of<int>(arch_, {8, 2, 4, 5, 64, 128, 256, 3})) {
      SCOPED_TRACE(group);
      expect_passes(spec_of(2 * group, group), {{{group > 8 ? 2 : 21}, {130}}});
    }
  }

  // All depths; those to 320 have two stages, and of odd numbers of blocks both halves of O have
  // one.
  void check_depths() {
    for (const int depth : some_of<int>(arch_, {320, 384, 448, 512})) {
      SCOPED_TRACE(depth);
      expect_passes(spec_of(4, 2, depth), {{{70}, {300}}, {{3, 3}, {90, 90}}});
      expect_passes(of_sequences(spec_of(4, 2, depth), 16, true), {{{20, 0, 3}, {150, 70, 0}}});
    }
  }

  void check_types_sinks_masks_and_modifications() {
    std::vector<Trial> trials;
    AttentionSpec spec = spec_of(4, 2, 512, window_of(100));
    spec.qkv_dtype = Dtype::kFp16;
    spec.sink = true;
    trials.push_back({spec, {{{40}, {300}}, {{100}, {50}}}});
    spec.output_dtype = Dtype::kBf16;
    spec.lse_includes_sink = false;
    spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    spec.score_mod.cap = 20;
    spec.mask = mask_of(Kind::kNull);
    trials.push_back({spec, {{{40}, {100}}}});
    AttentionSpec custom = spec_of(4, 2, 384, mask_of(Kind::kCustom));
    custom.mask.custom.name = "third";
    custom.mask.custom.code = "kv_idx <= q_idx && (kv_idx + h + 2 * kv_h) % 3 != 0";
    custom.score_mod.kind = ScoreModSpec::Kind::kAlibi;
    trials.push_back({custom, {{{40}, {150}}}});
    expect_passes(some_of(arch_, trials, 2));
  }

  // Masks whose expressions decide KV tiles. Those that they hide lie at both ends of a walk, and
  // between others; of more than 32 tiles the mask is asked more than once.
  void check_expressions() {
    std::vector<Trial> trials;
    trials.push_back({spec_of(4, 2, 512, expression_of("q_idx / 100 == kv_idx / 100")),
                      {{{70}, {400}}, {{150}, {150}}}});
    trials.push_back(
        {of_sequences(
             spec_of(4, 2, 320,
                     expression_of("kv_idx <= q_idx && (kv_idx == 70 || q_idx - kv_idx < 90)")),
             64, true),
         {{{40, 0, 1}, {500, 70, 300}}}});
    AttentionSpec drafts = decode_of(8, 4, 64, 16);
    drafts.mask = tree_of_drafts();
    drafts.num_partitions = 2;
    trials.push_back({drafts, {{{16}, {200, 16}}}});
    AttentionSpec documents = decode_of(8, 4, 1, 2);
    documents.partition_keys = 128;
    documents.mask = expression_of("p.doc[q_idx / 64] == p.doc[kv_idx / 64] || b == 1",
                                   {{"doc", ParamSpec::Type::kI32Array}});
    trials.push_back({documents, {{{2}, {600, 0, 31}}}});
    trials.push_back(
        {spec_of(2, 1, 512, expression_of("kv_idx < 0 || q_idx > 200")), {{{200}, {300}}}});
    trials.push_back({spec_of(2, 2, 320, expression_of("kv_idx / 64 % 5 == 1 || kv_idx > q_idx")),
                      {{{3}, {2300}}}});
    expect_passes(some_of(arch_, trials, 3));
  }
  // Tensors of bools and of numbers, by themselves and in trees.
  void check_materialized() {
    std::vector<Trial> trials;
    trials.push_back({of_sequences(spec_of(4, 2, 512, drafts_by_tensor(Dtype::kBits)), 64, true),
                      {{{40, 0, 1}, {500, 70, 300}}}});
    trials.push_back({spec_of(4, 2, 384, verify::materialized_mask(Dtype::kU8)),
                      {{{70}, {300}}, {{150, 150}, {150, 150}}}});
    trials.push_back(
        {spec_of(2, 1, 512, verify::materialized_mask(Dtype::kBf16)), {{{70}, {129}}, {{3}, {0}}}});
    AttentionSpec decode = decode_of(8, 4, 16, 16);
    decode.mask = drafts_by_tensor(Dtype::kU8);
    decode.num_partitions = 2;
    trials.push_back({decode, {{{16}, {200, 16}}}});
    trials.push_back({spec_of(2, 2, 320,
                              tree(Kind::kAnd, {mask_of(Kind::kCausal),
                                                verify::materialized_mask(Dtype::kF32)})),
                      {{{70}, {400}}, {{150}, {150}}}});
    expect_passes(some_of(arch_, trials, 3));
  }
  void check_rows_of_batches() {
    AttentionSpec spec = by_total_row(of_sequences(spec_of(4, 2, 320), 64, false));
    expect_passes(spec, {{{5}, {200, 8, 70}}});
    spec.ragged = true;
    expect_passes(spec, {{{5, 0, 70, 1}, {200, 8, 70, 3}}});
  }
  // A window costs the same whatever is before it; and no score is asked about of a tile that is
  // whole.
  void check_tiles_that_expressions_decide() {
    const auto window =
        compiled(spec_of(2, 2, 320, expression_of("kv_idx <= q_idx && q_idx - kv_idx < 100")));
    ASSERT_TRUE(window);
    const std::uint64_t few = steps_of(*window, {{32}, {400}});
    EXPECT_LT(steps_of(*window, {{32}, {3000}}), few + few / 5);
    const Lengths keys{{32}, {1000}};
    const auto null = compiled(spec_of(2, 2, 320, mask_of(Kind::kNull)));
    const auto whole = compiled(
        spec_of(2, 2, 320, expression_of("sin(float(kv_idx)) > 0.5f || kv_idx < kv_len - 50")));
    ASSERT_TRUE(null && whole);
    const std::uint64_t all = steps_of(*null, keys);
    EXPECT_LT(steps_of(*whole, keys), 2 * all);
  }

  void check_decodes_of_pages() {
    for (const int page_size : some_of<int>(arch_, {16, 64, 24, 256, 1})) {
      SCOPED_TRACE(page_size);
      expect_passes(decode_of(16, 8, page_size, 4),
                    {{{1}, {200, 0, 31}}, {{4}, {64, 65}}, {{1}, {330}}, {{1}, {1}}});
    }
    // A group that is no power of two fills its rows up.
    expect_passes(decode_of(6, 3, 64, 4), {{{3}, {70, 2}}});
  }

  void check_ragged_batches() {
    std::vector<Trial> trials;
    AttentionSpec spec = of_sequences(spec_of(4, 2), 64, true);
    trials.push_back({spec, {{{40, 0, 1}, {150, 70, 2}}}});
    spec.kv_lens_exclude_new = true;
    trials.push_back({spec, {{{1, 5, 0, 2}, {130, 64, 3, 2}}}});
    AttentionSpec packed = spec_of(6, 3);
    packed.ragged = packed.ragged_kv = true;
    trials.push_back({packed, {{{1, 70, 0}, {70, 129, 3}}}});
    expect_passes(some_of(arch_, trials, 2));
  }

  void check_partitions() {
    std::vector<Trial> trials;
    AttentionSpec spec = decode_of(8, 4, 16, 2);
    spec.num_partitions = 3;
    spec.sink = true;
    trials.push_back({spec, {{{1}, {300, 0, 31}}, {{2}, {100}}}});
    spec.num_partitions = 1;
    spec.partition_keys = 128;
    trials.push_back({spec, {{{1}, {400, 0, 31}}}});
    AttentionSpec chosen = decode_of(8, 4, 64, 1);
    chosen.num_partitions = 0;
    trials.push_back({chosen, {{{1}, {400, 64}}, {{1}, {700}}}});
    expect_passes(some_of(arch_, trials, 2));
    if (!in_proof()) return;
    AttentionSpec dense = spec_of(4, 2);
    dense.num_partitions = 2;
    expect_passes(dense, {{{70}, {150}}});
  }

  void check_accumulates() {
    AttentionSpec spec = of_sequences(spec_of(4, 2), 64, false);
    spec.accumulate = true;
    expect_passes(spec, {{{2}, {130, 1}}});
  }

  void check_whatever_tensors_hold() {
    for (const int page_size : some_of<int>(arch_, {16, 3})) {
      AttentionSpec spec = of_sequences(spec_of(2, 2), page_size, true);
      if (page_size == 3) spec.num_partitions = 2;
      expect_no_harm(spec, {{"page_table", {kMax, kMin, -1, 1 << 20}},
                            {"kv_lens", {-7, 500, kMin}},
                            {"q_offsets", {kMax, kMin, kMax, kMin}}});
    }
  }

  // Heads, groups, pages, splits, types, masks and lengths.
  void check_random_specs() {
    std::mt19937 random(20261124);
    const auto draw = [&](int begin, int end) {
      return begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
    };
    for (int i = 0; i < (in_proof() ? 20 : 2); ++i) {
      const int group = draw(1, 17);
      AttentionSpec spec = spec_of(group * draw(1, 4), group, 64 * draw(5, 9));
      const int pages[] = {0, 1, 5, 16, 64, 96, 256};
      spec.page_size = pages[draw(0, 7)];
      spec.ragged = draw(0, 3) == 0;
      spec.num_partitions = draw(0, 4);
      if (spec.num_partitions == 1 && draw(0, 2) == 1) spec.partition_keys = 64 * draw(1, 4);
      spec.qkv_dtype = draw(0, 2) == 1 ? Dtype::kFp16 : Dtype::kBf16;
      spec.sink = draw(0, 2) == 1;
      if (draw(0, 3) == 0) spec.mask = window_of(draw(1, 200));
      if (draw(0, 3) == 0) spec.mask = mask_of(Kind::kNull);
      if (draw(0, 2) == 0) spec.max_q_len = 40;
      Lengths lengths{{draw(0, 40)}, {draw(0, 400), draw(0, 200)}};
      if (spec.ragged) lengths.q.push_back(draw(1, 30));
      if (spec.page_size == 0 && !spec.ragged) lengths.kv.pop_back();
      if (!in_proof() && (i == 0) != (arch_ == Arch::kSm90a)) continue;  // one for each family
      SCOPED_TRACE(testing::Message() << i << ": " << spec_to_json(spec));
      expect_passes(spec, {lengths});
    }
  }

  struct Damage {
    const char* file;
    const char* from;
    const char* to;
  };
  // What each change would spoil is noticed.
  void check_damages(const std::vector<Damage>& all) {
    const AttentionSpec spec = of_sequences(spec_of(4, 2), 64, true);
    ASSERT_TRUE(passes(spec, TemplateSet::embedded()));
    for (const auto& [file, from, to] : some_of(arch_, all)) {
      EXPECT_FALSE(passes(spec, sm100::damaged(file, from, to))) << "passes: " << from;
    }
  }

  // Kernels that need many registers, of all roles.
  std::vector<AttentionSpec> greedy_specs() const {
    AttentionSpec alibi = spec_of(16, 8);
    alibi.score_mod.kind = ScoreModSpec::Kind::kAlibi;
    AttentionSpec fixed = decode_of(16, 8, 16, 1);
    fixed.partition_keys = 256;
    fixed.sink = true;
    AttentionSpec rows = decode_of(6, 3, 1, 4);
    rows.num_partitions = 0;
    AttentionSpec parts = of_sequences(spec_of(16, 8), 64, true);
    parts.num_partitions = 0;
    AttentionSpec odd = of_sequences(spec_of(6, 3, 320, window_of(128)), 24, true);
    odd.partition_keys = 128;
    AttentionSpec packed = spec_of(16, 8);
    packed.ragged = packed.ragged_kv = true;
    return some_of<AttentionSpec>(arch_, {spec_of(16, 8), fixed, rows, alibi, parts, odd, packed});
  }

 private:
  static constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  static constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();

  // With inputs whose maxima grow, too.
  static bool passes(const AttentionSpec& spec, const TemplateSet& templates) {
    Result<emulator::GeneratedKernel> generated =
        emulator::generate_kernel(spec, {}, templates, nullptr, CompileTo::kPtx);
    EXPECT_TRUE(generated) << generated.error().to_string();
    Result<PtxModule> module = PtxModule::load(generated->ptx);
    EXPECT_TRUE(module);
    const Kernel kernel{std::move(*generated), std::move(*module)};
    for (const InputKind input : {InputKind::kNormal, InputKind::kRaised}) {
      const auto problem = problem_of(spec, {{20, 3}, {200, 70}}, input);
      testing::TestPartResultArray failures;
      std::optional<Outputs> done;
      {
        testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
        done = run(kernel, *problem, launches_of(kernel, *problem, problem->launch_shapes(), 2));
      }
      if (!done || failures.size() > 0) return false;
      const Result<verify::Reference> reference = verify::compute_reference(*problem, 1);
      EXPECT_TRUE(reference);
      if (!verify::compare(*problem, *reference, done->o, done->lse ? &*done->lse : nullptr,
                           verify::tolerance_of(spec))
               .passed) {
        return false;
      }
    }
    return true;
  }

  Arch arch_;
};

}  // namespace attnjit::kernel_test
