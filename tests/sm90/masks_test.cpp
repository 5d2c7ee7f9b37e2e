// SPDX-License-Identifier: Apache-2.0
// Masks that a launch gives the kernel, and windows to both sides, on sm_90a.
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec masks_spec(int qk_depth, const MaskSpec& mask) {
  return base_spec(Arch::kSm90a, 2, 2, qk_depth, mask);
}

using Sm90Masks = KernelTest;

// Window::window and window_right; -1 is no bound.
TEST_F(Sm90Masks, WindowsToBothSides) {
  for (const auto& [left, right] :
       some_of<std::pair<int, int>>({{50, 30}, {70, -1}, {-1, 90}, {-1, -1}, {-1, 0}}, 2)) {
    MaskSpec mask = window_of(left);
    mask.window_right = right;
    expect_passes(masks_spec(64, mask), {{{200}, {300}}, {{90}, {20}}});
  }
  MaskSpec constant = window_of(50);
  constant.window_right = 200;
  constant.constant = true;
  expect_passes(of_sequences(masks_spec(128, constant), 64, true),
                {{{60, 0, 130}, {300, 30, 130}}});
}

// Windows that the kernel knows to be small have tiles of 64 keys: all rows of a group in one tile,
// rows before the first key, and tiles with keys of a window's both ends.
TEST_F(Sm90Masks, SmallConstantWindows) {
  MaskSpec mask = window_of(128);
  mask.constant = true;
  AttentionSpec spec = with_group(masks_spec(64, mask), 8, 8);
  spec.sink = true;
  expect_passes(spec, {{{300}, {330}}, {{90}, {20}}});
  spec.return_lse = true;
  expect_passes(of_sequences(spec, 16, true), {{{60, 1, 130}, {300, 400, 130}}, {{200}, {210}}});
  mask.window_right = 128;
  expect_passes(masks_spec(64, mask), {{{400}, {400}}, {{90}, {500}}});
}

TEST_F(Sm90Masks, SlopesThatAreGiven) {
  AttentionSpec spec = masks_spec(64, mask_of(Kind::kCausal));
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  spec.score_mod.slopes = true;
  expect_passes(spec, {{{70}, {200}}});
}

MaskSpec materialized(Dtype dtype) {
  MaskSpec mask = mask_of(Kind::kMaterialized);
  mask.dtype = dtype;
  return mask;
}

// By the seed's bits the mask has one batch or each, one head or each, each row or one. Rows begin
// at odd addresses.
TEST_F(Sm90Masks, Materialized) {
  for (const Dtype dtype :
       some_of<Dtype>({Dtype::kBits, Dtype::kF32, Dtype::kU8, Dtype::kBf16, Dtype::kFp16}, 2)) {
    const AttentionSpec spec = masks_spec(dtype == Dtype::kU8 ? 128 : 64, materialized(dtype));
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    for (const std::uint64_t seed : {0, 1, 2, 3, 6}) {
      const auto problem = problem_of(spec, {{70, 70}, {201, 201}}, InputKind::kNormal, seed);
      ASSERT_TRUE(problem);
      const auto done =
          run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
    }
  }
}

TEST_F(Sm90Masks, MaterializedOfSequencesAndInTrees) {
  const Lengths lengths{{60, 0, 1, 130}, {300, 30, 200, 130}};
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBits, Dtype::kBf16}) {
    const MaskSpec both = tree(Kind::kAnd, {mask_of(Kind::kCausal), materialized(dtype)});
    if (in_proof() || dtype == Dtype::kU8) {
      expect_passes(of_sequences(masks_spec(64, both), 64, true), {lengths});
    }
    if (in_proof() || dtype == Dtype::kBits) {
      expect_passes(of_sequences(masks_spec(64, both), 1, false), {{{40, 40}, {300, 90}}});
    }
  }
  expect_passes(masks_spec(64, tree(Kind::kOr, {window_of(30), materialized(Dtype::kU8)})),
                {{{90}, {180}}});
}

// With a test of each key that is read these spilled (docs/sm90.md).
TEST_F(Sm90Masks, TensorsSpillNothing) {
  const auto of = [](AttentionSpec spec, Dtype qkv, Dtype kv, Dtype output) {
    spec.qkv_dtype = qkv;
    spec.kv_dtype = kv;
    spec.output_dtype = output;
    return spec;
  };
  const MaskSpec numbers = materialized(Dtype::kBf16), bits = materialized(Dtype::kBits);
  const Dtype e4m3 = Dtype::kE4m3, bf16 = Dtype::kBf16;
  AttentionSpec split = masks_spec(256, bits);
  split.num_partitions = 0;
  expect_no_spills(some_of<AttentionSpec>(
      {of(masks_spec(256, numbers), e4m3, e4m3, bf16),
       of(masks_spec(128, numbers), bf16, e4m3, bf16), of(masks_spec(256, bits), e4m3, e4m3, e4m3),
       of(split, bf16, e4m3, bf16),
       of(of_sequences(masks_spec(128, numbers), 0, true), bf16, e4m3, bf16),
       of(masks_spec(128, materialized(Dtype::kF32)), bf16, e4m3, bf16),
       of(masks_spec(128, numbers), e4m3, e4m3, e4m3),
       of(masks_spec(256, numbers), bf16, e4m3, bf16)},
      3));
}

}  // namespace
}  // namespace attnjit::sm90
