// SPDX-License-Identifier: Apache-2.0
// The table of what others call the element types.
#include "base/dtype_names.h"

#include <string>

namespace attnjit {
namespace {

struct OtherName {
  std::string_view name;
  Dtype dtype;
};
constexpr OtherName kOtherNames[] = {
    {"bfloat16", Dtype::kBf16}, {"bfloat", Dtype::kBf16},     {"float16", Dtype::kFp16},
    {"half", Dtype::kFp16},     {"fp8", Dtype::kE4m3},        {"f8", Dtype::kE4m3},
    {"float8", Dtype::kE4m3},   {"float8e4m3", Dtype::kE4m3}, {"float8e4m3fn", Dtype::kE4m3},
    {"fp8e4m3", Dtype::kE4m3},  {"fp8e4m3fn", Dtype::kE4m3},  {"f8e4m3", Dtype::kE4m3},
    {"f8e4m3fn", Dtype::kE4m3}, {"e4m3fn", Dtype::kE4m3},     {"float8e5m2", Dtype::kE5m2},
    {"fp8e5m2", Dtype::kE5m2},  {"f8e5m2", Dtype::kE5m2},     {"float32", Dtype::kF32},
    {"float", Dtype::kF32},     {"fp32", Dtype::kF32},        {"single", Dtype::kF32},
    {"float64", Dtype::kF64},   {"double", Dtype::kF64},      {"fp64", Dtype::kF64},
    {"int8", Dtype::kI8},       {"uint8", Dtype::kU8},        {"byte", Dtype::kU8},
    {"bool", Dtype::kU8},       {"boolean", Dtype::kU8},      {"int16", Dtype::kI16},
    {"uint16", Dtype::kU16},    {"int32", Dtype::kI32},       {"int", Dtype::kI32},
    {"uint32", Dtype::kU32},    {"int64", Dtype::kI64},       {"long", Dtype::kI64},
    {"uint64", Dtype::kU64},
};

}  // namespace

std::optional<Dtype> dtype_called(std::string_view name) {
  if (name.size() > 40) return std::nullopt;
  // Behind a module's name ("torch.half"), in small letters, without what separates the parts.
  const std::size_t dot = name.rfind('.');
  if (dot != std::string_view::npos) name.remove_prefix(dot + 1);
  std::string plain;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const OtherName& other : kOtherNames) {
    if (other.name == plain) return other.dtype;
  }
  return dtype_from_string(plain);
}

}  // namespace attnjit
