// SPDX-License-Identifier: Apache-2.0
// Fetches and writes the operands of a warp under a mask, with poison, and runs lane functions.
#include <fmt/format.h>

#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/instructions/executors.h"
#include "emulator/lanes/fp_control.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {

const void* Warp::source(Ref r) const {
  if (is_constant(r)) return machine->program.constants.data() + index_of(r);
  return registers.rows.data() + group->row_base + index_of(r);
}

u32 Warp::lane32(Ref r, u32 lane) const { return static_cast<const u32*>(source(r))[lane]; }

u64 Warp::lane64(Ref r, u32 lane) const { return static_cast<const u64*>(source(r))[lane]; }

void Warp::blend(Ref d, const void* result, u32 n, u32 mask) {
  if (n == 1) {
    auto* out = row(d)->lane;
    const auto* in = static_cast<const u32*>(result);
    for (int i = 0; i < 32; ++i) out[i] = (mask & (u32{1} << i)) != 0 ? in[i] : out[i];
    return;
  }
  // Two rows are u64[32]; four are two of them.
  auto* out = reinterpret_cast<u64*>(row(d));
  const auto* in = static_cast<const u64*>(result);
  for (u32 half = 0; half < n / 2; ++half, out += 32, in += 32) {
    for (int i = 0; i < 32; ++i) out[i] = (mask & (u32{1} << i)) != 0 ? in[i] : out[i];
  }
}

void Warp::set_poison(Ref d, u32 value, u32 mask, u32 site) {
  if (d == kNoRef) return;
  if (is_predicate(d)) {
    u32& p = registers.predicate_poison[group->predicate_base + index_of(d)];
    p = (p & ~mask) | (value & mask);
    return;
  }
  const u32 i = group->row_base + index_of(d);
  registers.written_at[i] = ++registers.writes;
  u32& p = registers.poison[i];
  p = (p & ~mask) | (value & mask);
  if ((value & mask) != 0) registers.poison_site[i] = site;
}

u32 Warp::poison_of_half(Ref r, bool high) const {
  if (!registers.half_poison.empty() && is_row(r)) {
    const u32 i = group->row_base + index_of(r);
    const auto it = registers.half_poison.find(i);
    if (it != registers.half_poison.end() && it->second.written == registers.written_at[i])
      return high ? it->second.high : it->second.low;
  }
  return poison_of(r);
}

void Warp::set_poison_of_halves(Ref d, u32 low, u32 high, u32 mask, u32 site) {
  if (d == kNoRef) return;
  low = (low & mask) | (poison_of_half(d, false) & ~mask);
  high = (high & mask) | (poison_of_half(d, true) & ~mask);
  set_poison(d, low | high, mask, site);
  const u32 i = group->row_base + index_of(d);
  if (low != high) registers.half_poison[i] = {registers.written_at[i], low, high};
}

bool Warp::require_defined(Ref r, u32 mask, const Op& op, const char* role) {
  if (!machine->checks || r == kNoRef) return true;
  const u32 bad = poison_of(r) & mask;
  if (bad == 0) return true;
  const u32 from = site_of(r);
  cluster->report(
      FindingKind::kUninitialised, this, __builtin_ctz(bad), op.site,
      fmt::format("{} depends on uninitialised data{}", role,
                  from != 0 ? fmt::format(" that came in at {}", cluster->describe_site(from))
                            : std::string()));
  // Told once: it is taken as defined from here on.
  if (is_predicate(r)) {
    registers.predicate_poison[group->predicate_base + index_of(r)] &= ~mask;
  } else if (is_row(r)) {
    registers.poison[group->row_base + index_of(r)] &= ~mask;
  }
  return false;
}

Step execute_lane(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask) {
  const void* sources[4];
  u32 predicates[4];
  u32 poison = 0;
  u32 from = 0;
  const bool checks = warp.machine->checks;
  for (u32 i = 0; i < lane.sources; ++i) {
    const Ref r = op.s[i];
    if (is_predicate(r)) {
      predicates[i] = warp.predicate(r);
      sources[i] = &predicates[i];
    } else {
      sources[i] = warp.source(r);
    }
    if (checks) {
      const u32 p = warp.poison_of(r);
      if (p != 0) {
        poison |= p;
        if (from == 0) from = warp.site_of(r);
      }
    }
  }
  if (lane.fp_mode != 0 && lane.fp_mode != kDefaultFpMode) set_fp_mode(lane.fp_mode);
  if (op.d_rows == 0) {
    warp.set_predicate(op.d, lane.function(nullptr, sources, lane.imm), mask);
  } else if (mask == ~u32{0}) {
    lane.function(warp.row(op.d), sources, lane.imm);
  } else {
    Row result[4];
    lane.function(result, sources, lane.imm);
    warp.blend(op.d, result, op.d_rows, mask);
  }
  if (lane.fp_mode != 0 && lane.fp_mode != kDefaultFpMode) set_fp_mode(kDefaultFpMode);
  if (checks) warp.set_poison(op.d, poison, mask, from);
  return Step::kNext;
}

template struct Executor<execute_lane>;

Step execute_halves(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask) {
  if (warp.registers.half_poison.empty()) return execute_lane(warp, op, lane, mask);
  u32 low = 0, high = 0, from = 0;
  for (u32 i = 0; i < lane.sources; ++i) {
    low |= warp.poison_of_half(op.s[i], false);
    high |= warp.poison_of_half(op.s[i], true);
    if (from == 0 && warp.poison_of(op.s[i]) != 0) from = warp.site_of(op.s[i]);
  }
  const Step step = execute_lane(warp, op, lane, mask);
  if (low != high) warp.set_poison_of_halves(op.d, low, high, mask, from);
  return step;
}

template struct Executor<execute_halves>;

Step execute_nothing(Warp&, const Op&, u32) { return Step::kNext; }

namespace {

/// One value to all lanes of d.
Step set_all(Warp& warp, const Op& op, u64 value, u32 mask) {
  Row result[2];
  if (op.d_rows == 1) {
    for (u32& lane : result[0].lane) lane = static_cast<u32>(value);
  } else {
    u64 lanes[32];
    for (u64& lane : lanes) lane = value;
    std::memcpy(result, lanes, sizeof(lanes));
  }
  warp.blend(op.d, result, op.d_rows, mask);
  warp.set_poison(op.d, 0, mask, 0);
  return Step::kNext;
}

}  // namespace

Step execute_symbol(Warp& warp, const Op& op, const SymbolAddress& symbol, u32 mask) {
  const u64 origin =
      symbol.space == Space::kShared ? warp.cta->at(0).bits() : warp.group->local_base;
  return set_all(warp, op, origin + symbol.offset, mask);
}

Step execute_clock(Warp& warp, const Op& op, const ClockReading& clock, u32 mask) {
  // Without a clock it counts the cluster's steps; the global timer is in nanoseconds of the same.
  const Machine& machine = warp.cluster->machine;
  const u64 value = machine.timed ? machine.cycles : warp.cluster->steps * 4;
  return set_all(warp, op, clock.high ? value >> 32 : value, mask);
}

LaneAddresses::LaneAddresses(const Warp& warp, const Op& op, const Address& address)
    : offset_(address.offset) {
  if (address.origin == Address::Origin::kFrame) offset_ += warp.group->local_base;
  if (address.origin == Address::Origin::kCta) offset_ += warp.cta->at(0).bits();
  if (op.s[0] == kNoRef) return;
  if (address.wide) {
    wide_ = static_cast<const u64*>(warp.source(op.s[0]));
  } else {
    narrow_ = static_cast<const u32*>(warp.source(op.s[0]));
  }
}

// ---------------------------------------------------------------------------------------------

Step gather_lanes(Warp& warp, u32 needed) {
  Group& group = *warp.group;
  needed &= warp.live;
  if ((needed & ~group.mask) == 0 || group.forced) {
    group.forced = false;
    return Step::kNext;
  }
  // Other groups that wait at the same operation join, and the last to come runs for all.
  u32 here = group.mask;
  for (const Group& other : warp.groups) {
    if (&other == &group || other.state != Group::State::kSyncing) continue;
    if (other.pc == group.pc && other.function == group.function &&
        other.frames.size() == group.frames.size())
      here |= other.mask;
  }
  if ((needed & ~here) != 0) {
    group.state = Group::State::kSyncing;
    group.sync_mask = needed;
    return Step::kWait;
  }
  group.mask = here;
  for (Group& other : warp.groups) {
    if (&other == &group || other.state != Group::State::kSyncing) continue;
    if (other.pc == group.pc && other.function == group.function &&
        other.frames.size() == group.frames.size()) {
      other.mask = 0;  // removed by the scheduler
    }
  }
  return Step::kJump;
}

Step gather_warp(Warp& warp, const Op& op, u32 mask) {
  const bool forced = warp.group->forced;
  const Step step = gather_lanes(warp, warp.live);
  if (step != Step::kNext || forced) return step;
  if (mask != warp.live) {
    warp.cluster->report(FindingKind::kAligned, &warp, __builtin_ctz(warp.live & ~mask), op.site,
                         fmt::format("the predicate is not the same in all lanes: lanes 0x{:08x} "
                                     "execute an .aligned instruction, 0x{:08x} do not",
                                     mask, warp.live & ~mask));
  }
  return Step::kNext;
}

}  // namespace attnjit::emulator
