// SPDX-License-Identifier: Apache-2.0
// Says what the warps of the sm_90a forward kernel do, and shares out the registers.
#include "plan/sm90/sm90_roles.h"

#include <fmt/format.h>

namespace attnjit {
namespace {

// Consumers beside scales of keys keep as little as they can in registers: where they spilled
// otherwise, and take no more time. NOTE: at depth 64 it took 1.02 to 1.09 of the time, but 0.93 of
// a mask of bits, and at 256 1.02 of expressions (docs/sm90.md).
constexpr Sm90Case kRematerializing[] = {
    {kKeyScales | kBools},
    {kKeyScales | kTo192, kTo64},
};

/// Whether consumers have no registers for what they know of a work tile while its keys are
/// multiplied, and stash it in shared memory. NOTE: many of these kernels spilled, 8 to 656 bytes;
/// others have room, and read nothing again.
constexpr Sm90Row<bool> kStash[] = {
    {{kRematerializesRows}, false},
    // Numbers of a tensor take registers with each tile; bools do where K and V have 16 bits.
    {{kNumbers | kSplit, kUpcast}, true},
    {{kNumbers | kSplit | kTo192}, true},
    {{kBools | kSplit, kE4m3 | kUpcast}, true},
    {{kUpcast, kTo192 | kSimple | kAdds}, true},
    {{kUpcast | kTo192 | kBlockSparse | kSplit, kSimple | kVTo128}, true},
    {{kUpcast}, false},
    {{kDecode, kTo192}, true},
    {{kDecode}, false},
    // NOTE: causal ones spill 24 bytes, and took 1.05 of the time with it (docs/sm90.md).
    {{kKeyScales | kTo64, kSimple | kBlockSparse}, true},
    {{kKeyScales | kSplit, kSimple | kTo64}, true},
    {{kKeyScales | kSplit | kTo64 | kFixedParts}, true},
    {{kVTo128, kE4m3 | kTo128 | kSimple}, true},
    {{kVTo128 | kKvLens, kE4m3 | kTo128}, true},
    {{kVTo128 | kSplit, kE4m3 | kTo128}, true},
    {{kVTo128, kE4m3 | kTo128}, false},
    {{kNumbers, kTo192}, true},
    {{kBools, kE4m3 | kTo192}, true},
    // NOTE: chunks with a softcap over pages spilled 28 bytes with it, and none without, but for O
    // of another type.
    {{kChunked | kIdentity, kE4m3 | kTo64}, true},
    {{kChunked, kE4m3 | kTo64 | kKvLens}, true},
    {{kChunked | kODtypeDiffers, kE4m3 | kTo64}, true},
    {{kCuts | kTo192, kE4m3 | kTo128}, true},
    {{kCuts | kSliding | kLse | kTo64 | kThreeConsumers, kE4m3 | kRowCopies}, true},
    {{kTo64}, false},
    {{kE4m3 | kFixedParts, kTo192 | kSimple}, true},
    {{kSplit, kE4m3 | kTo192 | kSimple}, true},
    {{kKvLens | kPaged, kE4m3 | kTo192}, true},
    {{kKvLens | kBlockSparse, kE4m3 | kTo192}, true},
    {{kThreeConsumers | kSliding | kLse}, true},
    {{kThreeConsumers | kSliding | kHeadsApart}, true},
    {{kThreeConsumers | kSliding | kODtypeDiffers}, true},
    {{kThreeConsumers | kSliding | kSplit}, true},
    {{kThreeConsumers | kKvLens | kBoxes, kE4m3}, true},
    {{kThreeConsumers | kKvLens | kCuts, kE4m3}, true},
    {{}, false},
};

/// Registers that a producer has beyond the least, beside two consumers or one. One that loads a
/// tile in several boxes or row by row, asks a mask about tiles, or counts units of rows has more;
/// and still more where it walks a map, too, where sequences differ, or where it cuts their tiles.
/// Most where sequences' keys have parts, too, and O has columns to spare.
constexpr Sm90Row<int> kSpareRegisters[] = {
    {{kBlockSparse | kKvLens | kSplit | kVTo128, kTo128}, 48},
    {{kBlockMask | kKvLens}, 32},
    {{kBlockMask | kSplit}, 32},
    {{kBlockMask | kBlockMaskBits, kTo128}, 32},
    {{kBlockSparse | kKvLens, kTo128}, 32},
    {{kCuts | kTo192, kTo128 | kVTo128}, 32},
    {{kCuts | kRowCopies, kTo192}, 32},
    {{kBoxes}, 16},
    {{kBlockSparse}, 16},
    {{kUnits}, 16},
    {{kKvLens | kSplit, kTo192}, 16},
    {{}, 0},
};

/// Those of the warps before the consumers where K and V are upcast. NOTE: two CTAs per SM have
/// none to spare, and O of 256 columns leaves no more.
constexpr Sm90Row<int> kUpcastRegisters[] = {
    {{kTwoCtas}, 40},
    {{kUnits | kVBelow256, kTo192}, 56},
    {{kBlockSparse | kKvLens | kVBelow256, kTo192}, 56},
    {{kUnits}, 48},
    {{kBlockSparse | kKvLens, kTo64}, 48},
    {{kCuts, kTo64}, 48},
    {{kRowCopies | kKvLens | kTo96, kTo64}, 48},
    {{kKeyScales | kKvLens | kTo64}, 48},
    {{}, 40},
};

struct Registers {
  int producer;
  int consumer;
};
/// Of e4m3 the producer's warpgroup transposes V, and P of the others has half of the registers.
/// NOTE: beside O of more columns the sums by product need what three consumers have of 16 bits.
constexpr Sm90Row<Registers> kE4m3Registers[] = {
    {{kThreeConsumers | kSums, kTo96 | kRowCopies}, {32, 160}},
    {{kThreeConsumers}, {56, 152}},
    {{kQInRegisters}, {40, 232}},
    {{kTwoConsumers}, {56, 224}},
    {{}, {56, 200}},
};
/// Of three consumers: a producer has more that lists tiles or cuts them.
constexpr Sm90Row<Registers> kThreeConsumersRegisters[] = {
    {{kBlockSparse | kKvLens | kBoxes, kTo64}, {56, 152}},
    {{kCuts | kRowCopies}, {40, 152}},
    {{kCuts | kTo96, kTo64}, {40, 152}},
    {{}, {32, 160}},
};

}  // namespace

int sm90_copy_warps(const Sm90Plan& plan) { return plan.num_raw_stages > 0 ? 1 : 4; }

std::vector<PlannedKernel::Role> sm90_roles(const Sm90Plan& plan) {
  std::vector<PlannedKernel::Role> roles{
      {"load", 0, plan.spec->copies_rows ? sm90_copy_warps(plan) : 1}};
  if (plan.num_raw_stages > 0) {
    roles.push_back(
        {plan.spec->upcasts_kv ? "upcast V" : "transpose", kSm90FirstVRewriter, kSm90VRewriters});
  }
  if (plan.spec->upcasts_kv) roles.push_back({"upcast K", 4, kSm90KRewriters});
  for (int i = 0; i < plan.num_consumers; ++i) {
    roles.push_back({fmt::format("consumer {}", i), 4 * (plan.producer_warpgroups() + i), 4});
  }
  return roles;
}

void sm90_share_registers(Sm90Plan& plan) {
  // In all no more than the CTA is launched with: 3 x 168, or 4 x 128.
  const Sm90Traits traits = sm90_traits(plan);
  const auto has = [&](Sm90Trait trait) { return (traits & trait) != 0; };
  const int spare = sm90_first(kSpareRegisters, traits);
  Registers registers{24 + spare, has(kOneConsumer) ? 232 - spare : 240 - spare / 2};
  if (has(kE4m3)) {
    registers = sm90_first(kE4m3Registers, traits);
  } else if (has(kUpcast)) {
    // Consumers have what the two warpgroups before them leave of what the CTA is launched with.
    registers.producer = sm90_first(kUpcastRegisters, traits);
    const int left = plan.threads() / 128 * plan.launch_registers() -
                     plan.producer_warpgroups() * registers.producer;
    registers.consumer = left / plan.num_consumers / 8 * 8;
  } else if (has(kThreeConsumers)) {
    registers = sm90_first(kThreeConsumersRegisters, traits);
  }
  plan.producer_registers = registers.producer;
  plan.consumer_registers = registers.consumer;
  // NOTE: of other types one thread or warp of it has work, for which as few are enough.
  plan.rematerializes = has(kUpcast) || (has(kE4m3) && registers.producer < 40);
  plan.stashes_cursor = plan.rematerializes && !has(kKvLens) && !plan.dynamic_schedule;
  plan.rematerializes_rows = sm90_any(kRematerializing, traits);
  plan.stashes_work = sm90_first(kStash, sm90_traits(plan));
  // Four warpgroups were launched with 128 each: the idle one has what a producer has.
  if (plan.idle_warpgroups > 0) plan.consumer_registers = 256 - plan.producer_registers;
}

}  // namespace attnjit
