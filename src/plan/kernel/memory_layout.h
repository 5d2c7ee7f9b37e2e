// SPDX-License-Identifier: Apache-2.0
// MemoryLayout and BarrierList: ranges of shared or tensor memory, one behind another, and
// mbarriers, of which each says what it is for.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

/// What a range is for, in whichever family.
enum class Region : std::uint8_t {
  kQ,
  kK,
  kV,
  kKv,  ///< a ring that K and V share
  kRawK,
  kRawV,
  kKRope,
  kS,
  kP,
  kO,
  kOnes,
  kKeyScales,
  kCorrection,
  kListed,
  kCursors,
  kStash,
  kDescriptors,
  kRawWords,
  kWork,
  kTmemAddress,
  kBarriers,
};

/// A range of bytes of dynamic shared memory, whose start is 1024-aligned, or of columns of tensor
/// memory.
struct PlacedRegion {
  Region region{};
  std::string name;  ///< in memory maps
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t alignment = 1;
  int stage = 0;  ///< of a region that has one range for each
  bool operator==(const PlacedRegion&) const = default;
};

class MemoryLayout {
 public:
  /// Appends a range. One of no size is left out.
  void add(Region region, std::string name, std::int64_t size, std::int64_t alignment = 1,
           int stage = 0) {
    if (size <= 0) return;
    ranges_.push_back({region, std::move(name),
                       (end_of_last() + alignment - 1) / alignment * alignment, size, alignment,
                       stage});
  }
  /// A range for each stage, whose number stands in the name's braces.
  void add_stages(Region region, std::string_view name, int count, std::int64_t size) {
    for (int i = 0; i < count; ++i) add(region, fmt::format(fmt::runtime(name), i), size, 1, i);
  }

  /// Bytes or columns up to the end of the last range.
  std::int64_t end_of_last() const {
    return ranges_.empty() ? 0 : ranges_.back().begin + ranges_.back().size;
  }
  /// Where a stage's range of a region begins; `none` where there is none.
  std::int64_t begin_of(Region region, std::int64_t none = 0, int stage = 0) const {
    for (const PlacedRegion& range : ranges_) {
      if (range.region == region && range.stage == stage) return range.begin;
    }
    return none;
  }
  /// As a plan shows them.
  std::vector<MemoryRange> map() const {
    std::vector<MemoryRange> map;
    for (const PlacedRegion& range : ranges_) map.push_back({range.name, range.begin, range.size});
    return map;
  }

  auto begin() { return ranges_.begin(); }
  auto end() { return ranges_.end(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }
  std::size_t size() const { return ranges_.size(); }
  const PlacedRegion& front() const { return ranges_.front(); }
  const PlacedRegion& operator[](std::size_t i) const { return ranges_[i]; }
  bool operator==(const MemoryLayout&) const = default;

 private:
  std::vector<PlacedRegion> ranges_;
};

/// Columns of tensor memory that an allocation of so many takes: a power of two, 32 at least.
inline std::int64_t allocated_columns(std::int64_t used) {
  return std::max<std::int64_t>(
      32, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(used))));
}

/// Mbarriers in memory order. The kernel finds those of a group by the rank of the first.
class BarrierList {
 public:
  /// Those that follow are a group; `constant` is the Config member that holds where it begins.
  void start(const char* constant) { firsts_.emplace_back(constant, size()); }
  void add(std::string name, int arrivals) { all_.push_back({std::move(name), arrivals}); }
  /// A group of one barrier, or of `count`, whose number stands in the name's braces.
  void add_group(const char* constant, std::string_view name, int arrivals, int count = 1) {
    start(constant);
    for (int i = 0; i < count; ++i) add(fmt::format(fmt::runtime(name), i), arrivals);
  }

  const std::vector<BarrierPlan>& all() const { return all_; }
  std::int64_t size() const { return static_cast<std::int64_t>(all_.size()); }
  std::int64_t bytes() const { return 8 * size(); }
  /// Those that there are, in their order.
  std::vector<const char*> groups() const {
    std::vector<const char*> constants;
    for (const auto& [constant, first] : firsts_) constants.push_back(constant);
    return constants;
  }
  /// The rank of a group's first, however often it was started; -1 where there is none.
  std::int64_t first_of(std::string_view constant) const {
    for (const auto& [group, first] : firsts_) {
      if (group == constant) return first;
    }
    return -1;
  }

 private:
  std::vector<BarrierPlan> all_;
  std::vector<std::pair<const char*, std::int64_t>> firsts_;
};

}  // namespace attnjit
