// SPDX-License-Identifier: Apache-2.0
// Lane functions: one arithmetic operation on the 32 lanes of a warp, without any machine state.
//
// A register of up to 32 bits is u32[32] (narrower values zero-extended), of 64 bits u64[32], of
// 128 bits two u64[32] (low, high); a predicate is a 32-bit lane mask. The functions compute all 32
// lanes; the caller blends inactive ones back. They are compiled twice, for x86-64 and for AVX2 +
// FMA, and chosen at run time; both give the same bits. Rounding modes of f32 and f64 and .ftz are
// the SSE control register's (fp_mode), which the caller sets.
//
// Thread rules: pure functions.
#pragma once

#include "emulator/integers.h"
#include "emulator/model/numeric.h"
#include "emulator/ptx/ast.h"

namespace attnjit::emulator {

/// d: the destination (may be one of the sources); s: the sources; imm: see LaneOp. Returns the
/// lane mask for operations whose result is a predicate, else 0.
using LaneFn = u32 (*)(void* d, const void* const* s, u64 imm);

enum class LaneOp : u8 {
  kAdd,
  kSub,
  kMulLo,
  kMulHi,
  kMulWide,
  kMadLo,
  kMadHi,
  kMadWide,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kSad,
  kMul24Lo,
  kMul24Hi,
  kBfe,
  kBfi,
  kPopc,
  kClz,
  kBrev,
  kBfind,
  kBfindShift,
  kFns,
  kBmskClamp,
  kBmskWrap,
  kSzextClamp,
  kSzextWrap,
  kPrmt,  ///< imm: mode, 0 default, 1 f4e, 2 b4e, 3 rc8, 4 ecl, 5 ecr, 6 rc16
  kLop3,  ///< imm: table
  kShfLeftWrap,
  kShfLeftClamp,
  kShfRightWrap,
  kShfRightClamp,
  kDp4a,
  kDp2aLo,
  kDp2aHi,
  kMov,
  kSelp,
  kFma,
  kRcp,
  kSqrt,
  kRsqrt,
  kEx2,
  kLg2,
  kSin,
  kCos,
  kTanh,
  kCopysign,
  kRcpApprox,
  kSqrtApprox,
  kDivApprox,
  kMin3,
  kMax3,
  kTestp,  ///< imm: 0 finite 1 infinite 2 number 3 notanumber 4 normal 5 subnormal
  kSetp,
  kSetpResult,  ///< s[0]: lane mask; imm: the true value of `set` in 32 bits
  kConvert,
  kNarrow64,  ///< low 32 bits of 64
  kWiden32,   ///< 32 to 64, zeros above
  kPack2x32,
  kPack2x16,
  kPack2x64,
  kUnpackLow,
  kUnpackHigh,
  kMixedAdd,
  kMixedSub,
  kMixedFma,  ///< f32 with f16 or bf16 operands
};

enum class Compare : u8 {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,
  kLs,
  kHi,
  kHs,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};

/// The flags that imm holds: the decoder sets them and the lane function reads them. Others than
/// these are described at their LaneOp.
namespace lane_flags {
// Arithmetic of f16 and bf16; kSaturate also of mixed precision and of conversions to f32, kFlush
// of f32 to f64.
inline constexpr u64 kSaturate = 1;
inline constexpr u64 kRelu = 2;
inline constexpr u64 kFlush = 4;
inline constexpr u64 kPropagateNan = 8;
inline constexpr u64 kXorSign = 16;
// kSetp of f16 and bf16: the Compare in the low byte, kFlush moved above it.
inline constexpr u64 kCompareMask = 0xFF;
inline constexpr u64 kHighHalves = 0x100;  ///< compares the high halves
inline constexpr int kSetpShift = 16;      ///< of kFlush
// kConvert between integers: the result's bits in the low byte.
inline constexpr u64 kBitsMask = 0xFF;
inline constexpr u64 kSaturateUnsigned = 0x100;
inline constexpr u64 kSaturateSigned = 0x200;
// kDp4a, kDp2aLo, kDp2aHi: which operands are signed.
inline constexpr u64 kSignedA = 1;
inline constexpr u64 kSignedB = 2;
}  // namespace lane_flags

/// What a lane function is asked to do.
struct LaneRequest {
  LaneOp op = LaneOp::kMov;
  Type type = Type::kB32;     ///< of the operation (cvt: of the result)
  Type source = Type::kNone;  ///< cvt, set, slct, mixed precision: of the source
  Compare compare = Compare::kEq;
  Rounding rounding = Rounding::kNearestEven;  ///< kConvert
  bool integer_rounding = false;               ///< kConvert: .rni, .rzi, .rmi, .rpi
  bool ftz = false;       ///< where the control register cannot do it (f16, bf16, conversions)
  bool saturate = false;  ///< .sat
  bool satfinite = false;
  bool relu = false;
  bool nan = false;        ///< min, max: .NaN
  bool xorsign = false;    ///< min, max: .xorsign.abs
  bool magnitude = false;  ///< min, max: .abs
};

/// The function for a request, or nullptr if there is none of that type. The version for this CPU.
LaneFn select_lane(const LaneRequest& request);
/// As select_lane, the portable version: for tests.
LaneFn select_lane_baseline(const LaneRequest& request);
/// As select_lane; nullptr where the CPU has no AVX2 and FMA.
LaneFn select_lane_avx2(const LaneRequest& request);
bool cpu_has_avx2();

/// cvt of one value, bit by bit: what kConvert uses for the rarer pairs of types, and the
/// reference for the fast ones. `bits` is zero-extended; so is the result.
u64 convert_scalar(const LaneRequest& request, u64 bits);

/// The SSE control register for a rounding mode and .ftz, exceptions masked.
constexpr u32 fp_mode(Rounding rounding, bool ftz) {
  u32 mode = 0x1F80;
  if (ftz) mode |= 0x8040;
  if (rounding == Rounding::kDown) mode |= 0x2000;
  if (rounding == Rounding::kUp) mode |= 0x4000;
  if (rounding == Rounding::kTowardZero) mode |= 0x6000;
  return mode;
}
inline constexpr u32 kDefaultFpMode = 0x1F80;

}  // namespace attnjit::emulator
