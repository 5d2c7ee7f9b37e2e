// SPDX-License-Identifier: Apache-2.0
// partition_keys on sm_90a: partitions of fixed keys, and rows whose bits are their own.
#include <vector>

#include "../invariance_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec invariance_spec(int qk_depth, int keys,
                              const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 4, 4, qk_depth, mask);
  spec.partition_keys = keys;
  return spec;
}

using Sm90Invariance = InvarianceTest;

// Partitions without keys and without rows that see them; a bound far above most lengths.
TEST_F(Sm90Invariance, PartitionsOfFixedKeysAreRight) {
  std::vector<Trial> trials;
  trials.push_back(
      {invariance_spec(64, 128), {{{70}, {500}}, {{1}, {400}}, {{60}, {40}}, {{3}, {0}}}});
  trials.push_back({of_sequences(invariance_spec(128, 128), 16, false), {{{1}, {500, 0, 31}}}});
  trials.push_back({of_sequences(invariance_spec(64, 128, window_of(100)), 1, true),
                    {{{1, 30, 0, 2}, {400, 30, 4, 0}}}});
  AttentionSpec spec = with_group(of_sequences(invariance_spec(64, 64), 0, true), 3, 3);
  spec.sink = true;
  trials.push_back({spec, {{{7, 0, 1}, {200, 9, 400}}, {{5, 1}, {60, 1}}}});
  spec.lse_includes_sink = false;
  spec.mask = verify::tree(Kind::kOr, {window_of(20), mask_of(Kind::kChunked)});
  trials.push_back({spec, {{{200, 70, 1}, {200, 70, 1}}}});
  expect_passes(some_of(trials, 3));
  if (!in_proof()) return;
  expect_passes(invariance_spec(128, 64, mask_of(Kind::kNull)), {{{40}, {300}}, {{1}, {20}}});
  expect_passes(invariance_spec(192, 192, window_of(50)), {{{40}, {400}}});
}

TEST_F(Sm90Invariance, Ragged) {
  // Rows of one warp that differ in when their maximum moves.
  expect_same_bits(of_sequences(invariance_spec(128, 256), 16, true), InputKind::kLarge);
  if (in_proof())
    expect_same_bits(of_sequences(invariance_spec(64, 128), 0, true), InputKind::kSpike);
}

TEST_F(Sm90Invariance, Paged) {
  expect_same_bits(of_sequences(invariance_spec(128, 128), 64, false), InputKind::kRaised);
  if (in_proof())
    expect_same_bits(of_sequences(invariance_spec(64, 192), 3, true), InputKind::kFalling);
}

TEST_F(Sm90Invariance, SinksAndMasks) {
  // In a batch of one partition, too, a sink is added by the merge.
  AttentionSpec spec = of_sequences(invariance_spec(64, 256), 16, true);
  spec.sink = true;
  expect_same_bits(spec, InputKind::kLarge);
  spec = of_sequences(invariance_spec(128, 64, window_of(100)), 16, true);
  spec.lse_includes_sink = false;
  spec.sink = true;
  expect_same_bits(spec, InputKind::kRaised);
  if (!in_proof()) return;
  spec = with_group(of_sequences(invariance_spec(96, 192), 8, true), 3, 3);
  spec.return_lse = false;
  expect_same_bits(spec, InputKind::kSpike);
}

// The two consumers of absorbed MLA take the tiles by turns, whatever the first one is.
TEST_F(Sm90Invariance, AbsorbedMla) {
  AttentionSpec spec = of_sequences(invariance_spec(320, 128), 16, true);
  spec.mla = Mla::kDecode;
  spec.ov_depth = 256;
  expect_same_bits(spec, InputKind::kLarge);
  if (!in_proof()) return;
  spec = with_group(of_sequences(invariance_spec(128, 64), 64, false), 20, 20);
  spec.mla = Mla::kDecode;
  spec.ov_depth = 64;
  spec.sink = true;
  expect_same_bits(spec, InputKind::kRaised);
}

TEST_F(Sm90Invariance, Maps) {
  expect_same_bits_of_maps(of_sequences(invariance_spec(64, 384), 16, true), InputKind::kNormal);
  if (!in_proof()) return;
  expect_same_bits_of_maps(of_sequences(invariance_spec(128, 384), 64, false), InputKind::kNormal);
  expect_same_bits_of_maps(of_sequences(invariance_spec(192, 256), 0, true), InputKind::kNormal);
  expect_same_bits_of_maps(of_sequences(invariance_spec(256, 192), 1, true), InputKind::kSpike);
}

// Partitions that no row of a sequence reaches are no work.
TEST_F(Sm90Invariance, AWindowOfALongSequenceIsLittleWork) {
  expect_little_work(of_sequences(invariance_spec(64, 64, window_of(40)), 64, false));
}

}  // namespace
}  // namespace attnjit::sm90
