// SPDX-License-Identifier: Apache-2.0
// Tensor maps: from the recipe's plain description to what TMA reads.
//
// Source: CUDA Driver API, cuTensorMapEncodeTiled. Thread rules: any thread.
#pragma once

#include "attnjit/driver.h"
#include "attnjit/launch.h"
#include "driver/cuda_api.h"

namespace attnjit {

/// Everything that cuTensorMapEncodeTiled demands of a description, so that an error can say which
/// demand failed (the driver says CUDA_ERROR_INVALID_VALUE to them all). Errors: kInvalid, with the
/// buffer as its field.
Status check_tensor_map(const TensorMapDescription& map);

/// Encodes a checked description of the memory at `address` (the view's first element, aligned to
/// 16 bytes). Errors: kDriver.
Status encode_tensor_map(const CudaApi& api, const TensorMapDescription& map, DevicePointer address,
                         cuda::TensorMap& out);

}  // namespace attnjit
