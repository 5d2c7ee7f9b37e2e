// SPDX-License-Identifier: Apache-2.0
// Holds the names and sizes of element types, and the names of architectures.
#include "attnjit/types.h"

#include <array>

#include "base/in_order.h"

namespace attnjit {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  int size;
};

constexpr std::array kDtypes{DtypeRow{Dtype::kBf16, "bf16", 2}, DtypeRow{Dtype::kFp16, "fp16", 2},
                             DtypeRow{Dtype::kE4m3, "e4m3", 1}, DtypeRow{Dtype::kE5m2, "e5m2", 1},
                             DtypeRow{Dtype::kF32, "f32", 4},   DtypeRow{Dtype::kF64, "f64", 8},
                             DtypeRow{Dtype::kI8, "i8", 1},     DtypeRow{Dtype::kU8, "u8", 1},
                             DtypeRow{Dtype::kI16, "i16", 2},   DtypeRow{Dtype::kU16, "u16", 2},
                             DtypeRow{Dtype::kI32, "i32", 4},   DtypeRow{Dtype::kU32, "u32", 4},
                             DtypeRow{Dtype::kI64, "i64", 8},   DtypeRow{Dtype::kU64, "u64", 8},
                             DtypeRow{Dtype::kBits, "bits", 1}};

const DtypeRow& row(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)]; }

static_assert(in_order(kDtypes, &DtypeRow::dtype), "kDtypes is indexed by Dtype");

}  // namespace

std::string_view to_string(Dtype dtype) { return row(dtype).name; }

std::optional<Dtype> dtype_from_string(std::string_view name) {
  if (name == "f16") return Dtype::kFp16;
  for (const DtypeRow& candidate : kDtypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

int size_of(Dtype dtype) { return row(dtype).size; }

}  // namespace attnjit
