// SPDX-License-Identifier: Apache-2.0
// head_dim above 256 on sm_90a, whose V is a tensor of its own. Skipped without NVRTC.
#include "../deep_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Deep : public DeepTest {
 protected:
  Sm90Deep() : DeepTest(Arch::kSm90a) {}
};

TEST_F(Sm90Deep, Dense) { check_dense(); }
TEST_F(Sm90Deep, Groups) { check_groups(); }
TEST_F(Sm90Deep, Depths) { check_depths(); }
TEST_F(Sm90Deep, TypesSinksMasksAndModifications) { check_types_sinks_masks_and_modifications(); }
TEST_F(Sm90Deep, Expressions) { check_expressions(); }
TEST_F(Sm90Deep, Materialized) { check_materialized(); }
TEST_F(Sm90Deep, RowsOfBatches) { check_rows_of_batches(); }
TEST_F(Sm90Deep, TilesThatExpressionsDecide) { check_tiles_that_expressions_decide(); }
TEST_F(Sm90Deep, DecodesOfPages) { check_decodes_of_pages(); }
TEST_F(Sm90Deep, RaggedBatches) { check_ragged_batches(); }
TEST_F(Sm90Deep, Partitions) { check_partitions(); }
TEST_F(Sm90Deep, Accumulates) { check_accumulates(); }
TEST_F(Sm90Deep, WhateverTensorsHold) { check_whatever_tensors_hold(); }
TEST_F(Sm90Deep, RandomSpecs) { check_random_specs(); }

TEST_F(Sm90Deep, DamagesAreSeen) {
  check_damages({
      // The other head's keys; K's bytes as V; the memory of a tile that is still multiplied.
      {"mla/layout.cuh", "head / Config::kGroup : 0", "0 : 0"},
      {"sm90_mla/consumer.cuh", "Layout::kFirstOfV + Layout::first_block(rank)",
       "Layout::first_block(rank)"},
      {"mla/layout.cuh", "stage : stage ^ 1", "stage : stage"},
      // V that has not landed; K that is handed back before S is made of it; rows past the end.
      {"sm90_mla/consumer.cuh", "if constexpr (Config::kSeparateV) await_v(ring);", ""},
      {"mla/producer.cuh", "smem.kv(stage, Tiles::kFirstOfV + block)", "smem.kv(stage, block)"},
      {"mla/producer.cuh", "return arguments.v_map", "return arguments.k_map"},
  });
}

// A CTA of 384 threads is launched with 168 registers per thread; none is spilt, and no product is
// serialised.
TEST_F(Sm90Deep, SpillsNothing) {
  for (const AttentionSpec& spec : greedy_specs()) {
    const auto kernel = compiled(spec, nullptr, CompileTo::kImage);
    ASSERT_TRUE(kernel);
    SCOPED_TRACE(spec_to_json(spec));
    EXPECT_EQ(kernel->generated.usage.spill_bytes, 0);
    EXPECT_EQ(kernel->generated.usage.stack_bytes, 0);
    EXPECT_LE(kernel->generated.usage.registers, 168);
    EXPECT_EQ(kernel->generated.log.find("serialized"), std::string::npos);
  }
}

}  // namespace
}  // namespace attnjit::sm90
