// SPDX-License-Identifier: Apache-2.0
// The sm_90a kernels over e4m3 K and V that are damaged.
#include "description.h"
#include "generated_subjects.h"

namespace attnjit::emulator {
namespace {

using Kind = MaskSpec::Kind;
constexpr verify::InputKind kNormal = verify::InputKind::kNormal;
constexpr verify::InputKind kRaised = verify::InputKind::kRaised;

AttentionSpec eight_bit(int depth, int heads, int group, Scales scales) {
  return with(spec_of(Arch::kSm90a, depth, depth, heads, group, Kind::kCausal),
              [&](AttentionSpec& spec) {
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
  };
}

// K and V are widened on their way to the type of Q, in pages and without.
std::vector<Description> of_wider_q() {
  const auto wider = [](AttentionSpec& spec) {
    spec.qkv_dtype = Dtype::kBf16;
    spec.kv_dtype = Dtype::kE4m3;
  };
  return {
      {"sm90 kv_dtype 128 causal",
       with(eight_bit(128, 2, 2, Scales::kHead), wider),
       {{{300}, {600}, 2}, {{300}, {150}, 1}, {{200}, {400}, 1, kRaised}}},
      {"sm90 kv_dtype 64 pages",
       with(eight_bit(64, 4, 2, Scales::kTensor),
            [&](AttentionSpec& spec) {
              wider(spec);
              spec.page_size = 16;
              spec.ragged = true;
            }),
       {{{150, 0, 9, 33}, {690, 40, 0, 31}, 1, kNormal, true}, {{70, 40}, {500, 30}, 2, kRaised}}},
  };
}

}  // namespace

Result<Subjects> make_eight_bit_subjects(const Wanted& wanted) {
  return make_described({of_eight_bit_q(), of_wider_q()}, wanted);
}

}  // namespace attnjit::emulator
