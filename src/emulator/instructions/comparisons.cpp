// SPDX-License-Identifier: Apache-2.0
// Comparison and selection: setp, set, selp, slct.
#include <fmt/format.h>

#include <array>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

constexpr std::array<std::string_view, 18> kCompareNames = {
    "eq", "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi",
    "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

bool take_compare(Decoding& d, Compare* compare) {
  for (std::size_t i = 0; i < kCompareNames.size(); ++i) {
    if (d.take(kCompareNames[i])) {
      *compare = static_cast<Compare>(i);
      return true;
    }
  }
  return d.invalid("a comparison is needed");
}

bool is_unsigned_compare(Compare c) {
  return c == Compare::kLo || c == Compare::kLs || c == Compare::kHi || c == Compare::kHs;
}

bool is_small(Type t) {
  return t == Type::kF16 || t == Type::kF16x2 || t == Type::kBf16 || t == Type::kBf16x2;
}

struct Combination {
  enum class Operator : u8 { kNone, kAnd, kOr, kXor };
  Operator with = Operator::kNone;
};

// s[0]: the raw comparison, s[1]: the predicate that it is combined with
Step execute_combine(Warp& warp, const Op& op, const Combination& combination, u32 mask) {
  const u32 raw = warp.predicate(op.s[0]);
  const u32 c = op.s[1] == kNoRef ? ~u32{0} : warp.predicate(op.s[1]);
  const auto combine = [&](u32 t) {
    switch (combination.with) {
      case Combination::Operator::kAnd:
        return t & c;
      case Combination::Operator::kOr:
        return t | c;
      case Combination::Operator::kXor:
        return t ^ c;
      case Combination::Operator::kNone:
        break;
    }
    return t;
  };
  const u32 p = combine(raw), q = combine(~raw);
  if (warp.machine->checks) {
    const u32 poison = warp.poison_of(op.s[0]) | warp.poison_of(op.s[1]);
    warp.set_poison(op.d, poison, mask, 0);
    warp.set_poison(op.d2, poison, mask, 0);
  }
  if (op.d != kNoRef) warp.set_predicate(op.d, p, mask);
  if (op.d2 != kNoRef) warp.set_predicate(op.d2, q, mask);
  return Step::kNext;
}

struct Comparison {
  LaneRequest request;
  Combination combination;
  bool combines() const { return combination.with != Combination::Operator::kNone; }
};

bool take_comparison(Decoding& d, Comparison* c) {
  if (!take_compare(d, &c->request.compare)) return false;
  c->combination.with = static_cast<Combination::Operator>(1 + d.take_any({"and", "or", "xor"}));
  c->request.op = LaneOp::kSetp;
  c->request.ftz = d.take("ftz");
  return true;
}

// The source type, made unsigned where the comparison is.
bool settle_type(Decoding& d, Comparison* c, Type type) {
  c->request.type = type;
  if (type == Type::kNone) return d.invalid("a type is needed");
  if (is_unsigned_compare(c->request.compare)) {
    const int bits = bits_of(type);
    c->request.type = bits == 16 ? Type::kU16 : bits == 64 ? Type::kU64 : Type::kU32;
  }
  return true;
}

Op& emit_comparison(Decoding& d, const Comparison& c, Ref to, Ref a, Ref b, bool high) {
  LaneControl control;
  const Type t = c.request.type;
  if (is_small(t)) {
    control.imm = static_cast<u64>(c.request.compare) | (high ? lane_flags::kHighHalves : 0) |
                  (c.request.ftz ? lane_flags::kFlush << lane_flags::kSetpShift : 0);
  } else if (t == Type::kF32 || t == Type::kF64) {
    control.fp_mode = fp_mode(Rounding::kNearestEven, c.request.ftz);
  }
  return d.alu(select_lane(c.request), to, 1, {a, b}, control);
}

bool decode_setp(Decoding& d) {
  Comparison c;
  if (!take_comparison(d, &c) || !settle_type(d, &c, d.take_type())) return false;
  const std::size_t operands = c.combines() ? 4 : 3;
  if (!d.expect(operands, operands) || !d.done()) return false;
  const int bits = bits_of(c.request.type);
  const Ref a = d.source(1, bits, c.request.type), b = d.source(2, bits, c.request.type);
  const Ref with = c.combines() ? d.source(3, 1) : kNoRef;
  const bool pair = d.is(0, Operand::Kind::kPair);
  Ref p = kNoRef, q = kNoRef;
  if (pair) {
    p = d.destination(d.in.operands[0].parts[0], 1);
    q = d.destination(d.in.operands[0].parts[1], 1);
  } else {
    p = d.destination(0, 1);
  }
  if (d.failed()) return false;
  const bool halves = c.request.type == Type::kF16x2 || c.request.type == Type::kBf16x2;
  if (halves) {
    // p compares the low halves, q the high ones.
    const Ref low = d.f.scratch_predicate(), high = d.f.scratch_predicate();
    emit_comparison(d, c, low, a, b, false);
    emit_comparison(d, c, high, a, b, true);
    for (const auto& [to, raw] : {std::pair{p, low}, std::pair{q, high}}) {
      if (to == kNoRef) continue;
      Op& op = d.emit<execute_combine>(c.combination);
      op.d = to;
      op.d_rows = 0;
      op.s[0] = raw;
      op.s[1] = with;
    }
    return !d.failed();
  }
  if (!pair && !c.combines()) {
    emit_comparison(d, c, p, a, b, false);
    return !d.failed();
  }
  const Ref raw = d.f.scratch_predicate();
  emit_comparison(d, c, raw, a, b, false);
  Op& op = d.emit<execute_combine>(c.combination);
  op.d = p;
  op.d2 = q;
  op.d_rows = 0;
  op.s[0] = raw;
  op.s[1] = with;
  return !d.failed();
}

bool decode_set(Decoding& d) {
  Comparison c;
  if (!take_comparison(d, &c)) return false;
  const Type result = d.take_type();
  const Type type = d.take_type();
  if (!settle_type(d, &c, type)) return false;
  const std::size_t operands = c.combines() ? 4 : 3;
  if (!d.expect(operands, operands) || !d.done()) return false;
  u64 truth = 0;
  switch (result) {
    case Type::kU32:
    case Type::kS32:
    case Type::kB32:
      truth = 0xFFFFFFFF;
      break;
    case Type::kF32:
      truth = 0x3F800000;
      break;
    case Type::kU16:
    case Type::kS16:
      truth = 0xFFFF;
      break;
    case Type::kF16:
      truth = 0x3C00;
      break;
    case Type::kBf16:
      truth = 0x3F80;
      break;
    case Type::kF16x2:
    case Type::kBf16x2:
      truth = result == Type::kF16x2 ? 0x3C00 : 0x3F80;
      break;
    default:
      return d.unsupported(fmt::format("set to .{} is not modelled", to_string(result)));
  }
  const bool halves = type == Type::kF16x2 || type == Type::kBf16x2;
  const int bits = bits_of(c.request.type);
  const Ref a = d.source(1, bits, c.request.type), b = d.source(2, bits, c.request.type);
  const Ref with = c.combines() ? d.source(3, 1) : kNoRef;
  const Ref to = d.destination(0, bits_of(result));
  if (d.failed()) return false;
  Ref part[2] = {to, kNoRef};
  if (halves) {
    if (result == Type::kU32 || result == Type::kS32) truth = 0xFFFF;
    part[0] = d.f.scratch(1);
    part[1] = d.f.scratch(1);
  }
  for (int half = 0; half < (halves ? 2 : 1); ++half) {
    Ref p = d.f.scratch_predicate();
    emit_comparison(d, c, p, a, b, half == 1);
    if (c.combines()) {
      const Ref combined = d.f.scratch_predicate();
      Op& op = d.emit<execute_combine>(c.combination);
      op.d = combined;
      op.d_rows = 0;
      op.s[0] = p;
      op.s[1] = with;
      p = combined;
    }
    d.alu(select_lane({LaneOp::kSetpResult}), part[half], 32, {p}, {truth});
  }
  if (halves) d.alu(select_lane({LaneOp::kPack2x16}), to, 32, {part[0], part[1]});
  return !d.failed();
}

// selp keeps the poison of the chosen operand only.
Step execute_select(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask) {
  const u32 p = warp.predicate(op.s[2]);
  const void* sources[3] = {warp.source(op.s[0]), warp.source(op.s[1]), &p};
  if (mask == ~u32{0}) {
    lane.function(warp.row(op.d), sources, 0);
  } else {
    Row result[2];
    lane.function(result, sources, 0);
    warp.blend(op.d, result, op.d_rows, mask);
  }
  if (warp.machine->checks) {
    const u32 pa = warp.poison_of(op.s[0]), pb = warp.poison_of(op.s[1]),
              pp = warp.poison_of(op.s[2]);
    if ((pa | pb | pp | warp.poison_of(op.d)) != 0)
      warp.set_poison(op.d, (pa & p) | (pb & ~p) | pp, mask,
                      pa != 0 ? warp.site_of(op.s[0]) : warp.site_of(op.s[1]));
  }
  return Step::kNext;
}

bool decode_selp(Decoding& d) {
  LaneRequest r;
  r.op = LaneOp::kSelp;
  r.type = d.take_type();
  const int bits = bits_of(r.type);
  if (bits != 16 && bits != 32 && bits != 64) return d.unsupported("selp is of 16, 32 or 64 bits");
  const Type original = r.type;
  r.type = bits == 16 ? Type::kB16 : bits == 32 ? Type::kB32 : Type::kB64;
  if (!d.expect(4, 4) || !d.done()) return false;
  const Ref a = d.source(1, bits, original), b = d.source(2, bits, original), p = d.source(3, 1),
            to = d.destination(0, bits);
  if (d.failed()) return false;
  d.alu<execute_select>(select_lane(r), to, bits, {a, b, p});
  return !d.failed();
}

bool decode_slct(Decoding& d) {
  const bool ftz = d.take("ftz");
  LaneRequest r;
  r.op = LaneOp::kSelp;
  const Type type = d.take_type(), selector = d.take_type();
  const int bits = bits_of(type);
  r.type = bits == 64 ? Type::kB64 : bits == 16 ? Type::kB16 : Type::kB32;
  if (selector != Type::kS32 && selector != Type::kF32)
    return d.unsupported("slct's selector is .s32 or .f32");
  if (!d.expect(4, 4) || !d.done()) return false;
  const Ref a = d.source(1, bits, type), b = d.source(2, bits, type), c = d.source(3, 32, selector),
            to = d.destination(0, bits);
  if (d.failed()) return false;
  const Ref p = d.f.scratch_predicate();
  LaneRequest compare;
  compare.op = LaneOp::kSetp;
  compare.type = selector;
  compare.compare = Compare::kGe;
  d.alu(select_lane(compare), p, 1, {c, d.constant(0, 32)},
        {.fp_mode = fp_mode(Rounding::kNearestEven, ftz)});
  d.alu<execute_select>(select_lane(r), to, bits, {a, b, p});
  return !d.failed();
}

}  // namespace

void add_comparisons(InstructionTable& t) {
  t.add({"setp", "", "comparison",
         "all comparisons and combinations; integers, f16(x2), bf16(x2), f32, f64; p|q", "9.7.7.2",
         decode_setp});
  t.add({"set", "", "comparison", "results u32, s32, f32, f16(x2), bf16(x2), u16, s16", "9.7.7.1",
         decode_set});
  t.add({"selp", "", "comparison", "", "9.7.7.3", decode_selp});
  t.add({"slct", "", "comparison", "", "9.7.7.4", decode_slct});
}

}  // namespace attnjit::emulator
