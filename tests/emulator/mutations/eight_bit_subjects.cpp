// SPDX-License-Identifier: Apache-2.0
// The kernels over e4m3 K and V that are damaged: those of sm_90a, and of sm_100a those that upcast
// them.
#include "description.h"
#include "generated_subjects.h"

namespace attnjit::emulator {
namespace {

using Kind = MaskSpec::Kind;

AttentionSpec eight_bit(int depth, int heads, int group, Scales scales, Arch arch = Arch::kSm90a) {
  return with(spec_of(arch, depth, depth, heads, group, Kind::kCausal), [&](AttentionSpec& spec) {
    spec.qkv_dtype = Dtype::kE4m3;
    spec.scales = scales;
  });
}

// V is transposed on its way: keys of several tiles of one CTA, tiles that end early, of pages that
// do, and work tiles without keys.
std::vector<Description> of_eight_bit_q() {
  return {
      {"sm90 e4m3 128 causal",
       eight_bit(128, 2, 2, Scales::kHead),
       {{{420}, {700}, 2}, {{420}, {150}, 1}, {{300}, {500}, 1, kRaised}}},
      {"sm90 e4m3 64 pages",
       with(eight_bit(64, 4, 2, Scales::kTensor),
            [](AttentionSpec& spec) {
              spec.page_size = 16;
              spec.ragged = true;
              spec.sink = true;
            }),
       {{{150, 0, 9, 33}, {900, 40, 0, 31}, 1, kNormal, true},
        {{70, 40}, {700, 30}, 2, kRaised},
        {{20}, {300}, 2}}},
      // A scale for each row, whose buffers are taken by turns; and O that leaves from registers.
      {"sm90 e4m3 128 tokens",
       eight_bit(128, 2, 2, Scales::kToken),
       {{{420}, {700}, 2}, {{420}, {150}, 1}, {{300}, {500}, 1, kRaised}}},
      {"sm90 e4m3 256 tokens",
       with(eight_bit(256, 2, 1, Scales::kToken),
            [](AttentionSpec& spec) {
              spec.mask.kind = Kind::kNull;
              spec.output_dtype = Dtype::kF32;
            }),
       {{{150}, {400}, 1}, {{150}, {330}, 1, kRaised}, {{20}, {60}, 2}}},
      // Pages of rows that a warp copies; and work tiles of one KV tile each, behind which the end
      // is published while a consumer still has others before it.
      {"sm90 e4m3 64 rows",
       with(eight_bit(64, 4, 2, Scales::kToken),
            [](AttentionSpec& spec) {
              spec.page_size = 3;
              spec.ragged = true;
              spec.output_dtype = Dtype::kF32;
            }),
       {{{150, 0, 9, 33}, {700, 40, 0, 31}, 1, kNormal, true},
        {{70, 40}, {500, 30}, 2, kRaised},
        {{20}, {300}, 2},
        {{20, 9, 12, 5}, {40, 30, 60, 20}, 1}}},
  };
}

void wider(AttentionSpec& spec) {
  spec.qkv_dtype = Dtype::kBf16;
  spec.kv_dtype = Dtype::kE4m3;
}

// K and V are upcast on their way to 16 bits, by way of registers: with two query tiles and one,
// and with a single accumulator; from pages, also where a warp publishes work tiles, and of
// sequences without keys.
std::vector<Description> of_wider_q_in_registers() {
  constexpr Arch kArch = Arch::kSm100a;
  return {
      {"sm_100a kv_dtype 64 group",
       with(eight_bit(64, 8, 4, Scales::kHead, kArch), wider),
       {{{40}, {1030}, 1}, {{40}, {500}, 1, kRaised}, {{20}, {700}, 148}, {{150}, {30}, 1}},
       persistent()},
      {"sm_100a kv_dtype 128 parts",
       with(eight_bit(128, 2, 1, Scales::kTensor, kArch),
            [](AttentionSpec& spec) {
              wider(spec);
              spec.page_size = 16;
              spec.num_partitions = 0;
            }),
       {in_parts(3, {{150}, {430, 0, 20}, 1}),
        in_parts(3, {{20}, {1100, 30}, 1, kNormal, true}),
        {{150}, {330, 0, 97}, 1},
        {{20}, {500, 30}, 1, kRaised}}},
      {"sm_100a kv_dtype 256",
       with(eight_bit(256, 2, 1, Scales::kNone, kArch), wider),
       {{{60}, {260}, 1}, {{60}, {370}, 1, kRaised}, {{150}, {60}, 1}},
       persistent()},
  };
}

// The same by way of shared memory, in pages and without.
std::vector<Description> of_wider_q() {
  return {
      {"sm90 kv_dtype 128 causal",
       with(eight_bit(128, 2, 2, Scales::kHead), wider),
       {{{300}, {600}, 2}, {{300}, {150}, 1}, {{200}, {400}, 1, kRaised}}},
      {"sm90 kv_dtype 64 pages",
       with(eight_bit(64, 4, 2, Scales::kTensor),
            [](AttentionSpec& spec) {
              wider(spec);
              spec.page_size = 16;
              spec.ragged = true;
            }),
       {{{150, 0, 9, 33}, {690, 40, 0, 31}, 1, kNormal, true}, {{70, 40}, {500, 30}, 2, kRaised}}},
      {"sm90 kv_dtype 128 rows",
       with(eight_bit(128, 4, 2, Scales::kHead),
            [](AttentionSpec& spec) {
              wider(spec);
              spec.page_size = 3;
              spec.ragged = true;
              spec.output_dtype = Dtype::kF32;
            }),
       {{{150, 0, 9, 33}, {490, 40, 0, 31}, 1, kNormal, true},
        {{70, 40}, {400, 30}, 2, kRaised},
        {{20, 9, 12, 5}, {40, 30, 60, 20}, 1}}},
  };
}

}  // namespace

Result<Subjects> make_eight_bit_subjects(const Wanted& wanted) {
  return make_described({of_eight_bit_q(), of_wider_q(), of_wider_q_in_registers()}, wanted);
}

}  // namespace attnjit::emulator
