// SPDX-License-Identifier: Apache-2.0
// Masks that hang on arrays, on sm_100a: a kernel makes a map of them, another lists of it for work
// tiles, and the attention walks those.
#include <string>
#include <vector>

#include "../map_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec maps_spec(int qk_depth, const MaskSpec& mask, int heads = 2, int group = 1) {
  return base_spec(Arch::kSm100a, heads, group, qk_depth, mask);
}

// Depths of one query tile and one O, whose KV tiles have 64 keys and are one warpgroup's.
AttentionSpec single_accumulator(const MaskSpec& mask, int qk_depth = 256, int ov_depth = 256,
                                 int heads = 2) {
  AttentionSpec spec = maps_spec(qk_depth, mask, heads);
  spec.ov_depth = ov_depth;
  return spec;
}

using Sm100Maps = MapTest;

// Two query tiles per CTA, of which each sees tiles that the other does not, and one: the
// warpgroups share its tiles.
TEST_F(Sm100Maps, Documents) {
  expect_maps(maps_spec(128, causal_documents()), {{300}, {300}}, {documents_of(100)});
  expect_maps(maps_spec(128, same_document()), {{100}, {650}}, {documents_of(70)});
  if (!in_proof()) return;
  expect_maps(maps_spec(64, causal_documents()), {{520}, {700}}, {documents_of(200)});
  expect_maps(maps_spec(192, same_document()), {{150}, {400}}, {documents_of(128)});
}

TEST_F(Sm100Maps, MixedElements) { expect_mixed_elements(maps_spec(64, same_document())); }

TEST_F(Sm100Maps, SequencesAndHeads) {
  expect_maps(maps_spec(64, documents_by_batch()), {{200, 200}, {300, 300}}, {documents_of(150)});
  expect_maps(maps_spec(64, documents_by_row()), {{200, 200}, {300, 300}}, {documents_of(150)});
  const MaskSpec by_head = documents_by_head();
  if (in_proof()) expect_maps(maps_spec(64, by_head), {{130}, {400}}, {documents_of(150)});
  if (in_proof()) expect_maps(maps_spec(64, by_head, 4, 4), {{70}, {400}}, {documents_of(150)});
}

// Groups that are no power of two: heads apart, which share a map, and all of a decode's in a tile.
TEST_F(Sm100Maps, GroupsOfAnySize) {
  expect_maps(maps_spec(64, causal_documents(), 5, 5), {{300}, {450}}, {documents_of(100)});
  AttentionSpec steps = of_sequences(maps_spec(128, causal_documents(), 14, 7), 16, true);
  steps.max_q_len = 3;
  expect_maps(steps, {{3, 0, 1, 2}, {300, 30, 200, 500}}, {documents_of(90)});
  if (!in_proof()) return;
  expect_maps(maps_spec(128, documents_by_head(), 6, 6), {{130}, {400}}, {documents_of(150)});
  expect_maps(of_sequences(maps_spec(64, tensor_mask(Dtype::kU8), 6, 3), 64, true),
              ragged_lengths(), {}, 3);
  expect_maps(with_group(single_accumulator(causal_documents()), 12, 12), {{70}, {300}},
              {documents_of(100)});
  steps.num_partitions = 3;
  expect_maps(steps, {{3, 0, 1, 2}, {700, 30, 200, 500}}, {documents_of(90)});
  expect_given_lists_over_built_in_masks(with_group(maps_spec(64, {}), 10, 5));
}

TEST_F(Sm100Maps, Sequences) {
  const Lengths lengths = ragged_lengths();
  const std::vector<verify::ParamArgument> params{documents_of(90)};
  expect_maps(of_sequences(maps_spec(64, causal_documents()), 0, true), lengths, params);
  expect_maps(of_sequences(maps_spec(128, causal_documents()), 64, true), lengths, params);
  if (!in_proof()) return;
  expect_maps(of_sequences(maps_spec(64, causal_documents()), 1, true), lengths, params);
  AttentionSpec keys = of_sequences(maps_spec(64, causal_documents()), 0, true);
  keys.ragged_kv = true;
  expect_maps(keys, lengths, params);
}

TEST_F(Sm100Maps, BlocksPastASequencesKeysArePassedOver) {
  const Lengths lengths{{160, 130, 70}, {900, 300, 130}};
  if (in_proof()) {
    expect_blocks_past_the_keys_passed_over(of_sequences(maps_spec(64, same_document()), 16, true),
                                            lengths, {documents_of(150)});
  }
  expect_blocks_past_the_keys_passed_over(of_sequences(maps_spec(192, same_document()), 64, true),
                                          lengths, {documents_of(150)});
}

// By the seed's bits a mask has one batch or each, one head or each, each row or one.
TEST_F(Sm100Maps, Materialized) {
  for (const Dtype dtype :
       some_of<Dtype>({Dtype::kU8, Dtype::kF32, Dtype::kBits, Dtype::kBf16, Dtype::kFp16})) {
    expect_maps(maps_spec(64, tensor_mask(dtype)), {{300, 300}, {500, 500}}, {}, 3);
  }
  for (const std::uint64_t seed : some_of<std::uint64_t>({6, 0}, 1)) {
    if (in_proof()) {
      expect_maps(maps_spec(128, tensor_mask(Dtype::kU8), 4, 4), {{70}, {400}}, {}, seed);
    }
    expect_maps(of_sequences(maps_spec(64, tensor_mask(Dtype::kBf16)), 64, true), ragged_lengths(),
                {}, seed);
  }
  for (const Dtype dtype : some_of<Dtype>({Dtype::kBits, Dtype::kF32}, 1)) {
    const MaskSpec mask = tensor_mask(dtype);
    if (in_proof()) {
      expect_maps(maps_spec(64, tree(Kind::kAnd, {mask_of(Kind::kCausal), mask})), {{300}, {500}});
    }
    expect_maps(maps_spec(64, tree(Kind::kAnd, {mask, same_document()})), {{300}, {500}},
                {documents_of(200)}, 3);
  }
}

TEST_F(Sm100Maps, Partitions) {
  AttentionSpec parts = of_sequences(maps_spec(64, causal_documents()), 16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_maps(parts, {{2}, {700, 0, 31, 200}}, {documents_of(90)});
}

// A part has what of a list has its keys: of blocks that several parts share each its tiles, and
// of lists that end before it nothing.
TEST_F(Sm100Maps, PartitionsOfFixedKeys) {
  AttentionSpec parts = of_sequences(maps_spec(64, causal_documents()), 16, true);
  parts.partition_keys = 192;
  parts.sink = true;
  expect_maps(parts, {{160, 0, 1, 130}, {500, 30, 420, 130}}, {documents_of(90)});
  if (!in_proof()) return;
  expect_given_lists(parts, {{300, 2}, {650, 200}}, {documents_of(90)});
  parts = maps_spec(128, image_prefix());
  parts.partition_keys = 256;
  expect_maps(parts, {{300}, {600}}, {images_of(600)});
  parts = single_accumulator(same_document());
  parts.partition_keys = 64;
  expect_maps(parts, {{3}, {400}}, {documents_of(90)});
  parts = of_sequences(maps_spec(64, tensor_mask(Dtype::kU8)), 1, true);
  parts.partition_keys = 128;
  expect_maps(parts, {{3, 140}, {400, 200}}, {}, 3);
}

TEST_F(Sm100Maps, PartsOfWhatIsSeen) {
  expect_parts_of_what_is_seen(maps_spec(64, same_document()));
}

TEST_F(Sm100Maps, BitsAreReadInThePlaceOfTheMask) {
  expect_bits_in_the_place_of_the_mask(maps_spec(64, causal_documents()));
  if (!in_proof()) return;
  expect_bits_in_the_place_of_the_mask(with_group(maps_spec(128, causal_documents()), 4, 4));
}

TEST_F(Sm100Maps, BitsPastTheKeysArePassedOver) {
  expect_bits_past_the_keys_passed_over(of_sequences(maps_spec(64, {}), 16, true));
}

TEST_F(Sm100Maps, BitsOfSomeBlocks) { expect_bits_of_some_blocks(maps_spec(64, same_document())); }

TEST_F(Sm100Maps, ListsOfTheCallerOverBuiltInMasks) {
  expect_given_lists_over_built_in_masks(with_group(maps_spec(128, {}), 4, 2));
  if (!in_proof()) return;
  expect_given_lists_over_built_in_masks(maps_spec(64, {}));
}

TEST_F(Sm100Maps, ListsOfTheCallerOverOtherMasks) {
  const Lengths lengths{{300, 300}, {650, 650}};
  expect_given_lists(maps_spec(128, over_arrays("kv_idx <= q_idx", {})), lengths);
  if (!in_proof()) return;
  expect_given_lists(maps_spec(64, causal_documents()), lengths, {documents_of(90)});
  expect_given_lists(maps_spec(64, tensor_mask(Dtype::kF32)), lengths);
  expect_given_lists(maps_spec(64, tree(Kind::kAnd, {window_of(200), tensor_mask(Dtype::kU8)})),
                     lengths);
  AttentionSpec parts = of_sequences(maps_spec(64, mask_of(Kind::kCausal)), 16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_given_lists(parts, {{2}, {700, 0, 31, 200}});
}

TEST_F(Sm100Maps, OfSingleAccumulator) {
  expect_maps(single_accumulator(causal_documents(), 200, 200), {{300}, {450}},
              {documents_of(100)});
  if (!in_proof()) return;
  expect_maps(single_accumulator(same_document()), {{150}, {650}}, {documents_of(70)});
  expect_maps(single_accumulator(image_prefix(), 248, 64), {{200}, {600}}, {images_of(600)});
  expect_maps(single_accumulator(documents_by_batch(), 208, 128), {{200, 200}, {300, 300}},
              {documents_of(150)});
  expect_maps(with_group(single_accumulator(documents_by_head()), 4, 4), {{70}, {400}},
              {documents_of(150)});
  // Two query tiles, each with its O, beside K of more columns than V.
  expect_maps(single_accumulator(causal_documents(), 248, 192), {{300}, {450}},
              {documents_of(100)});
  for (const Dtype dtype : {Dtype::kBits, Dtype::kF32, Dtype::kU8, Dtype::kBf16}) {
    expect_maps(single_accumulator(tensor_mask(dtype), 256, 128), {{150, 150}, {300, 300}}, {}, 3);
  }
}

TEST_F(Sm100Maps, OfSingleAccumulatorAndSequences) {
  const Lengths lengths = ragged_lengths();
  const std::vector<verify::ParamArgument> params{documents_of(90)};
  const auto of = [](int page_size, bool ragged) {
    return of_sequences(single_accumulator(causal_documents()), page_size, ragged);
  };
  expect_maps(of(64, true), lengths, params);
  if (!in_proof()) return;
  expect_blocks_past_the_keys_passed_over(
      of_sequences(single_accumulator(same_document(), 224, 96), 16, true),
      {{160, 130, 70}, {900, 300, 130}}, {documents_of(150)});
  expect_bits_past_the_keys_passed_over(of_sequences(single_accumulator({}), 16, true));
  expect_maps(of(0, true), lengths, params);
  expect_maps(of(1, true), lengths, params);
  AttentionSpec keys = of(0, true);
  keys.ragged_kv = true;
  expect_maps(keys, lengths, params);
  AttentionSpec parts = of(16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_maps(parts, {{2}, {700, 0, 31, 200}}, params);
}

TEST_F(Sm100Maps, OfSingleAccumulatorGivenByTheCaller) {
  const Lengths lengths{{300}, {450}};
  expect_given_lists(single_accumulator(mask_of(Kind::kCausal)), lengths);
  if (!in_proof()) return;
  expect_given_lists(single_accumulator(window_of(200), 248, 248), lengths);
  AttentionSpec causal = of_sequences(single_accumulator(mask_of(Kind::kCausal)), 16, true);
  causal.sink = true;
  expect_given_lists(with_group(causal, 4, 2), ragged_lengths());
  expect_given_lists(single_accumulator(causal_documents(), 200, 200), lengths, {documents_of(90)});
  expect_given_lists(single_accumulator(tensor_mask(Dtype::kF32)), lengths);
  expect_bits_in_the_place_of_the_mask(single_accumulator(causal_documents()));
  expect_bits_of_some_blocks(single_accumulator(same_document(), 216, 216));
}

// K and V of 8 bits, of which tiles are upcast, and products of e4m3.
TEST_F(Sm100Maps, OfSingleAccumulatorAndEightBits) {
  AttentionSpec upcast = of_sequences(single_accumulator(causal_documents()), 16, true);
  upcast.kv_dtype = Dtype::kE4m3;
  if (in_proof()) expect_maps(upcast, ragged_lengths(), {documents_of(90)});
  AttentionSpec eight = single_accumulator(causal_documents(), 256, 256, 1);
  eight.qkv_dtype = Dtype::kE4m3;
  eight.scales = Scales::kToken;
  expect_maps(eight, {{70}, {300}}, {documents_of(90)});
  eight.scales = Scales::kTensor;
  if (in_proof()) expect_maps(eight, {{150}, {400}}, {documents_of(90)});
}

TEST_F(Sm100Maps, OfSingleAccumulatorSkipsHiddenTiles) {
  expect_hidden_tiles_are_not_loaded(single_accumulator(same_document()), 1024, 10);
}

// What reads bits takes registers of the softmax, which of 64 keys has some left.
TEST_F(Sm100Maps, OfSingleAccumulatorSpillsNothing) {
  AttentionSpec parts =
      with_group(of_sequences(single_accumulator(causal_documents()), 64, true), 32, 4);
  parts.num_partitions = 0;
  AttentionSpec later = single_accumulator(image_prefix());
  later.arch = Arch::kSm103a;
  AttentionSpec upcast = of_sequences(single_accumulator(causal_documents()), 16, true);
  upcast.kv_dtype = Dtype::kE4m3;
  AttentionSpec eight = single_accumulator(causal_documents());
  eight.qkv_dtype = Dtype::kE4m3;
  eight.scales = Scales::kToken;
  expect_no_spills(some_of<AttentionSpec>({
      parts,
      later,
      upcast,
      eight,
      single_accumulator(tensor_mask(Dtype::kF32)),
      single_accumulator(image_prefix(), 248, 192),
  }));
}

// Beside published work and a map the softmax of e4m3 has registers for fewer polynomials.
TEST_F(Sm100Maps, OfEightBitsSpillNothing) {
  AttentionSpec parts = with_group(maps_spec(128, tensor_mask(Dtype::kBits)), 16, 8);
  parts.qkv_dtype = Dtype::kE4m3;
  parts.scales = Scales::kTensor;
  parts.num_partitions = 3;
  parts.sink = true;
  parts.lse_includes_sink = false;
  AttentionSpec keys = with_group(maps_spec(192, {}), 16, 8);
  keys.mask = tree(Kind::kAnd, {tensor_mask(Dtype::kF32), same_document()});
  keys.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  keys.qkv_dtype = Dtype::kE4m3;
  keys.scales = Scales::kHead;
  keys.ov_depth = 128;
  keys.ragged = keys.ragged_kv = true;
  keys.partition_keys = 128;
  expect_no_spills(some_of<AttentionSpec>({parts, keys}));
}

TEST_F(Sm100Maps, OfMlaPrefill) {
  expect_maps_of_mla_prefill(maps_spec(192, mask_of(Kind::kNull)));
}

TEST_F(Sm100Maps, OfBuiltInMasksWhereAskedFor) {
  expect_maps_of_built_in_masks(maps_spec(64, mask_of(Kind::kCausal)),
                                maps_spec(128, mask_of(Kind::kNull)));
}

TEST_F(Sm100Maps, HiddenTilesAreNotLoaded) {
  expect_hidden_tiles_are_not_loaded(maps_spec(64, same_document()), 2048, 10);
}

}  // namespace
}  // namespace attnjit::sm100
