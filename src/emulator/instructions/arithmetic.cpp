// SPDX-License-Identifier: Apache-2.0
// Integer and floating-point arithmetic.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/arithmetic.h"
#include "emulator/instructions/carry.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

bool is_wide_float(Type t) { return t == Type::kF32 || t == Type::kF64 || t == Type::kF32x2; }
bool is_small_float(Type t) {
  return t == Type::kF16 || t == Type::kF16x2 || t == Type::kBf16 || t == Type::kBf16x2;
}

/// rcp and rsqrt .approx.ftz.f64 (PTX ISA 9.7.3.14, 9.7.3.17): only the upper word of the operand
/// counts, the lower word of the result is zero.
struct UpperWord {
  bool root = false;
};

Step execute_upper_word(Warp& warp, const Op& op, const UpperWord& what, u32 mask) {
  u64 result[32] = {};
  constexpr u64 kSign = u64{1} << 63, kExponent = u64{0x7FF} << 52, kUpper = ~u64{0xFFFFFFFF};
  const auto flush = [](u64 v) { return (v & kExponent) == 0 ? v & kSign : v; };
  for (const u32 lane : lanes_of(mask)) {
    const u64 word = warp.lane64(op.s[0], lane);
    const auto a = std::bit_cast<double>(
        flush(std::isnan(std::bit_cast<double>(word)) ? word : word & kUpper));
    const double r =
        what.root ? std::copysign(1.0, a == 0.0 ? a : 1.0) / std::sqrt(std::abs(a)) : 1.0 / a;
    const bool nan = std::isnan(r) || (what.root && a < 0.0);
    result[lane] = nan ? 0x7FFFFFFF00000000u : flush(std::bit_cast<u64>(r) & kUpper);
  }
  warp.blend(op.d, result, 2, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]), mask, warp.site_of(op.s[0]));
  return Step::kNext;
}

bool emit_upper_word(Decoding& d, LaneOp operation, Ref to, Ref from) {
  Op& op = d.emit<execute_upper_word>({operation == LaneOp::kRsqrt});
  op.d = to == kNoRef ? d.f.scratch(2) : to;
  op.d_rows = 2;
  op.s[0] = from;
  return true;
}

}  // namespace

bool decode_simple(Decoding& d, Arithmetic a) {
  LaneRequest r;
  r.op = a.op;
  const int rounding = d.take_any({"rn", "rz", "rm", "rp"});
  constexpr std::array kModes = {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kDown,
                                 Rounding::kUp};
  const Rounding mode =
      rounding < 0 ? Rounding::kNearestEven : kModes[static_cast<std::size_t>(rounding)];
  const bool approx = d.take("approx");
  d.take("full");  // the whole range, to two ulps: the quotient will do
  r.ftz = d.take("ftz");
  r.saturate = d.take("sat");
  r.relu = d.take("relu");
  r.nan = d.take("NaN");
  if (d.take("xorsign")) {
    if (!d.take("abs")) return d.invalid(".xorsign needs .abs");
    r.xorsign = true;
  } else if ((a.op == LaneOp::kMin || a.op == LaneOp::kMax) && d.take("abs")) {
    r.magnitude = true;
  }
  r.type = d.take_type();
  if (r.type == Type::kNone) return d.invalid("a type is needed");
  if (approx) {
    if (a.op == LaneOp::kDiv) r.op = LaneOp::kDivApprox;
    if (a.op == LaneOp::kRcp) r.op = LaneOp::kRcpApprox;
    if (a.op == LaneOp::kSqrt) r.op = LaneOp::kSqrtApprox;
  }
  // f32 with one narrow operand, or two.
  if (r.type == Type::kF32 &&
      (a.op == LaneOp::kAdd || a.op == LaneOp::kSub || a.op == LaneOp::kFma)) {
    const Type narrow = d.take_type();
    if (narrow != Type::kNone) {
      if (narrow != Type::kF16 && narrow != Type::kBf16)
        return d.unsupported(fmt::format("type .{} is not modelled here", to_string(narrow)));
      r.source = narrow;
      r.op = a.op == LaneOp::kAdd   ? LaneOp::kMixedAdd
             : a.op == LaneOp::kSub ? LaneOp::kMixedSub
                                    : LaneOp::kMixedFma;
      const bool fma = a.op == LaneOp::kFma;
      if (!d.expect(fma ? 4 : 3, fma ? 4 : 3) || !d.done()) return false;
      const Ref x = d.source(1, 16);
      const Ref y = fma ? d.source(2, 16) : d.source(2, 32, Type::kF32);
      const Ref z = fma ? d.source(3, 32, Type::kF32) : kNoRef;
      const Ref to = d.destination(0, 32);
      if (d.failed()) return false;
      const LaneControl control{r.saturate ? lane_flags::kSaturate : 0, fp_mode(mode, r.ftz)};
      if (fma) {
        d.alu(select_lane(r), to, 32, {x, y, z}, control);
      } else {
        d.alu(select_lane(r), to, 32, {x, y}, control);
      }
      return !d.failed();
    }
  }
  const int bits = bits_of(r.type);
  if (a.bits_only && r.type != Type::kB16 && r.type != Type::kB32 && r.type != Type::kB64) {
    // NOTE: typed spellings such as and.u32 are accepted by ptxas for .b32.
    if (bits != 16 && bits != 32 && bits != 64)
      return d.unsupported(fmt::format("type .{} is not modelled here", to_string(r.type)));
  }
  if (rounding > 0 && !is_wide_float(r.type))
    return d.unsupported("this rounding mode is not modelled for the type");
  std::size_t sources = a.sources;
  if (r.magnitude && d.count() != 4) return d.unsupported(".abs alone needs three inputs");
  if ((a.op == LaneOp::kMin || a.op == LaneOp::kMax) && d.count() == 4) {
    if (r.type != Type::kF32 || r.xorsign)
      return d.unsupported("three inputs are of .f32, without .xorsign");
    r.op = a.op == LaneOp::kMin ? LaneOp::kMin3 : LaneOp::kMax3;
    sources = 3;
  }
  if (!d.expect(sources + 1, sources + 1) || !d.done()) return false;
  std::array<Ref, 3> s{kNoRef, kNoRef, kNoRef};
  for (std::size_t i = 0; i < sources; ++i) s[i] = d.source(i + 1, bits, r.type);
  const Ref to = d.destination(0, bits);
  if (d.failed()) return false;
  if (approx && r.ftz && r.type == Type::kF64) return emit_upper_word(d, r.op, to, s[0]);
  const LaneFn lane = select_lane(r);
  LaneControl control;
  if (is_small_float(r.type))
    control.imm = (r.saturate ? lane_flags::kSaturate : 0) | (r.relu ? lane_flags::kRelu : 0) |
                  (r.ftz ? lane_flags::kFlush : 0) | (r.nan ? lane_flags::kPropagateNan : 0) |
                  (r.xorsign ? lane_flags::kXorSign : 0);
  if (is_wide_float(r.type)) control.fp_mode = fp_mode(mode, r.ftz);
  const auto emit = [&](std::initializer_list<Ref> from) {
    if (r.type == Type::kF32x2) {
      d.alu<execute_halves>(lane, to, bits, from, control);
    } else {
      d.alu(lane, to, bits, from, control);
    }
  };
  if (sources == 1) {
    emit({s[0]});
  } else if (sources == 2) {
    emit({s[0], s[1]});
  } else {
    emit({s[0], s[1], s[2]});
  }
  return !d.failed();
}

namespace {

bool decode_add(Decoding& d) {
  return d.has("cc") ? decode_carry(d, Carry::Operation::kAdd, false) : simple<LaneOp::kAdd, 2>(d);
}
bool decode_sub(Decoding& d) {
  return d.has("cc") ? decode_carry(d, Carry::Operation::kSubtract, false)
                     : simple<LaneOp::kSub, 2>(d);
}

// mul and mad: .lo, .hi, .wide for integers; floats otherwise.
bool decode_multiply(Decoding& d, bool mad) {
  if (mad && d.has("cc")) return decode_carry(d, Carry::Operation::kMultiplyLow, false);
  const int part = d.take_any({"lo", "hi", "wide"});
  if (part < 0) {
    // mad.f32 is fma; mul of integers needs a part.
    return mad ? simple<LaneOp::kFma, 3>(d) : simple<LaneOp::kMulLo, 2>(d);
  }
  LaneRequest r;
  r.saturate = d.take("sat");
  r.type = d.take_type();
  if (r.saturate && (!mad || part != 1 || r.type != Type::kS32))
    return d.unsupported(".sat is of mad.hi.s32");
  constexpr std::array kMul = {LaneOp::kMulLo, LaneOp::kMulHi, LaneOp::kMulWide};
  constexpr std::array kMad = {LaneOp::kMadLo, LaneOp::kMadHi, LaneOp::kMadWide};
  r.op = (mad ? kMad : kMul)[static_cast<std::size_t>(part)];
  const int bits = bits_of(r.type);
  const int result = part == 2 ? bits * 2 : bits;
  if (!d.expect(mad ? 4 : 3, mad ? 4 : 3) || !d.done()) return false;
  const Ref a = d.source(1, bits), b = d.source(2, bits);
  const Ref c = mad ? d.source(3, result) : kNoRef;
  const Ref to = d.destination(0, result);
  if (d.failed()) return false;
  if (mad) {
    d.alu(select_lane(r), to, result, {a, b, c});
  } else {
    d.alu(select_lane(r), to, result, {a, b});
  }
  return !d.failed();
}

bool decode_24(Decoding& d, bool mad) {
  const int part = d.take_any({"lo", "hi"});
  const bool saturate = mad && d.take("sat");
  LaneRequest r;
  r.op = part == 1 ? LaneOp::kMul24Hi : LaneOp::kMul24Lo;
  r.type = d.take_type();
  if (r.type != Type::kU32 && r.type != Type::kS32)
    return d.unsupported("24-bit products are of 32-bit types");
  if (!d.expect(mad ? 4 : 3, mad ? 4 : 3) || !d.done()) return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32);
  const Ref to = d.destination(0, 32);
  if (d.failed()) return false;
  if (!mad) {
    d.alu(select_lane(r), to, 32, {a, b});
    return !d.failed();
  }
  const Ref c = d.source(3, 32);
  const Ref product = d.f.scratch(1);
  d.alu(select_lane(r), product, 32, {a, b});
  LaneRequest add;
  add.op = LaneOp::kAdd;
  add.type = saturate ? Type::kS32 : Type::kU32;
  add.saturate = saturate;
  d.alu(select_lane(add), to, 32, {product, c});
  return !d.failed();
}

bool decode_bit_field(Decoding& d, bool insert) {
  LaneRequest r;
  r.op = insert ? LaneOp::kBfi : LaneOp::kBfe;
  r.type = d.take_type();
  const int bits = bits_of(r.type);
  if (bits != 32 && bits != 64) return d.unsupported("bit fields are of 32 or 64 bits");
  if (!d.expect(insert ? 5 : 4, insert ? 5 : 4) || !d.done()) return false;
  const Ref to = d.destination(0, bits);
  const Ref a = d.source(1, bits);
  const Ref b = d.source(2, insert ? bits : 32), c = d.source(3, 32),
            e = insert ? d.source(4, 32) : kNoRef;
  if (d.failed()) return false;
  if (insert) {
    d.alu(select_lane(r), to, bits, {a, b, c, e});
  } else {
    d.alu(select_lane(r), to, bits, {a, b, c});
  }
  return !d.failed();
}

// popc, clz, bfind: a 32-bit result whatever the source.
bool decode_count(Decoding& d, LaneOp op_kind) {
  LaneRequest r;
  r.op = op_kind;
  if (op_kind == LaneOp::kBfind && d.take("shiftamt")) r.op = LaneOp::kBfindShift;
  r.type = d.take_type();
  const int bits = bits_of(r.type);
  if (bits != 32 && bits != 64) return d.unsupported("this counts in 32 or 64 bits");
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref a = d.source(1, bits), to = d.destination(0, 32);
  if (d.failed()) return false;
  d.alu(select_lane(r), to, 32, {a});
  return !d.failed();
}

bool decode_dot(Decoding& d, bool pairs) {
  LaneRequest r;
  r.op = LaneOp::kDp4a;
  if (pairs) {
    const int half = d.take_any({"lo", "hi"});
    r.op = half == 1 ? LaneOp::kDp2aHi : LaneOp::kDp2aLo;
  }
  const Type a_type = d.take_type(), b_type = d.take_type();
  if (!d.expect(4, 4) || !d.done()) return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32), c = d.source(3, 32),
            to = d.destination(0, 32);
  if (d.failed()) return false;
  d.alu(select_lane(r), to, 32, {a, b, c},
        {(a_type == Type::kS32 ? lane_flags::kSignedA : 0) |
         (b_type == Type::kS32 ? lane_flags::kSignedB : 0)});
  return true;
}

bool decode_words(Decoding& d, LaneOp wrap, LaneOp clamp, std::size_t sources) {
  LaneRequest r;
  const int kind = d.take_any({"wrap", "clamp"});
  r.op = kind == 1 ? clamp : wrap;
  r.type = d.take_type();
  if (bits_of(r.type) != 32) return d.unsupported("a 32-bit type is needed");
  if (!d.expect(sources + 1, sources + 1) || !d.done()) return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32), c = sources == 3 ? d.source(3, 32) : kNoRef,
            to = d.destination(0, 32);
  if (d.failed()) return false;
  if (sources == 3) {
    d.alu(select_lane(r), to, 32, {a, b, c});
  } else {
    d.alu(select_lane(r), to, 32, {a, b});
  }
  return true;
}

bool decode_testp(Decoding& d) {
  const int which =
      d.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  LaneRequest r;
  r.op = LaneOp::kTestp;
  r.type = d.take_type();
  if (which < 0) return d.invalid("a test is needed");
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref a = d.source(1, bits_of(r.type)), to = d.destination(0, 1);
  if (d.failed()) return false;
  d.alu(select_lane(r), to, 1, {a}, {static_cast<u64>(which)});
  return !d.failed();
}

}  // namespace

void add_arithmetic(InstructionTable& t) {
  constexpr std::string_view kFloats =
      "f32, f64, f32x2, f16(x2), bf16(x2), mixed f32.f16/bf16; .rn .rz .rm .rp .ftz .sat";
  t.add({"add", "", "arithmetic",
         "u/s16-64, u/s16x2, .cc, .sat; f32, f64, f32x2, f16(x2), bf16(x2), mixed f32.f16/bf16; "
         ".rn .rz .rm .rp .ftz .sat",
         "9.7.1.1, 9.7.3.4", decode_add});
  t.add({"sub", "", "arithmetic", "as add", "9.7.1.2, 9.7.3.5", decode_sub});
  t.add({"addc", "", "arithmetic", ".cc", "9.7.2.2",
         [](Decoding& d) { return decode_carry(d, Carry::Operation::kAdd, true); }});
  t.add({"subc", "", "arithmetic", ".cc", "9.7.2.4",
         [](Decoding& d) { return decode_carry(d, Carry::Operation::kSubtract, true); }});
  t.add({"madc", "", "arithmetic", ".lo .hi .cc", "9.7.2.6",
         [](Decoding& d) { return decode_carry(d, Carry::Operation::kMultiplyLow, true); }});
  t.add({"mul", "", "arithmetic", ".lo .hi .wide of integers; floats as add", "9.7.1.3, 9.7.3.6",
         [](Decoding& d) { return decode_multiply(d, false); }});
  t.add({"mad", "", "arithmetic", ".lo .hi .wide .cc of integers; floats as fma",
         "9.7.1.4, 9.7.3.8", [](Decoding& d) { return decode_multiply(d, true); }});
  t.add({"fma", "", "arithmetic", kFloats, "9.7.3.7", simple<LaneOp::kFma, 3>});
  t.add({"mul24", "", "arithmetic", ".lo .hi", "9.7.1.5",
         [](Decoding& d) { return decode_24(d, false); }});
  t.add({"mad24", "", "arithmetic", ".lo .hi, .hi.sat", "9.7.1.6",
         [](Decoding& d) { return decode_24(d, true); }});
  t.add({"div", "", "arithmetic", "integers; f32, f64 .rn .rz .rm .rp; .approx .full",
         "9.7.1.8, 9.7.3.9", simple<LaneOp::kDiv, 2>});
  t.add({"rem", "", "arithmetic", "integers", "9.7.1.9", simple<LaneOp::kRem, 2>});
  t.add({"abs", "", "arithmetic", "integers, floats; .ftz", "9.7.1.10, 9.7.3.10",
         simple<LaneOp::kAbs, 1>});
  t.add({"neg", "", "arithmetic", "integers, floats; .ftz", "9.7.1.11, 9.7.3.11",
         simple<LaneOp::kNeg, 1>});
  t.add({"min", "", "arithmetic", "integers, pairs; floats: .ftz .NaN .xorsign.abs, three inputs",
         "9.7.1.12, 9.7.3.12", simple<LaneOp::kMin, 2>});
  t.add({"max", "", "arithmetic", "as min", "9.7.1.13, 9.7.3.13", simple<LaneOp::kMax, 2>});
  t.add({"sad", "", "arithmetic", "", "9.7.1.7", simple<LaneOp::kSad, 3>});
  t.add({"popc", "", "arithmetic", "", "9.7.1.14",
         [](Decoding& d) { return decode_count(d, LaneOp::kPopc); }});
  t.add({"clz", "", "arithmetic", "", "9.7.1.15",
         [](Decoding& d) { return decode_count(d, LaneOp::kClz); }});
  t.add({"bfind", "", "arithmetic", ".shiftamt", "9.7.1.16",
         [](Decoding& d) { return decode_count(d, LaneOp::kBfind); }});
  t.add({"fns", "", "arithmetic", "", "9.7.1.17",
         [](Decoding& d) { return decode_words(d, LaneOp::kFns, LaneOp::kFns, 3); }});
  t.add({"brev", "", "arithmetic", "", "9.7.1.18", simple<LaneOp::kBrev, 1, true>});
  t.add({"bfe", "", "arithmetic", "", "9.7.1.19",
         [](Decoding& d) { return decode_bit_field(d, false); }});
  t.add({"bfi", "", "arithmetic", "", "9.7.1.20",
         [](Decoding& d) { return decode_bit_field(d, true); }});
  t.add({"szext", "", "arithmetic", ".wrap .clamp", "9.7.1.21",
         [](Decoding& d) { return decode_words(d, LaneOp::kSzextWrap, LaneOp::kSzextClamp, 2); }});
  t.add({"bmsk", "", "arithmetic", ".wrap .clamp", "9.7.1.22",
         [](Decoding& d) { return decode_words(d, LaneOp::kBmskWrap, LaneOp::kBmskClamp, 2); }});
  t.add(
      {"dp4a", "", "arithmetic", "", "9.7.1.23", [](Decoding& d) { return decode_dot(d, false); }});
  t.add({"dp2a", "", "arithmetic", ".lo .hi", "9.7.1.24",
         [](Decoding& d) { return decode_dot(d, true); }});
  t.add({"testp", "", "arithmetic", "", "9.7.3.2", decode_testp});
  t.add({"copysign", "", "arithmetic", "", "9.7.3.3", simple<LaneOp::kCopysign, 2>});
  t.add({"rcp", "", "arithmetic", "f32 .rn .rz .rm .rp .approx, f64; correctly rounded", "9.7.3.14",
         simple<LaneOp::kRcp, 1>});
  t.add({"sqrt", "", "arithmetic", "f32 .rn .rz .rm .rp .approx, f64; correctly rounded",
         "9.7.3.16", simple<LaneOp::kSqrt, 1>});
  t.add({"rsqrt", "", "arithmetic", ".approx f32, f64; correctly rounded in double", "9.7.3.17",
         simple<LaneOp::kRsqrt, 1>});
  t.add({"sin", "", "arithmetic", ".approx f32, to the last bit", "9.7.3.18",
         simple<LaneOp::kSin, 1>});
  t.add({"cos", "", "arithmetic", ".approx f32, to the last bit", "9.7.3.19",
         simple<LaneOp::kCos, 1>});
  t.add({"lg2", "", "arithmetic", ".approx f32, to the last bit", "9.7.3.20",
         simple<LaneOp::kLg2, 1>});
  t.add({"ex2", "", "arithmetic", ".approx f32, f16(x2), bf16(x2), to the last bit", "9.7.3.21",
         simple<LaneOp::kEx2, 1>});
  t.add({"tanh", "", "arithmetic", ".approx f32, f16(x2), bf16(x2), to the last bit", "9.7.3.22",
         simple<LaneOp::kTanh, 1>});
}

}  // namespace attnjit::emulator
