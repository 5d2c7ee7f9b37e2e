// SPDX-License-Identifier: Apache-2.0
// Operations among the lanes of a warp: shuffles, votes, matches, reductions, election.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

/// The member mask operand, the same in all executing lanes; false where the group must wait.
bool members(Warp& warp, const Op& op, Ref operand, u32 mask, u32* needed, Step* step) {
  if (warp.machine->checks) warp.require_defined(operand, mask, op, "the member mask");
  const u32 m = warp.lane32(operand, lowest_lane(mask));
  *step = gather_lanes(warp, m);
  if (*step != Step::kNext) return false;
  if ((mask & ~m) != 0) {
    warp.cluster->report(
        FindingKind::kAligned, &warp, __builtin_ctz(mask & ~m), op.site,
        fmt::format("lanes 0x{:08x} execute it but are not in its member mask 0x{:08x}", mask & ~m,
                    m));
  } else if ((m & warp.live & ~mask) != 0) {
    warp.cluster->report(FindingKind::kAligned, &warp, __builtin_ctz(m & warp.live & ~mask),
                         op.site,
                         fmt::format("lanes 0x{:08x} of the member mask 0x{:08x} do not execute it",
                                     m & warp.live & ~mask, m));
  }
  *needed = m & mask;
  return true;
}

/// Runs body(lanes) once for each member mask among the executing lanes: parts of a warp (tiled or
/// coalesced groups) may execute one instruction with masks of their own.
template <class Body>
Step by_members(Warp& warp, Ref masks, u32 mask, Body&& body) {
  u32 all = 0, rest = mask;
  bool same = true;
  const u32 first = warp.lane32(masks, lowest_lane(mask));
  for (const u32 lane : lanes_of(is_constant(masks) ? 0 : mask)) {
    const u32 m = warp.lane32(masks, lane);
    all |= m;
    same = same && m == first;
  }
  if (same) return body(mask);
  const Step step = gather_lanes(warp, all);
  if (step != Step::kNext) return step;
  while (rest != 0) {
    const u32 m = warp.lane32(masks, lowest_lane(rest));
    u32 part = 0;
    for (const u32 lane : lanes_of(rest)) {
      if (warp.lane32(masks, lane) == m) part |= u32{1} << lane;
    }
    rest &= ~part;
    if (const Step done = body(part); done != Step::kNext) return done;
  }
  return Step::kNext;
}

void publish(Warp& warp, Ref d, const u32* values, u32 mask, u32 poison, u32 site) {
  if (d == kNoRef) return;
  warp.blend(d, values, 1, mask);
  if (warp.machine->checks) warp.set_poison(d, poison, mask, site);
}

struct Shuffle {
  enum class Mode : u8 { kUp, kDown, kButterfly, kIndex };
  Mode mode = Mode::kUp;
};

// d|p, a, b, c, mask: s = {a, b, c, mask}
Step shuffle(Warp& warp, const Op& op, const Shuffle& what, u32 mask) {
  u32 needed = 0;
  Step step{};
  if (!members(warp, op, op.s[3], mask, &needed, &step)) return step;
  u32 result[32] = {};
  u32 predicate = 0, poison = 0;
  const u32 source_poison = warp.machine->checks ? warp.poison_of(op.s[0]) : 0;
  for (const u32 lane : lanes_of(mask)) {
    const u32 b = warp.lane32(op.s[1], lane) & 31, c = warp.lane32(op.s[2], lane);
    const u32 clamp = c & 31, segment = c >> 8 & 31;
    const u32 last = (lane & segment) | (clamp & ~segment & 31);
    const u32 first = lane & segment;
    s32 from = 0;
    bool in = false;
    switch (what.mode) {
      case Shuffle::Mode::kUp:
        from = static_cast<s32>(lane) - static_cast<s32>(b);
        in = from >= static_cast<s32>(last);
        break;
      case Shuffle::Mode::kDown:
        from = static_cast<s32>(lane + b);
        in = from <= static_cast<s32>(last);
        break;
      case Shuffle::Mode::kButterfly:
        from = static_cast<s32>(lane ^ b);
        in = from <= static_cast<s32>(last);
        break;
      case Shuffle::Mode::kIndex:
        from = static_cast<s32>(first | (b & ~segment & 31));
        in = from <= static_cast<s32>(last);
    }
    if (!in) from = static_cast<s32>(lane);
    const auto source = static_cast<u32>(from) & 31;
    result[lane] = warp.lane32(op.s[0], source);
    if (in) predicate |= u32{1} << lane;
    // A lane that does not take part has nothing to give.
    if ((source_poison >> source & 1) != 0 || (mask >> source & 1) == 0) poison |= u32{1} << lane;
  }
  publish(warp, op.d, result, mask, poison, op.site);
  if (op.d2 != kNoRef) {
    warp.set_predicate(op.d2, predicate, mask);
    if (warp.machine->checks) warp.set_poison(op.d2, 0, mask, 0);
  }
  return Step::kNext;
}

Step execute_shuffle(Warp& warp, const Op& op, const Shuffle& what, u32 mask) {
  return by_members(warp, op.s[3], mask, [&](u32 part) { return shuffle(warp, op, what, part); });
}

bool decode_shuffle(Decoding& d) {
  if (!d.take("sync")) return d.unsupported("shfl without .sync does not exist from sm_70 on");
  const int mode = d.take_any({"up", "down", "bfly", "idx"});
  if (mode < 0) return d.invalid("a mode is needed");
  if (bits_of(d.take_type()) != 32) return d.unsupported("shfl is of .b32");
  if (!d.expect(5, 5) || !d.done()) return false;
  Ref to = kNoRef, p = kNoRef;
  if (d.is(0, Operand::Kind::kPair)) {
    to = d.destination(d.in.operands[0].parts[0], 32);
    p = d.destination(d.in.operands[0].parts[1], 1);
  } else {
    to = d.destination(0, 32);
  }
  const Ref a = d.source(1, 32), b = d.source(2, 32), c = d.source(3, 32), m = d.source(4, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_shuffle>({static_cast<Shuffle::Mode>(mode)});
  op.d = to;
  op.d2 = p;
  op.s = {a, b, c, m};
  return true;
}

struct Vote {
  enum class Mode : u8 { kAll, kAny, kUniform, kBallot };
  Mode mode = Mode::kAll;
};

// s = {predicate, mask}
Step vote(Warp& warp, const Op& op, const Vote& what, u32 mask) {
  u32 needed = 0;
  Step step{};
  if (!members(warp, op, op.s[1], mask, &needed, &step)) return step;
  const u32 votes = warp.predicate(op.s[0]) & needed;
  const u32 poison = warp.machine->checks && (warp.poison_of(op.s[0]) & needed) != 0 ? ~u32{0} : 0;
  if (what.mode == Vote::Mode::kBallot) {
    u32 result[32];
    std::fill_n(result, 32, votes);
    publish(warp, op.d, result, mask, poison, op.site);
    return Step::kNext;
  }
  const bool r = what.mode == Vote::Mode::kAll   ? votes == needed
                 : what.mode == Vote::Mode::kAny ? votes != 0
                                                 : (votes == needed || votes == 0);
  warp.set_predicate(op.d, r ? ~u32{0} : 0, mask);
  if (warp.machine->checks) warp.set_poison(op.d, poison, mask, 0);
  return Step::kNext;
}

Step execute_vote(Warp& warp, const Op& op, const Vote& what, u32 mask) {
  return by_members(warp, op.s[1], mask, [&](u32 part) { return vote(warp, op, what, part); });
}

bool decode_vote(Decoding& d) {
  if (!d.take("sync")) return d.unsupported("vote without .sync does not exist from sm_70 on");
  const int mode = d.take_any({"all", "any", "uni", "ballot"});
  d.take_type();
  if (mode < 0) return d.invalid("a mode is needed");
  if (!d.expect(3, 3) || !d.done()) return false;
  const Ref p = d.source(1, 1), m = d.source(2, 32);
  const Vote what{static_cast<Vote::Mode>(mode)};
  const bool ballot = what.mode == Vote::Mode::kBallot;
  Ref to = d.destination(0, ballot ? 32 : 1);
  if (to == kNoRef) to = ballot ? d.f.scratch(1) : d.f.scratch_predicate();
  if (d.failed()) return false;
  Op& op = d.emit<execute_vote>(what);
  op.d = to;
  op.d_rows = ballot ? 1 : 0;
  op.s[0] = p;
  op.s[1] = m;
  return true;
}

struct Match {
  bool all = false;   ///< or any
  bool wide = false;  ///< of 64 bits
};

// s = {a, mask}
Step match(Warp& warp, const Op& op, const Match& what, u32 mask) {
  u32 needed = 0;
  Step step{};
  if (!members(warp, op, op.s[1], mask, &needed, &step)) return step;
  const bool wide = what.wide;
  u32 result[32] = {};
  bool all = true;
  u64 first = 0;
  bool have = false;
  for (const u32 lane : lanes_of(needed)) {
    const u64 v = warp.value(op.s[0], lane, wide);
    if (!have) first = v;
    have = true;
    all = all && v == first;
    for (u32 other = 0; other < 32; ++other) {
      if ((needed >> other & 1) != 0 && warp.value(op.s[0], other, wide) == v)
        result[lane] |= u32{1} << other;
    }
  }
  if (what.all) std::fill_n(result, 32, all ? needed : 0);
  const u32 poison = warp.machine->checks && (warp.poison_of(op.s[0]) & needed) != 0 ? ~u32{0} : 0;
  publish(warp, op.d, result, mask, poison, op.site);
  if (op.d2 != kNoRef) {
    warp.set_predicate(op.d2, all ? ~u32{0} : 0, mask);
    if (warp.machine->checks) warp.set_poison(op.d2, poison, mask, 0);
  }
  return Step::kNext;
}

Step execute_match(Warp& warp, const Op& op, const Match& what, u32 mask) {
  return by_members(warp, op.s[1], mask, [&](u32 part) { return match(warp, op, what, part); });
}

bool decode_match(Decoding& d) {
  const int mode = d.take_any({"any", "all"});
  if (!d.take("sync") || mode < 0) return d.invalid(".any or .all, and .sync, are needed");
  const int bits = bits_of(d.take_type());
  if (bits != 32 && bits != 64) return d.unsupported("match is of .b32 or .b64");
  if (!d.expect(3, 3) || !d.done()) return false;
  Ref to = kNoRef, p = kNoRef;
  if (d.is(0, Operand::Kind::kPair)) {
    if (mode == 0) return d.invalid("match.any has no predicate");
    to = d.destination(d.in.operands[0].parts[0], 32);
    p = d.destination(d.in.operands[0].parts[1], 1);
  } else {
    to = d.destination(0, 32);
  }
  const Ref a = d.source(1, bits), m = d.source(2, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_match>({mode == 1, bits == 64});
  op.d = to;
  op.d2 = p;
  op.s[0] = a;
  op.s[1] = m;
  return true;
}

struct Redux {
  enum class Operation : u8 { kAdd, kMin, kMax, kAnd, kOr, kXor };
  Operation operation = Operation::kAdd;
  Type type = Type::kU32;
  bool magnitude = false;  ///< .abs
  bool nan = false;        ///< .NaN
};

// s = {a, mask}
Step redux(Warp& warp, const Op& op, const Redux& what, u32 mask) {
  const bool max = what.operation == Redux::Operation::kMax;
  u32 needed = 0;
  Step step{};
  if (!members(warp, op, op.s[1], mask, &needed, &step)) return step;
  u32 r = 0;
  bool first = true;
  bool nan = false;
  for (const u32 lane : lanes_of(needed)) {
    u32 v = warp.lane32(op.s[0], lane);
    if (what.type == Type::kF32) {
      if (what.magnitude) v &= 0x7FFFFFFFu;
      const auto f = std::bit_cast<float>(v);
      if (std::isnan(f)) {
        nan = nan || what.nan;
        v = 0x7FFFFFFF;
      }
      const auto have = std::bit_cast<float>(r);
      if (first || std::isnan(have)) {
        r = v;
      } else if (!std::isnan(f)) {
        if (f == have) {
          r = max ? (r & v) : (r | v);
        } else if ((f > have) == max) {
          r = v;
        }
      }
      first = false;
      continue;
    }
    const bool is_signed = what.type == Type::kS32;
    if (first) {
      r = v;
    } else {
      switch (what.operation) {
        case Redux::Operation::kAdd:
          r += v;
          break;
        case Redux::Operation::kMin:
          r = is_signed ? static_cast<u32>(std::min(static_cast<s32>(r), static_cast<s32>(v)))
                        : std::min(r, v);
          break;
        case Redux::Operation::kMax:
          r = is_signed ? static_cast<u32>(std::max(static_cast<s32>(r), static_cast<s32>(v)))
                        : std::max(r, v);
          break;
        case Redux::Operation::kAnd:
          r &= v;
          break;
        case Redux::Operation::kOr:
          r |= v;
          break;
        case Redux::Operation::kXor:
          r ^= v;
      }
    }
    first = false;
  }
  if (nan) r = 0x7FFFFFFF;
  u32 result[32];
  std::fill_n(result, 32, r);
  const u32 poison = warp.machine->checks && (warp.poison_of(op.s[0]) & needed) != 0 ? ~u32{0} : 0;
  publish(warp, op.d, result, mask, poison, op.site);
  return Step::kNext;
}

Step execute_redux(Warp& warp, const Op& op, const Redux& what, u32 mask) {
  return by_members(warp, op.s[1], mask, [&](u32 part) { return redux(warp, op, what, part); });
}

bool decode_redux(Decoding& d) {
  if (!d.take("sync")) return d.invalid(".sync is needed");
  const int mode = d.take_any({"add", "min", "max", "and", "or", "xor"});
  Redux what;
  what.magnitude = d.take("abs");
  what.nan = d.take("NaN");
  const Type type = what.type = d.take_type();
  if (mode < 0) return d.invalid("an operation is needed");
  what.operation = static_cast<Redux::Operation>(mode);
  if (bits_of(type) != 32) return d.unsupported("redux is of 32 bits");
  if (type == Type::kF32 && what.operation != Redux::Operation::kMin &&
      what.operation != Redux::Operation::kMax)
    return d.unsupported("redux of .f32 is .min or .max");
  if (!d.expect(3, 3) || !d.done()) return false;
  const Ref a = d.source(1, 32, type), m = d.source(2, 32), to = d.destination(0, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_redux>(what);
  op.d = to;
  op.s[0] = a;
  op.s[1] = m;
  return true;
}

// The lowest lane of the member mask, as hardware does; under isa in every second seed any other:
// which one is elected is not promised, only that it is the same one for a mask.
u32 leader_of(const Warp& warp, u32 members) {
  const Machine& machine = *warp.machine;
  if (members == 0) return 0;
  u32 left = members;
  if (machine.options.model == EmulatorModel::kIsa && machine.seed % 2 != 0) {
    for (u32 n = Random(machine.seed ^ members).below(static_cast<u32>(__builtin_popcount(left)));
         n > 0; --n)
      left &= left - 1;
  }
  return lowest_lane(left);
}

Step elect(Warp& warp, const Op& op, u32 mask) {
  u32 needed = 0;
  Step step{};
  if (!members(warp, op, op.s[0], mask, &needed, &step)) return step;
  const u32 m = warp.lane32(op.s[0], lowest_lane(mask)) & warp.live;
  const u32 leader = leader_of(warp, m);
  u32 result[32];
  std::fill_n(result, 32, leader);
  publish(warp, op.d, result, mask, 0, 0);
  if (op.d2 != kNoRef) {
    warp.set_predicate(op.d2, u32{1} << leader, mask);
    if (warp.machine->checks) warp.set_poison(op.d2, 0, mask, 0);
  }
  return Step::kNext;
}

Step execute_elect(Warp& warp, const Op& op, u32 mask) {
  return by_members(warp, op.s[0], mask, [&](u32 part) { return elect(warp, op, part); });
}

bool decode_elect(Decoding& d) {
  if (!d.take("sync")) return d.invalid(".sync is needed");
  if (!d.expect(2, 2) || !d.done()) return false;
  if (!d.is(0, Operand::Kind::kPair)) return d.invalid("d|p is needed");
  const Ref to = d.destination(d.in.operands[0].parts[0], 32),
            p = d.destination(d.in.operands[0].parts[1], 1);
  const Ref m = d.source(1, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_elect>();
  op.d = to;
  op.d2 = p;
  op.s[0] = m;
  return true;
}

Step execute_activemask(Warp& warp, const Op& op, u32 mask) {
  u32 result[32];
  std::fill_n(result, 32, mask);
  publish(warp, op.d, result, mask, 0, 0);
  return Step::kNext;
}

bool decode_activemask(Decoding& d) {
  d.take_type();
  if (!d.expect(1, 1) || !d.done()) return false;
  const Ref to = d.destination(0, 32);
  if (d.failed()) return false;
  d.emit<execute_activemask>().d = to;
  return true;
}

Step warp_sync(Warp& warp, const Op& op, u32 mask) {
  u32 needed = 0;
  Step step{};
  if (!members(warp, op, op.s[0], mask, &needed, &step)) return step;
  warp.synchronise_lanes(needed);
  return Step::kNext;
}

Step execute_warp_sync(Warp& warp, const Op& op, u32 mask) {
  return by_members(warp, op.s[0], mask, [&](u32 part) { return warp_sync(warp, op, part); });
}

bool decode_warp_sync(Decoding& d) {
  d.take("warp");
  d.take("sync");
  if (!d.expect(1, 1) || !d.done()) return false;
  const Ref m = d.source(0, 32);
  if (d.failed()) return false;
  d.emit<execute_warp_sync>().s[0] = m;
  return true;
}

}  // namespace

void add_warp_operations(InstructionTable& t) {
  t.add({"shfl", "", "warp", ".sync .up .down .bfly .idx", "9.7.9.6", decode_shuffle});
  t.add({"vote", "", "warp", ".sync .all .any .uni .ballot", "9.7.13.8", decode_vote});
  t.add({"match", "", "warp", ".any .all .sync .b32 .b64", "9.7.13.10", decode_match});
  t.add({"redux", "", "warp", ".sync add min max and or xor; f32 min max .abs .NaN", "9.7.13.12",
         decode_redux});
  t.add({"elect", ".sync", "warp", "the lowest lane of the mask; under isa any", "9.7.13.14",
         decode_elect});
  t.add({"activemask", "", "warp", "", "9.7.13.11", decode_activemask});
  t.add({"bar", ".warp.sync", "warp", "", "9.7.13.2", decode_warp_sync});
}

}  // namespace attnjit::emulator
