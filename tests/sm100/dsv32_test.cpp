// SPDX-License-Identifier: Apache-2.0
// Caches in the format dsv32 of absorbed MLA on sm_100a.
#include "../dsv32_fixture.h"

namespace attnjit::sm100 {
namespace {

using Sm100Dsv32 = kernel_test::Dsv32Test;

TEST_F(Sm100Dsv32, Dense) { expect_dense(Arch::kSm100a); }
TEST_F(Sm100Dsv32, Lists) { expect_lists(Arch::kSm100a); }
TEST_F(Sm100Dsv32, RaggedBatches) { expect_ragged_batches(Arch::kSm100a); }
TEST_F(Sm100Dsv32, SpillsNothing) { expect_models_fit(Arch::kSm100a); }

}  // namespace
}  // namespace attnjit::sm100
