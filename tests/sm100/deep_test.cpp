// SPDX-License-Identifier: Apache-2.0
// head_dim above 256 on sm_100a and sm_103a, whose V is a tensor of its own. Skipped without
// NVRTC.
#include "../deep_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Deep : public DeepTest {
 protected:
  explicit Sm100Deep(Arch arch = Arch::kSm100a) : DeepTest(arch) {}
};
class Sm103Deep : public Sm100Deep {
 protected:
  Sm103Deep() : Sm100Deep(Arch::kSm103a) {}
};

TEST_F(Sm100Deep, Dense) { check_dense(); }
TEST_F(Sm100Deep, Groups) { check_groups(); }
TEST_F(Sm100Deep, Depths) { check_depths(); }
TEST_F(Sm103Deep, TypesSinksMasksAndModifications) { check_types_sinks_masks_and_modifications(); }
TEST_F(Sm100Deep, Expressions) { check_expressions(); }
TEST_F(Sm100Deep, Materialized) { check_materialized(); }
TEST_F(Sm100Deep, RowsOfBatches) { check_rows_of_batches(); }
TEST_F(Sm100Deep, TilesThatExpressionsDecide) { check_tiles_that_expressions_decide(); }
TEST_F(Sm100Deep, DecodesOfPages) { check_decodes_of_pages(); }
TEST_F(Sm100Deep, RaggedBatches) { check_ragged_batches(); }
TEST_F(Sm100Deep, Partitions) { check_partitions(); }
TEST_F(Sm100Deep, Accumulates) { check_accumulates(); }
TEST_F(Sm100Deep, WhateverTensorsHold) { check_whatever_tensors_hold(); }
TEST_F(Sm100Deep, RandomSpecs) { check_random_specs(); }

// Two CTAs that load K and V for each other: where one has no rows, over pages and in ragged
// batches with one stage; and absorbed MLA of 128 heads.
TEST_F(Sm100Deep, Clusters) {
  const Result<Tuning> two = tuning_from_json(R"({"rows": [{"choose": {"cluster": 2}}]})");
  ASSERT_TRUE(two) << two.error().to_string();
  AttentionSpec mla = absorbed_spec(Arch::kSm100a, 128, 576, 0);
  mla.ov_depth = 512;
  const std::vector<Trial> trials = {
      {of_sequences(spec_of(4, 2, 448), 16, true), {{{70, 0, 9}, {150, 70, 40}}}},
      {of_sequences(spec_of(2, 1), 64, false), {{{129}, {200, 65, 0}}, {{1}, {64, 63}}}},
      {spec_of(2, 1), {{{193}, {200}}, {{65, 65}, {64, 64}}}},
      {spec_of(4, 2, 320), {{{70, 70}, {150, 150}}}},
      {mla, {{{2, 2}, {150, 150}}, {{1}, {64}}}}};
  for (const auto& [spec, batches] : some_of(trials, 2)) expect_passes(spec, batches, &*two);
}

// The warp that loads V zeroes what lies past a sequence's end in its last tile; K's has no code
// for that.
TEST_F(Sm100Deep, OneWarpZeroesTails) {
  const auto kernel = compiled(of_sequences(spec_of(4, 2), 64, false));
  ASSERT_TRUE(kernel);
  const std::string& ptx = kernel->generated.ptx;
  constexpr std::string_view kFence = "fence.proxy.async.shared::cta";
  const std::size_t first = ptx.find(kFence);
  ASSERT_NE(first, ptx.npos);
  EXPECT_EQ(ptx.find(kFence, first + 1), ptx.npos);
}

// No waiver: no order of products is relied on that PTX does not promise.
TEST_F(Sm100Deep, WaivesNothing) {
  const Result<KernelPlan> planned = plan(spec_of(16, 8));
  ASSERT_TRUE(planned.ok());
  EXPECT_TRUE(planned->waivers.empty());
}

TEST_F(Sm100Deep, DamagesAreSeen) {
  check_damages({
      // The other head's keys; K's bytes as V, and K's tensor.
      {"mla/layout.cuh", "head / Config::kGroup : 0", "0 : 0"},
      {"sm100_mla/products.cuh", "Layout::kFirstOfV + v_block", "v_block"},
      {"mla/producer.cuh", "return arguments.v_map", "return arguments.k_map"},
      // P over one that is multiplied still; O that is rescaled while it is added to.
      {"sm100_mla/softmax.cuh", "smem.wait(smem.o_full(tiles.stage), tiles.parity ^ 1);", ""},
      {"sm100_mla/softmax.cuh", "      await_output();\n      sm100::", "      sm100::"},
      // K and V that have not landed; rows past the end, zeroed elsewhere, or said to be too late.
      {"sm100_mla/products.cuh", "smem.wait(smem.kv_full(ring.stage, block), ring.parity);", ""},
      {"mla/producer.cuh", "smem.kv(stage, Tiles::kFirstOfV + block)", "smem.kv(stage, block)"},
      {"mla/producer.cuh", "copies.finish_tail();\n        } else {", "} else {"},
      // Memory that is given up before the last products have read it.
      {"sm100_mla/products.cuh",
       "if constexpr (Config::kSeparateV) this->await_release(Layout::kFirstOfV, "
       "Layout::kOvBlocks);",
       ""},
  });
}

TEST_F(Sm100Deep, SpillsNothing) { expect_no_spills(greedy_specs()); }

}  // namespace
}  // namespace attnjit::sm100
