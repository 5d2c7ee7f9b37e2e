// SPDX-License-Identifier: Apache-2.0
// Checks a tensor map's description and encodes it with cuTensorMapEncodeTiled.
#include "driver/tensor_map.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <string>

namespace attnjit {
namespace {

constexpr std::size_t kMaxRank = 5;

int type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return cuda::kMapBf16;
    case Dtype::kFp16:
      return cuda::kMapF16;
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kI8:
    case Dtype::kU8:
      return cuda::kMapU8;
    case Dtype::kI16:
    case Dtype::kU16:
      return cuda::kMapU16;
    case Dtype::kF32:
      return cuda::kMapF32;
    case Dtype::kF64:
      return cuda::kMapF64;
    case Dtype::kI32:
      return cuda::kMapI32;
    case Dtype::kU32:
      return cuda::kMapU32;
    case Dtype::kI64:
      return cuda::kMapI64;
    case Dtype::kU64:
      return cuda::kMapU64;
    case Dtype::kBits:
      break;
  }
  return -1;
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::kBf16 || dtype == Dtype::kFp16 || dtype == Dtype::kF32 ||
         dtype == Dtype::kF64;
}

int swizzle_of(int bytes) {
  switch (bytes) {
    case 32:
      return cuda::kSwizzle32B;
    case 64:
      return cuda::kSwizzle64B;
    case 128:
      return cuda::kSwizzle128B;
    default:
      return cuda::kSwizzleNone;
  }
}

int l2_promotion_of(int bytes) {
  switch (bytes) {
    case 64:
      return cuda::kL2Promotion64B;
    case 128:
      return cuda::kL2Promotion128B;
    case 256:
      return cuda::kL2Promotion256B;
    default:
      return cuda::kL2PromotionNone;
  }
}

}  // namespace

Status check_tensor_map(const TensorMapDescription& map) {
  const auto bad = [&](const std::string& what) -> Status {
    return make_error(ErrorCode::kInvalid, fmt::format("tensor map {}: {}", map.name, what),
                      map.buffer);
  };
  const std::size_t rank = map.dims.size();
  const auto element = static_cast<std::uint64_t>(size_of(map.dtype));
  if (rank < 1 || rank > kMaxRank) return bad(fmt::format("rank {} is not in 1..5", rank));
  if (map.strides.size() != rank - 1 || map.box.size() != rank ||
      (!map.element_strides.empty() && map.element_strides.size() != rank)) {
    return bad(fmt::format("rank {} with {} strides, {} box sizes and {} element strides", rank,
                           map.strides.size(), map.box.size(), map.element_strides.size()));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    if (map.dims[i] < 1 || map.dims[i] > (std::uint64_t{1} << 32)) {
      return bad(fmt::format("dimension {} of {} is not in 1..2^32", i, map.dims[i]));
    }
    if (map.box[i] < 1 || map.box[i] > 256) {
      return bad(fmt::format("box size {} of dimension {} is not in 1..256", map.box[i], i));
    }
    const std::uint32_t step = map.element_strides.empty() ? 1 : map.element_strides[i];
    if (step < 1 || step > 8) {
      return bad(fmt::format("element stride {} of dimension {} is not in 1..8", step, i));
    }
  }
  for (std::size_t i = 0; i + 1 < rank; ++i) {
    if (map.strides[i] % 16 != 0 || map.strides[i] >= (std::uint64_t{1} << 40)) {
      return bad(fmt::format("stride {} of dimension {} is not a multiple of 16 below 2^40 bytes",
                             map.strides[i], i + 1));
    }
  }
  const std::uint64_t inner = map.box[0] * element;
  if (inner % 16 != 0) {
    return bad(fmt::format("the box's inner {} bytes are not a multiple of 16", inner));
  }
  if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128) {
    return bad(fmt::format("swizzle {} is not 0, 32, 64 or 128", map.swizzle));
  }
  if (map.swizzle != 0 && inner > static_cast<std::uint64_t>(map.swizzle)) {
    return bad(
        fmt::format("the box's inner {} bytes exceed the swizzle of {}", inner, map.swizzle));
  }
  if (map.l2_bytes != 0 && map.l2_bytes != 64 && map.l2_bytes != 128 && map.l2_bytes != 256) {
    return bad(fmt::format("l2_bytes {} is not 0, 64, 128 or 256", map.l2_bytes));
  }
  if (map.oob == TensorMapDescription::OutOfBounds::kNan && !is_float(map.dtype)) {
    return bad(fmt::format("NaN fill of {}", to_string(map.dtype)));
  }
  return {};
}

Status encode_tensor_map(const CudaApi& api, const TensorMapDescription& map, DevicePointer address,
                         cuda::TensorMap& out) {
  std::array<std::uint32_t, kMaxRank> ones{1, 1, 1, 1, 1};
  const cuda::Result code = api.TensorMapEncodeTiled(
      &out, type_of(map.dtype), static_cast<std::uint32_t>(map.dims.size()),
      std::bit_cast<void*>(address), map.dims.data(), map.strides.data(), map.box.data(),
      map.element_strides.empty() ? ones.data() : map.element_strides.data(), cuda::kInterleaveNone,
      swizzle_of(map.swizzle), l2_promotion_of(map.l2_bytes),
      map.oob == TensorMapDescription::OutOfBounds::kNan ? cuda::kOobNan : cuda::kOobZero);
  if (code != cuda::kSuccess) {
    return cuda_error(api, code, fmt::format("cuTensorMapEncodeTiled({})", map.name));
  }
  return {};
}

}  // namespace attnjit
