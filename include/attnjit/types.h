// SPDX-License-Identifier: Apache-2.0
// The element types and GPU architectures that attnjit knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attnjit/export.h"

namespace attnjit {

/// Element types of tensors and parameters, with their names in JSON.
enum class Dtype : std::uint8_t {
  kBf16,  ///< "bf16"
  kFp16,  ///< "fp16" ("f16" is read too)
  kE4m3,  ///< "e4m3" (FP8, finite, max 448)
  kE5m2,  ///< "e5m2"
  kF32,   ///< "f32"
  kF64,   ///< "f64"
  kI8,    ///< "i8"
  kU8,    ///< "u8"
  kI16,   ///< "i16"
  kU16,   ///< "u16"
  kI32,   ///< "i32"
  kU32,   ///< "u32"
  kI64,   ///< "i64"
  kU64,   ///< "u64"
  kBits,  ///< "bits": bools, eight in a byte, the first in its lowest bit
};

ATTNJIT_EXPORT std::string_view to_string(Dtype dtype);
ATTNJIT_EXPORT std::optional<Dtype> dtype_from_string(std::string_view name);
/// Bytes per element; of bits, per eight of them.
ATTNJIT_EXPORT int size_of(Dtype dtype);

/// GPU architectures, exact: a cubin for sm_100a runs on nothing else.
enum class Arch : std::uint8_t { kSm90a, kSm100a, kSm103a };

/// "sm_90a", "sm_100a", "sm_103a".
ATTNJIT_EXPORT std::string_view to_string(Arch arch);
ATTNJIT_EXPORT std::optional<Arch> arch_from_string(std::string_view name);

}  // namespace attnjit
