// SPDX-License-Identifier: Apache-2.0
// Rows of absorbed MLA's K in the format dsv32: 512 e4m3, 4 f32 that 128 of them each are
// multiplied with, 64 bf16 of the rope. The format is said here apart from the kernels'
// templates/mla/widening.cuh on purpose, so that a slip in one of them is found.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>

#include "verify/tensor.h"

namespace attnjit::verify {

/// Packs the rows of `k`, f32 [.., 576]: u8 [.., 656]. A scale is 448th of its part's largest
/// element, so that every number of e4m3 is used; 1 where all are 0. `v`, f32 [.., 512], becomes
/// what the latent part then is. A row with a NaN is NaN in all that it has.
Tensor pack_dsv32(const Tensor& k, Tensor& v);

/// The 576 elements of a row: those of the latent part as bf16, to which a product with a scale is
/// rounded.
void load_dsv32(const Tensor& packed, std::int64_t row, double* out);

}  // namespace attnjit::verify
