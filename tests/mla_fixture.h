// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA (mla: decode) on one architecture, beside the reference: pages, heads, rows, depths,
// types, masks, partitions, ragged batches, and specs drawn at random; over caches of Q's type, or
// of e4m3.
#pragma once

#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernel_fixture.h"

namespace attnjit::kernel_test {

class MlaTest : public KernelTest {
 protected:
  explicit MlaTest(Arch arch, std::optional<Dtype> kv_dtype = {})
      : arch_(arch), kv_dtype_(kv_dtype) {}

  // Of a latent part that compiles and runs soon; check_depths() has those of models.
  AttentionSpec spec_of(int heads, int page_size, int partitions) const {
    AttentionSpec spec = absorbed_spec(arch_, heads, 192, page_size);
    spec.num_partitions = partitions;
    spec.mask = mask_of(Kind::kCausal);
    spec.kv_dtype = kv_dtype_;
    if (kv_dtype_) spec.scales = Scales::kHead;
    return spec;
  }
  static AttentionSpec with_depths(AttentionSpec spec, int qk_depth, int ov_depth) {
    spec.qk_depth = qk_depth;
    spec.ov_depth = ov_depth;
    return spec;
  }

  // Odd numbers of KV tiles and even ones, tiles that end in a page, sequences without keys;
  // several work tiles for a CTA. Pairs of a page size and partitions.
  void check_pages(const std::vector<std::pair<int, int>>& cases, const Tuning* tuning = nullptr) {
    for (const auto& [page_size, partitions] : some_of(arch_, cases)) {
      SCOPED_TRACE(page_size);
      expect_passes(spec_of(16, page_size, partitions),
                    {{{1}, {200, 0, 31, 128}}, {{1}, {64, 65}}, {{1}, {390}}, {{1}, {1}}}, tuning);
    }
  }

  // Heads that share a tile with other positions, that fill tiles, and that are no power of two.
  void check_heads() {
    for (const int heads : some_of<int>(arch_, {128, 64, 96, 1, 20})) {
      SCOPED_TRACE(heads);
      expect_passes(spec_of(heads, 64, 2), {{{1}, {130, 64}}, {{3}, {70, 2}}});
    }
  }

  // As speculative decoding has them: each sees the keys up to its own.
  void check_several_rows() {
    AttentionSpec spec = spec_of(16, 32, 1);
    spec.max_q_len = 8;
    for (const std::int64_t q_len : some_of<std::int64_t>({8, 5, 2, 3, 4, 6, 7}, 2)) {
      expect_passes(spec, {{{q_len}, {100, 8, q_len - 1}}, {{q_len}, {66}}});
    }
  }

  void check_depths() {
    expect_passes(with_depths(spec_of(128, 64, 2), 576, 512), {{{2}, {200, 0, 64}}, {{1}, {330}}});
    // The other one has an odd number of blocks.
    expect_passes(some_of<Trial>(
        arch_, {{with_depths(spec_of(32, 64, 2), 320, 256), {{{2}, {500, 64}}, {{1}, {63}}}},
                {with_depths(spec_of(16, 8, 1), 256, 192), {{{1}, {190, 20}}}}}));
    if (!in_proof()) return;
    for (int latent = 64; latent <= 512; latent += 64) {
      for (const int rope : {0, 64}) {
        if (latent + rope <= 64) continue;
        SCOPED_TRACE(latent + rope);
        expect_passes(with_depths(spec_of(16, 64, 1), latent + rope, latent),
                      {{{1}, {190}}, {{1}, {700}}});
      }
    }
  }

  void check_types_sinks_and_masks() {
    std::vector<Trial> trials;
    AttentionSpec spec = spec_of(16, 64, 1);
    spec.qkv_dtype = Dtype::kFp16;
    spec.sink = true;
    trials.push_back({spec, {{{2}, {150, 0, 1}}}});
    spec.output_dtype = Dtype::kBf16;
    spec.lse_includes_sink = false;
    spec.num_partitions = 3;
    spec.mask = window_of(100);
    trials.push_back({spec, {{{2}, {300, 40}}, {{1}, {40}}}});
    AttentionSpec null = spec_of(16, 64, 1);
    null.mask = mask_of(Kind::kNull);
    null.return_lse = false;
    null.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    null.score_mod.cap = 20;
    trials.push_back({null, {{{3}, {150, 2}}}});
    expect_passes(some_of(arch_, trials, 2));
  }

  void check_partitions_of_fixed_keys() {
    AttentionSpec spec = spec_of(16, 16, 1);
    spec.partition_keys = 128;
    spec.sink = true;
    expect_passes(spec, {{{1}, {400, 0, 31}}, {{2}, {100}}});
  }

  // More parts of long rows than a warp merges.
  void check_many_parts_of_long_rows() {
    expect_passes(with_depths(spec_of(16, 64, 11), 384, 320),
                  {{{1}, {800, 0, 300}}, {{2}, {1500}}});
    // More than the merge has in shared memory at a time.
    AttentionSpec more = with_depths(spec_of(2, 64, 40), 384, 320);
    more.sink = true;
    expect_passes(more, {{{1}, {2560, 70, 0}}});
  }

  // Each CTA has a work tile at most, whose Q is loaded before the length is known: of parts that
  // have keys, and of others, whose CTAs have nothing else to do; of more CTAs than there are
  // tiles.
  void check_parts_of_a_tile_each() {
    const AttentionSpec spec = with_depths(spec_of(20, 64, 0), 384, 320);
    for (const int sm_count : some_of(std::vector<int>{36, 40})) {
      expect_in({12, 12}, spec, {{2}, {1000, 2, 700}}, sm_count);
    }
  }

  // Sequences that differ in length, whose keys are dealt out in stream-K ranges: some are cut, in
  // parts and between their query tiles alike, and others are written whole.
  void check_stream_k() {
    AttentionSpec spec = spec_of(96, 64, 0);
    spec.sink = true;
    AttentionSpec rows = spec_of(16, kv_dtype_ ? 16 : 0, 0);
    rows.ragged_kv = !kv_dtype_;
    rows.lse_includes_sink = false;
    AttentionSpec window = spec_of(16, 64, 0);
    window.mask = window_of(900);
    window.kv_lens_exclude_new = true;
    const AttentionSpec longer = with_depths(spec_of(16, 64, 0), 384, 320);
    struct Case {
      AttentionSpec spec;
      Lengths lengths;
      std::vector<int> sm_counts;
    };
    const std::vector<Case> cases = {
        {spec, {{1}, {1500, 70, 0, 2300}}, {8, 11}},
        {rows, {{3}, {2100, 70, 3, 600}}, {5}},
        // Even parts: of whole sequences, and of several parts each.
        {rows, {{3}, {2100, 2090, 2050}}, {4}},
        {spec_of(16, 64, 0), {{1}, {2100, 2080}}, {4}},
        // Long rows: nothing is cut; some are; and more of them than a merge by many warps has.
        {longer, {{1}, {2100, 2100, 2090}}, {3}},
        {longer, {{1}, {2100, 70, 600}}, {5}},
        {with_depths(spec_of(128, 64, 0), 384, 320), {{2}, {2100, 64, 600}}, {12}},
        {window, {{2}, {2300, 70, 1200, 2100}}, {6}},
        {spec, {{2}, {2100, 2, 900}}, {9}},
    };
    for (const auto& [of, lengths, sm_counts] : some_of(spec.arch, cases, 3)) {
      expect_runs(of, lengths, sm_counts);
    }
  }

  // Two CTAs have half of each part's keys, and reduce them: of whole sequences, and of parts that
  // a merge follows; of odd numbers of blocks and tiles; where one of the two, or both, have no
  // keys; of rows that see nothing. Or stream-K ranges are dealt out, and nobody reduces.
  void check_cluster_reduced() {
    AttentionSpec sink = spec_of(96, 64, 0);
    sink.sink = true;
    AttentionSpec rows = spec_of(16, kv_dtype_ ? 16 : 3, 0);
    rows.lse_includes_sink = false;
    rows.output_dtype = Dtype::kBf16;
    rows.qkv_dtype = Dtype::kFp16;
    AttentionSpec window = spec_of(16, 64, 0);
    window.mask = window_of(100);
    const AttentionSpec longer = with_depths(spec_of(128, 64, 0), 384, 320);
    const AttentionSpec wide = with_depths(spec_of(64, 64, 0), 576, 512);
    struct Case {
      AttentionSpec spec;
      Lengths lengths;
      PartitionChoice choice;
    };
    const std::vector<Case> cases = {
        // The device is asked: as long as one another; and not.
        {sink, {{1}, {260, 300}}, {8, 1, true, 2}},
        {rows, {{1}, {2000, 70, 0}}, {8, 1, true, 1}},
        {sink, {{1}, {700, 0, 64, 65}}, {1, 1, true}},
        {rows, {{3}, {500, 70, 2}}, {3, 3, true}},
        {longer, {{2}, {330, 64, 1}}, {2, 2, true}},
        {wide, {{1}, {330, 129}}, {1, 1, true}},
        {window, {{5}, {700, 300, 3}}, {2, 2, true}},
    };
    for (const auto& [spec, lengths, choice] : some_of(arch_, cases, 6)) {
      SCOPED_TRACE(spec_to_json(spec));
      expect_in(choice, spec, lengths, 8);
    }
  }
  void expect_in(const PartitionChoice& choice, const AttentionSpec& spec, const Lengths& lengths,
                 int sm_count) {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    const auto problem = problem_of(spec, lengths);
    ASSERT_TRUE(problem);
    LaunchSequence sequence;
    ASSERT_TRUE(plan_launch_in_parts(kernel->generated.plan, problem->launch_shapes(),
                                     problem->launch_scalars(), {}, {.sm_count = sm_count}, choice,
                                     sequence)
                    .ok());
    const auto reference = reference_of(*problem);
    ASSERT_TRUE(reference);
    for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
      const auto done = run(*kernel, *problem, sequence, seed);
      ASSERT_TRUE(done);
      expect_right(*problem, *reference, *done);
    }
  }

  // Masks whose expressions decide KV tiles. Those that they hide lie at both ends of a walk, and
  // between others; of more than 32 tiles the mask is asked more than once.
  void check_expressions() {
    std::vector<Trial> trials;
    AttentionSpec drafts = spec_of(16, 64, 2);
    drafts.mask = tree_of_drafts();
    drafts.sink = true;
    trials.push_back({drafts, {{{8}, {200, 8, 70}}, {{40}, {150}}}});
    AttentionSpec window = spec_of(16, 16, 1);
    window.mask = expression_of("kv_idx <= q_idx && (kv_idx == 70 || q_idx - kv_idx < 90)");
    trials.push_back({window, {{{1}, {700, 0, 31}}, {{20}, {2500}}}});
    AttentionSpec chunks = spec_of(96, 1, 3);
    chunks.mask = expression_of("q_idx / 200 == kv_idx / 200");
    trials.push_back({chunks, {{{3}, {700, 64, 2}}}});
    AttentionSpec documents = spec_of(16, 64, 1);
    documents.partition_keys = 128;
    documents.ragged = true;
    documents.mask = tree(Kind::kAnd, {mask_of(Kind::kCausal),
                                       expression_of("p.doc[q_idx / 64] == p.doc[kv_idx / 64]",
                                                     {{"doc", ParamSpec::Type::kI32Array}})});
    trials.push_back({documents, {{{5, 0, 40, 1}, {600, 130, 300, 3}}}});
    // Parts, and whole launches, that see nothing.
    AttentionSpec nothing = spec_of(20, 64, 3);
    nothing.mask = expression_of("kv_idx < 70 && q_idx < 600 && b != 1");
    nothing.lse_includes_sink = false;
    nothing.sink = true;
    trials.push_back({nothing, {{{2}, {300, 200, 700}}}});
    AttentionSpec heads = spec_of(20, 64, 1);
    heads.mask = expression_of("h % 2 == 0 ? kv_idx < 130 : kv_idx / 64 % 3 == 1");
    trials.push_back({heads, {{{2}, {500, 64}}}});
    expect_passes(some_of(arch_, trials, 3));
  }
  // Tensors of bools and of numbers, by themselves and in trees.
  void check_materialized() {
    std::vector<Trial> trials;
    const auto add = [&](AttentionSpec spec, const MaskSpec& mask, std::vector<Lengths> batches) {
      spec.mask = mask;
      trials.push_back({spec, std::move(batches)});
    };
    add(spec_of(16, 64, 1), drafts_by_tensor(Dtype::kU8), {{{8}, {200, 8, 70}}, {{40}, {150}}});
    add(spec_of(20, 64, 3), verify::materialized_mask(Dtype::kBits),
        {{{3}, {300, 200, 0}}, {{1}, {700, 65}}});
    AttentionSpec ragged = spec_of(16, 16, 2);
    ragged.ragged = true;
    ragged.sink = true;
    add(ragged, verify::materialized_mask(Dtype::kBf16), {{{5, 0, 40, 1}, {600, 130, 300, 3}}});
    add(ragged, drafts_by_tensor(Dtype::kBits), {{{5, 0, 40, 1}, {600, 130, 300, 3}}});
    add(spec_of(96, 1, 1), verify::materialized_mask(Dtype::kF32), {{{3}, {130, 64, 2}}});
    add(spec_of(16, 64, 1),
        tree(Kind::kOr, {verify::materialized_mask(Dtype::kF32), expression_of("kv_idx < 4")}),
        {{{3}, {130, 64, 2}}});
    add(spec_of(16, 64, 1),
        tree(Kind::kAnd, {mask_of(Kind::kCausal), verify::materialized_mask(Dtype::kU8)}),
        {{{65}, {100, 70}}});
    AttentionSpec fp16 = spec_of(16, 64, 1);
    fp16.qkv_dtype = Dtype::kFp16;
    fp16.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    fp16.score_mod.cap = 20;
    add(fp16, verify::materialized_mask(Dtype::kFp16), {{{3}, {150, 2}}});
    expect_passes(some_of(arch_, trials, 3));
  }
  void check_rows_of_batches() {
    AttentionSpec spec = by_total_row(spec_of(20, 64, 2));
    expect_passes(spec, {{{3}, {200, 8, 70}}});
    spec.ragged = true;
    expect_passes(spec, {{{5, 0, 40, 1}, {200, 8, 70, 3}}});
  }
  // The same where keys are dealt out in stream-K ranges.
  void check_stream_k_of_expressions() {
    AttentionSpec window = spec_of(96, 64, 0);
    window.mask = expression_of("kv_idx <= q_idx && q_idx - kv_idx < 1500");
    expect_runs(window, {{2}, {2300, 70, 0, 1700}}, {8, 9});
    if (!in_proof()) return;
    window.mask = expression_of("kv_idx < 300 || b == 0");
    expect_runs(window, {{1}, {2300, 2100, 0, 1700}}, {7, 5});
  }
  // A window costs the same whatever is before it; and no score is asked about of a tile that is
  // whole, or hidden.
  void check_tiles_that_expressions_decide() {
    AttentionSpec spec = spec_of(16, 64, 1);
    spec.mask = expression_of("kv_idx <= q_idx && q_idx - kv_idx < 100");
    const auto window = compiled(spec);
    ASSERT_TRUE(window);
    const std::uint64_t few = steps_of(*window, {{1}, {400}});
    EXPECT_LT(steps_of(*window, {{1}, {3000}}), few + few / 5);
    // One tile is asked about score by score, which costs some of a launch, and 15 are not.
    const Lengths keys{{1}, {1000}};
    spec.mask = mask_of(Kind::kNull);
    const auto null = compiled(spec);
    ASSERT_TRUE(null);
    const std::uint64_t all = steps_of(*null, keys);
    for (const char* const code :
         {"sin(float(kv_idx)) > 0.5f || kv_idx < kv_len - 50",
          "(sin(float(kv_idx)) > 0.5f && kv_idx > kv_len - 50) || kv_idx == 3"}) {
      SCOPED_TRACE(code);
      spec.mask = expression_of(code);
      const auto kernel = compiled(spec);
      ASSERT_TRUE(kernel);
      EXPECT_LT(steps_of(*kernel, keys), 2 * all);
    }
  }

  void check_batches_without_pages() {
    std::vector<Trial> trials;
    trials.push_back({spec_of(16, 0, 1), {{{2}, {150}}, {{1}, {0}}}});
    trials.push_back({spec_of(20, 0, 3), {{{2}, {150}}}});
    AttentionSpec ragged = spec_of(20, 0, 2);
    ragged.ragged = true;
    trials.push_back({ragged, {{{3, 0, 1}, {150, 70, 2}}}});
    ragged.ragged_kv = true;
    trials.push_back({ragged, {{{1, 4, 0}, {70, 129, 3}}}});
    expect_passes(some_of(arch_, trials, 2));
  }

  void check_new_rows_and_ragged_pages() {
    AttentionSpec spec = spec_of(16, 64, 1);
    spec.ragged = true;
    spec.kv_lens_exclude_new = true;
    expect_passes(spec, {{{1, 5, 0, 2}, {130, 64, 3, 2}}});
  }

  // What a launch that accumulates computes goes to a workspace, and is merged.
  void check_accumulates() {
    AttentionSpec spec = spec_of(16, 64, 1);
    spec.accumulate = true;
    expect_passes(spec, {{{2}, {130, 1}}});
  }

  // Heads, depths, pages, splits, types, masks and lengths.
  void check_random_specs() {
    std::mt19937 random(20261123);
    const auto draw = [&](int begin, int end) {
      return begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
    };
    for (int i = 0; i < (in_proof() ? 20 : 2); ++i) {
      AttentionSpec spec = spec_of(draw(1, 129), 0, draw(0, 4));
      const int latent = 64 * draw(1, in_proof() ? 9 : 4);
      spec = with_depths(spec, latent + 64 * (latent == 64 ? 1 : draw(0, 2)), latent);
      const int pages[] = {0, 1, 5, 16, 64, 96, 256};
      spec.page_size = pages[draw(kv_dtype_ ? 1 : 0, 7)];
      if (kv_dtype_) spec.scales = static_cast<Scales>(draw(0, 3));
      if (spec.num_partitions == 1 && draw(0, 2) == 1) spec.partition_keys = 64 * draw(1, 4);
      spec.qkv_dtype = draw(0, 2) == 1 ? Dtype::kFp16 : Dtype::kBf16;
      spec.sink = draw(0, 2) == 1;
      spec.lse_includes_sink = draw(0, 2) == 1;
      if (draw(0, 3) == 0) spec.mask = window_of(draw(1, 200));
      if (draw(0, 3) == 0) spec.mask = mask_of(Kind::kNull);
      Lengths lengths{{draw(1, 9)}, {draw(0, 400), draw(0, 400)}};
      if (spec.page_size == 0) lengths.kv.pop_back();
      SCOPED_TRACE(testing::Message()
                   << i << ": " << spec.num_q_heads << " heads, " << spec.qk_depth << "/"
                   << spec.ov_depth << ", pages of " << spec.page_size << ", "
                   << spec.num_partitions << " parts or " << spec.partition_keys << " keys, "
                   << lengths.q[0] << " x " << lengths.kv[0]);
      expect_passes(spec, {lengths});
    }
  }

  void check_registers() {
    AttentionSpec fixed = spec_of(128, 64, 1);
    fixed.partition_keys = 256;
    fixed.sink = true;
    AttentionSpec boxes = spec_of(128, 16, 1);
    boxes.partition_keys = 256;
    AttentionSpec drafts = spec_of(16, 64, 2);
    drafts.mask = drafts_by_tensor(Dtype::kU8);
    AttentionSpec one_row = spec_of(32, 64, 0);
    one_row.max_q_len = 1;
    expect_no_spills(some_of<AttentionSpec>(
        arch_, {with_depths(boxes, 320, 256), with_depths(one_row, 320, 256),
                with_depths(fixed, 576, 512), with_depths(spec_of(128, 1, 0), 576, 512),
                with_depths(boxes, 576, 512), with_depths(drafts, 576, 512)}));
  }

  const Arch arch_;
  const std::optional<Dtype> kv_dtype_;
};

}  // namespace attnjit::kernel_test
