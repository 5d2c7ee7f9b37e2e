// SPDX-License-Identifier: Apache-2.0
// Consumers that keep a work tile in shared memory while its keys are multiplied, on sm_90a.
// Skipped without NVRTC.
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec stash_spec(int qk_depth, const MaskSpec& mask) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 4, 2, qk_depth, mask);
  if (qk_depth == 192) spec.ov_depth = 128;
  spec.return_lse = false;
  return spec;
}

AttentionSpec in_parts(AttentionSpec spec, int num_partitions, int partition_keys = 0) {
  spec.num_partitions = num_partitions;
  spec.partition_keys = partition_keys;
  return spec;
}

AttentionSpec upcast(AttentionSpec spec, Scales scales = Scales::kNone) {
  spec.kv_dtype = Dtype::kE4m3;
  spec.scales = scales;
  return spec;
}

AttentionSpec of_eight_bits(AttentionSpec spec, Scales scales = Scales::kNone) {
  spec.qkv_dtype = Dtype::kE4m3;
  spec.output_dtype = Dtype::kBf16;
  spec.scales = scales;
  return spec;
}

MaskSpec chunked(int chunk) {
  MaskSpec mask = mask_of(Kind::kChunked);
  mask.chunk = chunk;
  return mask;
}

MaskSpec tensor_of(Dtype dtype) {
  MaskSpec mask = mask_of(Kind::kMaterialized);
  mask.dtype = dtype;
  return mask;
}

MaskSpec added_numbers() { return tensor_of(Dtype::kBf16); }

// A mask whose tiles are listed.
MaskSpec near() { return expression_of("abs(q_idx - kv_idx) < 100 || kv_idx < 16"); }

// As Gemma 2 has it.
AttentionSpec decode_with_cap() {
  AttentionSpec spec = stash_spec(256, window_of(4096));
  spec.num_q_heads = 16;
  spec.max_q_len = 1;
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  spec.score_mod.cap = 50;
  return of_sequences(in_parts(spec, 0), 16, false);
}

using Sm90Stash = KernelTest;

// CTAs have several work tiles. O has memory of its own or Q's, of which there are one or two; CTAs
// pass over tiles behind a window's last one; sequences differ, and keys have parts.
TEST_F(Sm90Stash, WorkTilesAreFoundAgain) {
  AttentionSpec lse = stash_spec(64, near());
  lse.return_lse = true;
  const std::vector<Lengths> dense = {{{200, 200}, {330, 330}}};
  const std::vector<Lengths> ragged = {{{200, 1, 70}, {330, 90, 70}}};
  expect_passes(some_of<Trial>(
      {{stash_spec(192, window_of(60)), dense},
       {of_sequences(in_parts(stash_spec(64, mask_of(Kind::kCausal)), 0), 64, true), ragged},
       {of_sequences(stash_spec(192, mask_of(Kind::kCausal)), 16, true), ragged},
       {upcast(stash_spec(256, window_of(60))), dense},
       {in_parts(lse, 1, 256), dense},
       {in_parts(upcast(stash_spec(128, added_numbers())), 1, 128), dense},
       {of_eight_bits(stash_spec(256, added_numbers())), dense},
       {stash_spec(128, chunked(64)), dense},
       {of_eight_bits(stash_spec(64, window_of(60)), Scales::kToken), dense},
       {in_parts(of_eight_bits(stash_spec(64, window_of(60)), Scales::kToken), 2), dense},
       {of_sequences(in_parts(of_eight_bits(stash_spec(64, window_of(60)), Scales::kToken), 0), 16,
                     true),
        ragged}},
      2));
}

// Without, these spilled 12 to 656 bytes: what is known of a work tile, and where the rings stand.
TEST_F(Sm90Stash, SpillsNothing) {
  const MaskSpec causal = mask_of(Kind::kCausal);
  AttentionSpec lse = stash_spec(128, window_of(1024));
  lse.return_lse = true;
  std::vector<AttentionSpec> specs = {
      stash_spec(192, window_of(1024)),
      of_sequences(in_parts(stash_spec(64, causal), 0), 64, true),
      upcast(stash_spec(256, near())),
      in_parts(stash_spec(64, near()), 1, 256),
      stash_spec(192, chunked(512)),
      stash_spec(192, near()),
      stash_spec(192, added_numbers()),
      stash_spec(256, added_numbers()),
      stash_spec(128, chunked(512)),
      of_sequences(stash_spec(192, causal), 64, false),
      of_sequences(in_parts(stash_spec(192, window_of(1024)), 0), 16, true),
      of_sequences(stash_spec(128, causal), 16, false),
      of_sequences(in_parts(stash_spec(128, window_of(1024)), 0), 64, true),
      upcast(stash_spec(256, window_of(1024)), Scales::kHead),
      in_parts(upcast(stash_spec(256, near())), 1, 256),
      of_sequences(in_parts(of_eight_bits(stash_spec(64, near())), 0), 16, false),
      lse,
      decode_with_cap(),
      in_parts(upcast(stash_spec(192, near())), 1, 256),
  };
  expect_no_spills(some_of<AttentionSpec>(specs, 3));
}

// Behind the stores of O a warp is converged again, where a work tile ends in two ways. Of a warp
// that is not, ptxas keeps in each lane what is the same in all: these spilled 8 to 640 bytes.
TEST_F(Sm90Stash, PartsOfKeysLeaveTheWarpWhole) {
  const AttentionSpec none = stash_spec(64, mask_of(Kind::kNull));
  const AttentionSpec causal = stash_spec(64, mask_of(Kind::kCausal));
  AttentionSpec bytes = of_eight_bits(stash_spec(128, mask_of(Kind::kCausal)));
  bytes.output_dtype = Dtype::kE4m3;
  expect_no_spills(
      some_of<AttentionSpec>({of_sequences(in_parts(none, 0), 16, true), in_parts(causal, 1, 256),
                              of_sequences(in_parts(causal, 1, 256), 64, false),
                              of_sequences(in_parts(stash_spec(64, near()), 1, 256), 64, false),
                              of_sequences(in_parts(bytes, 0), 16, true)},
                             2));
}

// The O of a part is stored from an address of each row on. Of columns that were counted from a
// lane's first one each had a register over all work tiles: these spilled 40 to 140 bytes.
TEST_F(Sm90Stash, PartsAreStoredFromOneAddress) {
  AttentionSpec f32 = in_parts(stash_spec(256, added_numbers()), 0);
  f32.output_dtype = Dtype::kF32;
  AttentionSpec bytes = of_eight_bits(in_parts(stash_spec(256, added_numbers()), 0));
  bytes.output_dtype = Dtype::kE4m3;
  expect_no_spills(some_of<AttentionSpec>(
      {f32, bytes, of_eight_bits(in_parts(stash_spec(256, tensor_of(Dtype::kBits)), 1, 256))}, 2));
}

// Beside tensors consumers stash where K and V are upcast and keys have parts, and where O of e4m3
// has 256 columns and numbers are added: these spilled 8 to 24 bytes.
TEST_F(Sm90Stash, TensorsSpillNothing) {
  AttentionSpec ragged = of_eight_bits(stash_spec(256, added_numbers()), Scales::kHead);
  ragged.num_q_heads = 12;
  ragged.group = 6;
  ragged.ragged = ragged.ragged_kv = ragged.return_lse = true;
  expect_no_spills(some_of<AttentionSpec>(
      {in_parts(upcast(stash_spec(128, added_numbers())), 1, 256), ragged,
       of_sequences(in_parts(upcast(stash_spec(80, added_numbers())), 0), 16, true),
       of_sequences(in_parts(upcast(stash_spec(192, added_numbers())), 0), 16, true)},
      2));
}

// Beside 256 columns consumers make again with each tile what ptxas would keep: the descriptors of
// Q beside numbers that are added, and of upcast K and V the place of its bits in notes. These
// spilled 8 to 104 bytes.
TEST_F(Sm90Stash, WhatATileNeedsIsMadeAgain) {
  const MaskSpec documents =
      expression_of("p.doc[q_idx] == p.doc[kv_idx]", {{"doc", ParamSpec::Type::kI32Array}});
  expect_no_spills(
      some_of<AttentionSpec>({of_sequences(in_parts(stash_spec(256, added_numbers()), 0), 16, true),
                              of_sequences(stash_spec(256, added_numbers()), 1, true),
                              of_sequences(upcast(stash_spec(256, documents)), 64, false)},
                             2));
}

// A producer that asks a mask about tiles, and finds where its sequences' pages lie, has registers
// enough: these spilled 16 to 132 bytes.
TEST_F(Sm90Stash, ProducersOfListsOverPagesSpillNothing) {
  AttentionSpec decode = in_parts(stash_spec(256, near()), 0);
  decode.max_q_len = 4;
  expect_no_spills(some_of<AttentionSpec>(
      {of_sequences(in_parts(stash_spec(128, near()), 0), 16, false),
       of_sequences(upcast(stash_spec(128, near())), 64, false),
       of_sequences(upcast(stash_spec(64, mask_of(Kind::kCausal)), Scales::kToken), 16, true),
       of_sequences(stash_spec(192, near()), 16, true), of_sequences(decode, 16, false),
       of_sequences(in_parts(stash_spec(256, near()), 0), 16, false),
       of_sequences(in_parts(stash_spec(256, mask_of(Kind::kCausal)), 1, 256), 64, false),
       of_sequences(in_parts(stash_spec(192, near()), 0), 16, true),
       of_sequences(upcast(stash_spec(80, window_of(512))), 1, true),
       of_sequences(in_parts(upcast(stash_spec(224, near())), 0), 16, true)},
      2));
}

}  // namespace
}  // namespace attnjit::sm90
