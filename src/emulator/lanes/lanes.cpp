// SPDX-License-Identifier: Apache-2.0
// Chooses the lane functions for this CPU; the bit-by-bit conversion of single values.
#include "emulator/lanes/lanes.h"

#include <bit>
#include <cmath>

#include "emulator/lanes/number_format.h"

namespace attnjit::emulator {
namespace {

bool is_signed(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}

double integral(double v, Rounding rounding) {
  switch (rounding) {
    case Rounding::kTowardZero:
      return std::trunc(v);
    case Rounding::kDown:
      return std::floor(v);
    case Rounding::kUp:
      return std::ceil(v);
    case Rounding::kNearestAway:
      return std::round(v);
    case Rounding::kNearestEven:
      break;
  }
  return std::nearbyint(v);
}

double flush_f32(double v) { return std::fabs(v) < 0x1p-126 ? std::copysign(0.0, v) : v; }

}  // namespace

#if defined(__x86_64__)
bool cpu_has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
}
#else
bool cpu_has_avx2() { return false; }
LaneFn select_lane_avx2(const LaneRequest&) { return nullptr; }
#endif

LaneFn select_lane(const LaneRequest& request) {
  return cpu_has_avx2() ? select_lane_avx2(request) : select_lane_baseline(request);
}

u64 convert_scalar(const LaneRequest& r, u64 bits) {
  const FloatFormat* from = float_format(r.source);
  const FloatFormat* to = float_format(r.type);
  const bool from_float = from != nullptr || r.source == Type::kF64;
  const bool to_float = to != nullptr || r.type == Type::kF64;
  double v = 0;
  if (from_float) {
    v = r.source == Type::kF64 ? std::bit_cast<double>(bits)
        : r.source == Type::kTf32
            ? static_cast<double>(std::bit_cast<float>(static_cast<u32>(bits)))
            : decode(*from, static_cast<u32>(bits));
    if (r.ftz && r.source == Type::kF32) v = flush_f32(v);
  } else {
    const int width = bits_of(r.source);
    const bool negative = is_signed(r.source) && (bits >> (width - 1) & 1) != 0;
    u64 magnitude = bits;
    if (negative) magnitude = (0 - bits) & (width == 64 ? ~u64{0} : (u64{1} << width) - 1);
    if (r.type == Type::kF64) {
      // The control register's rounding mode is the conversion's.
      v = negative ? static_cast<double>(static_cast<s64>(bits << (64 - width)) >> (64 - width))
                   : static_cast<double>(bits);
    } else {
      // Past 53 bits the lowest become one that only says "inexact": every narrower format rounds
      // right.
      const int extra = 64 - std::countl_zero(magnitude) - 53;
      if (extra > 0) {
        const u64 dropped = magnitude & ((u64{1} << extra) - 1);
        magnitude = (magnitude & ~((u64{1} << extra) - 1)) | (dropped != 0 ? u64{1} << extra : 0);
      }
      v = static_cast<double>(magnitude);
      if (negative) v = -v;
    }
  }
  if (to_float) {
    if (r.integer_rounding) v = std::copysign(integral(v, r.rounding), v);
    if (r.saturate) v = v > 0 ? (v < 1 ? v : 1.0) : 0.0;
    if (r.type == Type::kF64) return std::bit_cast<u64>(v);
    EncodeOptions options;
    options.rounding = r.integer_rounding ? Rounding::kNearestEven : r.rounding;
    options.saturate = r.satfinite;
    options.relu = r.relu;
    if (std::isnan(v) && r.type == Type::kF32) return 0x7FFFFFFFu;
    if (std::isnan(v) && r.type == Type::kF16 && r.source == Type::kF64) {
      return static_cast<u32>(bits >> 48 & 0x8000) | 0x7E00u | static_cast<u32>(bits >> 42 & 0x1FF);
    }
    if (std::isnan(v) && r.type == Type::kTf32) {
      // As an H200: .rna only drops bits, the others give the canonical NaN.
      return r.rounding == Rounding::kNearestAway ? bits & 0xFFFFE000u : 0x7FFFE000u;
    }
    u32 code = encode(*to, v, options);
    if (r.type == Type::kTf32) code <<= 13;
    if (r.ftz && r.type == Type::kF32 && (code & 0x7F800000u) == 0) code &= 0x80000000u;
    return code;
  }
  const int width = bits_of(r.type);
  // As an H200: NaN gives zero from narrower floats, the lowest number from f64.
  if (std::isnan(v))
    return width == 64 ? u64{1} << 63 : width == 32 && r.source == Type::kF64 ? 0x80000000u : 0;
  v = integral(v, r.rounding);
  if (is_signed(r.type)) {
    const double high = std::ldexp(1.0, width - 1);
    s64 value;
    if (v >= high) {
      value = static_cast<s64>((u64{1} << (width - 1)) - 1);
    } else if (v < -high) {
      value = -static_cast<s64>((u64{1} << (width - 1)) - 1) - 1;
    } else {
      value = static_cast<s64>(v);
    }
    const auto result = static_cast<u64>(value);
    return width == 64 ? result : result & ((u64{1} << width) - 1);
  }
  const u64 top = width == 64 ? ~u64{0} : (u64{1} << width) - 1;
  if (!(v > 0)) return 0;
  if (v >= std::ldexp(1.0, width)) return top;
  return static_cast<u64>(v);
}

}  // namespace attnjit::emulator
