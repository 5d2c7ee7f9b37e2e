// SPDX-License-Identifier: Apache-2.0
// MemoryLayout: ranges of shared memory or of tensor memory, one behind another, of which each says
// what it is for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

/// A range of bytes of dynamic shared memory, whose start is 1024-aligned, or of columns of tensor
/// memory.
template <class Region>
struct PlacedRegion {
  Region region{};
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t alignment = 1;
  int stage = 0;  ///< of a region that has one range for each
  bool operator==(const PlacedRegion&) const = default;
};

template <class Region>
class MemoryLayout {
 public:
  /// Appends a range. One of no size is left out.
  void add(Region region, std::int64_t size, std::int64_t alignment = 1, int stage = 0) {
    if (size <= 0) return;
    ranges_.push_back(
        {region, (end_of_last() + alignment - 1) / alignment * alignment, size, alignment, stage});
  }

  /// Bytes or columns up to the end of the last range.
  std::int64_t end_of_last() const {
    return ranges_.empty() ? 0 : ranges_.back().begin + ranges_.back().size;
  }
  /// Where the first range of a region begins; `none` where there is none.
  std::int64_t begin_of(Region region, std::int64_t none = 0) const {
    for (const PlacedRegion<Region>& range : ranges_) {
      if (range.region == region) return range.begin;
    }
    return none;
  }
  /// As a plan shows them. name(range): what a range is called.
  template <class Name>
  std::vector<MemoryRange> named(const Name& name) const {
    std::vector<MemoryRange> named;
    for (const PlacedRegion<Region>& range : ranges_) {
      named.push_back({std::string(name(range)), range.begin, range.size});
    }
    return named;
  }

  auto begin() { return ranges_.begin(); }
  auto end() { return ranges_.end(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }
  std::size_t size() const { return ranges_.size(); }
  const PlacedRegion<Region>& front() const { return ranges_.front(); }
  const PlacedRegion<Region>& operator[](std::size_t i) const { return ranges_[i]; }
  bool operator==(const MemoryLayout&) const = default;

 private:
  std::vector<PlacedRegion<Region>> ranges_;
};

}  // namespace attnjit
