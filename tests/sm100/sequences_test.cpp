// SPDX-License-Identifier: Apache-2.0
// Pages of any number of rows, ragged keys, and decodes of any group, on sm_100a.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec sequences_spec(int qk_depth, int page_size, bool ragged,
                             const MaskSpec& mask = mask_of(Kind::kCausal)) {
  return of_sequences(base_spec(Arch::kSm100a, 2, 1, qk_depth, mask), page_size, ragged);
}

using Sm100Sequences = KernelTest;

TEST_F(Sm100Sequences, PagesThatAreNoWholeTiles) {
  for (const int page_size : some_of<int>({24, 8, 40})) {
    SCOPED_TRACE(page_size);
    expect_passes(sequences_spec(64, page_size, false),
                  {{{70}, {200, 129, 64}}, {{1}, {1, 0, 150}}});
  }
}

TEST_F(Sm100Sequences, PagesThatHoldNoWholeBoxes) {
  std::vector<Trial> trials;
  trials.push_back({sequences_spec(64, 1, false), {{{140}, {300, 129, 64}}, {{1}, {1, 0, 150}}}});
  AttentionSpec spec = sequences_spec(192, 3, true);
  spec.ov_depth = 128;
  trials.push_back({spec, {{{80, 1, 0}, {150, 133, 7}}}});
  spec = with_group(sequences_spec(72, 20, false, mask_of(Kind::kNull)), 4, 4);
  spec.num_partitions = 2;
  trials.push_back({spec, {{{3}, {300, 5}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm100Sequences, RaggedKeys) {
  std::vector<Trial> trials;
  AttentionSpec spec = with_group(sequences_spec(64, 0, false), 2, 2);
  spec.ragged_kv = true;
  trials.push_back({spec, {{{70}, {200, 129, 0, 64}}}});
  spec = with_group(sequences_spec(128, 0, true), 2, 2);
  spec.ragged_kv = true;
  trials.push_back({spec, {{{130, 1, 70, 0, 64}, {130, 70, 200, 5, 150}}, {{1, 5}, {0, 0}}}});
  spec.num_partitions = 2;
  spec.sink = true;
  trials.push_back({spec, {{{20, 3, 1}, {300, 33, 90}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm100Sequences, DepthsBelow64) {
  expect_passes(sequences_spec(40, 3, true), {{{80, 1, 0}, {150, 133, 7}}});
  AttentionSpec spec = with_group(sequences_spec(24, 16, false), 12, 6);
  spec.max_q_len = 4;
  spec.num_partitions = 2;
  expect_passes(spec, {{{4}, {300, 0, 31}}, {{1}, {5}}});
}

// As above, where S of all KV tiles is one warpgroup's.
TEST_F(Sm100Sequences, SingleAccumulator) {
  std::vector<Trial> trials;
  trials.push_back({sequences_spec(256, 24, false), {{{140}, {300, 129, 64}}, {{1}, {1, 0, 150}}}});
  trials.push_back({sequences_spec(256, 3, true), {{{80, 1, 0}, {150, 133, 7}}}});
  AttentionSpec spec = with_group(sequences_spec(256, 0, true), 2, 2);
  spec.ragged_kv = true;
  trials.push_back({spec, {{{130, 1, 70, 0, 64}, {130, 70, 200, 5, 150}}, {{1, 5}, {0, 0}}}});
  spec = sequences_spec(208, 16, true);
  spec.kv_lens_exclude_new = true;
  trials.push_back({spec, {{{70, 1, 0, 5}, {200, 1, 64, 5}}}});
  spec = with_group(sequences_spec(256, 16, false), 12, 6);
  spec.max_q_len = 4;
  spec.num_partitions = 0;
  trials.push_back({spec, {{{4}, {300, 0, 31}}, {{1}, {5}}}});
  expect_passes(some_of(trials, 3));
}

// Lengths that leave out the rows of the call, whose keys the cache holds already.
TEST_F(Sm100Sequences, LengthsWithoutTheNewRows) {
  for (const auto& [page_size, ragged] :
       some_of<std::pair<int, bool>>({{16, false}, {0, true}, {3, true}})) {
    SCOPED_TRACE(page_size);
    AttentionSpec spec = sequences_spec(64, page_size, ragged);
    spec.kv_lens_exclude_new = true;
    std::vector<Lengths> batches{{{70}, {200, 70, 134}}};
    if (ragged) batches = {{{70, 1, 0, 5}, {200, 1, 64, 5}}};
    expect_passes(spec, batches);
  }
}

// Rows that belong to no head lie behind those of the last position.
TEST_F(Sm100Sequences, DecodesOfAnyGroup) {
  std::vector<Trial> trials;
  AttentionSpec spec = with_group(sequences_spec(64, 16, false), 12, 6);
  spec.max_q_len = 4;
  trials.push_back({spec, {{{4}, {300, 0, 31}}, {{1}, {5}}}});
  spec = with_group(sequences_spec(128, 0, true), 20, 10);
  spec.max_q_len = 8;
  spec.num_partitions = 0;
  trials.push_back({spec, {{{8, 0, 1}, {300, 9, 200}}}});
  spec = with_group(sequences_spec(64, 64, false, mask_of(Kind::kNull)), 71, 71);
  spec.max_q_len = 1;
  spec.partition_keys = 128;
  trials.push_back({spec, {{{1}, {200, 3}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm100Sequences, WrongTablesAndLengthsDoNoHarm) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  const auto spec_with = [](int page_size) {
    return with_group(sequences_spec(64, page_size, true), 2, 2);
  };
  const std::vector<Changed> wrong{{"page_table", {kMax, kMin, -1, 1000}},
                                   {"kv_lens", {kMax, kMin, 1000}},
                                   {"q_offsets", {5, kMin, kMax, -1}},
                                   {"q_offsets", {0, 139, 20, 139}}};
  for (const int page_size : some_of<int>({3, 16})) {
    AttentionSpec spec = spec_with(page_size);
    expect_no_harm(spec, wrong);
    spec.num_partitions = 2;
    expect_no_harm(spec, wrong);
  }
  AttentionSpec spec = spec_with(16);
  spec.kv_lens_exclude_new = true;
  expect_no_harm(spec, wrong);
  spec = spec_with(16);
  spec.partition_keys = 64;
  if (in_proof()) expect_no_harm(spec, wrong);
  for (const int partitions : some_of<int>({2, 1})) {
    spec = spec_with(0);
    spec.ragged_kv = true;
    spec.num_partitions = partitions;
    expect_no_harm(spec, {{"kv_offsets", {0, 190, 20, 194}},
                          {"kv_offsets", {kMin, 70, kMax, -5}},
                          {"kv_offsets", {194, 193, 194, kMax}}});
  }
}

}  // namespace
}  // namespace attnjit::sm100
