// SPDX-License-Identifier: Apache-2.0
// Tiles of scores over which arrays are known: a warp reads what of an array a tile names, and says
// which values are among it.
#pragma once

#include "common/ranges.cuh"

namespace attnjit::maps {

constexpr u32 kAll = 0xffffffffu;

/// A tile that is asked about to make a map.
struct BlockMaskTile : TileCoord {
  static constexpr bool kMakesBlockMask = true;
};

/// A tile that a converged warp is asked about.
struct WarpTile : BlockMaskTile {
  static constexpr bool kKnowsArrays = true;
  int lane;
};

/// Elements that are read for one answer. Of more, nothing is said.
constexpr u32 kMostElements = 2048;

/// How many numbers a range has; 0: more than an u32 holds.
ATTNJIT_DEVICE u32 count_of(IntRange a) {
  return static_cast<u32>(a.hi) - static_cast<u32>(a.lo) + 1;
}
ATTNJIT_DEVICE bool is_few(u32 count) { return count - 1 < kMostElements; }

/// What holds no number of the kind, and whose hull with a range is that range.
ATTNJIT_DEVICE IntRange no_range_like(int) { return {kIntMax, kIntMin}; }
ATTNJIT_DEVICE UintRange no_range_like(u32) { return {~0u, 0u}; }
ATTNJIT_DEVICE FloatRange no_range_like(float) { return {infinity(), -infinity(), false}; }

/// The hull of the lanes' ranges, in every lane.
ATTNJIT_DEVICE IntRange warp_hull(IntRange a) {
  return {__reduce_min_sync(kAll, a.lo), __reduce_max_sync(kAll, a.hi)};
}
ATTNJIT_DEVICE UintRange warp_hull(UintRange a) {
  return {__reduce_min_sync(kAll, a.lo), __reduce_max_sync(kAll, a.hi)};
}
ATTNJIT_DEVICE FloatRange warp_hull(FloatRange a) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    a = hull(a, FloatRange{__shfl_xor_sync(kAll, a.lo, lanes), __shfl_xor_sync(kAll, a.hi, lanes),
                           false});
  }
  return a;
}

/// What `count` elements are among, of which element(i) is one. A lane has every 32nd, four at a
/// time. NOTE: past the end the last one is read again, so that there is no second loop for what is
/// left of a fourth: compile time counts each copy of a read.
template <class Element>
ATTNJIT_DEVICE auto range_of_elements(u32 count, int lane, Element element) {
  constexpr u32 kTogether = 4;
  auto all = no_range_like(decltype(element(0)){});
#pragma unroll 1
  for (u32 first = 0; first < count; first += 32 * kTogether) {
#pragma unroll
    for (u32 i = 0; i < kTogether; ++i) {
      const u32 at = min(first + 32 * i + static_cast<u32>(lane), count - 1);
      all = hull(all, range_of(element(static_cast<int>(at))));
    }
  }
  // NOTE: a NaN's range is every float.
  if constexpr (requires { all.nan; }) {
    if (__any_sync(kAll, all.nan)) return any_float();
  }
  return warp_hull(all);
}

template <class Array>
ATTNJIT_DEVICE auto range_element(const WarpTile& t, const Array& array, IntRange i) {
  const u32 count = count_of(i);
  if (!is_few(count)) return any_like(decltype(array_at(array, 0)){});
  return range_of_elements(count, t.lane, [&](int n) { return array_at(array, i.lo + n); });
}
template <class Matrix>
ATTNJIT_DEVICE auto range_element(const WarpTile& t, const Matrix& matrix, IntRange i, IntRange j) {
  const u32 rows = count_of(i), columns = count_of(j);
  // NOTE: each is few before they are multiplied.
  if (!is_few(rows) || !is_few(columns) || !is_few(rows * columns)) {
    return any_like(decltype(matrix_at(matrix, 0, 0)){});
  }
  return range_of_elements(rows * columns, t.lane, [&](int n) {
    const int row = n / static_cast<int>(columns);
    return matrix_at(matrix, i.lo + row, j.lo + n - row * static_cast<int>(columns));
  });
}
template <class Cube>
ATTNJIT_DEVICE auto range_element(const WarpTile& t, const Cube& cube, IntRange i, IntRange j,
                                  IntRange k) {
  const u32 planes = count_of(i), rows = count_of(j), columns = count_of(k);
  // NOTE: each is few before they are multiplied.
  if (!is_few(planes) || !is_few(rows) || !is_few(columns) || !is_few(planes * rows) ||
      !is_few(planes * rows * columns)) {
    return any_like(decltype(cube_at(cube, 0, 0, 0)){});
  }
  return range_of_elements(planes * rows * columns, t.lane, [&](int n) {
    const int row = n / static_cast<int>(columns), plane = row / static_cast<int>(rows);
    return cube_at(cube, i.lo + plane, j.lo + row - plane * static_cast<int>(rows),
                   k.lo + n - row * static_cast<int>(columns));
  });
}

}  // namespace attnjit::maps
