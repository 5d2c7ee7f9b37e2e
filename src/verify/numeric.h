// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the 16-bit and 8-bit types of attention, bit-exact.
#pragma once

#include <cstdint>

#include "verify/tensor.h"

namespace attnjit::verify {

// float to bits: round to nearest, ties to even, as PTX ISA "cvt" (.rn) does; NaN becomes the
// canonical NaN. fp16 overflows to infinity, e4m3 saturates to 448 (.satfinite).
std::uint16_t bf16_from_float(float value);
std::uint16_t fp16_from_float(float value);
std::uint8_t e4m3_from_float(float value);

// Bits to float: exact.
float float_from_bf16(std::uint16_t bits);
float float_from_fp16(std::uint16_t bits);
float float_from_e4m3(std::uint8_t bits);

/// True for bf16, fp16, e4m3 and f32: what round_to and the functions below take.
bool is_float_storage(Dtype dtype);

/// Writes element `index` of `tensor`, rounded to its dtype.
/// @pre is_float_storage(tensor.dtype)
void store_float(Tensor& tensor, std::int64_t index, float value);
float load_float(const Tensor& tensor, std::int64_t index);

/// Widens `count` elements, `first` on, to double. f64 is taken, too.
void load_doubles(const Tensor& tensor, std::int64_t first, std::int64_t count, double* out);

/// The same values as f32; other types are returned as they are.
Tensor widened(const Tensor& tensor);

/// Sets every element to NaN (floats) or to a pattern of 0xFF (others): what a kernel has not
/// written must show.
void poison(Tensor& tensor);

}  // namespace attnjit::verify
