// SPDX-License-Identifier: Apache-2.0
// What others call the element types, for hints.
//
// Thread rules: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "attnjit/types.h"

namespace attnjit {

/// The element type that PyTorch, NumPy, JAX, safetensors or a runtime's flag calls so: float16,
/// half, torch.bfloat16, fp8, float8_e4m3fn, F8_E5M2, int32. None of them is read as a type.
std::optional<Dtype> dtype_called(std::string_view name);

}  // namespace attnjit
