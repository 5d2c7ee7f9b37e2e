// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA (mla: decode) on sm_90a.
#include <vector>

#include "../kernel_fixture.h"
#include "plan/sm90_mla/sm90_mla_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

// Of a latent part that compiles soon; Depths has those of models.
AttentionSpec spec_of(int heads, int page_size, int partitions) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.mla = Mla::kDecode;
  spec.num_q_heads = spec.group = heads;
  spec.qk_depth = 192;
  spec.page_size = page_size;
  spec.num_partitions = partitions;
  spec.return_lse = true;
  spec.mask = mask_of(Kind::kCausal);
  return spec;
}

AttentionSpec with_depths(AttentionSpec spec, int qk_depth, int ov_depth) {
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  return spec;
}

using Sm90Mla = KernelTest;

// Odd numbers of KV tiles and even ones, tiles that end in a page, sequences without keys; several
// work tiles for a CTA.
TEST_F(Sm90Mla, PagesOfAnySize) {
  for (const auto& [page_size, partitions] :
       some_of<std::pair<int, int>>({{1, 2}, {16, 3}, {64, 1}})) {
    SCOPED_TRACE(page_size);
    expect_passes(spec_of(16, page_size, partitions),
                  {{{1}, {200, 0, 31, 128}}, {{1}, {64, 65}}, {{1}, {1}}});
  }
}

// Heads that share a tile with other positions, that fill tiles, and that are no power of two.
TEST_F(Sm90Mla, Heads) {
  for (const int heads : some_of<int>({20, 1, 128})) {
    SCOPED_TRACE(heads);
    expect_passes(spec_of(heads, 64, 2), {{{1}, {130, 64}}, {{3}, {70, 2}}});
  }
}

// As speculative decoding has them: each sees the keys up to its own.
TEST_F(Sm90Mla, SeveralRows) {
  AttentionSpec spec = spec_of(16, 32, 1);
  spec.max_q_len = 8;
  expect_passes(spec, {{{8}, {100, 8, 5}}, {{5}, {66}}, {{4}, {260}}});
}

TEST_F(Sm90Mla, Depths) {
  expect_passes(with_depths(spec_of(128, 64, 2), 576, 512), {{{2}, {200, 0, 64}}, {{1}, {330}}});
  expect_passes(with_depths(spec_of(32, 64, 2), 320, 256), {{{2}, {500, 64}}, {{1}, {63}}});
  if (!in_proof()) return;
  // Without a rope part; an odd number of blocks; one.
  expect_passes(with_depths(spec_of(16, 64, 1), 256, 256), {{{1}, {190}}});
  expect_passes(with_depths(spec_of(16, 8, 1), 256, 192), {{{1}, {190, 20}}});
  expect_passes(with_depths(spec_of(16, 64, 1), 128, 64), {{{1}, {190}}, {{1}, {700}}});
}

TEST_F(Sm90Mla, TypesSinksAndMasks) {
  AttentionSpec spec = spec_of(16, 64, 1);
  spec.qkv_dtype = Dtype::kFp16;
  spec.sink = true;
  expect_passes(spec, {{{2}, {150, 0, 1}}});
  spec.output_dtype = Dtype::kBf16;
  spec.lse_includes_sink = false;
  spec.num_partitions = 3;
  spec.mask = mask_of(Kind::kSlidingWindow);
  spec.mask.window = 100;
  expect_passes(spec, {{{2}, {300, 40}}, {{1}, {40}}});
  AttentionSpec null = spec_of(16, 64, 1);
  null.mask = mask_of(Kind::kNull);
  null.return_lse = false;
  expect_passes(null, {{{3}, {150, 2}}});
}

TEST_F(Sm90Mla, PartitionsOfFixedKeys) {
  AttentionSpec spec = spec_of(16, 16, 1);
  spec.partition_keys = 128;
  spec.sink = true;
  expect_passes(spec, {{{1}, {400, 0, 31}}, {{2}, {100}}});
}

// More parts of long rows than a warp merges.
TEST_F(Sm90Mla, ManyPartsOfLongRows) {
  expect_passes(with_depths(spec_of(16, 64, 11), 384, 320), {{{1}, {800, 0, 300}}, {{2}, {1500}}});
}

TEST_F(Sm90Mla, BatchesWithoutPages) {
  expect_passes(spec_of(16, 0, 1), {{{2}, {150}}, {{1}, {0}}});
  expect_passes(spec_of(20, 0, 3), {{{2}, {150}}});
  AttentionSpec ragged = spec_of(20, 0, 2);
  ragged.ragged = true;
  expect_passes(ragged, {{{3, 0, 1}, {150, 70, 2}}});
  ragged.ragged_kv = true;
  expect_passes(ragged, {{{1, 4, 0}, {70, 129, 3}}});
}

TEST_F(Sm90Mla, NewRowsAndRaggedPages) {
  AttentionSpec spec = spec_of(16, 64, 1);
  spec.ragged = true;
  spec.kv_lens_exclude_new = true;
  expect_passes(spec, {{{1, 5, 0, 2}, {130, 64, 3, 2}}});
}

// Two CTAs that load K for each other.
TEST_F(Sm90Mla, Clusters) {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"cluster", 2}}});
  expect_passes(spec_of(128, 64, 1), {{{1}, {200, 0, 31, 64}}, {{2}, {65}}}, &tuning);
  expect_passes(spec_of(96, 16, 2), {{{3}, {400, 3}}, {{1}, {0}}}, &tuning);
  expect_passes(spec_of(65, 0, 1), {{{1}, {130}}}, &tuning);
}

// What a launch that accumulates computes goes to a workspace, and is merged.
TEST_F(Sm90Mla, Accumulates) {
  AttentionSpec spec = spec_of(16, 64, 1);
  spec.accumulate = true;
  expect_passes(spec, {{{2}, {130, 1}}});
}

// The compiler keeps to the registers that setmaxnreg leaves, and spills none.
TEST_F(Sm90Mla, SpillsNothing) {
  AttentionSpec fixed = spec_of(128, 64, 1);
  fixed.partition_keys = 256;
  fixed.sink = true;
  AttentionSpec boxes = spec_of(128, 16, 1);
  boxes.partition_keys = 256;
  for (const AttentionSpec& spec : some_of<AttentionSpec>(
           {with_depths(boxes, 320, 256), with_depths(fixed, 576, 512),
            with_depths(spec_of(128, 1, 0), 576, 512), with_depths(boxes, 576, 512)})) {
    const auto kernel = compiled(spec, nullptr, CompileTo::kImage);
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->generated.usage.spill_bytes, 0);
    EXPECT_EQ(kernel->generated.usage.stack_bytes, 0);
    EXPECT_EQ(kernel->generated.usage.registers, 168);
  }
}

}  // namespace
}  // namespace attnjit::sm90
