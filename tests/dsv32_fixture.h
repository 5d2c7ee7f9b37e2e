// SPDX-License-Identifier: Apache-2.0
// Caches in the format dsv32 of absorbed MLA: the cases that every architecture's kernel is tried
// with.
#pragma once

#include <vector>

#include "./kernel_fixture.h"

namespace attnjit::kernel_test {

class Dsv32Test : public KernelTest {
 protected:
  static AttentionSpec spec_of(Arch arch, int heads, int page_size, int topk) {
    AttentionSpec spec = absorbed_spec(arch, heads, 576, page_size);
    spec.cache_format = CacheFormat::kDsv32;
    spec.topk = topk;
    return spec;
  }

  // Sequences that end within a tile, without keys, of many tiles; pages of a tile's rows, and of
  // others. What no row's is, is NaN.
  static void expect_dense(Arch arch) {
    for (const int page_size : some_of<int>(arch, {64, 1, 24})) {
      AttentionSpec spec = spec_of(arch, 16, page_size, 0);
      spec.mask = mask_of(Kind::kCausal);
      spec.num_partitions = page_size == 64 ? 1 : 2;
      expect_passes(spec, {{{2}, {300, 0, 31}}, {{1}, {64, 65}}});
    }
  }

  static void expect_lists(Arch arch) {
    for (const auto& [heads, page_size, topk] :
         some_of<std::array<int, 3>>(arch, {{128, 64, 192}, {16, 1, 64}, {20, 24, 320}})) {
      SCOPED_TRACE(heads);
      expect_passes(spec_of(arch, heads, page_size, topk), {{{2}, {200, 0}}, {{1}, {70}}});
    }
    AttentionSpec parts = spec_of(arch, 16, 64, 256);
    parts.sink = true;
    parts.num_partitions = 3;
    expect_passes(parts, {{{3}, {200, 64, 40}}});
  }

  static void expect_ragged_batches(Arch arch) {
    std::vector<Trial> trials;
    AttentionSpec spec = spec_of(arch, 16, 64, 256);
    spec.ragged = true;
    trials.push_back({spec, {{{3, 0, 2}, {200, 64, 40}}}});
    spec.topk = 0;
    spec.mask = mask_of(Kind::kCausal);
    trials.push_back({spec, {{{3, 0, 2}, {200, 64, 40}}}});
    expect_passes(some_of(arch, trials));
  }

  // DeepSeek V3.2's decode.
  static void expect_models_fit(Arch arch) {
    AttentionSpec parts = spec_of(arch, 128, 64, 2048);
    parts.sink = parts.return_lse = true;
    parts.partition_keys = 256;
    AttentionSpec chosen = parts;
    chosen.partition_keys = chosen.num_partitions = 0;
    chosen.page_size = 1;
    // Without lists, and of ragged batches.
    AttentionSpec dense = spec_of(arch, 128, 64, 0);
    dense.mask = mask_of(Kind::kCausal);
    dense.num_partitions = 0;
    dense.sink = true;
    AttentionSpec ragged = spec_of(arch, 20, 24, 0);
    ragged.ragged = ragged.kv_lens_exclude_new = true;
    ragged.mask = mask_of(Kind::kCausal);
    ragged.partition_keys = 256;
    ragged.score_mod.kind = ScoreModSpec::Kind::kAlibi;
    AttentionSpec ragged_lists = parts;
    ragged_lists.ragged = true;
    AttentionSpec capped = spec_of(arch, 20, 16, 64);
    capped.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    // Of 64 heads and fewer a CTA upcasts whole rows.
    AttentionSpec shared = spec_of(arch, 64, 64, 2048);
    shared.num_partitions = 0;
    AttentionSpec few = dense;
    few.num_q_heads = few.group = 16;
    expect_no_spills(some_of<AttentionSpec>(arch,
                                            {shared, dense, parts, ragged, ragged_lists, few,
                                             spec_of(arch, 128, 64, 2048), chosen, capped},
                                            2));
  }
};

}  // namespace attnjit::kernel_test
