// SPDX-License-Identifier: Apache-2.0
// Kernels of sm_100a that interpret custom code.
#include "../interpreted_fixture.h"

namespace attnjit::sm100 {
namespace {

using Sm100Interpreted = interpreted_test::InterpretedTest<Arch::kSm100a>;

TEST_F(Sm100Interpreted, CookbookMasks) { expect_cookbook(); }
TEST_F(Sm100Interpreted, CookbookScoreModifications) { expect_score_mods(); }
TEST_F(Sm100Interpreted, RandomMasks) { expect_corpus(kernel_test::in_proof() ? 2000 : 30); }
TEST_F(Sm100Interpreted, Maps) { expect_maps_of_any(); }
TEST_F(Sm100Interpreted, RowsOfBatches) { expect_rows_of_batches(); }
TEST_F(Sm100Interpreted, Trees) { expect_trees(); }
TEST_F(Sm100Interpreted, Shapes) { expect_shapes(); }

}  // namespace
}  // namespace attnjit::sm100
