// SPDX-License-Identifier: Apache-2.0
// Tests of descriptors, operand addresses and layouts: TMA's tiles are the matrix units' operands.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "emulator/model/fragment.h"
#include "emulator/model/instruction_descriptor.h"
#include "emulator/model/matrix_descriptor.h"
#include "emulator/model/tensor_map.h"
#include "emulator/model/tmem_layout.h"

namespace attnjit::emulator {
namespace {

TEST(Swizzle, FollowsTheIsasTables) {
  // PTX ISA 5.5.7: 16-byte chunk c of 128-byte row r goes to position table[r % n][c].
  for (std::uint32_t r = 0; r < 16; ++r) {
    for (std::uint32_t c = 0; c < 8; ++c) {
      const std::uint32_t linear = r * 128 + c * 16;
      const auto chunk = [&](Swizzle mode) { return swizzle_address(mode, linear) % 128 / 16; };
      EXPECT_EQ(chunk(Swizzle::k128B), c ^ (r % 8));
      EXPECT_EQ(chunk(Swizzle::k64B), c ^ (r % 4));
      EXPECT_EQ(chunk(Swizzle::k32B), c ^ (r % 2));
      EXPECT_EQ(chunk(Swizzle::k128BAtom32B), c ^ (2 * (r % 4)));
      EXPECT_EQ(swizzle_address(Swizzle::k128B, linear) / 128, r);
    }
  }
}

TEST(MatrixDescriptor, EncodesTheKnownWords) {
  const MatrixDescriptor d{0x8000, 16, 1024, 0, Swizzle::k128B};
  EXPECT_EQ(encode_tcgen05_descriptor(d) >> 32, 0x40004040u);
  EXPECT_EQ(encode_wgmma_descriptor(d) >> 32, 0x40000040u);
}

TEST(MatrixDescriptor, RoundTripsAndRefusesMalformedOnes) {
  for (Swizzle mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B}) {
    const MatrixDescriptor d{0x1230, 4096, 512, 0, mode};
    MatrixDescriptor back;
    ASSERT_EQ(decode_wgmma_descriptor(encode_wgmma_descriptor(d), &back), nullptr);
    EXPECT_EQ(std::tie(back.start, back.leading, back.stride, back.swizzle),
              std::tie(d.start, d.leading, d.stride, d.swizzle));
    ASSERT_EQ(decode_tcgen05_descriptor(encode_tcgen05_descriptor(d), &back), nullptr);
    EXPECT_EQ(back.swizzle, d.swizzle);
    EXPECT_NE(decode_tcgen05_descriptor(encode_wgmma_descriptor(d), &back), nullptr);
    EXPECT_NE(decode_wgmma_descriptor(encode_tcgen05_descriptor(d), &back), nullptr);
  }
  MatrixDescriptor out;
  EXPECT_NE(decode_tcgen05_descriptor(std::uint64_t{1} << 46 | std::uint64_t{3} << 61, &out),
            nullptr);
  EXPECT_NE(decode_wgmma_descriptor(std::uint64_t{1} << 14, &out), nullptr);
  // A base offset counts where there is a swizzle; without one it means nothing, and compilers that
  // leave it set are right.
  EXPECT_EQ(decode_wgmma_descriptor(std::uint64_t{1} << 49, &out), nullptr);
}

/// Address of an element of a TMA-written tile.
std::uint32_t tile_address(Swizzle mode, std::uint32_t base, std::uint32_t row_bytes,
                           std::uint32_t row, std::uint32_t byte) {
  return swizzle_address(mode, base + row * row_bytes + byte);
}

TEST(MatrixDescriptor, ATmaTileIsAKMajorOperand) {
  // [rows][64 bf16] with a 128-byte swizzle; each K step of 16 elements advances the start by 32
  // bytes.
  for (std::uint32_t row = 0; row < 128; ++row) {
    for (std::uint32_t k = 0; k < 64; k += 8) {
      const MatrixDescriptor d{0x8000 + 32 * (k / 16), 0, 1024, 0, Swizzle::k128B};
      EXPECT_EQ(k_major_chunk(d, row, k % 16 / 8),
                tile_address(Swizzle::k128B, 0x8000, 128, row, k * 2));
    }
  }
}

TEST(MatrixDescriptor, ATmaTileOfVIsAnMnMajorOperand) {
  // V [keys][depth] as boxes of 64 columns: LBO is a box, SBO eight keys, a K step of 16 keys 2048
  // bytes.
  constexpr std::uint32_t kKeys = 128;
  for (std::uint32_t key = 0; key < kKeys; ++key) {
    for (std::uint32_t n = 0; n < 128; n += 8) {
      const MatrixDescriptor d{0x8000 + 2048 * (key / 16), kKeys * 128, 1024, 0, Swizzle::k128B};
      EXPECT_EQ(mn_major_chunk(d, n / 8, key % 16),
                tile_address(Swizzle::k128B, 0x8000 + n / 64 * kKeys * 128, 128, key, n % 64 * 2));
    }
  }
}

TEST(InstructionDescriptor, DecodesTheKnownWords) {
  InstructionDescriptor d;
  ASSERT_EQ(decode_instruction_descriptor(MmaKind::kF16, 0x08210490, &d), nullptr);
  EXPECT_EQ(d.m, 128);
  EXPECT_EQ(d.n, 128);
  EXPECT_EQ(d.k, 16);
  EXPECT_EQ(d.a_format, &kFormatBf16);
  EXPECT_FALSE(d.transpose_a);
  EXPECT_TRUE(d.transpose_b);
  ASSERT_EQ(decode_instruction_descriptor(MmaKind::kF8f6f4, 0x08200010, &d), nullptr);
  EXPECT_EQ(d.a_format, &kFormatE4m3);
  EXPECT_EQ(d.k, 32);
  ASSERT_EQ(decode_instruction_descriptor(MmaKind::kTf32, 0x08200910, &d), nullptr);
  EXPECT_EQ(d.k, 8);
  EXPECT_NE(decode_instruction_descriptor(MmaKind::kTf32, 0x08200490, &d), nullptr);
  EXPECT_NE(decode_instruction_descriptor(MmaKind::kF16, 0x08200494, &d), nullptr) << "sparse";
}

TEST(InstructionDescriptor, Shapes) {
  EXPECT_EQ(check_mma_shape(MmaKind::kF16, 128, 256, 1, false), nullptr);
  EXPECT_NE(check_mma_shape(MmaKind::kF16, 256, 256, 1, false), nullptr);
  EXPECT_EQ(check_mma_shape(MmaKind::kF16, 256, 256, 2, false), nullptr);
  EXPECT_NE(check_mma_shape(MmaKind::kF16, 128, 12, 1, false), nullptr);
  EXPECT_EQ(check_mma_shape(MmaKind::kF16, 32, 64, 1, true), nullptr);
  EXPECT_NE(check_mma_shape(MmaKind::kF16, 32, 64, 1, false), nullptr);
}

TEST(TmemLayout, EveryLayoutIsInjectiveAndInRange) {
  struct Case {
    int m, n, cta_group;
    bool ws;
  };
  for (const Case& c : {Case{256, 64, 2, false}, Case{128, 64, 2, false}, Case{128, 64, 1, false},
                        Case{64, 64, 1, true}, Case{64, 64, 1, false}, Case{32, 64, 1, true}}) {
    const AccumulatorLayout layout = accumulator_layout(c.m, c.cta_group, c.ws);
    std::set<std::tuple<int, int, int>> cells;
    for (int m = 0; m < c.m; ++m) {
      for (int n = 0; n < c.n; ++n) {
        const AccumulatorCell cell = accumulator_cell(layout, c.n, m, n);
        EXPECT_LT(cell.lane, kTmemLanes);
        EXPECT_LT(cell.column, accumulator_columns(layout, c.n));
        cells.emplace(cell.cta, cell.lane, cell.column);
      }
    }
    EXPECT_EQ(cells.size(), static_cast<std::size_t>(c.m) * c.n);
  }
  for (TmemShape shape : {TmemShape::k32x32b, TmemShape::k16x64b, TmemShape::k16x128b,
                          TmemShape::k16x256b, TmemShape::k16x32bx2}) {
    for (int n : {1, 2, 4, 8, 16, 32}) {
      std::set<std::pair<int, int>> cells;
      for (int t = 0; t < 32; ++t) {
        for (int r = 0; r < tmem_registers(shape, n); ++r) {
          const TmemCell cell = tmem_cell(shape, t, r, n);
          cells.emplace(cell.lane, cell.column);
        }
      }
      EXPECT_EQ(cells.size(), static_cast<std::size_t>(32 * tmem_registers(shape, n)));
    }
  }
}

TEST(TmemLayout, CopiesCoverTheirLanes) {
  for (CopyShape shape : {CopyShape::k64x128bWarpx2_02_13, CopyShape::k64x128bWarpx2_01_23,
                          CopyShape::k32x128bWarpx4, CopyShape::k128x128b}) {
    const CopyGeometry g = copy_geometry(shape);
    std::set<int> lanes;
    for (int row = 0; row < g.rows; ++row) {
      for (int copy = 0; copy < g.copies; ++copy) lanes.insert(copy_lane(shape, row, copy));
    }
    EXPECT_EQ(lanes.size(), 128u);
  }
  EXPECT_EQ(copy_lane(CopyShape::k64x128bWarpx2_01_23, 5, 1), 37);
  EXPECT_EQ(copy_lane(CopyShape::k64x128bWarpx2_01_23, 33, 0), 65);
  EXPECT_EQ(copy_lane(CopyShape::k64x128bWarpx2_02_13, 33, 1), 97);
}

TEST(Fragment, WgmmaFragmentsCoverTheirTiles) {
  std::set<std::pair<int, int>> d;
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 32; ++i) d.emplace(wgmma_d(t, i).row, wgmma_d(t, i).column);
  }
  EXPECT_EQ(d.size(), 64u * 64);
  for (int bytes : {1, 2, 4}) {
    std::set<std::pair<int, int>> a;
    for (int t = 0; t < 128; ++t) {
      for (int j = 0; j < 4; ++j) {
        for (int e = 0; e < 4 / bytes; ++e) {
          const Element at = wgmma_a(t, j, e, bytes);
          EXPECT_LT(at.column, 32 / bytes);
          a.emplace(at.row, at.column);
        }
      }
    }
    EXPECT_EQ(a.size(), 64u * 32 / bytes);
  }
}

TEST(Fragment, APackedAccumulatorIsTheNextOperand) {
  // A register j of K step s holds D registers 8s + 2j (low) and 8s + 2j + 1, without a shuffle.
  for (int t = 0; t < 128; ++t) {
    for (int s = 0; s < 4; ++s) {
      for (int j = 0; j < 4; ++j) {
        for (int e = 0; e < 2; ++e) {
          const Element a = wgmma_a(t, j, e, 2);
          const Element d = wgmma_d(t, 8 * s + 2 * j + e);
          EXPECT_EQ(a.row, d.row);
          EXPECT_EQ(a.column + 16 * s, d.column);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnjit::emulator
