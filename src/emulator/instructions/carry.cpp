// SPDX-License-Identifier: Apache-2.0
// Execution and decoding of carry chains.
#include "emulator/instructions/carry.h"

#include <array>

#include "emulator/decode/decoding.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

Step execute_carry(Warp& warp, const Op& op, const Carry& what, u32 mask) {
  const bool wide = what.wide;
  u64 result[32] = {};
  u32 carry_out = 0;
  for (const u32 lane : lanes_of(mask)) {
    u64 a = warp.value(op.s[0], lane, wide);
    u64 b = warp.value(op.s[1], lane, wide);
    const u64 carry = what.in ? (warp.registers.carry >> lane & 1) : 0;
    if (what.multiplies()) {
      u128 product = static_cast<u128>(a) * b;
      if (what.is_signed) {
        const s64 sa = wide ? static_cast<s64>(a) : static_cast<s64>(static_cast<s32>(a));
        const s64 sb = wide ? static_cast<s64>(b) : static_cast<s64>(static_cast<s32>(b));
        product = static_cast<u128>(static_cast<s128>(sa) * sb);
      }
      const int shift = what.operation == Carry::Operation::kMultiplyHigh ? (wide ? 64 : 32) : 0;
      a = static_cast<u64>(product >> shift);
      if (!wide) a = static_cast<u32>(a);
      b = warp.value(op.s[2], lane, wide);
    }
    u128 sum;
    bool out;
    const u128 one = 1;
    const int bits = wide ? 64 : 32;
    if (what.operation == Carry::Operation::kSubtract) {
      sum = static_cast<u128>(a) - b - carry;
      out = static_cast<u128>(a) < static_cast<u128>(b) + carry;  // borrow
    } else {
      sum = static_cast<u128>(a) + b + carry;
      out = sum >= (one << bits);
    }
    result[lane] = static_cast<u64>(sum);
    if (out) carry_out |= u32{1} << lane;
  }
  if (wide) {
    warp.blend(op.d, result, 2, mask);
  } else {
    u32 narrow[32];
    for (int i = 0; i < 32; ++i) narrow[i] = static_cast<u32>(result[i]);
    warp.blend(op.d, narrow, 1, mask);
  }
  if (what.out) warp.registers.carry = (warp.registers.carry & ~mask) | (carry_out & mask);
  if (warp.machine->checks) {
    u32 poison = 0;
    for (const Ref r : op.s) poison |= warp.poison_of(r);
    warp.set_poison(op.d, poison, mask, warp.site_of(op.s[0]));
  }
  return Step::kNext;
}

}  // namespace

bool decode_carry(Decoding& d, Carry::Operation operation, bool in) {
  Carry what{operation, in};
  if (what.multiplies()) {
    const int half = d.take_any({"lo", "hi"});
    if (half < 0) return d.invalid(".lo or .hi is needed");
    what.operation = half == 0 ? Carry::Operation::kMultiplyLow : Carry::Operation::kMultiplyHigh;
  }
  what.out = d.take("cc");
  const Type type = d.take_type();
  const int bits = bits_of(type);
  what.wide = bits == 64;
  what.is_signed = type == Type::kS32 || type == Type::kS64;
  if (bits != 32 && bits != 64) return d.unsupported("carry needs a 32- or 64-bit type");
  const std::size_t sources = what.multiplies() ? 3 : 2;
  if (!d.expect(sources + 1, sources + 1) || !d.done()) return false;
  std::array<Ref, 3> s{kNoRef, kNoRef, kNoRef};
  for (std::size_t i = 0; i < sources; ++i) s[i] = d.source(i + 1, bits);
  Ref to = d.destination(0, bits);
  if (to == kNoRef) to = d.f.scratch(2);
  if (d.failed()) return false;
  Op& op = d.emit<execute_carry>(what);
  op.d = to;
  for (std::size_t i = 0; i < sources; ++i) op.s[i] = s[i];
  return true;
}

}  // namespace attnjit::emulator
