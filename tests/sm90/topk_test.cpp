// SPDX-License-Identifier: Apache-2.0
// Lists of keys (topk) of absorbed MLA on sm_90a.
#include "../topk_fixture.h"

namespace attnjit::sm90 {
namespace {

using Sm90Topk = kernel_test::TopkTest;

TEST_F(Sm90Topk, HeadsAndPages) { expect_heads_and_pages(Arch::kSm90a); }
TEST_F(Sm90Topk, Depths) { expect_depths(Arch::kSm90a); }
TEST_F(Sm90Topk, Partitions) { expect_partitions(Arch::kSm90a); }
TEST_F(Sm90Topk, RaggedBatches) { expect_ragged_batches(Arch::kSm90a); }
TEST_F(Sm90Topk, AnyList) { expect_any_list(Arch::kSm90a); }
TEST_F(Sm90Topk, SpillsNothing) { expect_models_fit(Arch::kSm90a); }

}  // namespace
}  // namespace attnjit::sm90
