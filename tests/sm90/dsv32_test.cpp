// SPDX-License-Identifier: Apache-2.0
// Caches in the format dsv32 of absorbed MLA on sm_90a.
#include "../dsv32_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;
using Sm90Dsv32 = Dsv32Test;

TEST_F(Sm90Dsv32, Dense) { expect_dense(Arch::kSm90a); }
TEST_F(Sm90Dsv32, Lists) { expect_lists(Arch::kSm90a); }
TEST_F(Sm90Dsv32, RaggedBatches) { expect_ragged_batches(Arch::kSm90a); }

// Of 128 heads two CTAs have a position, and upcast for each other: without lists, in parts that
// the device deals out, of ragged batches, and each CTA alone.
TEST_F(Sm90Dsv32, CtasUpcastForEachOther) {
  AttentionSpec dense = spec_of(Arch::kSm90a, 128, 24, 0);
  dense.mask = mask_of(Kind::kCausal);
  dense.num_partitions = 0;
  expect_passes(dense, {{{2}, {300, 0, 31}}});
  if (!in_proof()) return;
  AttentionSpec ragged = spec_of(Arch::kSm90a, 96, 64, 0);
  ragged.ragged = ragged.sink = true;
  ragged.mask = mask_of(Kind::kCausal);
  ragged.partition_keys = 128;
  expect_passes(ragged, {{{3, 0, 2}, {200, 64, 40}}});
  AttentionSpec lists = spec_of(Arch::kSm90a, 128, 1, 320);
  lists.num_partitions = 3;
  expect_passes(lists, {{{2}, {500, 3}}, {{1}, {60, 70, 65}}});
  Tuning alone;
  alone.rows.push_back({{}, {{"cluster", 1}}});
  expect_passes(lists, {{{2}, {200, 70}}}, &alone);
}

TEST_F(Sm90Dsv32, SpillsNothing) { expect_models_fit(Arch::kSm90a); }

}  // namespace
}  // namespace attnjit::sm90
