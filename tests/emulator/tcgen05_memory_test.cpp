// SPDX-License-Identifier: Apache-2.0
// tcgen05.ld and st in every shape, cp, shift, and the rules of allocation.
#include <random>

#include "emulator/model/matrix_descriptor.h"
#include "tcgen05_kernel.h"

namespace attnjit::emulator {
namespace {

// -------------------------------------------------------------------------------- ld and st

/// The lane and column of register r of lane t, as the PTX ISA's figures of the shapes have them.
std::array<int, 2> place(const std::string& shape, int t, int r, int half) {
  if (shape == "32x32b") return {t, r};
  if (shape == "16x64b") return {t / 4 + 8 * (t % 2), 2 * r + t / 2 % 2};
  if (shape == "16x128b") return {t / 4 + 8 * (r % 2), r / 2 * 4 + t % 4};
  if (shape == "16x256b") return {t / 4 + 8 * (r / 2 % 2), r / 4 * 8 + t % 4 * 2 + r % 2};
  return {t % 16, r + (t >= 16 ? half : 0)};
}

constexpr int kHalf = 160;  // columns between the halves of .16x32bx2
constexpr int kColumn = 8;

struct Move {
  std::string shape;
  int n;
  bool packs;
  int registers() const { return n * (shape == "16x128b" ? 2 : shape == "16x256b" ? 4 : 1); }
};

class Moves : public ::testing::TestWithParam<Move> {};

std::vector<Move> moves() {
  std::vector<Move> list;
  for (const std::string shape : {"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"}) {
    for (int n = 1; n <= 128; n *= 2) {
      for (const bool packs : {false, true}) {
        const Move m{shape, n, packs};
        const int columns = n * (shape == "16x64b"    ? 2
                                 : shape == "16x128b" ? 4
                                 : shape == "16x256b" ? 8
                                                      : 1);
        if (m.registers() <= 128 &&
            columns * (packs ? 2 : 1) <= (shape == "16x32bx2" ? kHalf : 256))
          list.push_back(m);
      }
    }
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Tcgen05, Moves, ::testing::ValuesIn(moves()), [](const auto& i) {
  return i.param.shape + "_x" + std::to_string(i.param.n) + (i.param.packs ? "_packed" : "");
});

std::string vector_of(const std::string& name, int n) {
  std::string text = "{";
  for (int i = 0; i < n; ++i) text += (i == 0 ? "%" : ", %") + name + std::to_string(i);
  return text + "}";
}

/// Every warp executes `body` with %r9 the address of its quarter; then tensor memory is dumped.
std::string warp_kernel(const std::string& body) {
  std::string text = tensor_kernel("", 1);
  text = replaced(text, "  // The steps.", "  .reg .b32 %v<128>;\n" + body + R"(
  tcgen05.fence::before_thread_sync;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  tcgen05.fence::after_thread_sync;
  // The steps.)");
  return text;
}

TEST_P(Moves, PutRegistersWhereTheFiguresSay) {
  const Move m = GetParam();
  const int registers = m.registers();
  const bool halves = m.shape == "16x32bx2";
  // Loads from one place, adds a number of the register, stores to another 200 columns on.
  std::string body = "  shl.b32 %r9, %warp, 21;\n  add.u32 %r9, %r9, %tm;\n";
  const std::string upper = m.shape == "32x32b" ? "" : "  add.u32 %r9, %r9, 0x100000;\n";
  const std::string half = halves ? fmt::format(", {}", kHalf) : "";
  std::string access = fmt::format(
      "  tcgen05.ld.sync.aligned.{}.x{}{}.b32 {}, [%r9+{}]{};\n  tcgen05.wait::ld.sync.aligned;\n",
      m.shape, m.n, m.packs ? ".pack::16b" : "", vector_of("v", registers), kColumn, half);
  for (int r = 0; r < registers; ++r)
    access += fmt::format("  xor.b32 %v{0}, %v{0}, {1};\n", r, (r + 1) * 0x10001);
  access += fmt::format(
      "  tcgen05.st.sync.aligned.{}.x{}{}.b32 [%r9+{}]{}, {};\n  tcgen05.wait::st.sync.aligned;\n",
      m.shape, m.n, m.packs ? ".unpack::16b" : "", kColumn, half, vector_of("v", registers));
  body += access;
  if (!upper.empty()) body += upper + access;
  std::vector<std::uint32_t> init(128 * 512);
  for (std::size_t i = 0; i < init.size(); ++i)
    init[i] = static_cast<std::uint32_t>(i * 0x9E3779B1u);
  const TensorRun result = run_tensor(warp_kernel(body), 1, std::vector<std::uint8_t>(16), init,
                                      {TensorStep{}}, isa(static_cast<std::uint64_t>(m.n)));
  ASSERT_TRUE(result.report.passed) << words(result.report);
  std::vector<std::uint32_t> expected = init;
  for (int warp = 0; warp < 4; ++warp) {
    for (int part = 0; part < (upper.empty() ? 1 : 2); ++part) {
      for (int t = 0; t < 32; ++t) {
        for (int r = 0; r < registers; ++r) {
          auto [lane, column] = place(m.shape, t, r, m.packs ? 0 : kHalf);
          lane += 32 * warp + 16 * part;
          const std::uint32_t change = static_cast<std::uint32_t>(r + 1) * 0x10001;
          if (!m.packs) {
            expected[static_cast<std::size_t>(lane * 512 + kColumn + column)] ^= change;
            continue;
          }
          column = 2 * column + (halves && t >= 16 ? kHalf : 0);
          for (int h = 0; h < 2; ++h)
            expected[static_cast<std::size_t>(lane * 512 + kColumn + column + h)] ^=
                change & 0xFFFF;
        }
      }
    }
  }
  EXPECT_EQ(result.tmem, expected);
}

// ------------------------------------------------------------------------------ cp and shift

std::vector<int> lanes_of(const std::string& shape, int row) {
  if (shape == "64x128b.warpx2::02_13") return {row, row + 64};
  if (shape == "64x128b.warpx2::01_23")
    return {row % 32 + row / 32 * 64, row % 32 + row / 32 * 64 + 32};
  if (shape == "32x128b.warpx4") return {row, row + 32, row + 64, row + 96};
  return {row};
}

class Copies
    : public ::testing::TestWithParam<std::tuple<std::string, int, int, Swizzle, int, int>> {};
using CopyParam = std::tuple<std::string, int, int, Swizzle, int, int>;
INSTANTIATE_TEST_SUITE_P(
    Tcgen05, Copies,
    ::testing::Values(CopyParam{"128x256b", 128, 32, Swizzle::kNone, 8, 1},
                      CopyParam{"128x256b", 128, 32, Swizzle::k128B, 8, 1},
                      CopyParam{"128x256b", 128, 32, Swizzle::kNone, 8, 2},
                      CopyParam{"128x128b", 128, 16, Swizzle::kNone, 8, 1},
                      CopyParam{"64x128b.warpx2::02_13", 64, 16, Swizzle::kNone, 8, 1},
                      CopyParam{"64x128b.warpx2::01_23", 64, 16, Swizzle::kNone, 8, 1},
                      CopyParam{"32x128b.warpx4", 32, 16, Swizzle::kNone, 8, 1},
                      CopyParam{"4x256b", 4, 32, Swizzle::kNone, 8, 1},
                      CopyParam{"128x256b", 128, 32, Swizzle::kNone, 6, 1},
                      CopyParam{"128x128b", 128, 16, Swizzle::kNone, 4, 1}));

TEST_P(Copies, SpreadRowsOverLanes) {
  const auto& [shape, rows, bytes, swizzle, bits, group] = GetParam();
  MatrixDescriptor d;
  d.swizzle = swizzle;
  d.stride = 8 * swizzle_span(swizzle);
  d.leading = static_cast<std::uint32_t>((rows + 7) / 8) * 128;
  std::mt19937 random(3);
  std::vector<std::uint8_t> image(static_cast<std::size_t>(group) * 16384);
  std::vector<std::uint32_t> expected(static_cast<std::size_t>(group) * 128 * 512);
  for (int cta = 0; cta < group; ++cta) {
    for (int row = 0; row < rows; ++row) {
      for (int c = 0; c < bytes / 16; ++c) {
        std::uint8_t* at =
            image.data() + cta * 16384 +
            k_major_chunk(d, static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(c));
        for (int i = 0; i < 16; ++i) {
          const auto code = static_cast<std::uint32_t>(random() & ((1u << bits) - 1));
          for (int b = 0; b < bits; ++b) {
            if ((code >> b & 1) != 0)
              at[(i * bits + b) / 8] |= static_cast<std::uint8_t>(1 << (i * bits + b) % 8);
          }
          const std::uint32_t byte = bits == 4 ? code << 2 : code;
          for (const int lane : lanes_of(shape, row))
            expected[static_cast<std::size_t>((cta * 128 + lane) * 512 + 24 + c * 4 + i / 4)] |=
                byte << (i % 4 * 8);
        }
      }
    }
  }
  const std::string format = bits == 6 ? ".b8x16.b6x16_p32" : bits == 4 ? ".b8x16.b4x16_p64" : "";
  TensorStep step;
  step.a = encode_tcgen05_descriptor(d);
  step.d = 24;
  const TensorRun result = run_tensor(
      tensor_kernel(fmt::format("tcgen05.cp.cta_group::{}.{}{} [%td], %da;", group, shape, format),
                    group),
      group, image, {}, {step}, isa());
  ASSERT_TRUE(result.report.passed) << words(result.report);
  EXPECT_EQ(result.tmem, expected);
}

TEST(Tcgen05Memory, ShiftMovesRowsDown) {
  std::vector<std::uint32_t> init(128 * 512);
  for (std::size_t i = 0; i < init.size(); ++i) init[i] = static_cast<std::uint32_t>(i);
  TensorStep step;
  step.d = 32u << 16 | 16;
  const TensorRun result = run_tensor(tensor_kernel("tcgen05.shift.cta_group::1.down [%td];", 1), 1,
                                      std::vector<std::uint8_t>(16), init, {step}, isa());
  ASSERT_TRUE(result.report.passed) << words(result.report);
  std::vector<std::uint32_t> expected = init;
  for (int lane = 127; lane > 32; --lane) {
    for (int c = 16; c < 24; ++c)
      expected[static_cast<std::size_t>(lane * 512 + c)] =
          init[static_cast<std::size_t>((lane - 1) * 512 + c)];
  }
  EXPECT_EQ(result.tmem, expected);
}

// ---------------------------------------------------------------------------------- allocation

/// One CTA (or a cluster of two) of `warps` warps that execute `body` with %slot a shared address
/// of 16 bytes a warp, %warp, %lane and %tm.
EmulatorReport run_body(const std::string& body, int warps, int ctas, std::uint64_t seed,
                        std::uint32_t* result = nullptr) {
  const std::string text = fmt::format(R"(
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
.reqntid {}
{{
  .reg .pred %p, %w0, %w1;
  .reg .b32 %r<20>, %tm, %tn, %slot, %warp, %lane, %rank;
  .reg .b64 %a<8>;
  .shared .align 16 .b8 slots[256];
  mov.u32 %r0, %tid.x;
  shr.u32 %warp, %r0, 5;
  and.b32 %lane, %r0, 31;
  mov.u32 %rank, %cluster_ctarank;
  setp.eq.u32 %w0, %warp, 0;
  setp.eq.u32 %w1, %warp, 1;
  shl.b32 %slot, %warp, 4;
  mov.u32 %r1, slots;
  add.u32 %slot, %slot, %r1;
{}
  ret;
}}
)",
                                       32 * warps, body);
  const PtxModule module = load_module(text);
  std::vector<EmulatorBuffer> buffers{
      buffer_of("out", Dtype::kU32, std::vector<std::uint32_t>(64))};
  LaunchRecipe recipe = recipe_of("k", {static_cast<std::uint32_t>(ctas), 1, 1},
                                  {static_cast<std::uint32_t>(32 * warps), 1, 1}, {pointer("out")});
  recipe.cluster = {static_cast<std::uint32_t>(ctas), 1, 1};
  const EmulatorReport report = run(module, recipe, buffers, isa(seed));
  if (result != nullptr) *result = values_of<std::uint32_t>(buffers[0])[0];
  return report;
}

std::string alloc(int columns, int group = 1) {
  return fmt::format(
      "  tcgen05.alloc.cta_group::{}.sync.aligned.shared::cta.b32 [%slot], {};\n"
      "  ld.shared.b32 %tm, [%slot];\n",
      group, columns);
}
std::string dealloc(int columns, const std::string& from = "%tm", int group = 1) {
  return fmt::format("  tcgen05.dealloc.cta_group::{}.sync.aligned.b32 {}, {};\n", group, from,
                     columns);
}
std::string give_up() { return "  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"; }

void expect_finding(const EmulatorReport& report, FindingKind kind, const std::string& text) {
  EXPECT_FALSE(report.passed);
  for (const Finding& f : report.findings) {
    if (f.kind == kind && f.text.find(text) != std::string::npos) return;
  }
  ADD_FAILURE() << "no finding with '" << text << "':\n" << words(report);
}

TEST(Allocation, GivesWhatIsFree) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto report = run_body(alloc(256) + "  mov.u32 %tn, %tm;\n" + alloc(128) +
                                     dealloc(256, "%tn") + dealloc(128) + give_up(),
                                 1, 1, seed);
    EXPECT_TRUE(report.passed) << words(report);
  }
}

TEST(Allocation, WaitsForAnotherWarpToFree) {
  // Both warps want 512 columns; each holds them for a while.
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto report = run_body(alloc(512) + dealloc(512), 2, 1, seed);
    EXPECT_TRUE(report.passed) << words(report);
  }
}

TEST(Allocation, OfAPairIsCollective) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto report = run_body(alloc(128, 2) + "  mov.u32 %tn, %tm;\n" + alloc(64, 2) +
                                     dealloc(128, "%tn", 2) + dealloc(64, "%tm", 2),
                                 1, 2, seed);
    EXPECT_TRUE(report.passed) << words(report);
  }
}

TEST(Allocation, MistakesAreFound) {
  const auto tmem = FindingKind::kTmem;
  expect_finding(run_body(alloc(64), 1, 1, 0), tmem, "still allocated");
  expect_finding(run_body(alloc(64) + dealloc(32), 1, 1, 0), tmem, "no allocation of this CTA");
  expect_finding(run_body(alloc(64) + dealloc(64) + dealloc(64), 1, 1, 0), tmem,
                 "no allocation of this CTA");
  expect_finding(run_body(give_up() + alloc(64) + dealloc(64), 1, 1, 0), tmem, "given up");
  expect_finding(
      run_body(alloc(32) + "  mov.u32 %tn, %tm;\n" + alloc(64) + dealloc(32, "%tn") + dealloc(64),
               1, 1, 0),
      tmem, "may not increase");
  expect_finding(run_body("  mov.u32 %r2, 48;\n  tcgen05.alloc.cta_group::1.sync.aligned.shared::"
                          "cta.b32 [%slot], %r2;\n",
                          1, 1, 0),
                 tmem, "power of two");
  expect_finding(run_body(alloc(512) + alloc(512), 1, 1, 0), FindingKind::kDeadlock,
                 "waits for tensor memory");
  expect_finding(run_body(alloc(64) + dealloc(64) + alloc(64, 2) + dealloc(64, "%tm", 2), 1, 2, 0),
                 tmem, "cta_group::1");
  expect_finding(run_body(alloc(64, 2) + dealloc(64, "%tm", 2), 1, 1, 0), tmem, "no peer");
  // Only one CTA of the pair allocates.
  expect_finding(run_body("  setp.ne.u32 %p, %rank, 0;\n  @%p bra OUT;\n" + alloc(64, 2) +
                              dealloc(64, "%tm", 2) + "OUT:\n",
                          1, 2, 0),
                 FindingKind::kDeadlock, "waits for tensor memory");
  // Half of the warp.
  expect_finding(run_body("  setp.ge.u32 %p, %lane, 16;\n  @%p bra OUT;\n" + alloc(64) +
                              dealloc(64) + "OUT:\n",
                          1, 1, 0),
                 FindingKind::kAligned, "");
}

TEST(Allocation, BadColumnsAreRefusedAtLoad) {
  const auto module = PtxModule::load(
      ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<2>;\n"
      "mov.u32 %r0, 1024;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 48;\n"
      "ret;\n}\n");
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().line, 7);
}

}  // namespace
}  // namespace attnjit::emulator
