// SPDX-License-Identifier: Apache-2.0
// Caches in the format dsv32 of absorbed MLA on sm_90a.
#include "../dsv32_fixture.h"

namespace attnjit::sm90 {
namespace {

using Sm90Dsv32 = kernel_test::Dsv32Test;

TEST_F(Sm90Dsv32, Dense) { expect_dense(Arch::kSm90a); }
TEST_F(Sm90Dsv32, Lists) { expect_lists(Arch::kSm90a); }
TEST_F(Sm90Dsv32, RaggedBatches) { expect_ragged_batches(Arch::kSm90a); }
TEST_F(Sm90Dsv32, SpillsNothing) { expect_models_fit(Arch::kSm90a); }

}  // namespace
}  // namespace attnjit::sm90
