// SPDX-License-Identifier: Apache-2.0
// D = A * B + C as the tensor cores compute it: exact products, one aligned truncating sum an
// instruction.
//
// Source of the numeric model: MMA-Sim (arXiv 2511.10909), validated by its authors on hardware.
// The PTX ISA promises only "at least single precision" in unspecified order (9.7.16.10). For each
// output: every product and the addend are aligned to the largest exponent among them, truncated
// toward zero to `fraction_bits` fractional bits, summed exactly, and the sum truncated to the
// output's precision.
//
// Thread rules: pure functions; a ProductOperand belongs to its caller and may be reused to avoid
// allocation.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/model/numeric.h"

namespace attnjit::emulator {

struct ProductModel {
  int fraction_bits = 25;    ///< kept of every aligned term
  int output_fraction = 23;  ///< kept of an f32 result
  bool f16_output = false;  ///< the result is an f16, rounded once from the exact sum; C is one too

  /// The same unit with an f16 accumulator.
  constexpr ProductModel with_f16_output() const { return {fraction_bits, output_fraction, true}; }
};
inline constexpr ProductModel kWgmmaF16{25, 23};  ///< and bf16, tf32
inline constexpr ProductModel kWgmmaFp8{13, 13};
inline constexpr ProductModel kTcgen05{25, 23};
inline constexpr ProductModel kTcgen05Mxf4{35, 23};
inline constexpr ProductModel kMmaSync{25, 23};

/// One operand of an instruction, decoded: `extent` rows (M or N) of `k` elements, as value and
/// unnormalised exponent. Stored [k][extent], so that the product runs along the extent.
struct ProductOperand {
  int extent = 0;
  int k = 0;
  std::vector<double> value;
  std::vector<std::int32_t> exponent;
  std::vector<std::uint8_t> finite;  ///< [extent]: every element of the row is

  void reset(int new_extent, int new_k);
  /// Sets an element from its code.
  void set(const FloatFormat& format, int row, int index_k, std::uint32_t code,
           bool negate = false);
  void set_value(int row, int index_k, double v, std::int32_t e) {
    value[static_cast<std::size_t>(index_k) * extent + row] = v;
    exponent[static_cast<std::size_t>(index_k) * extent + row] = e;
  }
};

/// d[m][n] = sum_k a[m][k] * b[n][k] + (c ? c[m][n] : 0); c and d are row-major, a.extent x
/// b.extent, and may be the same array. NaN results are 0x7FFFFFFF.
void tensor_product(const ProductModel& model, const ProductOperand& a, const ProductOperand& b,
                    const float* c, float* d);

/// mma.sync m16n8k32 of FP8 operands on Hopper: ptxas converts them to f16, multiplies the elements
/// whose k mod 4 is 0 or 1, then the others on top, and adds C in f32 at the end (SASS: two HMMA
/// and an FADD; bit-equal on an H200).
void mma_sync_fp8(const ProductOperand& a, const ProductOperand& b, const float* c, float* d);

/// The block-scaled form: element k of row m of A is scaled by a_scale[m][k / block], and B
/// likewise. Products inside a block of 16 sum exactly before they are scaled where `exact_blocks`
/// (the mxf4 kinds).
struct BlockScales {
  int block = 32;            ///< elements a scale factor
  std::vector<double> a, b;  ///< [row][k / block]
};
void scaled_tensor_product(const ProductModel& model, const ProductOperand& a,
                           const ProductOperand& b, const BlockScales& scales, bool exact_blocks,
                           const float* c, float* d);

/// s32 accumulation of 8-bit integers; wraps, or saturates once an instruction where asked.
void integer_product(const std::int32_t* a, const std::int32_t* b, int m, int n, int k,
                     bool saturate, const std::int32_t* c, std::int32_t* d);

}  // namespace attnjit::emulator
