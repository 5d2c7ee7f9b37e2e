// SPDX-License-Identifier: Apache-2.0
// Where tcgen05 puts things in tensor memory: ld/st shapes, accumulators, TS operands, scale
// factors, cp.
//
// Tensor memory is 128 lanes by 512 columns of 32 bits per CTA; an address has the lane in bits
// 31:16 and the column in bits 15:0. Sources: PTX ISA 9.1, sections 9.7.16.2.3 (ld/st
// shapes), 9.7.16.10.5 (data paths), 9.7.16.10.7 (scale factors), 9.7.16.9 (cp). Pure functions.
#pragma once

#include <cstdint>

namespace attnjit::emulator {

inline constexpr int kTmemLanes = 128;
inline constexpr int kTmemColumns = 512;

constexpr std::uint32_t tmem_lane(std::uint32_t address) { return address >> 16; }
constexpr std::uint32_t tmem_column(std::uint32_t address) { return address & 0xFFFF; }

struct TmemCell {
  int lane = 0;
  int column = 0;
  bool operator==(const TmemCell&) const = default;
};

enum class TmemShape : std::uint8_t { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

/// Registers a thread for .xN.
constexpr int tmem_registers(TmemShape shape, int n) {
  return shape == TmemShape::k16x128b ? 2 * n : shape == TmemShape::k16x256b ? 4 * n : n;
}

/// The cell, relative to taddr, of register `r` of lane `t`. `half` is .16x32bx2's immediate column
/// offset.
constexpr TmemCell tmem_cell(TmemShape shape, int t, int r, int half = 0) {
  switch (shape) {
    case TmemShape::k32x32b:
      return {t, r};
    case TmemShape::k16x64b:
      return {(t >> 2) + 8 * (t & 1), 2 * r + ((t >> 1) & 1)};
    case TmemShape::k16x128b:
      return {(t >> 2) + 8 * (r & 1), 4 * (r >> 1) + (t & 3)};
    case TmemShape::k16x256b:
      return {(t >> 2) + 8 * ((r >> 1) & 1), 8 * (r >> 2) + 2 * (t & 3) + (r & 1)};
    case TmemShape::k16x32bx2:
      return {t & 15, r + half * (t >> 4)};
  }
  return {};
}

/// The data paths of tcgen05.mma's accumulator (PTX ISA's layouts A to G, dense).
enum class AccumulatorLayout : std::uint8_t {
  kA,  ///< M 256, cta_group::2
  kB,  ///< M 128, cta_group::2
  kD,  ///< M 128, cta_group::1
  kE,  ///< M 64, .ws
  kF,  ///< M 64, cta_group::1
  kG,  ///< M 32, .ws
};

/// @pre check_mma_shape passed.
constexpr AccumulatorLayout accumulator_layout(int m, int cta_group, bool ws) {
  if (cta_group == 2) return m == 256 ? AccumulatorLayout::kA : AccumulatorLayout::kB;
  if (m == 128) return AccumulatorLayout::kD;
  if (m == 32) return AccumulatorLayout::kG;
  return ws ? AccumulatorLayout::kE : AccumulatorLayout::kF;
}

struct AccumulatorCell {
  int cta = 0;  ///< of the pair
  int lane = 0;
  int column = 0;
};

/// Where D[m][n] lies, relative to d-tmem's column and to lane 0 (layout F: to d-tmem's lane, 0 or
/// 16).
constexpr AccumulatorCell accumulator_cell(AccumulatorLayout layout, int total_n, int m, int n) {
  switch (layout) {
    case AccumulatorLayout::kA:
      return {m / 128, m % 128, n};
    case AccumulatorLayout::kB:
      return {m / 64, m % 64 + (n >= total_n / 2 ? 64 : 0), n % (total_n / 2)};
    case AccumulatorLayout::kD:
      return {0, m, n};
    case AccumulatorLayout::kE:
      return {0, m + (n >= total_n / 2 ? 64 : 0), n % (total_n / 2)};
    case AccumulatorLayout::kF:
      return {0, 32 * (m / 16) + m % 16, n};
    case AccumulatorLayout::kG:
      return {0, m + 32 * (n / (total_n / 4)), n % (total_n / 4)};
  }
  return {};
}

/// Columns that an accumulator of N columns takes.
constexpr int accumulator_columns(AccumulatorLayout layout, int total_n) {
  switch (layout) {
    case AccumulatorLayout::kB:
    case AccumulatorLayout::kE:
      return total_n / 2;
    case AccumulatorLayout::kG:
      return total_n / 4;
    default:
      return total_n;
  }
}

/// Lane of row m (of this CTA) of a TS operand A: the accumulator's lanes. M 128 of cta_group::2
/// has its 64 rows twice, at lanes 0-63 and 64-127; this gives the first.
constexpr int a_operand_lane(AccumulatorLayout layout, int m) {
  return layout == AccumulatorLayout::kF ? 32 * (m / 16) + m % 16 : m;
}

/// The scale factor of row (or column of B) `index`, for vector number `vector` inside the
/// instruction: its cell in the first of the four lane quarters (each holds a copy) and its byte in
/// that word.
struct ScaleCell {
  int lane = 0;
  int column = 0;
  int byte = 0;
};
constexpr ScaleCell scale_cell(int index, int vector, int id) {
  return {index % 32, index / 32, vector + id};
}

enum class CopyShape : std::uint8_t {
  k128x256b,
  k128x128b,
  k64x128bWarpx2_02_13,
  k64x128bWarpx2_01_23,
  k32x128bWarpx4,
  k4x256b,
};

struct CopyGeometry {
  int rows = 0;
  int bytes_per_row = 0;
  int copies = 1;  ///< lanes that each source row goes to
};

constexpr CopyGeometry copy_geometry(CopyShape shape) {
  switch (shape) {
    case CopyShape::k128x256b:
      return {128, 32, 1};
    case CopyShape::k128x128b:
      return {128, 16, 1};
    case CopyShape::k64x128bWarpx2_02_13:
    case CopyShape::k64x128bWarpx2_01_23:
      return {64, 16, 2};
    case CopyShape::k32x128bWarpx4:
      return {32, 16, 4};
    case CopyShape::k4x256b:
      return {4, 32, 1};
  }
  return {};
}

/// The lane of copy number `copy` of a source row.
constexpr int copy_lane(CopyShape shape, int row, int copy) {
  switch (shape) {
    case CopyShape::k64x128bWarpx2_02_13:
      return row + 64 * copy;
    case CopyShape::k64x128bWarpx2_01_23:
      return row % 32 + 64 * (row / 32) + 32 * copy;
    case CopyShape::k32x128bWarpx4:
      return row + 32 * copy;
    default:
      return row;
  }
}

}  // namespace attnjit::emulator
