// SPDX-License-Identifier: Apache-2.0
// The emulator's own tensor maps: their 128 bytes, the rules of cuTensorMapEncodeTiled, and the
// walk over a box.
//
// The layout of the 128 bytes is private to the emulator, as the driver's is to the driver.
// Sources: cuda.h above cuTensorMapEncodeTiled; PTX ISA 9.1, sections 5.5 and 9.7.9.25-27. Pure
// functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "attnjit/launch.h"
#include "emulator/model/swizzle.h"

namespace attnjit::emulator {

inline constexpr std::size_t kTensorMapBytes = 128;
inline constexpr std::size_t kTensorMapAlignment = 64;

/// CUtensorMapDataType's values.
enum class TensorMapType : std::uint8_t {
  kU8,
  kU16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kF32,
  kF64,
  kBf16,
  kF32Ftz,
  kTf32,
  kTf32Ftz,
  kU4Align8,
  kU4Align16,
  kU6Align16,
};

struct TensorMap {
  TensorMapType type = TensorMapType::kU8;
  int rank = 1;
  std::uint64_t address = 0;               ///< global
  std::array<std::uint64_t, 5> dims{};     ///< elements, innermost first
  std::array<std::uint64_t, 5> strides{};  ///< bytes; [0] is unused
  std::array<std::uint32_t, 5> box{};      ///< elements
  std::array<std::uint32_t, 5> element_strides{};
  Swizzle swizzle = Swizzle::kNone;
  bool oob_nan = false;

  /// Bytes an element takes in shared memory (the 16-element packed types: a sixteenth of 16
  /// bytes).
  int element_bytes() const;
  /// Elements of dimension i that a box holds: ceil(box / element stride) (dimension 0: box).
  std::uint32_t box_elements(int i) const;
  /// Bytes that a tiled copy writes to shared memory and reports to its mbarrier, out-of-bounds
  /// ones included.
  std::uint32_t box_bytes() const;
};

/// A map from a recipe's description at a global address. An empty optional fills `error`.
std::optional<TensorMap> make_tensor_map(const TensorMapDescription& description,
                                         std::uint64_t buffer_address, std::string* error);

/// Empty, or the rule of cuTensorMapEncodeTiled that a map breaks.
std::string check_tensor_map(const TensorMap& map);

using TensorMapBytes = std::array<std::byte, kTensorMapBytes>;
TensorMapBytes encode_tensor_map(const TensorMap& map);
/// Nothing if the bytes are not a tensor map (uninitialised or overwritten memory).
std::optional<TensorMap> decode_tensor_map(const std::byte* bytes);
/// The same for a map that a kernel makes field by field with tensormap.replace: its fields may
/// still break rules, and 128 zero bytes are an empty one (Triton and CUTLASS begin there).
std::optional<TensorMap> decode_partial_tensor_map(const std::byte* bytes);

/// The fields that tensormap.replace changes (PTX ISA 9.7.9.28).
enum class TensorMapField : std::uint8_t {
  kGlobalAddress,
  kRank,
  kBoxDim,
  kGlobalDim,
  kGlobalStride,
  kElementStride,
  kElemType,
  kInterleaveLayout,
  kSwizzleMode,
  kSwizzleAtomicity,
  kFillMode,
};
/// nullptr, or why the value is not one of the field's. `ordinal`: which dimension, where the field
/// has one.
const char* replace_field(TensorMap* map, TensorMapField field, int ordinal, std::uint64_t value);

/// The byte at an offset of an element run that NaN fill writes: 0x7FF7 every 16 bits, whatever the
/// float type (seen on an H200; the ISA says only "a special NaN").
constexpr std::uint8_t nan_fill_byte(std::uint32_t offset) { return offset % 2 == 0 ? 0xF7 : 0x7F; }

/// What a copy does with a box: a store clips the innermost dimension to whole 16-byte granules
/// only, so that an extent that is no multiple of 16 bytes has its padding overwritten (seen on an
/// H200; every other dimension, and loads, clip exactly).
enum class BoxUse : std::uint8_t { kLoad, kStore };

/// Bytes of the innermost start coordinate must be a multiple of this; the GPU faults otherwise
/// (seen on an H200 as an illegal instruction, for loads, stores and reductions; element counts do
/// not matter).
inline constexpr std::int64_t kInnerStartAlignment = 16;

/// One run of a box along its innermost dimension.
struct BoxRow {
  std::uint32_t shared_offset = 0;  ///< bytes from the tile's begin, before the swizzle
  std::uint32_t bytes = 0;          ///< of the whole run in shared memory
  std::int64_t global_offset = 0;   ///< bytes from the map's address of the first in-bounds element
  std::uint32_t first_valid = 0;    ///< bytes of the run before the first in-bounds element
  std::uint32_t valid = 0;  ///< in-bounds bytes; the rest is filled on loads, skipped on stores
};

/// Calls visit(BoxRow) for each run of the box at `coordinates` (elements, innermost first, may be
/// out of bounds). gather4/scatter4: a map of rank 2 whose four rows are coordinates[1..4].
template <class Visit>
void for_each_box_row(const TensorMap& map, const std::array<std::int32_t, 5>& coordinates,
                      bool gather4, BoxUse use, Visit&& visit) {
  const auto element = static_cast<std::int64_t>(map.element_bytes());
  const auto width = static_cast<std::int64_t>(map.box[0]);
  auto extent = static_cast<std::int64_t>(map.dims[0]);
  if (use == BoxUse::kStore) extent = (extent * element + 15) / 16 * 16 / element;
  const std::int64_t c0 = coordinates[0];
  const std::int64_t low = c0 < 0 ? (-c0 < width ? -c0 : width) : 0;
  std::int64_t high = extent - c0;
  high = high < low ? low : high > width ? width : high;

  // NOTE: under a swizzle a narrower inner box leaves holes: each run begins a row of the pattern
  // (seen on an H200).
  const std::uint32_t pitch = map.swizzle == Swizzle::kNone
                                  ? static_cast<std::uint32_t>(width * element)
                                  : swizzle_span(map.swizzle);

  std::array<std::uint32_t, 5> count{1, 1, 1, 1, 1};
  for (int i = 1; i < map.rank; ++i) count[i] = map.box_elements(i);
  if (gather4) count[1] = 4;
  std::uint32_t run = 0;
  std::array<std::uint32_t, 5> index{};
  for (index[4] = 0; index[4] < count[4]; ++index[4]) {
    for (index[3] = 0; index[3] < count[3]; ++index[3]) {
      for (index[2] = 0; index[2] < count[2]; ++index[2]) {
        for (index[1] = 0; index[1] < count[1]; ++index[1], ++run) {
          bool inside = high > low;
          std::int64_t offset = (c0 + low) * element;
          for (int i = 1; i < map.rank; ++i) {
            const std::int64_t c = gather4 ? coordinates[1 + index[1]]
                                           : coordinates[i] + static_cast<std::int64_t>(index[i]) *
                                                                  map.element_strides[i];
            inside = inside && c >= 0 && c < static_cast<std::int64_t>(map.dims[i]);
            offset += c * static_cast<std::int64_t>(map.strides[i]);
          }
          BoxRow row;
          row.bytes = static_cast<std::uint32_t>(width * element);
          row.shared_offset = run * pitch;
          row.global_offset = inside ? offset : 0;
          row.first_valid = inside ? static_cast<std::uint32_t>(low * element) : 0;
          row.valid = inside ? static_cast<std::uint32_t>((high - low) * element) : 0;
          visit(row);
        }
      }
    }
  }
}

}  // namespace attnjit::emulator
