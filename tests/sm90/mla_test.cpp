// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA (mla: decode) on sm_90a.
#include "../mla_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Mla : public MlaTest {
 protected:
  Sm90Mla() : MlaTest(Arch::kSm90a) {}
};

TEST_F(Sm90Mla, PagesOfAnySize) { check_pages({{1, 2}, {16, 3}, {64, 1}}); }
TEST_F(Sm90Mla, Heads) { check_heads(); }
TEST_F(Sm90Mla, SeveralRows) { check_several_rows(); }
TEST_F(Sm90Mla, Depths) { check_depths(); }
TEST_F(Sm90Mla, TypesSinksAndMasks) { check_types_sinks_and_masks(); }
TEST_F(Sm90Mla, PartitionsOfFixedKeys) { check_partitions_of_fixed_keys(); }
TEST_F(Sm90Mla, ManyPartsOfLongRows) { check_many_parts_of_long_rows(); }
TEST_F(Sm90Mla, DealsStreamKRanges) { check_stream_k(); }
TEST_F(Sm90Mla, PartsOfATileEach) { check_parts_of_a_tile_each(); }
TEST_F(Sm90Mla, ReducesHalves) { check_cluster_reduced(); }
TEST_F(Sm90Mla, Expressions) { check_expressions(); }
TEST_F(Sm90Mla, Materialized) { check_materialized(); }
TEST_F(Sm90Mla, RowsOfBatches) { check_rows_of_batches(); }
TEST_F(Sm90Mla, StreamKRangesOfExpressions) { check_stream_k_of_expressions(); }
TEST_F(Sm90Mla, TilesThatExpressionsDecide) { check_tiles_that_expressions_decide(); }
TEST_F(Sm90Mla, BatchesWithoutPages) { check_batches_without_pages(); }
TEST_F(Sm90Mla, NewRowsAndRaggedPages) { check_new_rows_and_ragged_pages(); }
TEST_F(Sm90Mla, Accumulates) { check_accumulates(); }
TEST_F(Sm90Mla, RandomSpecs) { check_random_specs(); }
// setmaxnreg leaves no more.
TEST_F(Sm90Mla, SpillsNothing) { check_registers(); }

}  // namespace
}  // namespace attnjit::sm90
