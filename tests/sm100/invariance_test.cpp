// SPDX-License-Identifier: Apache-2.0
// partition_keys on sm_100a and sm_103a: partitions of fixed keys, and rows whose bits are their
// own.
#include <vector>

#include "../invariance_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec invariance_spec(int qk_depth, int keys, int page_size, bool ragged,
                              const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec =
      of_sequences(base_spec(Arch::kSm100a, 4, 4, qk_depth, mask), page_size, ragged);
  spec.partition_keys = keys;
  return spec;
}

using Sm100Invariance = InvarianceTest;

// Partitions without keys and without rows that see them; query tiles without rows.
TEST_F(Sm100Invariance, PartitionsOfFixedKeysAreRight) {
  expect_passes(invariance_spec(64, 128, 0, false),
                {{{70}, {500}}, {{1}, {400}}, {{40}, {30}}, {{3}, {0}}});
  expect_passes(invariance_spec(128, 192, 0, false, window_of(50)), {{{40}, {400}}});
  AttentionSpec spec = with_group(invariance_spec(64, 64, 16, true), 3, 3);
  spec.sink = true;
  spec.arch = Arch::kSm103a;
  expect_passes(spec, {{{7, 0, 1}, {200, 9, 300}}, {{5, 1}, {60, 1}}});
}

TEST_F(Sm100Invariance, Ragged) {
  expect_same_bits(invariance_spec(128, 256, 16, true), InputKind::kLarge);
}

TEST_F(Sm100Invariance, SingleAccumulator) {
  expect_same_bits(invariance_spec(256, 192, 16, true), InputKind::kSpike);
}

TEST_F(Sm100Invariance, Paged) {
  expect_same_bits(invariance_spec(64, 128, 64, false), InputKind::kRaised);
}

TEST_F(Sm100Invariance, AbsorbedMla) {
  AttentionSpec spec = with_group(invariance_spec(320, 128, 16, true), 20, 20);
  spec.mla = Mla::kDecode;
  spec.ov_depth = 256;
  expect_same_bits(spec, InputKind::kLarge);
}

TEST_F(Sm100Invariance, SinksAndMasks) {
  // In a batch of one partition, too, a sink is added by the merge.
  AttentionSpec spec = invariance_spec(64, 192, 0, true, window_of(100));
  spec.sink = true;
  spec.lse_includes_sink = false;
  spec.arch = Arch::kSm103a;
  expect_same_bits(spec, InputKind::kSpike);
}

TEST_F(Sm100Invariance, Maps) {
  expect_same_bits_of_maps(invariance_spec(64, 384, 16, true), InputKind::kNormal);
  if (!in_proof()) return;
  expect_same_bits_of_maps(invariance_spec(128, 128, 64, false), InputKind::kNormal);
  expect_same_bits_of_maps(invariance_spec(256, 192, 0, true), InputKind::kNormal);
  expect_same_bits_of_maps(invariance_spec(192, 384, 1, true), InputKind::kSpike);
}

// Partitions that no row of a sequence reaches are no work.
TEST_F(Sm100Invariance, AWindowOfALongSequenceIsLittleWork) {
  expect_little_work(invariance_spec(64, 64, 64, false, window_of(40)));
}

}  // namespace
}  // namespace attnjit::sm100
