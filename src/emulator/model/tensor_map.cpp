// SPDX-License-Identifier: Apache-2.0
// Makes, checks, encodes and decodes tensor maps, and replaces single fields of them.
#include "emulator/model/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace attnjit::emulator {
namespace {

constexpr std::uint32_t kMagic = 0x4D545441;  // "ATTM"

constexpr std::array<int, 13> kElementBytes{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/// tensormap.replace's element types: not the order of CUtensorMapDataType (PTX ISA 9.7.9.28, table
/// 34).
constexpr std::array kReplaceTypes{
    TensorMapType::kU8,     TensorMapType::kU16, TensorMapType::kU32,  TensorMapType::kI32,
    TensorMapType::kU64,    TensorMapType::kI64, TensorMapType::kF16,  TensorMapType::kF32,
    TensorMapType::kF32Ftz, TensorMapType::kF64, TensorMapType::kBf16, TensorMapType::kTf32,
    TensorMapType::kTf32Ftz};

std::optional<TensorMapType> type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return TensorMapType::kBf16;
    case Dtype::kFp16:
      return TensorMapType::kF16;
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kI8:
    case Dtype::kU8:
      return TensorMapType::kU8;
    case Dtype::kI16:
    case Dtype::kU16:
      return TensorMapType::kU16;
    case Dtype::kF32:
      return TensorMapType::kF32;
    case Dtype::kF64:
      return TensorMapType::kF64;
    case Dtype::kI32:
      return TensorMapType::kI32;
    case Dtype::kU32:
      return TensorMapType::kU32;
    case Dtype::kI64:
      return TensorMapType::kI64;
    case Dtype::kU64:
      return TensorMapType::kU64;
    case Dtype::kBits:
      break;
  }
  return std::nullopt;
}

bool is_float(TensorMapType type) {
  return type >= TensorMapType::kF16 && type <= TensorMapType::kTf32Ftz;
}

bool is_packed(TensorMapType type) { return type >= TensorMapType::kU4Align8; }

/// The stored form: fixed offsets, so that two encodings of one map are the same bytes.
struct Stored {
  std::uint32_t magic;
  std::uint8_t type, rank, swizzle, oob_nan;
  std::uint64_t address;
  // NOTE: dims are stored minus one: 2^32 is a legal extent.
  std::uint32_t dims_minus_1[5];
  std::uint32_t strides_16[4];  // in units of 16 bytes: below 2^40
  std::uint16_t box_minus_1[5];
  std::uint8_t element_strides[5];
  std::uint8_t reserved[61];
};
static_assert(sizeof(Stored) == kTensorMapBytes);

}  // namespace

int TensorMap::element_bytes() const {
  return is_packed(type) ? 1 : kElementBytes[static_cast<std::size_t>(type)];
}

std::uint32_t TensorMap::box_elements(int i) const {
  return i == 0 ? box[0] : (box[i] + element_strides[i] - 1) / element_strides[i];
}

std::uint32_t TensorMap::box_bytes() const {
  std::uint32_t bytes = static_cast<std::uint32_t>(element_bytes());
  for (int i = 0; i < rank; ++i) bytes *= box_elements(i);
  return bytes;
}

std::string check_tensor_map(const TensorMap& map) {
  if (is_packed(map.type)) return "packed 4- and 6-bit tensor maps are not modelled";
  if (map.rank < 1 || map.rank > 5) return fmt::format("rank is {}; allowed: 1 to 5", map.rank);
  if (map.address % 16 != 0) {
    return fmt::format("the global address 0x{:x} is not a multiple of 16", map.address);
  }
  const auto element = static_cast<std::uint64_t>(map.element_bytes());
  for (int i = 0; i < map.rank; ++i) {
    if (map.dims[i] < 1 || map.dims[i] > (std::uint64_t{1} << 32)) {
      return fmt::format("dims[{}] is {}; allowed: 1 to 2^32", i, map.dims[i]);
    }
    if (map.box[i] < 1 || map.box[i] > 256) {
      return fmt::format("box[{}] is {}; allowed: 1 to 256", i, map.box[i]);
    }
    if (map.element_strides[i] < 1 || map.element_strides[i] > 8) {
      return fmt::format("element_strides[{}] is {}; allowed: 1 to 8", i, map.element_strides[i]);
    }
    if (i > 0 && (map.strides[i] % 16 != 0 || map.strides[i] >= (std::uint64_t{1} << 40))) {
      return fmt::format(
          "the stride of dimension {} is {} bytes; allowed: multiples of 16 below 2^40", i,
          map.strides[i]);
    }
  }
  const std::uint64_t inner = map.box[0] * element;
  if (inner % 16 != 0) {
    return fmt::format("the box's inner dimension is {} bytes; allowed: multiples of 16", inner);
  }
  if (map.swizzle != Swizzle::kNone && inner > swizzle_span(map.swizzle)) {
    return fmt::format("the box's inner dimension is {} bytes; a {}-byte swizzle allows {}", inner,
                       swizzle_span(map.swizzle), swizzle_span(map.swizzle));
  }
  if (map.oob_nan && !is_float(map.type)) return "NaN fill is for floating-point types only";
  return {};
}

std::optional<TensorMap> make_tensor_map(const TensorMapDescription& d,
                                         std::uint64_t buffer_address, std::string* error) {
  TensorMap map;
  const auto type = type_of(d.dtype);
  const std::size_t rank = d.dims.size();
  if (!type || rank < 1 || rank > 5 || d.strides.size() + 1 != rank || d.box.size() != rank ||
      (!d.element_strides.empty() && d.element_strides.size() != rank)) {
    *error =
        "dims, box and element_strides need one entry a dimension (1 to 5), and strides one less";
    return std::nullopt;
  }
  map.type = *type;
  map.rank = static_cast<int>(rank);
  map.address = buffer_address + static_cast<std::uint64_t>(d.offset);
  for (std::size_t i = 0; i < rank; ++i) {
    map.dims[i] = d.dims[i];
    map.box[i] = d.box[i];
    map.element_strides[i] = d.element_strides.empty() ? 1 : d.element_strides[i];
    if (i > 0) map.strides[i] = d.strides[i - 1];
  }
  switch (d.swizzle) {
    case 0:
      map.swizzle = Swizzle::kNone;
      break;
    case 32:
      map.swizzle = Swizzle::k32B;
      break;
    case 64:
      map.swizzle = Swizzle::k64B;
      break;
    case 128:
      map.swizzle = Swizzle::k128B;
      break;
    default:
      *error = fmt::format("swizzle is {}; allowed: 0, 32, 64, 128", d.swizzle);
      return std::nullopt;
  }
  map.oob_nan = d.oob == TensorMapDescription::OutOfBounds::kNan;
  std::string problem = check_tensor_map(map);
  if (!problem.empty()) {
    *error = std::move(problem);
    return std::nullopt;
  }
  return map;
}

TensorMapBytes encode_tensor_map(const TensorMap& map) {
  Stored stored{};
  stored.magic = kMagic;
  stored.type = static_cast<std::uint8_t>(map.type);
  stored.rank = static_cast<std::uint8_t>(map.rank);
  stored.swizzle = static_cast<std::uint8_t>(map.swizzle);
  stored.oob_nan = map.oob_nan ? 1 : 0;
  stored.address = map.address;
  for (int i = 0; i < 5; ++i) {
    stored.dims_minus_1[i] = static_cast<std::uint32_t>(map.dims[i] - 1);
    stored.box_minus_1[i] = static_cast<std::uint16_t>(map.box[i] - 1);
    stored.element_strides[i] = static_cast<std::uint8_t>(map.element_strides[i]);
    if (i > 0) stored.strides_16[i - 1] = static_cast<std::uint32_t>(map.strides[i] / 16);
  }
  TensorMapBytes bytes;
  std::memcpy(bytes.data(), &stored, sizeof stored);
  return bytes;
}

std::optional<TensorMap> decode_partial_tensor_map(const std::byte* bytes) {
  if (std::all_of(bytes, bytes + kTensorMapBytes, [](std::byte b) { return b == std::byte{0}; })) {
    return TensorMap{};
  }
  Stored stored;
  std::memcpy(&stored, bytes, sizeof stored);
  if (stored.magic != kMagic || stored.rank < 1 || stored.rank > 5 ||
      stored.type > static_cast<std::uint8_t>(TensorMapType::kU6Align16) ||
      stored.swizzle > static_cast<std::uint8_t>(Swizzle::k128BAtom64B)) {
    return std::nullopt;
  }
  TensorMap map;
  map.type = static_cast<TensorMapType>(stored.type);
  map.rank = stored.rank;
  map.address = stored.address;
  map.swizzle = static_cast<Swizzle>(stored.swizzle);
  map.oob_nan = stored.oob_nan != 0;
  for (int i = 0; i < 5; ++i) {
    map.dims[i] = std::uint64_t{stored.dims_minus_1[i]} + 1;
    map.box[i] = std::uint32_t{stored.box_minus_1[i]} + 1;
    map.element_strides[i] = stored.element_strides[i];
    if (i > 0) map.strides[i] = std::uint64_t{stored.strides_16[i - 1]} * 16;
  }
  return map;
}

std::optional<TensorMap> decode_tensor_map(const std::byte* bytes) {
  std::optional<TensorMap> map = decode_partial_tensor_map(bytes);
  if (map && !check_tensor_map(*map).empty()) return std::nullopt;
  return map;
}

const char* replace_field(TensorMap* map, TensorMapField field, int ordinal, std::uint64_t value) {
  const bool per_dimension =
      field == TensorMapField::kBoxDim || field == TensorMapField::kGlobalDim ||
      field == TensorMapField::kGlobalStride || field == TensorMapField::kElementStride;
  if (per_dimension && (ordinal < 0 || ordinal > 4)) return "the ordinal is not in 0..4";
  switch (field) {
    case TensorMapField::kGlobalAddress:
      map->address = value;
      return nullptr;
    case TensorMapField::kRank:
      // NOTE: the operand is the rank minus one (PTX ISA 9.7.9.28).
      if (value > 4) return "the rank operand is not in 0..4 (it is the rank minus one)";
      map->rank = static_cast<int>(value) + 1;
      return nullptr;
    case TensorMapField::kBoxDim:
      map->box[ordinal] = static_cast<std::uint32_t>(value);
      return nullptr;
    case TensorMapField::kGlobalDim:
      map->dims[ordinal] = value;
      return nullptr;
    case TensorMapField::kGlobalStride:
      if (ordinal > 3) return "the ordinal of a global stride is not in 0..3";
      map->strides[ordinal + 1] = value;
      return nullptr;
    case TensorMapField::kElementStride:
      map->element_strides[ordinal] = static_cast<std::uint32_t>(value);
      return nullptr;
    case TensorMapField::kElemType:
      if (value >= kReplaceTypes.size())
        return "the element type is not one that is modelled (0..12)";
      map->type = kReplaceTypes[value];
      return nullptr;
    case TensorMapField::kInterleaveLayout:
      return value == 0 ? nullptr : "interleaved layouts are not modelled";
    case TensorMapField::kSwizzleMode: {
      static constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B,
                                           Swizzle::k128B};
      if (value > 3) return "the swizzle mode is not in 0..3";
      map->swizzle = kModes[value];
      return nullptr;
    }
    case TensorMapField::kSwizzleAtomicity:
      if (map->swizzle == Swizzle::kNone)
        return value == 0 ? nullptr : "atomicity without a swizzle";
      if (value == 0)
        map->swizzle = map->swizzle == Swizzle::k32B || map->swizzle == Swizzle::k64B
                           ? map->swizzle
                           : Swizzle::k128B;
      else if (value == 1)
        map->swizzle = Swizzle::k128BAtom32B;
      else if (value == 3)
        map->swizzle = Swizzle::k128BAtom64B;
      else
        return "this swizzle atomicity is not modelled";
      return nullptr;
    case TensorMapField::kFillMode:
      if (value > 1) return "the fill mode is neither 0 nor 1";
      map->oob_nan = value == 1;
      return nullptr;
  }
  return "unknown field";
}

}  // namespace attnjit::emulator
