// SPDX-License-Identifier: Apache-2.0
// Moves: mov with its packing and unpacking forms, cvta, isspacep, and addresses of the cluster.
#include <fmt/format.h>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/operands.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

LaneRequest request(LaneOp op, Type type) {
  LaneRequest r;
  r.op = op;
  r.type = type;
  return r;
}

Type bits_type(int bits) {
  return bits == 8 ? Type::kB8 : bits == 16 ? Type::kB16 : bits == 32 ? Type::kB32 : Type::kB64;
}

Step execute_move_predicate(Warp& warp, const Op& op, u32 mask) {
  warp.set_predicate(op.d, warp.predicate(op.s[0]), mask);
  if (warp.machine->checks) warp.set_poison(op.d, warp.poison_of(op.s[0]), mask, 0);
  return Step::kNext;
}

Step execute_move_128(Warp& warp, const Op& op, u32 mask) {
  Row copy[4];
  const auto* from = static_cast<const Row*>(warp.source(op.s[0]));
  for (int i = 0; i < 4; ++i) copy[i] = from[i];
  warp.blend(op.d, copy, 4, mask);
  if (warp.machine->checks) {
    warp.set_poison_of_halves(op.d, warp.poison_of_half(op.s[0], false),
                              warp.poison_of_half(op.s[0], true), mask, warp.site_of(op.s[0]));
  }
  return Step::kNext;
}

// s[1]: the register that s[0] is a half of.
template <bool high>
Step execute_unpack(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask) {
  const Step step = execute_lane(warp, op, lane, mask);
  if (warp.machine->checks) {
    warp.set_poison(op.d, warp.poison_of_half(op.s[1], high), mask, warp.site_of(op.s[1]));
  }
  return step;
}

Step execute_pack(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask) {
  const u32 low = warp.machine->checks ? warp.poison_of(op.s[0]) : 0,
            high = warp.machine->checks ? warp.poison_of(op.s[1]) : 0;
  const u32 site = low != high ? warp.site_of(op.s[low != 0 ? 0 : 1]) : 0;
  const Step step = execute_lane(warp, op, lane, mask);
  if (((low ^ high) & mask) != 0) warp.set_poison_of_halves(op.d, low, high, mask, site);
  return step;
}

void emit_move(Decoding& d, Ref to, Ref from, int bits) {
  if (bits == 128) {
    Op& op = d.emit<execute_move_128>();
    op.d = to;
    op.d_rows = 4;
    op.s[0] = from;
    return;
  }
  const LaneFn lane = select_lane(request(LaneOp::kMov, bits_type(bits)));
  if (bits == 64) {
    d.alu<execute_halves>(lane, to, bits, {from});
  } else {
    d.alu(lane, to, bits, {from});
  }
}

// {a, b, ...} to one register.
bool decode_pack(Decoding& d, int bits) {
  const auto& parts = d.in.operands[1].parts;
  const auto n = static_cast<int>(parts.size());
  if ((n != 2 && n != 4) || bits / n < 8 || bits % n != 0)
    return d.invalid("the vector does not fit the type");
  const int element = bits / n;
  std::vector<Ref> s;
  s.reserve(parts.size());
  for (const Operand& part : parts) s.push_back(d.source(part, element));
  const Ref to = d.destination(0, bits);
  if (d.failed()) return false;
  const auto pair = [&](Ref target, Ref low, Ref high, int width) {
    switch (width) {
      case 8: {
        // Bytes 0 of both, in order.
        d.alu(select_lane({LaneOp::kPrmt}), target, 32, {low, high, d.constant(0x0040, 32)});
        break;
      }
      case 16:
        d.alu<execute_pack>(select_lane({LaneOp::kPack2x16}), target, 32, {low, high});
        break;
      case 32:
        d.alu<execute_pack>(select_lane({LaneOp::kPack2x32}), target, 64, {low, high});
        break;
      default:
        d.alu<execute_pack>(select_lane({LaneOp::kPack2x64}), target, 128, {low, high});
    }
  };
  if (n == 2) {
    if (element == 8) {
      const Ref t = d.f.scratch(1);
      pair(t, s[0], s[1], 8);
      d.alu(select_lane(request(LaneOp::kUnpackLow, Type::kB16)), to, 16, {t});
    } else {
      pair(to, s[0], s[1], element);
    }
    return !d.failed();
  }
  const u32 rows = element == 32 ? 2 : 1;
  const Ref low = d.f.scratch(rows), high = d.f.scratch(rows);
  pair(low, s[0], s[1], element);
  pair(high, s[2], s[3], element);
  pair(to, low, high, element * 2);
  return !d.failed();
}

// One register to {a, b, ...}.
bool decode_unpack(Decoding& d, int bits) {
  const auto& parts = d.in.operands[0].parts;
  const auto n = static_cast<int>(parts.size());
  if ((n != 2 && n != 4) || bits / n < 8 || bits % n != 0)
    return d.invalid("the vector does not fit the type");
  const int element = bits / n;
  Ref from = d.source(1, bits);
  std::vector<Ref> to;
  to.reserve(parts.size());
  for (const Operand& part : parts) to.push_back(d.destination(part, element));
  if (d.failed()) return false;
  const auto half = [&](Ref target, Ref source, bool high, int width) {
    if (target == kNoRef) return;
    // The halves of a 128-bit register lie two rows apart.
    const bool wide = width == 64;
    LaneRequest what = request(high ? LaneOp::kUnpackHigh : LaneOp::kUnpackLow, bits_type(width));
    if (wide) what = request(LaneOp::kMov, Type::kB64);
    const LaneFn lane = select_lane(what);
    const Ref part = wide && high && !is_constant(source) ? source + 2 : source;
    Op& op = high ? d.alu<execute_unpack<true>>(lane, target, wide ? 64 : 32, {part})
                  : d.alu<execute_unpack<false>>(lane, target, wide ? 64 : 32, {part});
    op.s[1] = source;
  };
  if (element == 8) {
    for (int i = 0; i < n; ++i) {
      if (to[static_cast<std::size_t>(i)] == kNoRef) continue;
      d.alu(select_lane(request(LaneOp::kBfe, Type::kU32)), to[static_cast<std::size_t>(i)], 32,
            {from, d.constant(8 * static_cast<u64>(i), 32), d.constant(8, 32)});
    }
    return !d.failed();
  }
  // NOTE: a part may be the source register itself; it is read once, first.
  const u32 rows = bits == 128 ? 4 : bits == 64 ? 2 : 1;
  if (!is_constant(from)) {
    const Ref copy = d.f.scratch(rows);
    emit_move(d, copy, from, bits == 16 ? 32 : bits);
    from = copy;
  }
  if (n == 2) {
    half(to[0], from, false, element);
    half(to[1], from, true, element);
    return !d.failed();
  }
  const Ref low = d.f.scratch(element == 32 ? 2 : 1), high = d.f.scratch(element == 32 ? 2 : 1);
  half(low, from, false, element * 2);
  half(high, from, true, element * 2);
  half(to[0], low, false, element);
  half(to[1], low, true, element);
  half(to[2], high, false, element);
  half(to[3], high, true, element);
  return !d.failed();
}

bool decode_mov(Decoding& d) {
  const Type type = d.take_type();
  if (type == Type::kNone) return d.invalid("a type is needed");
  if (!d.expect(2, 2) || !d.done()) return false;
  const int bits = bits_of(type);
  if (type == Type::kPred) {
    const Ref a = d.source(1, 1);
    Ref to = d.destination(0, 1);
    if (to == kNoRef) to = d.f.scratch_predicate();
    if (d.failed()) return false;
    Op& op = d.emit<execute_move_predicate>();
    op.d = to;
    op.d_rows = 0;
    op.s[0] = a;
    return true;
  }
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128)
    return d.unsupported(fmt::format("type .{} is not modelled here", to_string(type)));
  if (d.is(1, Operand::Kind::kVector)) return decode_pack(d, bits);
  if (d.is(0, Operand::Kind::kVector)) return decode_unpack(d, bits);
  const Ref a = d.source(1, bits, type), to = d.destination(0, bits);
  if (d.failed()) return false;
  emit_move(d, to == kNoRef ? d.f.scratch(bits == 128 ? 4 : 2) : to, a, bits);
  return !d.failed();
}

u64 window_of(Space space) {
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    case Space::kConst:
      return kConstWindow;
    default:
      return 0;
  }
}

// Windows lie above all offsets, so adding one and removing it are bit operations.
bool decode_cvta(Decoding& d) {
  const bool to_space = d.take("to");
  const Space space = d.take_space(Space::kGeneric);
  const Type type = d.take_type();
  const int bits = bits_of(type);
  if (space == Space::kGeneric) return d.invalid("a state space is needed");
  if (bits != 64) return d.unsupported("cvta is of .u64");
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref a = d.source(1, 64), to = d.destination(0, 64);
  if (d.failed()) return false;
  const u64 window = window_of(space);
  if (window == 0) {
    emit_move(d, to, a, 64);
  } else if (to_space) {
    d.alu(select_lane(request(LaneOp::kAnd, Type::kB64)), to, 64,
          {a, d.constant(~kWindowMask, 64)});
  } else {
    d.alu(select_lane(request(LaneOp::kOr, Type::kB64)), to, 64, {a, d.constant(window, 64)});
  }
  return !d.failed();
}

struct SpaceTest {
  Space space = Space::kGlobal;
};

Step execute_isspacep(Warp& warp, const Op& op, const SpaceTest& test, u32 mask) {
  u32 result = 0;
  for (const u32 lane : lanes_of(mask)) {
    const u64 a = warp.lane64(op.s[0], lane);
    const u64 window = window_of(test.space);
    bool in = (a & kWindowMask) == window;
    if (test.space == Space::kShared && in)
      in = SharedAddress(static_cast<u32>(a)).rank() == warp.cta->rank;
    if (test.space == Space::kGlobal) in = (a & kWindowMask) < kSharedWindow;
    if (in) result |= u32{1} << lane;
  }
  warp.set_predicate(op.d, result, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]), mask, warp.site_of(op.s[0]));
  return Step::kNext;
}

bool decode_isspacep(Decoding& d) {
  const Space space = d.take_space(Space::kGeneric);
  if (space == Space::kGeneric) return d.invalid("a state space is needed");
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref a = d.source(1, 64), to = d.destination(0, 1);
  if (d.failed()) return false;
  Op& op = d.emit<execute_isspacep>({space});
  op.d = to == kNoRef ? d.f.scratch_predicate() : to;
  op.d_rows = 0;
  op.s[0] = a;
  return true;
}

/// mapa: the same offset in the CTA of a rank; getctarank: the rank in an address.
struct RankMapping {
  bool wide = false;  ///< an address of 64 bits
  bool rank_only = false;
};

Step execute_mapa(Warp& warp, const Op& op, const RankMapping& mapping, u32 mask) {
  const bool wide = mapping.wide;
  u64 result[32] = {};
  for (const u32 lane : lanes_of(mask)) {
    const u64 a = warp.value(op.s[0], lane, wide);
    if (mapping.rank_only) {
      result[lane] = SharedAddress(static_cast<u32>(a)).rank();
      continue;
    }
    const u32 rank = warp.lane32(op.s[1], lane);
    if (rank >= warp.cluster->ctas.size()) {
      warp.cluster->report(
          FindingKind::kBounds, &warp, static_cast<int>(lane), op.site,
          fmt::format("rank {} in a cluster of {}", rank, warp.cluster->ctas.size()));
    }
    // The window of a generic address lies above the 32 bits.
    result[lane] =
        (a & ~u64{0xFFFFFFFF}) | SharedAddress(static_cast<u32>(a)).in(rank & 0xFF).bits();
  }
  blend_result(warp, op.d, result, op.d_rows == 2, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]) | warp.poison_of(op.s[1]), mask,
                    warp.site_of(op.s[0]));
  return Step::kNext;
}

bool decode_mapa(Decoding& d, bool rank_only) {
  d.take_space(Space::kGeneric);
  const Type type = d.take_type();
  const int bits = bits_of(type);
  if (bits != 32 && bits != 64) return d.unsupported("an address has 32 or 64 bits");
  if (!d.expect(rank_only ? 2 : 3, rank_only ? 2 : 3) || !d.done()) return false;
  Ref a = kNoRef;
  if (d.is(1, Operand::Kind::kAddress)) {
    bool wide = false;
    a = d.address_value(d.in.operands[1], &wide);
    if (wide != (bits == 64)) return d.invalid("the address has another width than the type");
  } else {
    a = d.source(1, bits);
  }
  const Ref b = rank_only ? kNoRef : d.source(2, 32);
  const int result = rank_only ? 32 : bits;
  const Ref to = d.destination(0, result);
  if (d.failed()) return false;
  Op& op = d.emit<execute_mapa>({bits == 64, rank_only});
  op.d = to == kNoRef ? d.f.scratch(2) : to;
  op.d_rows = result == 64 ? 2 : 1;
  op.s[0] = a;
  op.s[1] = b;
  return true;
}

}  // namespace

void add_moves(InstructionTable& t) {
  t.add({"mov", "", "data movement",
         "all widths, .pred, packing and unpacking, special registers, addresses",
         "9.7.9.2, 9.7.9.3", decode_mov});
  t.add({"cvta", "", "data movement", "global, shared, local, param, const; .to", "9.7.9.20",
         decode_cvta});
  t.add({"isspacep", "", "data movement", "", "9.7.9.19", decode_isspacep});
  t.add({"mapa", "", "data movement", ".shared::cluster and generic", "9.7.9.23",
         [](Decoding& d) { return decode_mapa(d, false); }});
  t.add({"getctarank", "", "data movement", "", "9.7.9.24",
         [](Decoding& d) { return decode_mapa(d, true); }});
}

}  // namespace attnjit::emulator
