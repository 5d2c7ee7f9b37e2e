// SPDX-License-Identifier: Apache-2.0
// Lists of keys (topk) of absorbed MLA on sm_100a.
#include "../topk_fixture.h"

namespace attnjit::sm100 {
namespace {

using Sm100Topk = kernel_test::TopkTest;

TEST_F(Sm100Topk, HeadsAndPages) { expect_heads_and_pages(Arch::kSm100a); }
TEST_F(Sm100Topk, Depths) { expect_depths(Arch::kSm100a); }
TEST_F(Sm100Topk, Partitions) { expect_partitions(Arch::kSm100a); }
TEST_F(Sm100Topk, RaggedBatches) { expect_ragged_batches(Arch::kSm100a); }
TEST_F(Sm100Topk, AnyList) { expect_any_list(Arch::kSm100a); }
TEST_F(Sm100Topk, SpillsNothing) { expect_models_fit(Arch::kSm100a); }

}  // namespace
}  // namespace attnjit::sm100
