// SPDX-License-Identifier: Apache-2.0
// Masks that hang on arrays, on sm_90a: a kernel makes a map of them, and the attention walks it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "../map_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec maps_spec(int qk_depth, const MaskSpec& mask) {
  return base_spec(Arch::kSm90a, 2, 2, qk_depth, mask);
}

using Sm90Maps = MapTest;

// Documents that end in the middle of blocks, with rows that are no whole number of tiles, and rows
// that come before the first key.
TEST_F(Sm90Maps, Documents) {
  expect_maps(maps_spec(64, causal_documents()), {{300}, {700}}, {documents_of(200)});
  expect_maps(maps_spec(256, same_document()), {{150}, {400}}, {documents_of(128)});
  if (!in_proof()) return;
  expect_maps(maps_spec(128, causal_documents()), {{520}, {520}}, {documents_of(100)});
  expect_maps(maps_spec(128, same_document()), {{200}, {90}}, {documents_of(70)});
}

TEST_F(Sm90Maps, MixedElements) {
  expect_mixed_elements(maps_spec(64, same_document()));
  expect_maps(maps_spec(64, same_document()), {{140}, {270}});  // random elements
}

TEST_F(Sm90Maps, BlocksPastASequencesKeysArePassedOver) {
  const Lengths lengths{{160, 130, 70}, {900, 300, 130}};
  expect_blocks_past_the_keys_passed_over(of_sequences(maps_spec(64, same_document()), 16, true),
                                          lengths, {documents_of(150)});
  if (!in_proof()) return;
  expect_blocks_past_the_keys_passed_over(of_sequences(maps_spec(192, same_document()), 64, true),
                                          lengths, {documents_of(150)});
}

// Images are seen whole by their own tokens; others' are known to differ where a block is all
// image.
TEST_F(Sm90Maps, ImagePrefix) {
  const std::int64_t rows = in_proof() ? 900 : 400;
  expect_maps(maps_spec(64, image_prefix()), {{rows}, {900}}, {images_of(900)});
}

// A part has what a map shows of its keys, in the order of the keys and not of the lists: of blocks
// that several parts share each its tiles, more tiles than a warp's lanes, and none.
TEST_F(Sm90Maps, PartitionsOfFixedKeys) {
  AttentionSpec parts = of_sequences(maps_spec(64, causal_documents()), 16, true);
  parts.partition_keys = 192;
  parts.sink = true;
  expect_maps(parts, {{160, 0, 1, 130}, {500, 30, 420, 130}}, {documents_of(90)});
  if (!in_proof()) return;
  expect_given_lists(parts, {{300, 2}, {650, 200}}, {documents_of(90)});
  parts = maps_spec(192, same_document());
  parts.partition_keys = 4096;
  expect_maps(parts, {{3}, {2500}}, {documents_of(900)});
  expect_given_lists(parts, {{3}, {2500}}, {documents_of(90)});
  parts = of_sequences(maps_spec(64, tensor_mask(Dtype::kU8)), 1, true);
  parts.partition_keys = 128;
  expect_maps(parts, {{3, 140}, {400, 200}}, {}, 3);
}

// A map for each sequence, for each head, and for the heads that share a tile.
TEST_F(Sm90Maps, SequencesAndHeads) {
  if (in_proof()) {
    expect_maps(maps_spec(64, documents_by_batch()), {{200, 200}, {300, 300}}, {documents_of(150)});
  }
  const MaskSpec by_head = documents_by_head();
  if (in_proof()) expect_maps(maps_spec(64, by_head), {{130}, {400}}, {documents_of(150)});
  for (const int group : some_of<int>({3, 4}, 1)) {
    expect_maps(with_group(maps_spec(64, by_head), 2 * group, group), {{130}, {400}},
                {documents_of(150)});
  }
  if (!in_proof()) return;
  const MaskSpec by_kv_head = over_arrays("p.doc[q_idx] == p.doc[kv_idx] || kv_idx < kv_h * 130",
                                          {{"doc", Type::kI32Array}});
  expect_maps(with_group(maps_spec(64, by_kv_head), 4, 2), {{130}, {400}}, {documents_of(150)});
}

TEST_F(Sm90Maps, Ragged) {
  const Lengths lengths = ragged_lengths();
  const std::vector<verify::ParamArgument> params{documents_of(90)};
  // Rows of K and V are copied one by one.
  expect_maps(of_sequences(maps_spec(64, causal_documents()), 1, true), lengths, params);
  expect_maps(of_sequences(maps_spec(64, documents_by_row()), 0, true), lengths, params);
  if (!in_proof()) return;
  expect_maps(of_sequences(maps_spec(128, causal_documents()), 64, true), lengths, params);
  expect_maps(of_sequences(maps_spec(64, causal_documents()), 0, true), lengths, params);
  AttentionSpec keys = of_sequences(maps_spec(64, causal_documents()), 0, true);
  keys.ragged_kv = true;
  expect_maps(keys, lengths, params);
}

TEST_F(Sm90Maps, PartitionsAndDecodes) {
  const std::vector<verify::ParamArgument> params{documents_of(90)};
  AttentionSpec parts = of_sequences(maps_spec(64, causal_documents()), 16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_maps(parts, {{2}, {700, 0, 31, 200}}, params);
  AttentionSpec decode =
      with_group(of_sequences(maps_spec(128, causal_documents()), 64, false), 4, 4);
  decode.max_q_len = 2;
  expect_maps(decode, {{2}, {700, 3}}, params);
  if (!in_proof()) return;
  AttentionSpec fixed = of_sequences(maps_spec(64, causal_documents()), 64, true);
  fixed.partition_keys = 128;
  expect_maps(fixed, {{1, 40}, {400, 300}}, params);
  AttentionSpec sums = maps_spec(64, causal_documents());
  sums.accumulate = true;
  expect_maps(sums, {{100}, {300}}, params);
}

TEST_F(Sm90Maps, PartsOfWhatIsSeen) {
  if (in_proof()) expect_parts_of_what_is_seen(maps_spec(64, same_document()));
  AttentionSpec decode = with_group(maps_spec(128, same_document()), 4, 4);  // two tiles a block
  decode.max_q_len = 1;
  expect_parts_of_what_is_seen(decode);
}

// A tree of drafts: elements of a matrix, after keys that all see.
MaskSpec drafts() {
  return over_arrays(
      "kv_idx < kv_len - q_len || "
      "(p.t[q_row][(kv_idx - kv_len + q_len) / 32] >> kv_idx - kv_len + q_len & 1) != 0",
      {{"t", Type::kI32Matrix}});
}

TEST_F(Sm90Maps, Matrices) {
  expect_maps(maps_spec(64, drafts()), {{64}, {700}});
  if (!in_proof()) return;
  const MaskSpec table = over_arrays("p.t[q_idx][kv_idx] > 1", {{"t", Type::kI32Matrix}});
  expect_maps(maps_spec(64, table), {{140}, {150}});
}

// By the seed's bits a mask has one batch or each, one head or each, each row or one.
TEST_F(Sm90Maps, Materialized) {
  for (const Dtype dtype :
       some_of<Dtype>({Dtype::kBits, Dtype::kF32, Dtype::kU8, Dtype::kBf16, Dtype::kFp16}, 1)) {
    for (const std::uint64_t seed : some_of<std::uint64_t>({3, 4}, 1)) {
      expect_maps(maps_spec(64, tensor_mask(dtype)), {{300, 300}, {700, 700}}, {}, seed);
    }
  }
  if (!in_proof()) return;
  expect_maps(maps_spec(128, tensor_mask(Dtype::kU8)), {{200, 200}, {389, 389}}, {}, 1);
}

TEST_F(Sm90Maps, MaterializedOfGroupsAndSequences) {
  const Lengths lengths = ragged_lengths();
  for (const std::uint64_t seed : some_of<std::uint64_t>({3, 0}, 1)) {
    for (const int group : some_of<int>({3, 4}, 1)) {
      expect_maps(with_group(maps_spec(64, tensor_mask(Dtype::kU8)), 2 * group, group),
                  {{130, 130}, {400, 400}}, {}, seed);
    }
    // Numbers are read in another way than bools.
    expect_maps(with_group(maps_spec(64, tensor_mask(Dtype::kBf16)), 6, 3),
                {{130, 130}, {400, 400}}, {}, seed);
    if (in_proof()) {
      expect_maps(of_sequences(maps_spec(64, tensor_mask(Dtype::kBf16)), 64, true), lengths, {},
                  seed);
    }
    AttentionSpec decode =
        with_group(of_sequences(maps_spec(128, tensor_mask(Dtype::kBits)), 64, false), 4, 4);
    decode.max_q_len = 2;
    expect_maps(decode, {{2}, {700, 3}}, {}, seed);
  }
}

// Beside masks that are known without reading a tensor, and custom code over arrays.
TEST_F(Sm90Maps, MaterializedInTrees) {
  expect_maps(maps_spec(64, tree(Kind::kOr, {window_of(30), tensor_mask(Dtype::kBits)})),
              {{290}, {380}});
  if (!in_proof()) return;
  for (const Dtype dtype : {Dtype::kU8, Dtype::kF32}) {
    const MaskSpec mask = tensor_mask(dtype);
    expect_maps(maps_spec(64, tree(Kind::kAnd, {mask_of(Kind::kCausal), mask})), {{300}, {500}});
    expect_maps(maps_spec(64, tree(Kind::kAnd, {mask, same_document()})), {{300, 300}, {500, 500}},
                {documents_of(200)}, 3);
  }
  const MaskSpec by_kv_head = over_arrays("p.doc[q_idx] == p.doc[kv_idx] || kv_idx < kv_h * 130",
                                          {{"doc", Type::kI32Array}});
  expect_maps(
      with_group(maps_spec(64, tree(Kind::kAnd, {by_kv_head, tensor_mask(Dtype::kU8)})), 4, 2),
      {{130}, {400}}, {documents_of(150)});
}

TEST_F(Sm90Maps, ListsOfTheCallerOverBuiltInMasks) {
  expect_given_lists_over_built_in_masks(maps_spec(64, {}));
  if (!in_proof()) return;
  expect_given_lists_over_built_in_masks(with_group(maps_spec(128, {}), 4, 2));
}

TEST_F(Sm90Maps, ListsOfTheCallerOverOtherMasks) {
  const Lengths lengths{{300, 300}, {650, 650}};
  expect_given_lists(maps_spec(64, causal_documents()), lengths, {documents_of(90)});
  if (!in_proof()) return;
  expect_given_lists(maps_spec(128, over_arrays("kv_idx <= q_idx", {})), lengths);
  expect_given_lists(maps_spec(64, tensor_mask(Dtype::kF32)), lengths);
  expect_given_lists(maps_spec(64, tree(Kind::kAnd, {window_of(200), tensor_mask(Dtype::kU8)})),
                     lengths);
  AttentionSpec parts = of_sequences(maps_spec(64, mask_of(Kind::kCausal)), 16, false);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_given_lists(parts, {{2}, {700, 0, 31, 200}});
  AttentionSpec fixed = of_sequences(maps_spec(64, mask_of(Kind::kCausal)), 64, true);
  fixed.partition_keys = 128;
  expect_given_lists(fixed, {{1, 40}, {400, 300}});
  expect_given_lists(maps_spec(256, mask_of(Kind::kCausal)), {{150}, {400}});
}

TEST_F(Sm90Maps, OfMlaPrefill) { expect_maps_of_mla_prefill(maps_spec(192, mask_of(Kind::kNull))); }

TEST_F(Sm90Maps, OfBuiltInMasksWhereAskedFor) {
  expect_maps_of_built_in_masks(maps_spec(64, mask_of(Kind::kCausal)),
                                maps_spec(128, mask_of(Kind::kNull)));
}

TEST_F(Sm90Maps, HiddenTilesAreNotLoaded) {
  expect_hidden_tiles_are_not_loaded(maps_spec(64, same_document()), 4096, 5);
}

TEST_F(Sm90Maps, BitsAreReadInThePlaceOfTheMask) {
  if (in_proof()) expect_bits_in_the_place_of_the_mask(maps_spec(64, causal_documents()));
  expect_bits_in_the_place_of_the_mask(with_group(maps_spec(128, causal_documents()), 4, 4));
}

TEST_F(Sm90Maps, BitsPastTheKeysArePassedOver) {
  expect_bits_past_the_keys_passed_over(of_sequences(maps_spec(64, {}), 16, true));
}

TEST_F(Sm90Maps, BitsOfSomeBlocks) { expect_bits_of_some_blocks(maps_spec(64, same_document())); }

// The lists' order says nothing, and what stands in them is not believed.
TEST_F(Sm90Maps, AnyLists) {
  const auto kernel = compiled(maps_spec(64, causal_documents()));
  ASSERT_TRUE(kernel);
  auto problem = problem_of(kernel->generated.plan.spec, {{300}, {700}}, InputKind::kNormal, 0,
                            {documents_of(250)});
  ASSERT_TRUE(problem);
  auto map = verify::make_mask_map(*problem, 1, 1);
  ASSERT_TRUE(map);
  for (auto* lists : {&map->part, &map->whole}) {
    for (auto& list : *lists) std::reverse(list.begin(), list.end());
  }
  const auto launched = [&] {
    return run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
  };
  give_mask_map(*map, *problem);
  auto done = launched();
  ASSERT_TRUE(done);
  expect_right(*problem, *done);
  map->shape.bit_blocks = 4;
  std::size_t number = 0;
  for (const char* const name :
       {"kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "kv_bits"}) {
    for (const std::int32_t value : {-1, INT32_MIN, INT32_MAX, 1 << 24, 6, 100, 0x3ff, 0x4ff}) {
      if (number++ % 3 != 0 && !in_proof()) continue;
      SCOPED_TRACE(std::string(name) + " " + std::to_string(value));
      give_mask_map(*map, *problem);
      verify::Tensor& array = problem->tensors.at(name);
      std::fill_n(array.as<std::int32_t>(), array.elements(), value);
      EXPECT_TRUE(launched());
    }
  }
}

// A map of an expression that needs none, for launches that share it: of tiles that are all seen in
// part, and of each kind of mask in a tree.
TEST_F(Sm90Maps, OfExpressionsWhereAskedFor) {
  PlanOptions options;
  options.mask_map = true;
  const MaskSpec dilated =
      over_arrays("kv_idx <= q_idx && q_idx - kv_idx < 250 && (q_idx - kv_idx) % 4 == 0", {});
  expect_maps(maps_spec(64, dilated), {{300}, {700}}, {}, 0, options);
  if (!in_proof()) return;
  expect_maps(maps_spec(128, tree(Kind::kOr, {window_of(70), over_arrays("kv_idx % 200 < 3", {})})),
              {{260}, {260}}, {}, 0, options);
}

// What the producer tells of each tile are registers of a warp that has few; parts of the keys, and
// pages, take more of them.
TEST_F(Sm90Maps, SpillNothing) {
  AttentionSpec parts = with_group(maps_spec(128, drafts()), 32, 4);
  parts.num_partitions = 0;
  expect_no_spills(some_of<AttentionSpec>({
      parts,
      maps_spec(128, same_document()),
      of_sequences(maps_spec(128, causal_documents()), 64, true),
      maps_spec(64, causal_documents()),
      maps_spec(192, same_document()),
  }));
  if (!in_proof()) return;
  PlanOptions options;
  options.mask_map = true;
  AttentionSpec causal =
      with_group(of_sequences(maps_spec(128, mask_of(Kind::kCausal)), 16, false), 8, 4);
  causal.num_partitions = 0;
  expect_no_spills(some_of<AttentionSpec>({
                       causal,
                       maps_spec(256, mask_of(Kind::kCausal)),
                       maps_spec(128, mask_of(Kind::kNull)),
                   }),
                   options);
}

TEST_F(Sm90Maps, OnlyWhereArraysDecide) {
  const auto block_mask = [](const MaskSpec& mask) {
    return plan(*ResolvedSpec::make(maps_spec(64, mask)))->map.has_value();
  };
  EXPECT_TRUE(block_mask(same_document()));
  EXPECT_TRUE(block_mask(causal_documents()));
  EXPECT_TRUE(block_mask(tensor_mask(Dtype::kF32)));
  EXPECT_FALSE(plan(*ResolvedSpec::make(maps_spec(200, tensor_mask(Dtype::kU8))))->map);
  EXPECT_FALSE(block_mask(mask_of(Kind::kCausal)));
  EXPECT_FALSE(block_mask(over_arrays("kv_idx <= q_idx", {})));
  EXPECT_FALSE(block_mask(over_arrays("kv_idx < p.prefix[b]", {{"prefix", Type::kI32Array}})));
  EXPECT_FALSE(block_mask(
      over_arrays("p.blocks[q_idx / 128][kv_idx / 128] != 0", {{"blocks", Type::kI32Matrix}})));
}

}  // namespace
}  // namespace attnjit::sm90
