// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA (mla: decode) on sm_100a and sm_103a.
#include "../mla_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Mla : public MlaTest {
 protected:
  explicit Sm100Mla(Arch arch = Arch::kSm100a) : MlaTest(arch) {}
};
class Sm103Mla : public Sm100Mla {
 protected:
  Sm103Mla() : Sm100Mla(Arch::kSm103a) {}
};

// No waiver: no order of products is relied on that PTX does not promise.
TEST_F(Sm100Mla, WaivesNothing) {
  const Result<KernelPlan> planned = plan(spec_of(16, 64, 1));
  ASSERT_TRUE(planned.ok());
  EXPECT_TRUE(planned->waivers.empty());
}

// As few stages as at the depths of models, so that each is handed back.
TEST_F(Sm100Mla, PagesOfAnySize) {
  Tuning stages;
  stages.rows.push_back({{}, {{"num_stages", 2}}});
  check_pages({{1, 2}, {16, 3}, {64, 1}, {128, 1}, {3, 1}}, &stages);
}
TEST_F(Sm100Mla, Heads) { check_heads(); }
TEST_F(Sm100Mla, SeveralRows) { check_several_rows(); }
TEST_F(Sm100Mla, Depths) { check_depths(); }
TEST_F(Sm103Mla, TypesSinksAndMasks) { check_types_sinks_and_masks(); }
TEST_F(Sm100Mla, PartitionsOfFixedKeys) { check_partitions_of_fixed_keys(); }
TEST_F(Sm100Mla, ManyPartsOfLongRows) { check_many_parts_of_long_rows(); }
TEST_F(Sm100Mla, DealsStreamKRanges) { check_stream_k(); }
TEST_F(Sm100Mla, Expressions) { check_expressions(); }
TEST_F(Sm100Mla, Materialized) { check_materialized(); }
TEST_F(Sm100Mla, RowsOfBatches) { check_rows_of_batches(); }
TEST_F(Sm100Mla, StreamKRangesOfExpressions) { check_stream_k_of_expressions(); }
TEST_F(Sm100Mla, TilesThatExpressionsDecide) { check_tiles_that_expressions_decide(); }
TEST_F(Sm100Mla, BatchesWithoutPages) { check_batches_without_pages(); }
TEST_F(Sm100Mla, NewRowsAndRaggedPages) { check_new_rows_and_ragged_pages(); }
TEST_F(Sm100Mla, Accumulates) { check_accumulates(); }
TEST_F(Sm100Mla, RandomSpecs) { check_random_specs(); }
TEST_F(Sm100Mla, SpillsNothing) { check_registers(); }

}  // namespace
}  // namespace attnjit::sm100
