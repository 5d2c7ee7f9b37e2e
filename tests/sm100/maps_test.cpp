// SPDX-License-Identifier: Apache-2.0
// Masks that hang on arrays, on sm_100a: a kernel makes a map of them, another lists of it for work
// tiles, and the attention walks those.
#include <string>
#include <vector>

#include "../map_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec spec_of(int qk_depth, const MaskSpec& mask, int heads = 2, int group = 1) {
  return base_spec(Arch::kSm100a, heads, group, qk_depth, mask);
}

using Sm100Maps = MapTest;

// Two query tiles per CTA, of which each sees tiles that the other does not, and one: the
// warpgroups share its tiles.
TEST_F(Sm100Maps, Documents) {
  expect_maps(spec_of(128, causal_documents()), {{300}, {300}}, {documents_of(100)});
  expect_maps(spec_of(128, same_document()), {{100}, {650}}, {documents_of(70)});
  if (!in_proof()) return;
  expect_maps(spec_of(64, causal_documents()), {{520}, {700}}, {documents_of(200)});
  expect_maps(spec_of(192, same_document()), {{150}, {400}}, {documents_of(128)});
}

TEST_F(Sm100Maps, MixedElements) { expect_mixed_elements(spec_of(64, same_document())); }

TEST_F(Sm100Maps, SequencesAndHeads) {
  expect_maps(spec_of(64, documents_by_batch()), {{200, 200}, {300, 300}}, {documents_of(150)});
  const MaskSpec by_head = documents_by_head();
  if (in_proof()) expect_maps(spec_of(64, by_head), {{130}, {400}}, {documents_of(150)});
  if (in_proof()) expect_maps(spec_of(64, by_head, 4, 4), {{70}, {400}}, {documents_of(150)});
}

TEST_F(Sm100Maps, Sequences) {
  const Lengths lengths = ragged_lengths();
  const std::vector<verify::ParamArgument> params{documents_of(90)};
  expect_maps(of_sequences(spec_of(64, causal_documents()), 0, true), lengths, params);
  expect_maps(of_sequences(spec_of(128, causal_documents()), 64, true), lengths, params);
  if (!in_proof()) return;
  expect_maps(of_sequences(spec_of(64, causal_documents()), 1, true), lengths, params);
  AttentionSpec keys = of_sequences(spec_of(64, causal_documents()), 0, true);
  keys.ragged_kv = true;
  expect_maps(keys, lengths, params);
}

TEST_F(Sm100Maps, BlocksPastASequencesKeysArePassedOver) {
  const Lengths lengths{{160, 130, 70}, {900, 300, 130}};
  if (in_proof()) {
    expect_blocks_past_the_keys_passed_over(of_sequences(spec_of(64, same_document()), 16, true),
                                            lengths, {documents_of(150)});
  }
  expect_blocks_past_the_keys_passed_over(of_sequences(spec_of(192, same_document()), 64, true),
                                          lengths, {documents_of(150)});
}

// By the seed's bits a mask has one batch or each, one head or each, each row or one.
TEST_F(Sm100Maps, Materialized) {
  for (const Dtype dtype :
       some_of<Dtype>({Dtype::kU8, Dtype::kF32, Dtype::kBits, Dtype::kBf16, Dtype::kFp16})) {
    expect_maps(spec_of(64, tensor_mask(dtype)), {{300, 300}, {500, 500}}, {}, 3);
  }
  for (const std::uint64_t seed : some_of<std::uint64_t>({6, 0}, 1)) {
    if (in_proof()) {
      expect_maps(spec_of(128, tensor_mask(Dtype::kU8), 4, 4), {{70}, {400}}, {}, seed);
    }
    expect_maps(of_sequences(spec_of(64, tensor_mask(Dtype::kBf16)), 64, true), ragged_lengths(),
                {}, seed);
  }
  for (const Dtype dtype : some_of<Dtype>({Dtype::kBits, Dtype::kF32}, 1)) {
    const MaskSpec mask = tensor_mask(dtype);
    if (in_proof()) {
      expect_maps(spec_of(64, tree(Kind::kAnd, {mask_of(Kind::kCausal), mask})), {{300}, {500}});
    }
    expect_maps(spec_of(64, tree(Kind::kAnd, {mask, same_document()})), {{300}, {500}},
                {documents_of(200)}, 3);
  }
}

TEST_F(Sm100Maps, Partitions) {
  AttentionSpec parts = of_sequences(spec_of(64, causal_documents()), 16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_maps(parts, {{2}, {700, 0, 31, 200}}, {documents_of(90)});
}

TEST_F(Sm100Maps, PartsOfWhatIsSeen) { expect_parts_of_what_is_seen(spec_of(64, same_document())); }

TEST_F(Sm100Maps, BitsAreReadInThePlaceOfTheMask) {
  expect_bits_in_the_place_of_the_mask(spec_of(64, causal_documents()));
  if (!in_proof()) return;
  expect_bits_in_the_place_of_the_mask(with_group(spec_of(128, causal_documents()), 4, 4));
}

TEST_F(Sm100Maps, BitsPastTheKeysArePassedOver) {
  expect_bits_past_the_keys_passed_over(of_sequences(spec_of(64, {}), 16, true));
}

TEST_F(Sm100Maps, BitsOfSomeBlocks) { expect_bits_of_some_blocks(spec_of(64, same_document())); }

TEST_F(Sm100Maps, ListsOfTheCallerOverBuiltInMasks) {
  expect_given_lists_over_built_in_masks(with_group(spec_of(128, {}), 4, 2));
  if (!in_proof()) return;
  expect_given_lists_over_built_in_masks(spec_of(64, {}));
}

TEST_F(Sm100Maps, ListsOfTheCallerOverOtherMasks) {
  const Lengths lengths{{300, 300}, {650, 650}};
  expect_given_lists(spec_of(128, over_arrays("kv_idx <= q_idx", {})), lengths);
  if (!in_proof()) return;
  expect_given_lists(spec_of(64, causal_documents()), lengths, {documents_of(90)});
  expect_given_lists(spec_of(64, tensor_mask(Dtype::kF32)), lengths);
  expect_given_lists(spec_of(64, tree(Kind::kAnd, {window_of(200), tensor_mask(Dtype::kU8)})),
                     lengths);
  AttentionSpec parts = of_sequences(spec_of(64, mask_of(Kind::kCausal)), 16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_given_lists(parts, {{2}, {700, 0, 31, 200}});
}

TEST_F(Sm100Maps, OfMlaPrefill) { expect_maps_of_mla_prefill(spec_of(192, mask_of(Kind::kNull))); }

TEST_F(Sm100Maps, OfBuiltInMasksWhereAskedFor) {
  expect_maps_of_built_in_masks(spec_of(64, mask_of(Kind::kCausal)),
                                spec_of(128, mask_of(Kind::kNull)));
}

TEST_F(Sm100Maps, HiddenTilesAreNotLoaded) {
  expect_hidden_tiles_are_not_loaded(spec_of(64, same_document()), 2048, 10);
}

}  // namespace
}  // namespace attnjit::sm100
