// SPDX-License-Identifier: Apache-2.0
// Kernels of sm_90a that interpret custom code.
#include "../interpreted_fixture.h"

namespace attnjit::sm90 {
namespace {

using Sm90Interpreted = interpreted_test::InterpretedTest<Arch::kSm90a>;

TEST_F(Sm90Interpreted, CookbookMasks) { expect_cookbook(); }
TEST_F(Sm90Interpreted, CookbookScoreModifications) { expect_score_mods(); }
TEST_F(Sm90Interpreted, RandomMasks) { expect_corpus(kernel_test::in_proof() ? 2000 : 30); }
TEST_F(Sm90Interpreted, Maps) { expect_maps_of_any(); }
TEST_F(Sm90Interpreted, RowsOfBatches) { expect_rows_of_batches(); }
TEST_F(Sm90Interpreted, Trees) { expect_trees(); }
TEST_F(Sm90Interpreted, Shapes) { expect_shapes(); }

}  // namespace
}  // namespace attnjit::sm90
