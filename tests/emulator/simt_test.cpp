// SPDX-License-Identifier: Apache-2.0
// Whole kernels compiled by nvcc: arithmetic, divergence, calls, barriers, atomics and findings.
#include <chrono>
#include <cmath>
#include <numeric>

#include "../temporary_folder.h"
#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

const PtxModule& simt() {
  static const PtxModule module = load_module(test_file("kernels/simt.sm_90a.ptx"));
  return module;
}

class Simt : public ::testing::TestWithParam<int> {
 protected:
  EmulatorOptions options() const {
    EmulatorOptions o;
    o.seed = static_cast<std::uint64_t>(GetParam());
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, Simt, ::testing::Range(0, 8));

TEST_P(Simt, Saxpy) {
  const int n = 1000;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) {
    x[i] = 0.25f * static_cast<float>(i);
    y[i] = 3.0f - static_cast<float>(i);
  }
  std::vector<EmulatorBuffer> buffers{f32_buffer("y", y), f32_buffer("x", x)};
  const auto report = run(simt(),
                          recipe_of("saxpy", {4, 1, 1}, {256, 1, 1},
                                    {pointer("y"), pointer("x"), scalar(1.7f), scalar(n)}),
                          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  const auto result = values_of<float>(buffers[0]);
  for (int i = 0; i < n; ++i) ASSERT_EQ(result[i], std::fmaf(1.7f, x[i], y[i])) << i;
  EXPECT_GT(report.steps, 0u);
}

TEST_P(Simt, ReductionThroughSharedMemory) {
  std::vector<float> x(2000);
  std::iota(x.begin(), x.end(), 1.0f);
  std::vector<EmulatorBuffer> buffers{f32_buffer("o", {0}), f32_buffer("x", x)};
  const auto report =
      run(simt(),
          recipe_of("reduce", {1, 1, 1}, {256, 1, 1}, {pointer("o"), pointer("x"), scalar(2000)}),
          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<float>(buffers[0])[0], 2001000.0f);
}

float callee(float x, int k) {
  float a = x;
  for (int i = 0; i < k; i++) a = std::fmaf(a, x, 1.0f);
  return a;
}

TEST_P(Simt, DivergenceCallsAndSwitches) {
  std::vector<std::int32_t> in(64), out(256, -99);
  for (int i = 0; i < 64; ++i) in[i] = i * 7 + 1;
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", out), i32_buffer("in", in)};
  const auto report =
      run(simt(),
          recipe_of("diverge", {1, 1, 1}, {64, 1, 1}, {pointer("out"), pointer("in"), scalar(100)}),
          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  const auto r = values_of<std::int32_t>(buffers[0]);
  std::vector<int> steps(64);
  for (int t = 0; t < 64; ++t) {
    int v = in[t], c = 0;
    while (v != 1 && c < 100) {
      v = (v & 1) != 0 ? 3 * v + 1 : v >> 1;
      c++;
    }
    steps[t] = c;
  }
  for (int t = 0; t < 64; ++t) {
    EXPECT_EQ(r[t], steps[t]) << t;
    const float f = (t & 1) != 0 ? callee(0.5f, t & 7) : callee(0.25f, 3);
    EXPECT_EQ(r[t + 64], static_cast<int>(f * 1000)) << t;
    EXPECT_EQ(r[t + 128], steps[t ^ 1]) << t;
    const int wanted[8] = {5, t, t * t, -t, t / 3, t % 3, ~t, ~t};
    EXPECT_EQ(r[t + 192], wanted[t & 7]) << t;
  }
}

TEST_P(Simt, SoftmaxRows) {
  const int n = 100, rows = 8;
  std::vector<float> x(n * rows);
  for (int i = 0; i < n * rows; ++i) x[i] = std::sin(0.1f * static_cast<float>(i)) * 4;
  std::vector<EmulatorBuffer> buffers{f32_buffer("o", std::vector<float>(x.size())),
                                      f32_buffer("x", x)};
  const auto report = run(simt(),
                          recipe_of("softmax", {2, 1, 1}, {128, 1, 1},
                                    {pointer("o"), pointer("x"), scalar(n), scalar(1.5f)}),
                          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  const auto o = values_of<float>(buffers[0]);
  for (int r = 0; r < rows; ++r) {
    double m = -1e30, s = 0;
    for (int i = 0; i < n; ++i) m = std::max<double>(m, x[r * n + i]);
    for (int i = 0; i < n; ++i) s += std::exp2((x[r * n + i] - m) * 1.5);
    for (int i = 0; i < n; ++i)
      EXPECT_NEAR(o[r * n + i], std::exp2((x[r * n + i] - m) * 1.5) / s, 1e-6);
  }
}

TEST_P(Simt, WarpsThatSpinOnSharedMemory) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", {0, 0}), i32_buffer("flag", {0})};
  const auto report =
      run(simt(), recipe_of("spin", {1, 1, 1}, {64, 1, 1}, {pointer("out"), pointer("flag")}),
          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[0], 8);
}

TEST_P(Simt, Atomics) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("a", {0, 0, 0, 0, 0, 0}), f32_buffer("f", {0.5f}),
                                      buffer_of<std::uint64_t>("l", Dtype::kU64, {1ull << 40}),
                                      i32_buffer("h", std::vector<int>(8))};
  const auto report = run(simt(),
                          recipe_of("atomics", {1, 1, 1}, {128, 1, 1},
                                    {pointer("a"), pointer("f"), pointer("l"), pointer("h")}),
                          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  const auto a = values_of<std::int32_t>(buffers[0]);
  EXPECT_EQ(a[0], 128 * 127 / 2);
  EXPECT_EQ(a[1], 127);
  EXPECT_EQ(a[2], -127);
  EXPECT_EQ(a[3], 128 % 7);
  EXPECT_EQ(a[4], a[5]);
  EXPECT_EQ(values_of<float>(buffers[1])[0], 128.5f);
  EXPECT_EQ(values_of<std::uint64_t>(buffers[2])[0], (1ull << 40) + 384);
  EXPECT_EQ(values_of<std::int32_t>(buffers[3])[1], 16 * 1 + 8 * (16 * 15 / 2));
}

TEST_P(Simt, MbarrierPingPong) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", std::vector<int>(32))};
  const auto report =
      run(simt(), recipe_of("pingpong", {1, 1, 1}, {64, 1, 1}, {pointer("out"), scalar(20)}),
          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  int sum = 0;
  for (int i = 0; i < 20; ++i) sum += i * i;
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[5], sum);
}

TEST_P(Simt, BlocksThatTalkThroughGlobalMemory) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", {0, 0, 0, 0}), i32_buffer("flag", {0})};
  const auto report =
      run(simt(), recipe_of("crossblock", {4, 1, 1}, {32, 1, 1}, {pointer("out"), pointer("flag")}),
          buffers, options());
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0]), (std::vector<int>{41, 42, 42, 42}));
}

TEST_P(Simt, FindsTheRace) {
  std::vector<EmulatorBuffer> buffers{f32_buffer("out", std::vector<float>(128))};
  const auto report =
      run(simt(), recipe_of("racy", {1, 1, 1}, {128, 1, 1}, {pointer("out")}), buffers, options());
  EXPECT_FALSE(report.passed);
  // Depending on who goes first it shows as a race or as a read before the write.
  ASSERT_TRUE(has_finding(report, FindingKind::kRace) ||
              has_finding(report, FindingKind::kUninitialised))
      << words(report);
  EXPECT_GT(report.findings[0].source_line, 0);
  EXPECT_EQ(report.findings[0].source_file, "simt.cu");
}

TEST_P(Simt, FindsTheUninitialisedRead) {
  std::vector<EmulatorBuffer> buffers{f32_buffer("out", std::vector<float>(64))};
  const auto report =
      run(simt(), recipe_of("uninit", {1, 1, 1}, {64, 1, 1}, {pointer("out")}), buffers, options());
  EXPECT_FALSE(report.passed);
  ASSERT_TRUE(has_finding(report, FindingKind::kUninitialised)) << words(report);
  EXPECT_EQ(report.findings[0].warp, 1);
}

TEST_P(Simt, FindsTheOutOfBoundsStore) {
  std::vector<EmulatorBuffer> buffers{f32_buffer("out", std::vector<float>(64))};
  const auto report =
      run(simt(), recipe_of("oob", {1, 1, 1}, {64, 1, 1}, {pointer("out"), scalar(8)}), buffers,
          options());
  ASSERT_TRUE(has_finding(report, FindingKind::kBounds)) << words(report);
  EXPECT_EQ(report.findings[0].lane, 24);
  EXPECT_EQ(report.findings[0].count, 8u);
}

TEST_P(Simt, ReportsTheDeadlock) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", std::vector<int>(64))};
  const auto report =
      run(simt(), recipe_of("hang", {1, 1, 1}, {64, 1, 1}, {pointer("out")}), buffers, options());
  ASSERT_TRUE(has_finding(report, FindingKind::kDeadlock)) << words(report);
  EXPECT_NE(report.findings[0].text.find("1 of 2 arrivals pending"), std::string::npos)
      << report.findings[0].text;
}

TEST_P(Simt, FindsTheDivergentBarrier) {
  std::vector<EmulatorBuffer> buffers{f32_buffer("out", std::vector<float>(32))};
  const auto report = run(simt(), recipe_of("misaligned", {1, 1, 1}, {32, 1, 1}, {pointer("out")}),
                          buffers, options());
  EXPECT_TRUE(has_finding(report, FindingKind::kAligned)) << words(report);
}

std::string loop(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 "
         "out)\n{\n.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n" +
         body + "\nret;\n}\n";
}

TEST(SimtRuns, EndAtTheirLimitOrAsADeadlock) {
  EmulatorOptions options;
  options.max_steps = 100'000;
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", {0})};
  const auto forever =
      run(load_module(loop("L: add.u32 %r1, %r2, 1; bra L;")),
          recipe_of("k", {1, 1, 1}, {32, 1, 1}, {pointer("out")}), buffers, options);
  EXPECT_TRUE(has_finding(forever, FindingKind::kSteps)) << words(forever);
  // A spin on a flag that nobody sets is a deadlock long before the default limit.
  options.max_steps = EmulatorOptions().max_steps;
  const auto spin = run(load_module(loop("ld.param.u64 %rd1, [out];\nL: ld.volatile.global.u32 "
                                         "%r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;")),
                        recipe_of("k", {1, 1, 1}, {32, 1, 1}, {pointer("out")}), buffers, options);
  EXPECT_TRUE(has_finding(spin, FindingKind::kDeadlock)) << words(spin);
}

TEST(SimtRuns, LocalMemoryIsBounded) {
  const auto refused = PtxModule::load(
      loop(".local .align 4 .b8 big[1000000]; mov.u64 %rd1, big; st.local.u32 [%rd1], 1;"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", {0})};
  const auto report =
      run(load_module(loop(".local .align 4 .b8 big[400000]; mov.u64 %rd1, big; mov.u32 %r3, 17; "
                           "st.local.u32 [%rd1+399996], %r3; ld.local.u32 %r1, [%rd1+399996]; "
                           "ld.param.u64 %rd2, [out]; st.global.u32 [%rd2], %r1;")),
          recipe_of("k", {1, 1, 1}, {1, 1, 1}, {pointer("out")}), buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[0], 17);
}

// Local memory holds nothing at first, and again nothing in the next call of a function. What is
// only moved about is no defect, nor are bit fields that are written one after another.
TEST(SimtRuns, FreshLocalMemoryIsUndefined) {
  const auto run_body = [](const std::string& body) {
    std::vector<EmulatorBuffer> buffers{i32_buffer("out", {0})};
    return run(load_module(loop(".local .align 4 .b8 a[16]; .local .align 4 .b8 b[16]; "
                                "mov.u64 %rd1, a; mov.u64 %rd2, b; " +
                                body)),
               recipe_of("k", {1, 1, 1}, {1, 1, 1}, {pointer("out")}), buffers);
  };
  const std::string out = " ld.param.u64 %rd2, [out]; st.global.u32 [%rd2], %r1;";
  const auto fresh = run_body("ld.local.u32 %r1, [%rd1+4];" + out);
  EXPECT_TRUE(has_finding(fresh, FindingKind::kUninitialised)) << words(fresh);
  const auto copied = run_body(
      "ld.local.u32 %r1, [%rd1+4]; st.local.u32 [%rd2+4], %r1; ld.local.u32 %r1, [%rd2+4];" + out);
  EXPECT_TRUE(has_finding(copied, FindingKind::kUninitialised)) << words(copied);
  const auto moved = run_body("ld.local.u32 %r1, [%rd1]; st.local.u32 [%rd2], %r1;");
  EXPECT_TRUE(moved.passed) << words(moved);
  const auto bits = run_body(
      "ld.local.u32 %r1, [%rd1]; and.b32 %r1, %r1, -256; or.b32 %r1, %r1, 3; "
      "st.local.u32 [%rd1], %r1; ld.local.u32 %r1, [%rd1]; and.b32 %r1, %r1, 255;" +
      out);
  EXPECT_TRUE(bits.passed) << words(bits);
}

// Two CTAs of two warps: what each instruction moves and how the banks meet is known by hand.
TEST(SimtRuns, CountInstructionsBytesAndConflicts) {
  EmulatorOptions options;
  options.stats = true;
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", std::vector<int>(64))};
  const auto report = run(
      load_module(loop(".shared .align 128 .b8 s[8192]; mov.u32 %r1, %tid.x; mov.u32 %r2, s; "
                       "shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; "
                       "shl.b32 %r5, %r1, 3; add.u32 %r5, %r2, %r5; bar.sync 0; "
                       "st.shared.u32 [%r5], %r1; "  // two words a bank: one wavefront more
                       "shl.b32 %r6, %r1, 7; add.u32 %r6, %r2, %r6; bar.sync 0; "
                       "st.shared.u32 [%r6], %r1; "  // all words in one bank: 31 more
                       "mov.u32 %r7, %ctaid.x; shl.b32 %r7, %r7, 7; add.u32 %r3, %r3, %r7; "
                       "ld.param.u64 %rd1, [out]; cvt.u64.u32 %rd2, %r3; add.u64 %rd3, %rd1, %rd2; "
                       "setp.lt.u32 %p1, %r1, 8; @%p1 st.global.u32 [%rd3], %r1;")),
      recipe_of("k", {2, 1, 1}, {64, 1, 1}, {pointer("out")}), buffers, options);
  EXPECT_TRUE(report.passed) << words(report);
  const EmulatorStats& stats = report.stats;
  EXPECT_EQ(stats.warp_instructions.at("st"), 3 * 4 + 2U);  // warp 1 of a CTA stores nothing
  EXPECT_EQ(stats.thread_instructions.at("st"), 3 * 128 + 2 * 8U);
  EXPECT_EQ(stats.warp_instructions.at("bar"), 2 * 4U);
  EXPECT_EQ(stats.unit_bytes.at("st.shared"), 3 * 128 * 4U);
  EXPECT_EQ(stats.unit_bytes.at("st.global"), 2 * 8 * 4U);
  EXPECT_EQ(stats.bank_conflicts, 4 * (1 + 31U));
  ASSERT_EQ(stats.warp_steps.size(), 2U);
  EXPECT_EQ(stats.warp_steps[0] + stats.warp_steps[1], report.steps);
  EXPECT_EQ(stats.mma_operations, 0U);
}

TEST(SimtRuns, WriteATrace) {
  EmulatorOptions options;
  const test::TemporaryFolder folder;
  options.trace_file = folder / "trace.json";
  std::vector<EmulatorBuffer> buffers{i32_buffer("out", std::vector<int>(32))};
  run(simt(), recipe_of("pingpong", {1, 1, 1}, {64, 1, 1}, {pointer("out"), scalar(5)}), buffers,
      options);
  std::ifstream in(options.trace_file);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_NE(text.str().find("\"name\": \"warp 1\""), std::string::npos)
      << text.str().substr(0, 400);
  EXPECT_NE(text.str().find("mbarrier.try_wait"), std::string::npos);
  options.trace_file = "/nonexistent/folder/trace.json";
  EXPECT_FALSE(emulate(simt(),
                       recipe_of("pingpong", {1, 1, 1}, {64, 1, 1}, {pointer("out"), scalar(5)}),
                       buffers, options)
                   .ok());
}

TEST(SimtRuns, StealTilesByLaunchControl) {
  const PtxModule module = load_module(test_file("kernels/launch_control.sm_100a.ptx"));
  int taken = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    EmulatorOptions options;
    options.seed = seed;
    std::vector<EmulatorBuffer> buffers{i32_buffer("marks", std::vector<int>(20 * 64)),
                                        i32_buffer("taken", {0})};
    const auto report =
        run(module,
            recipe_of("persistent", {20, 1, 1}, {64, 1, 1}, {pointer("marks"), pointer("taken")}),
            buffers, options);
    EXPECT_TRUE(report.passed) << words(report);
    for (const int mark : values_of<std::int32_t>(buffers[0]))
      ASSERT_EQ(mark, 1) << "each tile once";
    taken += values_of<std::int32_t>(buffers[1])[0];
  }
  EXPECT_GT(taken, 0);
}

TEST(SimtRuns, AreReproducibleBySeed) {
  for (const std::uint64_t seed : {3u, 12u}) {
    EmulatorOptions options;
    options.seed = seed;
    std::uint64_t steps[2];
    for (std::uint64_t& s : steps) {
      std::vector<EmulatorBuffer> buffers{i32_buffer("out", {0, 0, 0, 0}), i32_buffer("flag", {0})};
      s = run(simt(),
              recipe_of("crossblock", {4, 1, 1}, {32, 1, 1}, {pointer("out"), pointer("flag")}),
              buffers, options)
              .steps;
    }
    EXPECT_EQ(steps[0], steps[1]);
  }
}

TEST(SimtRuns, TheLimitOfStepsIsOneOfTheWholeRun) {
  const PtxModule module = load_module(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n"
      ".reg .u32 r;\nmov.u32 r, 1;\nadd.u32 r, r, 1;\nret;\n}\n");
  std::vector<EmulatorBuffer> none;
  const LaunchRecipe thousand = recipe_of("k", {1000, 1, 1}, {32, 1, 1}, {});
  const std::uint64_t total = run(module, thousand, none).steps;
  EmulatorOptions options;
  for (const unsigned threads : {1u, 4u}) {
    options.threads = threads;
    options.max_steps = total;
    const auto enough = run(module, thousand, none, options);
    EXPECT_TRUE(enough.passed) << words(enough);
    options.max_steps = total - 100;
    EXPECT_TRUE(has_finding(run(module, thousand, none, options), FindingKind::kSteps));
    options.max_steps = 1000;
    const auto huge =
        run(module, recipe_of("k", {0x7fffffff, 1, 1}, {32, 1, 1}, {}), none, options);
    EXPECT_TRUE(has_finding(huge, FindingKind::kSteps));
  }
}

TEST(SimtRuns, ABulkCopyThatNoCtaHoldsIsRefusedAtOnce) {
  const auto kernel = [](const std::string& copy) {
    return load_module(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 in)\n{\n"
        ".reg .b64 g;\n.reg .b32 s, m, n;\n.shared .align 128 .b8 room[1024];\n"
        ".shared .align 8 .b64 bar;\nld.param.u64 g, [in];\nmov.u32 s, room;\nmov.u32 m, bar;\n"
        "mov.u32 n, 67108864;\n" +
        copy + "\nret;\n}\n");
  };
  for (const char* copy :
       {"cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [g], n, [m];",
        "cp.async.bulk.global.shared::cta.bulk_group [g], [s], n;"}) {
    std::vector<EmulatorBuffer> buffers{
        f32_buffer("in", std::vector<float>(std::size_t{16} << 20, 1.0f))};
    const auto begin = std::chrono::steady_clock::now();
    const auto report =
        run(kernel(copy), recipe_of("k", {1, 1, 1}, {256, 1, 1}, {pointer("in")}), buffers);
    EXPECT_TRUE(has_finding(report, FindingKind::kBounds)) << words(report);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << copy;
  }
}

TEST(SimtRuns, RefuseLaunchesThatDoNotFit) {
  std::vector<EmulatorBuffer> buffers{f32_buffer("out", {1})};
  EXPECT_FALSE(emulate(simt(), recipe_of("nothing", {1, 1, 1}, {1, 1, 1}, {}), buffers).ok());
  EXPECT_FALSE(emulate(simt(), recipe_of("oob", {1, 1, 1}, {1, 1, 1}, {}), buffers).ok());
  EXPECT_FALSE(emulate(simt(),
                       recipe_of("oob", {1, 1, 1}, {2048, 1, 1}, {pointer("out"), scalar(0)}),
                       buffers)
                   .ok());
  EXPECT_FALSE(emulate(simt(),
                       recipe_of("oob", {1, 1, 1}, {1, 1, 1}, {pointer("absent"), scalar(0)}),
                       buffers)
                   .ok());
  EXPECT_FALSE(
      emulate(simt(), recipe_of("oob", {1, 1, 1}, {1, 1, 1}, {scalar(1), scalar(0)}), buffers)
          .ok());
}

}  // namespace
}  // namespace attnjit::emulator
