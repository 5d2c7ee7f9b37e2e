// SPDX-License-Identifier: Apache-2.0
// wmma, the wider mma.sync shapes and 8-bit matrix copies, against products computed here.
#include <cmath>

#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

std::string product_kernel(const std::string& body) {
  return ".version 8.8\n.target sm_100a\n.address_size 64\n.shared .align 16 .b8 s[1024];\n"
         ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 o) {\n"
         ".reg .b32 %r<48>; .reg .f32 %f<32>; .reg .f64 %e<8>; .reg .b64 %rd<8>;\n"
         "ld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nld.param.u64 %rd3, [o];\n"
         "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd4, %r0, 4;\n" +
         body + "ret;\n}\n";
}

EmulatorReport run_kernel(const std::string& body, std::vector<EmulatorBuffer>& buffers) {
  EmulatorOptions options;
  options.model = EmulatorModel::kIsa;
  options.seeds = 2;
  return run(load_module(product_kernel(body)),
             recipe_of("k", {1, 1, 1}, {32, 1, 1}, {pointer("a"), pointer("b"), pointer("o")}),
             buffers, options);
}

std::string registers(const std::string& name, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "" : ",") + ("%" + name + std::to_string(first + i));
  return text + "}";
}

int small(int i) { return (i * 7 + i / 5) % 11 - 5; }

std::uint16_t half(int v) {
  if (v == 0) return 0;
  const int e = static_cast<int>(std::log2(std::abs(v)));
  return static_cast<std::uint16_t>((v < 0 ? 0x8000 : 0) | (e + 15) << 10 |
                                    (std::abs(v) << (10 - e) & 0x3FF));
}

struct Shape {
  int m, n;
};
class Wmma : public testing::TestWithParam<Shape> {};

// A row-major with a padded stride, B and D column-major: the fragments are the machine's own, the
// matrices in memory are not.
TEST_P(Wmma, HalfMatricesMultiply) {
  const auto [m, n] = GetParam();
  constexpr int kDepth = 16, kStride = 24;
  std::vector<std::uint16_t> a(static_cast<std::size_t>(m * kStride)),
      b(static_cast<std::size_t>(n * kDepth));
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < kDepth; ++j)
      a[static_cast<std::size_t>(i * kStride + j)] = half(small(i * kDepth + j));
  for (int i = 0; i < n * kDepth; ++i) b[static_cast<std::size_t>(i)] = half(small(3 * i + 1));
  std::vector<EmulatorBuffer> buffers{
      buffer_of("a", Dtype::kFp16, a), buffer_of("b", Dtype::kFp16, b),
      f32_buffer("o", std::vector<float>(static_cast<std::size_t>(m * n), -1))};
  const std::string shape = ".m" + std::to_string(m) + "n" + std::to_string(n) + "k16";
  std::string body;
  for (int i = 0; i < 8; ++i) body += "mov.f32 %f" + std::to_string(i) + ", 0f3F800000;\n";
  body += "wmma.load.a.sync.aligned.row" + shape + ".global.f16 " + registers("r", 1, 8) +
          ", [%rd1], 24;\nwmma.load.b.sync.aligned.col" + shape + ".f16 " + registers("r", 9, 8) +
          ", [%rd2];\nwmma.mma.sync.aligned.row.col" + shape + ".f32.f32 " + registers("f", 8, 8) +
          "," + registers("r", 1, 8) + "," + registers("r", 9, 8) + "," + registers("f", 0, 8) +
          ";\nwmma.store.d.sync.aligned.col" + shape + ".global.f32 [%rd3], " +
          registers("f", 8, 8) + ";\n";
  const auto report = run_kernel(body, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<float>(buffers[2]);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      int want = 1;
      for (int k = 0; k < kDepth; ++k)
        want += small(i * kDepth + k) * small(3 * (j * kDepth + k) + 1);
      EXPECT_EQ(got[static_cast<std::size_t>(j * m + i)], static_cast<float>(want))
          << i << " " << j;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, Wmma, testing::Values(Shape{16, 16}, Shape{32, 8}, Shape{8, 32}));

// PTX ISA 9.7.14.5.1: lane 4g + t holds A[g][t], B[t][g], C[g][2t] and C[g][2t + 1].
TEST(WarpProducts, F64TilesOfEightByEight) {
  std::vector<double> a(32), b(32);
  for (int i = 0; i < 32; ++i) {
    a[static_cast<std::size_t>(i)] = small(i) + 0.25;
    b[static_cast<std::size_t>(i)] = small(5 * i + 2) * 0.125;
  }
  std::vector<EmulatorBuffer> buffers{buffer_of("a", Dtype::kI64, a),
                                      buffer_of("b", Dtype::kI64, b),
                                      buffer_of("o", Dtype::kI64, std::vector<double>(64, -1))};
  const auto report = run_kernel(
      "shl.b64 %rd5, %rd4, 1;\nadd.u64 %rd1, %rd1, %rd5;\nadd.u64 %rd2, %rd2, %rd5;\n"
      "shl.b64 %rd5, %rd4, 2;\nadd.u64 %rd3, %rd3, %rd5;\n"
      "ld.global.f64 %e0, [%rd1];\nld.global.f64 %e1, [%rd2];\nmov.f64 %e2, 0d3FF0000000000000;\n"
      "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%e3,%e4},{%e0},{%e1},{%e2,%e2};\n"
      "st.global.v2.f64 [%rd3], {%e3,%e4};\n",
      buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<double>(buffers[2]);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) {
      double want = 1;
      for (int k = 0; k < 4; ++k) {
        want += a[static_cast<std::size_t>(4 * (lane / 4) + k)] *
                b[static_cast<std::size_t>(4 * (2 * (lane % 4) + i) + k)];
      }
      EXPECT_EQ(got[static_cast<std::size_t>(2 * lane + i)], want) << lane;
    }
  }
}

// All lanes hold the same words, so that an output depends on its row's and column's pattern only:
// every element of A is -3, every element of B is 2, and 64 products add up.
TEST(WarpProducts, FourBitAndOneBitIntegers) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("a", {0}), i32_buffer("b", {0}),
                                      i32_buffer("o", std::vector<std::int32_t>(64, -1))};
  const auto report = run_kernel(
      "mov.u32 %r1, 0xDDDDDDDD;\nmov.u32 %r2, 0x22222222;\nmov.u32 %r3, 7;\n"
      "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%r4,%r5,%r6,%r7},{%r1,%r1,%r1,%r1},"
      "{%r2,%r2},{%r3,%r3,%r3,%r3};\n"
      "mov.u32 %r8, 0x000000F0;\nmov.u32 %r9, 0x000000FF;\n"
      "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r10,%r11},{%r8},{%r9},"
      "{%r3,%r3};\nadd.u64 %rd3, %rd3, %rd4;\nst.global.u32 [%rd3], %r6;\n"
      "st.global.u32 [%rd3+128], %r11;\n",
      buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<std::int32_t>(buffers[2]);
  EXPECT_EQ(got[9], 7 - 3 * 2 * 64);
  EXPECT_EQ(got[41], 7 + 4 * 4);
}

// Byte c of row r is 16r + c.
const char* const kFillRows =
    "mov.u32 %r1, s;\nand.b32 %r2, %r0, 15;\nshl.b32 %r3, %r2, 4;\nadd.u32 %r4, %r1, %r3;\n"
    "mul.lo.u32 %r5, %r3, 0x01010101;\nadd.u32 %r6, %r5, 0x03020100;\n"
    "add.u32 %r7, %r6, 0x04040404;\nadd.u32 %r8, %r7, 0x04040404;\n"
    "add.u32 %r9, %r8, 0x04040404;\nst.shared.v4.u32 [%r4], {%r6,%r7,%r8,%r9};\nbar.sync 0;\n"
    "add.u64 %rd3, %rd3, %rd4;\n";

TEST(WarpProducts, ByteMatricesLoadTransposedAndStoreBack) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("a", {0}), i32_buffer("b", {0}),
                                      i32_buffer("o", std::vector<std::int32_t>(96, -1))};
  const auto report =
      run_kernel(std::string(kFillRows) +
                     "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r10,%r11}, [%r4];\n"
                     "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r4+512], {%r10,%r11};\n"
                     "bar.sync 0;\nshl.b32 %r12, %r0, 2;\nadd.u32 %r12, %r12, %r1;\n"
                     "ld.shared.u32 %r13, [%r12+512];\nst.global.u32 [%rd3], %r10;\n"
                     "st.global.u32 [%rd3+128], %r11;\nst.global.u32 [%rd3+256], %r13;\n",
                 buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<std::int32_t>(buffers[2]);
  for (int lane = 0; lane < 32; ++lane) {
    for (int e = 0; e < 4; ++e) {
      for (int r = 0; r < 2; ++r) {
        const int row = 4 * (lane % 4) + 2 * r + e % 2, column = lane / 4 + 8 * (e / 2);
        EXPECT_EQ(got[static_cast<std::size_t>(32 * r + lane)] >> (8 * e) & 0xFF,
                  (16 * row + column) & 0xFF);
      }
    }
  }
  // The store puts a register's rows side by side: row 2t + i of matrix r was row 4t + 2r + i.
  for (int i = 0; i < 32; ++i) {
    const int row = i / 4, from = 4 * (row / 2) + row % 2;
    EXPECT_EQ(got[static_cast<std::size_t>(64 + i)] & 0xFF, (16 * from + 4 * (i % 4)) & 0xFF);
  }
}

TEST(WarpProducts, PackedFourBitRowsLoadAsBytes) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("a", {0}), i32_buffer("b", {0}),
                                      i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report =
      run_kernel(std::string(kFillRows) +
                     "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%r10}, [%r4];\n"
                     "st.global.u32 [%rd3], %r10;\n",
                 buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<std::int32_t>(buffers[2]);
  for (int lane = 0; lane < 32; ++lane) {
    for (int e = 0; e < 4; ++e) {
      const int column = 4 * (lane % 4) + e, packed = 16 * (lane / 4) + column / 2;
      EXPECT_EQ(got[static_cast<std::size_t>(lane)] >> (8 * e) & 0xFF,
                (packed >> (4 * (column % 2)) & 15) << 2);
    }
  }
}

}  // namespace
}  // namespace attnjit::emulator
