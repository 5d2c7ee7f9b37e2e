// SPDX-License-Identifier: Apache-2.0
// The order of tcgen05 operations under both models, and damages that must be found.
#include "emulator/model/matrix_descriptor.h"
#include "tcgen05_kernel.h"

namespace attnjit::emulator {
namespace {

constexpr std::uint32_t kInstruction =
    1u << 4 | 1u << 7 | 1u << 10 | (64u / 8) << 17 | (128u / 16) << 24;

/// Two accumulating products of 128 x 64 x 16 from one image.
std::vector<TensorStep> two_steps() {
  MatrixDescriptor a, b;
  a.swizzle = b.swizzle = Swizzle::k128B;
  a.stride = b.stride = 1024;
  b.start = 16384;
  TensorStep step;
  step.a = encode_tcgen05_descriptor(a);
  step.b = encode_tcgen05_descriptor(b);
  step.descriptor = kInstruction;
  TensorStep second = step;
  second.enable = 1;
  return {step, second};
}

std::string plain() {
  return tensor_kernel("tcgen05.mma.cta_group::1.kind::f16 [%td], %da, %db, %id, %pe;", 1);
}

TensorRun run_steps(const std::string& ptx, const EmulatorOptions& options,
                    const std::vector<TensorStep>& steps = two_steps()) {
  std::vector<std::uint8_t> image(24576);
  for (std::size_t i = 0; i < image.size(); ++i)
    image[i] = i % 2 == 0 ? static_cast<std::uint8_t>(i * 37) : std::uint8_t{0x3F};
  return run_tensor(ptx, 1, image, {}, steps, options);
}

constexpr std::uint64_t kSeeds = 8;

/// The damage is found under isa by some of the seeds.
void expect_found(const std::string& ptx, FindingKind kind, const std::string& text,
                  const std::vector<TensorStep>& steps = two_steps()) {
  ASSERT_NE(ptx, plain()) << "nothing was damaged";
  std::string all;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TensorRun r = run_steps(ptx, isa(seed), steps);
    for (const Finding& f : r.report.findings) {
      if (f.kind == kind && !f.warning && f.text.find(text) != std::string::npos) return;
    }
    all += words(r.report);
  }
  ADD_FAILURE() << "no " << to_string(kind) << " finding with '" << text << "':\n" << all;
}

std::string damaged(const std::string& from, const std::string& to, std::string ptx = plain()) {
  EXPECT_NE(ptx.find(from), std::string::npos) << from;
  return replaced(std::move(ptx), from, to);
}

TEST(Order, TheKernelItselfIsRight) {
  std::vector<std::uint32_t> first;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TensorRun r = run_steps(plain(), isa(seed));
    EXPECT_TRUE(r.report.passed) << words(r.report);
    EXPECT_TRUE(r.report.findings.empty()) << words(r.report);
    if (first.empty()) first = r.tmem;
    EXPECT_EQ(r.tmem, first);
  }
}

TEST(Order, ARegisterBeforeWaitLd) {
  expect_found(damaged("tcgen05.wait::ld.sync.aligned;", ""), FindingKind::kTmem, "wait::ld");
}

TEST(Order, ACopyOfARegisterBeforeWaitLd) {
  // Compilers place such copies before the wait: they are as good as the register itself.
  const std::string moves = R"(
  mov.b32 %r20, %r10;
  mov.b64 %a5, {%r11, %r12};
)";
  const std::string moved = damaged(
      "  tcgen05.wait::ld.sync.aligned;\n  st.global.v4.b32 [%a0], {%r10, %r11, %r12, %r13};",
      moves +
          "  tcgen05.wait::ld.sync.aligned;\n  mov.b64 {%r11, %r12}, %a5;\n"
          "  st.global.v4.b32 [%a0], {%r20, %r11, %r12, %r13};");
  const TensorRun expected = run_steps(plain(), isa());
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TensorRun r = run_steps(moved, isa(seed));
    EXPECT_TRUE(r.report.passed) << words(r.report);
    EXPECT_EQ(r.tmem, expected.tmem);
  }
  expect_found(
      damaged("  tcgen05.wait::ld.sync.aligned;\n  mov.b64 {%r11", "  mov.b64 {%r11", moved),
      FindingKind::kTmem, "wait::ld");
}

TEST(Order, AnotherWarpsLanes) {
  expect_found(
      damaged("  shl.b32 %r9, %warp, 21;\n  add.u32 %r9, %r9, %tm;\n  mov.u32 %r2, 0;\nDUMP:",
              "  mov.u32 %r9, %tm;\n  mov.u32 %r2, 0;\nDUMP:"),
      FindingKind::kTmem, "reaches lanes");
}

TEST(Order, ColumnsOutsideTheAllocation) {
  std::string ptx = damaged("[%r0], 512;", "[%r0], 256;");
  expect_found(replaced(ptx, "b32 %tm, 512;", "b32 %tm, 256;"), FindingKind::kTmem,
               "not allocated");
}

TEST(Order, Leak) {
  expect_found(damaged("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 512;", ""),
               FindingKind::kTmem, "still allocated");
}

TEST(Order, UseAfterFree) {
  const std::string free = "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 512;\n";
  std::string ptx = damaged(free, "");
  ptx = damaged("  // The dump.\n",
                "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  setp.ne.u32 %p, %warp, 0;\n"
                "  @%p bra KEEP;\n" +
                    free + "KEEP:\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n",
                ptx);
  expect_found(ptx, FindingKind::kTmem, "not allocated");
}

TEST(Order, FreedWhileOthersStillRead) {
  const std::string barrier =
      "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
      "  tcgen05.fence::after_thread_sync;\n  setp.ne.u32 %p, %warp, 0;\n  @%p bra DONE;";
  expect_found(damaged(barrier, "  setp.ne.u32 %p, %warp, 0;\n  @%p bra DONE;"), FindingKind::kRace,
               "dealloc");
}

TEST(Order, MissingFenceAfterTheWait) {
  const std::string ptx =
      damaged("  @!%p bra WAIT;\n  tcgen05.fence::after_thread_sync;", "  @!%p bra WAIT;");
  expect_found(ptx, FindingKind::kRace, "tcgen05.fence");
  EmulatorOptions silicon;
  const TensorRun r = run_steps(ptx, silicon);
  EXPECT_TRUE(r.report.passed) << words(r.report);
  ASSERT_FALSE(r.report.findings.empty());
  EXPECT_TRUE(r.report.findings[0].warning);
}

TEST(Order, MissingFenceBeforeAProductReadsSharedMemory) {
  std::string ptx = replaced(plain(), "  tcgen05.fence::after_thread_sync;\n  ld.shared.b32 %tm",
                             "  ld.shared.b32 %tm");
  // Nothing is stored to tensor memory first: only the operands in shared memory depend on it.
  const std::size_t fill = ptx.find("  // Tensor memory.");
  ptx.erase(fill, ptx.find("  // The steps.") - fill);
  expect_found(ptx, FindingKind::kRace, "after_thread_sync follows");
}

TEST(Order, MissingFenceBeforeTheBarrier) {
  expect_found(damaged("  tcgen05.wait::st.sync.aligned;\n  tcgen05.fence::before_thread_sync;",
                       "  tcgen05.wait::st.sync.aligned;"),
               FindingKind::kRace, "tcgen05.fence");
}

TEST(Order, MissingWaitSt) {
  expect_found(damaged("  tcgen05.wait::st.sync.aligned;\n", ""), FindingKind::kRace,
               "not ordered");
}

TEST(Order, MissingProxyFence) {
  expect_found(damaged("  fence.proxy.async.shared::cta;\n", ""), FindingKind::kProxy,
               "fence.proxy.async");
}

TEST(Order, MissingCommit) {
  expect_found(
      damaged("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%mb];", ""),
      FindingKind::kDeadlock, "waits for the mbarrier");
}

TEST(Order, CommitBeforeTheProducts) {
  const std::string commit =
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%mb];";
  std::string ptx = damaged(commit, "");
  ptx = damaged("STEP:\n", commit + "\nSTEP:\n", ptx);
  expect_found(ptx, FindingKind::kRace, "not ordered");
}

TEST(Order, NoWaitForTheCommit) {
  expect_found(
      damaged("  mbarrier.try_wait.parity.shared::cta.b64 %p, [%mb], 0;\n  @!%p bra WAIT;\n", ""),
      FindingKind::kRace, "not ordered");
}

TEST(Order, CommitOfAllLanes) {
  // Nobody was elected: the barrier gets more arrivals than it counts.
  std::string ptx = damaged("  setp.ne.u32 %p, %thr, 0;\n  setp.ne.u32 %q, %rank, 0;",
                            "  setp.ne.u32 %p, %warp, 0;\n  setp.ne.u32 %q, %rank, 0;");
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TensorRun r = run_steps(ptx, isa(seed));
    EXPECT_FALSE(r.report.passed);
  }
}

TEST(Order, ProductsOfTwoAccumulators) {
  // The second product reads what the first one writes: silicon runs them in order, the ISA does
  // not promise it.
  std::vector<TensorStep> steps = two_steps();
  steps[1].a_tmem = 0;
  steps[1].d = 128;
  steps[1].enable = 0;
  std::string ptx = replaced(plain(), "[%td], %da,", "[%td], [%ta],");
  steps[0].a_tmem = 256;
  bool found = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    found = found || has_finding(run_steps(ptx, isa(seed), steps).report, FindingKind::kRace);
    EmulatorOptions waived = isa(seed);
    waived.in_order_issue = true;
    EXPECT_TRUE(run_steps(ptx, waived, steps).report.passed);
    EmulatorOptions silicon;
    silicon.seed = seed;
    const TensorRun r = run_steps(ptx, silicon, steps);
    EXPECT_TRUE(r.report.passed) << words(r.report);
  }
  EXPECT_TRUE(found);
}

TEST(Order, MalformedDescriptors) {
  const auto with = [](auto change) {
    std::vector<TensorStep> steps = two_steps();
    change(steps[1]);
    return steps;
  };
  const auto expect = [&](FindingKind kind, const std::string& text, auto change) {
    const TensorRun r = run_steps(plain(), isa(), with(change));
    bool found = false;
    for (const Finding& f : r.report.findings)
      found = found || (f.kind == kind && f.text.find(text) != std::string::npos);
    EXPECT_TRUE(found) << text << "\n" << words(r.report);
  };
  const auto bad = FindingKind::kDescriptor;
  expect(bad, "0b001", [](TensorStep& s) { s.a &= ~(std::uint64_t{7} << 46); });
  expect(bad, "swizzle", [](TensorStep& s) { s.b |= std::uint64_t{7} << 61; });
  expect(bad, "base offset", [](TensorStep& s) { s.b |= std::uint64_t{1} << 49; });
  // Without a swizzle the field means nothing (Triton fills it in).
  EXPECT_TRUE(run_steps(plain(), isa(), with([](TensorStep& s) {
                          s.a &= ~(std::uint64_t{7} << 61);
                          s.b &= ~(std::uint64_t{7} << 61);
                          s.a |= std::uint64_t{1} << 49;
                        }))
                  .report.passed);
  expect(bad, "reserved", [](TensorStep& s) { s.b |= std::uint64_t{1} << 14; });
  expect(bad, "M 256", [](TensorStep& s) { s.descriptor += 8u << 24; });
  expect(bad, "sparsity", [](TensorStep& s) { s.descriptor |= 4; });
  expect(bad, "type", [](TensorStep& s) { s.descriptor |= 7u << 7; });
  expect(bad, "reserved", [](TensorStep& s) { s.descriptor |= 1u << 29; });
  expect(FindingKind::kBounds, "shared address", [](TensorStep& s) { s.b += 16384 / 16; });
  expect(FindingKind::kTmem, "lane", [](TensorStep& s) { s.d = 16u << 16; });
  expect(FindingKind::kTmem, "do not exist", [](TensorStep& s) { s.d = 480; });
}

TEST(Order, UninitialisedOperandsReachTheOutput) {
  // A third of the operands' bytes are never copied.
  expect_found(
      damaged("  ld.param.u32 %r1, [p_bytes];\n  mul.wide", "  mov.u32 %r1, 16384;\n  mul.wide"),
      FindingKind::kUninitialised, "");
}

TEST(Order, ACommitToARawSharedAddress) {
  // Without .shared::cluster the operand is a generic address; silicon forgives it.
  const std::string ptx = damaged("arrive::one.shared::cluster.b64 [%mb]", "arrive::one.b64 [%mb]");
  expect_found(ptx, FindingKind::kSpace, ".shared::cluster");
  const TensorRun r = run_steps(ptx, {});
  EXPECT_TRUE(r.report.passed) << words(r.report);
}

TEST(Order, DisabledLanesKeepTheirValues) {
  const TensorRun all = run_steps(plain(), isa());
  const std::string ptx = replaced(plain(), "%id, %pe;", "%id, {%x0, %x1, %x2, %x3}, %pe;");
  std::vector<TensorStep> steps = two_steps();
  const std::array<std::uint32_t, 4> mask = {0x80000001, 0, 0xFFFFFFFF, 0x00F0};
  for (TensorStep& step : steps) std::copy(mask.begin(), mask.end(), step.x.begin());
  const TensorRun some = run_steps(ptx, isa(1), steps);
  ASSERT_TRUE(some.report.passed) << words(some.report);
  for (int lane = 0; lane < 128; ++lane) {
    const bool disabled = (mask[static_cast<std::size_t>(lane / 32)] >> lane % 32 & 1) != 0;
    for (int column = 0; column < 64; ++column)
      ASSERT_EQ(some.at(0, lane, column), disabled ? 0 : all.at(0, lane, column)) << lane;
  }
}

/// The kernel with A in tensor memory, copied there by another warp's thread.
std::string copied_a(const std::string& before, const std::string& after) {
  std::string ptx = replaced(plain(), "[%td], %da,", "[%td], [%ta],");
  return replaced(ptx, "  // The steps.",
                  "  setp.ne.u32 %p, %thr, 32;\n  @%p bra NO_COPY;\n"
                  "  ld.param.u64 %a0, [p_steps];\n  ld.global.b64 %da, [%a0];\n"
                  "  and.b32 %r8, %base, 0x3FFFF;\n  shr.u32 %r8, %r8, 4;\n"
                  "  cvt.u64.u32 %a1, %r8;\n  add.u64 %da, %da, %a1;\n"
                  "  add.u32 %td, %tm, 256;\n"
                  "  tcgen05.cp.cta_group::1.128x256b [%td], %da;\n" +
                      before +
                      "NO_COPY:\n  barrier.cluster.arrive.aligned;\n"
                      "  barrier.cluster.wait.aligned;\n" +
                      after + "  // The steps.");
}

TEST(Order, ACopyAndAProductOfTwoThreadsArePipelined) {
  const std::string before = "  tcgen05.fence::before_thread_sync;\n";
  const std::string after = "  tcgen05.fence::after_thread_sync;\n";
  const TensorRun expected = run_steps(plain(), isa());
  std::vector<TensorStep> steps = two_steps();
  steps[0].a_tmem = steps[1].a_tmem = 256;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TensorRun r = run_steps(copied_a(before, after), isa(seed), steps);
    ASSERT_TRUE(r.report.passed) << words(r.report);
    for (int lane = 0; lane < 128; ++lane) {
      for (int column = 0; column < 64; ++column)
        ASSERT_EQ(r.at(0, lane, column), expected.at(0, lane, column));
    }
  }
  expect_found(copied_a("", after), FindingKind::kRace, "not ordered", steps);
  expect_found(copied_a(before, ""), FindingKind::kRace, "not ordered", steps);
}

TEST(Order, ShiftedRowsOfA) {
  const auto run_with = [&](const std::string& modifier, bool shifted) {
    const std::string ptx = replaced(replaced(plain(), "[%td], %da,", "[%td], [%ta],"), "kind::f16",
                                     "kind::f16" + modifier);
    std::vector<std::uint32_t> init(128 * 512);
    for (int lane = 0; lane < 128; ++lane) {
      const int row = shifted && lane > 0 ? lane - 1 : lane;
      for (int c = 0; c < 8; ++c)
        init[static_cast<std::size_t>(lane * 512 + 256 + c)] =
            0x3F803F80u + static_cast<std::uint32_t>(row * 8 + c);
    }
    std::vector<TensorStep> steps = two_steps();
    steps.resize(1);
    steps[0].a_tmem = 256;
    std::vector<std::uint8_t> image(24576, 0x3F);
    TensorRun r = run_tensor(ptx, 1, image, init, steps, isa());
    EXPECT_TRUE(r.report.passed) << words(r.report);
    return r;
  };
  const TensorRun by_hand = run_with("", true), by_unit = run_with(".ashift", false);
  for (int lane = 0; lane < 128; ++lane) {
    for (int column = 0; column < 64; ++column)
      ASSERT_EQ(by_unit.at(0, lane, column), by_hand.at(0, lane, column));
  }
}

/// What ptxas takes for sm_100a, and what it refuses, statement by statement.
TEST(Spellings, AreTakenAsPtxasTakesThem) {
  std::istringstream lines(test_file("data/spellings.txt"));
  std::string line;
  int taken = 0, refused = 0;
  while (std::getline(lines, line)) {
    const std::size_t bar = line.rfind(" | ");
    if (bar == std::string::npos || line.find("tcgen05") == std::string::npos) continue;
    const std::string statement = line.substr(bar + 3);
    if (statement.find("...") != std::string::npos) continue;
    const bool expected = line[4] == 'Y';
    const auto module = PtxModule::load(
        ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() {\n"
        ".reg .pred p, q;\n.reg .b32 sa, sb, r<64>, tm, tm2, tm3, tm4, id;\n"
        ".reg .b64 ga, da, db, dz;\n.reg .b16 h0;\n" +
        statement + "\nret;\n}\n");
    const bool sparse = statement.find(".sp.") != std::string::npos;
    if (sparse) {
      ASSERT_FALSE(module) << statement;
      EXPECT_EQ(module.error().code, ErrorCode::kUnsupported) << statement;
      continue;
    }
    EXPECT_EQ(static_cast<bool>(module), expected)
        << statement << ": " << (module ? std::string("taken") : module.error().to_string());
    ++(expected ? taken : refused);
  }
  EXPECT_GT(taken, 80);
  EXPECT_GT(refused, 4);
}

}  // namespace
}  // namespace attnjit::emulator
