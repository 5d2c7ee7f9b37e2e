// SPDX-License-Identifier: Apache-2.0
// cvt and cvt.pack.
#include <fmt/format.h>

#include <array>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/operands.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

struct Packed {
  Type element = Type::kNone;
  int count = 1;
  int bits = 0;  ///< of an element in the packed value
};

Packed packed(Type t) {
  switch (t) {
    case Type::kF16x2:
      return {Type::kF16, 2, 16};
    case Type::kBf16x2:
      return {Type::kBf16, 2, 16};
    case Type::kE4m3x2:
      return {Type::kE4m3, 2, 8};
    case Type::kE5m2x2:
      return {Type::kE5m2, 2, 8};
    case Type::kE2m1x2:
      return {Type::kE2m1, 2, 4};
    case Type::kE2m3x2:
      return {Type::kE2m3, 2, 8};
    case Type::kE3m2x2:
      return {Type::kE3m2, 2, 8};
    case Type::kUe8m0x2:
      return {Type::kUe8m0, 2, 8};
    default:
      return {t, 1, bits_of(t)};
  }
}

bool is_integer(Type t) { return (t >= Type::kB8 && t <= Type::kS64) && t != Type::kB128; }
bool is_signed(Type t) { return t >= Type::kS8 && t <= Type::kS64; }
bool is_float(Type t) { return !is_integer(t) && t != Type::kPred; }

/// Pairs of types that PTX converts between and this file does one value at a time.
struct Conversion {
  Type to = Type::kNone, from = Type::kNone;
  Rounding rounding = Rounding::kNearestEven;
  bool integer_rounding = false;
  bool ftz = false, saturate = false, satfinite = false, relu = false;
};

Step execute_convert(Warp& warp, const Op& op, const Conversion& conversion, u32 mask) {
  const auto to = packed(conversion.to);
  const auto from = packed(conversion.from);
  LaneRequest one;
  one.op = LaneOp::kConvert;
  one.type = to.element;
  one.source = from.element;
  one.rounding = conversion.rounding;
  one.integer_rounding = conversion.integer_rounding;
  one.ftz = conversion.ftz;
  one.saturate = conversion.saturate;
  one.satfinite = conversion.satfinite;
  one.relu = conversion.relu;
  const bool wide_source = bits_of(from.element) == 64;
  u64 result[32] = {};
  for (const u32 lane : lanes_of(mask)) {
    u64 value = 0;
    if (to.count == 2 && from.count == 1) {
      // d, a, b: a goes to the upper part.
      const u64 high = convert_scalar(one, warp.lane32(op.s[0], lane)),
                low = convert_scalar(one, warp.lane32(op.s[1], lane));
      value = (high << to.bits) | low;
    } else {
      const u64 v = warp.value(op.s[0], lane, wide_source);
      for (int i = 0; i < to.count; ++i) {
        const u64 part = from.bits == 64 ? v : (v >> (i * from.bits)) & ((u64{1} << from.bits) - 1);
        value |= convert_scalar(one, part) << (i * to.bits);
      }
    }
    result[lane] = value;
  }
  blend_result(warp, op.d, result, op.d_rows == 2, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]) | warp.poison_of(op.s[1]), mask,
                    warp.site_of(op.s[0]));
  return Step::kNext;
}

bool decode_cvt(Decoding& d) {
  LaneRequest r;
  r.op = LaneOp::kConvert;
  const int rounding = d.take_any({"rn", "rz", "rm", "rp", "rna"});
  const int integral = d.take_any({"rni", "rzi", "rmi", "rpi"});
  constexpr std::array kModes = {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kDown,
                                 Rounding::kUp, Rounding::kNearestAway};
  if (rounding >= 0) r.rounding = kModes[static_cast<std::size_t>(rounding)];
  if (integral >= 0) {
    r.rounding = kModes[static_cast<std::size_t>(integral)];
    r.integer_rounding = true;
  }
  r.ftz = d.take("ftz");
  r.saturate = d.take("sat");
  r.satfinite = d.take("satfinite");
  r.relu = d.take("relu");
  r.type = d.take_type();
  r.source = d.take_type();
  if (r.type == Type::kNone || r.source == Type::kNone) return d.invalid("two types are needed");
  const Packed to = packed(r.type), from = packed(r.source);
  const bool two = to.count == 2 && from.count == 1;
  if (!d.expect(two ? 3 : 2, two ? 3 : 2)) return false;
  if (to.count == 1 && from.count == 2)
    return d.unsupported("a packed source needs a packed result");
  for (const Type t : {to.element, from.element}) {
    const bool known = is_integer(t) || t == Type::kF16 || t == Type::kBf16 || t == Type::kF32 ||
                       t == Type::kF64 || t == Type::kTf32 || t == Type::kE4m3 ||
                       t == Type::kE5m2 || t == Type::kE2m1 || t == Type::kE2m3 ||
                       t == Type::kE3m2 || t == Type::kUe8m0;
    if (!known) return d.unsupported(fmt::format("type .{} is not modelled here", to_string(t)));
  }
  // A float to a narrower one, or an integer to a float, must say how it rounds.
  const bool rounds = (is_float(to.element) && is_integer(from.element)) ||
                      (is_float(to.element) && is_float(from.element) &&
                       bits_of(to.element) < bits_of(from.element));
  if (rounds && rounding < 0 && integral < 0) return d.invalid("a rounding modifier is needed");
  if (is_integer(to.element) && is_float(from.element) && integral < 0)
    return d.invalid("an integer rounding modifier is needed");
  if (!d.done()) return false;

  const int from_bits = std::max(8, bits_of(two ? from.element : r.source));
  const int to_bits = std::max(8, bits_of(r.type));
  const Ref a = d.source(1, from_bits, r.source);
  const Ref b = two ? d.source(2, from_bits, r.source) : kNoRef;
  const int have = d.width(d.in.operands[0]);
  const bool wider = is_integer(r.type) && have > to_bits;
  const Ref to_ref = d.destination(0, to_bits, true);
  if (d.failed()) return false;
  int result_bits = to_bits <= 32 ? 32 : 64;
  Ref target = to_ref == kNoRef ? d.f.scratch(2) : to_ref;
  const bool extend = wider && have > 32;
  if (have > 32 && result_bits == 32 && to_ref != kNoRef) target = d.f.scratch(1);

  const LaneFn lane = select_lane(r);
  if (lane != nullptr) {
    LaneControl control;
    if (is_integer(r.type) && is_integer(r.source)) {
      control.imm = static_cast<u64>(to_bits) |
                    (r.saturate ? is_signed(r.type) ? lane_flags::kSaturateSigned
                                                    : lane_flags::kSaturateUnsigned
                                : 0);
    } else {
      control.imm = r.saturate ? lane_flags::kSaturate : 0;
      if (r.type == Type::kF64) control.imm = r.ftz ? lane_flags::kFlush : 0;
      if (!r.integer_rounding) control.fp_mode = fp_mode(r.rounding, false);
    }
    if (two) {
      d.alu(lane, target, result_bits, {a, b}, control);
    } else {
      d.alu(lane, target, result_bits, {a}, control);
    }
  } else {
    Op& op = d.emit<execute_convert>(
        {r.type, r.source, r.rounding, r.integer_rounding, r.ftz, r.saturate, r.satfinite, r.relu});
    op.d = target;
    op.d_rows = result_bits == 64 ? 2 : 1;
    op.s[0] = a;
    op.s[1] = b;
  }
  if (wider && to_ref != kNoRef) {
    // The result fills a wider register: sign- or zero-extended.
    LaneRequest widen;
    widen.op = LaneOp::kConvert;
    widen.source = r.type;
    const int full = have <= 32 ? 32 : 64;
    if (is_signed(r.type) || extend) {
      widen.type = full == 64 ? Type::kU64 : Type::kU32;
      d.alu(select_lane(widen), to_ref, full, {target}, {static_cast<u64>(have)});
    }
  }
  return !d.failed();
}

struct IntegerPack {
  int bits = 8;  ///< of an element
  bool to_signed = false;
};

Step execute_cvt_pack(Warp& warp, const Op& op, const IntegerPack& pack, u32 mask) {
  u32 result[32] = {};
  const int bits = pack.bits;
  const bool to_signed = pack.to_signed;
  const s64 high = to_signed ? (s64{1} << (bits - 1)) - 1 : (s64{1} << bits) - 1;
  const s64 low = to_signed ? -high - 1 : 0;
  for (const u32 lane : lanes_of(mask)) {
    const auto clamp = [&](u32 v) {
      s64 x = static_cast<s32>(v);
      x = x > high ? high : x < low ? low : x;
      return static_cast<u32>(x) & static_cast<u32>((u64{1} << bits) - 1);
    };
    u32 v = (clamp(warp.lane32(op.s[0], lane)) << bits) | clamp(warp.lane32(op.s[1], lane));
    if (op.s[2] != kNoRef) v |= warp.lane32(op.s[2], lane) << (2 * bits);
    result[lane] = v;
  }
  warp.blend(op.d, result, 1, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d,
                    warp.poison_of(op.s[0]) | warp.poison_of(op.s[1]) | warp.poison_of(op.s[2]),
                    mask, warp.site_of(op.s[0]));
  return Step::kNext;
}

bool decode_cvt_pack(Decoding& d) {
  d.take("pack");
  if (!d.take("sat")) return d.invalid(".sat is needed");
  const Type to = d.take_type(), from = d.take_type();
  if (from != Type::kS32) return d.unsupported("cvt.pack is from .s32");
  const Type third = d.take_type();
  const int bits = bits_of(to);
  if (bits != 2 && bits != 4 && bits != 8 && bits != 16)
    return d.unsupported("cvt.pack is to 4, 8 or 16 bits");
  if (!d.expect(third == Type::kNone ? 3 : 4, third == Type::kNone ? 3 : 4) || !d.done())
    return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32),
            c = third == Type::kNone ? kNoRef : d.source(3, 32), to_ref = d.destination(0, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_cvt_pack>({bits, is_signed(to) || to == Type::kS4 || to == Type::kS2});
  op.d = to_ref == kNoRef ? d.f.scratch(1) : to_ref;
  op.s[0] = a;
  op.s[1] = b;
  op.s[2] = c;
  return true;
}

}  // namespace

void add_conversions(InstructionTable& t) {
  t.add({"cvt", "", "conversion",
         "all integer pairs; f16, bf16, tf32, f32, f64; packed f16x2, bf16x2, e4m3x2, e5m2x2, "
         "e2m1x2, e2m3x2, e3m2x2, ue8m0x2; .rn .rz .rm .rp .rna .rni .rzi .rmi .rpi .ftz .sat "
         ".satfinite .relu; bit by bit",
         "9.7.9.21", decode_cvt});
  t.add({"cvt", ".pack", "conversion", ".sat from .s32", "9.7.9.22", decode_cvt_pack});
}

}  // namespace attnjit::emulator
