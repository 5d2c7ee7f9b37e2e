// SPDX-License-Identifier: Apache-2.0
// Lists of keys (topk) of absorbed MLA: the cases that every architecture's kernel is tried with.
#pragma once

#include <limits>
#include <vector>

#include "./kernel_fixture.h"

namespace attnjit::kernel_test {

class TopkTest : public KernelTest {
 protected:
  // Of a latent part that compiles soon.
  static AttentionSpec spec_of(Arch arch, int heads, int page_size, int topk) {
    AttentionSpec spec = absorbed_spec(arch, heads, 192, page_size);
    spec.topk = topk;
    return spec;
  }

  // Heads that are a tile's rows in part, in whole, and twice; pages of one row, of a tile's, and
  // of neither; lists that are longer than their sequence, and shorter.
  static void expect_heads_and_pages(Arch arch) {
    for (const auto& [heads, page_size, topk] : some_of<std::array<int, 3>>(
             arch, {{128, 1, 128}, {16, 64, 192}, {64, 64, 256}, {20, 24, 64}})) {
      SCOPED_TRACE(heads);
      expect_passes(spec_of(arch, heads, page_size, topk),
                    {{{3}, {200, 0, 31}}, {{1}, {300, 7, 64, 65}}});
    }
  }

  static void expect_depths(Arch arch) {
    AttentionSpec spec = spec_of(arch, 128, 64, 192);
    spec.qk_depth = 576;
    expect_passes(spec, {{{2}, {200}}});
    if (!in_proof()) return;
    spec = spec_of(arch, 16, 1, 128);
    spec.qk_depth = spec.ov_depth = 256;  // no rope part: V's first block says what is listed
    expect_passes(spec, {{{5}, {190, 20}}});
    spec.ov_depth = 192;
    expect_passes(spec, {{{5}, {190, 20}}});
  }

  static void expect_partitions(Arch arch) {
    for (const int partitions : some_of<int>(arch, {3, 0})) {
      AttentionSpec spec = spec_of(arch, 16, 64, 256);
      spec.num_partitions = partitions;
      spec.sink = true;
      expect_passes(spec, {{{2}, {500, 3}}, {{1}, {60}}});
    }
    AttentionSpec fixed = spec_of(arch, 16, 64, 320);
    fixed.partition_keys = 128;
    fixed.lse_includes_sink = false;
    fixed.sink = true;
    expect_passes(fixed, {{{2}, {500, 0}}});
  }

  static void expect_ragged_batches(Arch arch) {
    std::vector<Trial> trials;
    AttentionSpec spec = spec_of(arch, 16, 64, 128);
    spec.ragged = true;
    spec.qkv_dtype = Dtype::kFp16;
    spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    spec.score_mod.cap = 20;
    trials.push_back({spec, {{{3, 0, 7}, {200, 64, 40}}}});
    spec.num_partitions = 2;
    spec.accumulate = in_proof();
    if (in_proof()) spec.num_partitions = 1;
    trials.push_back({spec, {{{1, 70, 2}, {200, 64, 300}}}});
    expect_passes(some_of(arch, trials));
  }

  // What lists hold is not known on the host: rows that the pool has not are hidden, a key that is
  // named twice counts twice.
  static void expect_any_list(Arch arch) {
    const AttentionSpec spec = spec_of(arch, 16, 64, 128);
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto problem = problem_of(spec, {{2}, {130, 70}});
    ASSERT_TRUE(problem);
    verify::Tensor& lists = problem->tensors.at("topk_indices");
    auto* const list = lists.as<std::int32_t>();
    const std::int32_t rows = problem->num_pages * spec.page_size;
    const std::int32_t wrong[] = {
        std::numeric_limits<std::int32_t>::min(), -2, rows, rows + 1, 1 << 30,
        std::numeric_limits<std::int32_t>::max()};
    for (int i = 0; i < 6; ++i) list[7 * i] = wrong[i];
    // The second row is one key, 128 times; the third what the pool has not.
    std::fill_n(list + 128, 128, static_cast<std::int32_t>(problem->kv_row(0, 5)));
    std::fill_n(list + 256, 128, rows);
    for (const int sm_count : {1, 132}) {
      const auto done = run(*kernel, *problem,
                            launches_of(*kernel, *problem, problem->launch_shapes(), sm_count));
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
      for (int head = 0; head < 16; ++head) {
        EXPECT_EQ(done->lse->as<float>()[problem->lse_index(1, head, 0)],
                  -std::numeric_limits<float>::infinity());
      }
    }
  }

  static void expect_models_fit(Arch arch) {
    AttentionSpec model = spec_of(arch, 128, 64, 2048);
    model.qk_depth = 576;
    AttentionSpec ragged = model;
    ragged.ragged = ragged.sink = true;
    ragged.partition_keys = 256;
    expect_no_spills(some_of<AttentionSpec>(arch, {ragged, model}));
  }
};

}  // namespace attnjit::kernel_test
