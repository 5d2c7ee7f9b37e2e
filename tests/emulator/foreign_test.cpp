// SPDX-License-Identifier: Apache-2.0
// What PTX of other compilers does that attnjit's own kernels do not: each test is the shape of a
// kernel that Triton, nvcc or CUTLASS made and that the emulator once took wrongly.
#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

std::string foreign_kernel(const std::string& body, const std::string& before = {}) {
  return ".version 8.7\n.target sm_100a\n.address_size 64\n" + before +
         ".visible .entry k(.param .u64 o) {\n.reg .pred %p<8>; .reg .b32 %r<32>; "
         ".reg .b64 %rd<8>;\nld.param.u64 %rd1, [o];\nmov.u32 %r1, %tid.x;\n"
         "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd2, %rd1, %rd2;\n" +
         body + "ret;\n}\n";
}

EmulatorReport run_kernel(const std::string& text, std::uint32_t threads,
                          std::vector<EmulatorBuffer>& buffers,
                          EmulatorModel model = EmulatorModel::kSilicon) {
  EmulatorOptions options;
  options.model = model;
  options.seeds = 10;
  return run(load_module(text), recipe_of("k", {1, 1, 1}, {threads, 1, 1}, {pointer("o")}), buffers,
             options);
}

// Cooperative groups' tiles shuffle with a member mask of their own in one instruction.
TEST(Foreign, LanesMayShuffleWithDifferentMemberMasks) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(
      foreign_kernel(
          "and.b32 %r2, %r1, 24;\nmov.u32 %r3, 255;\nshl.b32 %r3, %r3, %r2;\n"
          "redux.sync.add.s32 %r4, %r1, %r3;\nshfl.sync.bfly.b32 %r5, %r1, 1, 6175, %r3;\n"
          "mad.lo.s32 %r6, %r4, 100, %r5;\nst.global.u32 [%rd2], %r6;\n"),
      32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<std::int32_t>(buffers[0]);
  for (int lane = 0; lane < 32; ++lane) {
    const int first = lane / 8 * 8;
    EXPECT_EQ(got[static_cast<std::size_t>(lane)], (8 * first + 28) * 100 + (lane ^ 1)) << lane;
  }
}

TEST(Foreign, ALaneOutsideItsOwnMemberMaskIsFound) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(
      foreign_kernel("and.b32 %r2, %r1, 16;\nxor.b32 %r2, %r2, 16;\nmov.u32 %r3, 65535;\n"
                     "shl.b32 %r3, %r3, %r2;\nshfl.sync.bfly.b32 %r5, %r1, 1, 31, %r3;\n"
                     "st.global.u32 [%rd2], %r5;\n"),
      32, buffers);
  EXPECT_TRUE(has_finding(report, FindingKind::kAligned)) << words(report);
}

// Triton's warps all store a uniform value.
TEST(Foreign, WarpsThatStoreOneValueAreAWarningOnSilicon) {
  const std::string text = foreign_kernel(
      "st.shared.u32 [s], 7;\nbar.sync 0;\nld.shared.u32 %r2, [s];\n"
      "st.global.u32 [%rd2], %r2;\n",
      ".shared .align 4 .b8 s[4];\n");
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(64, -1))};
  EXPECT_TRUE(run_kernel(text, 64, buffers).passed);
  EXPECT_FALSE(run_kernel(text, 64, buffers, EmulatorModel::kIsa).passed);
}

TEST(Foreign, WarpsThatStoreDifferentValuesRace) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(64, -1))};
  const auto report = run_kernel(
      foreign_kernel("st.shared.u32 [s], %r1;\n", ".shared .align 4 .b8 s[4];\n"), 64, buffers);
  EXPECT_TRUE(has_finding(report, FindingKind::kRace)) << words(report);
}

// An increase waits until another warpgroup has given registers back.
TEST(Foreign, SetmaxnregWaitsForRegisters) {
  const auto text = [](const char* give) {
    return foreign_kernel(std::string("setp.lt.u32 %p1, %r1, 128;\n@%p1 bra UP;\n") + give +
                          "bra DONE;\nUP:\nsetmaxnreg.inc.sync.aligned.u32 240;\nDONE:\n"
                          "st.global.u32 [%rd2], %r1;\n");
  };
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(512, -1))};
  const auto report =
      run_kernel(text("nanosleep.u32 100;\nsetmaxnreg.dec.sync.aligned.u32 80;\n"), 512, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_TRUE(has_finding(run_kernel(text(""), 512, buffers), FindingKind::kSetmaxnreg));
}

// 384 threads have 168 registers each, 504 for a thread of each warpgroup. The register file has
// 512, of which 8 are nobody's.
TEST(Foreign, SetmaxnregMovesTheCtasOwnRegistersOnly) {
  const auto text = [](const char* wanted) {
    return foreign_kernel(std::string("setp.lt.u32 %p1, %r1, 128;\nsetp.lt.u32 %p2, %r1, 256;\n") +
                          "@%p1 bra UP;\n@%p2 bra DONE;\nsetmaxnreg.dec.sync.aligned.u32 160;\n" +
                          "bra DONE;\nUP:\nsetmaxnreg.inc.sync.aligned.u32 " + wanted +
                          ";\nDONE:\nst.global.u32 [%rd2], %r1;\n");
  };
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(384, -1))};
  const auto report = run_kernel(text("176"), 384, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_TRUE(has_finding(run_kernel(text("184"), 384, buffers), FindingKind::kSetmaxnreg));
}

const char* const kRunTime =
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    ".extern .func __assertfail(.param .b64 a);\n"
    ".func (.param .b32 r) fact(.param .b32 n) {\n.reg .pred %p1; .reg .b32 %r<8>;\n"
    "ld.param.u32 %r1, [n];\nmov.u32 %r2, 1;\nsetp.lt.u32 %p1, %r1, 2;\n@%p1 bra END;\n"
    "sub.u32 %r3, %r1, 1;\n{ .param .b32 x; .param .b32 y;\nst.param.b32 [x], %r3;\n"
    "call.uni (y), fact, (x);\nld.param.b32 %r4, [y];\n}\nmul.lo.u32 %r2, %r1, %r4;\nEND:\n"
    "st.param.b32 [r], %r2;\nret;\n}\n";

TEST(Foreign, PrintfReturnsAndARecursiveFunctionMayStandAlone) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(
      foreign_kernel("{ .param .b64 a; .param .b64 b; .param .b32 c;\nst.param.b64 [a], %rd1;\n"
                     "st.param.b64 [b], %rd1;\ncall.uni (c), vprintf, (a, b);\n"
                     "ld.param.b32 %r2, [c];\n}\nst.global.u32 [%rd2], %r2;\n",
                     kRunTime),
      32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[5], 0);
}

TEST(Foreign, AFailedAssertionIsAFinding) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(
      foreign_kernel("{ .param .b64 a;\nst.param.b64 [a], %rd1;\ncall.uni __assertfail, (a);\n}\n",
                     kRunTime),
      32, buffers);
  EXPECT_FALSE(report.passed);
}

// CUTLASS passes tensors by value: a structure of extents, strides and a pointer.
TEST(Foreign, AStructureTakesAsManyArgumentsAsFillIt) {
  const std::string text =
      ".version 8.7\n.target sm_100a\n.address_size 64\n"
      ".visible .entry k(.param .align 8 .b8 t[16]) {\n.reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
      "ld.param.u32 %r1, [t];\nld.param.u64 %rd1, [t+8];\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", {-1})};
  const auto module = load_module(text);
  const auto report =
      run(module, recipe_of("k", {1, 1, 1}, {1, 1, 1}, {scalar(42), pointer("o")}), buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[0], 42);
  const auto wrong = [&](std::vector<KernelArgument> args) {
    return emulate(module, recipe_of("k", {1, 1, 1}, {1, 1, 1}, std::move(args)), buffers);
  };
  EXPECT_FALSE(wrong({scalar(42)}));
  EXPECT_FALSE(wrong({pointer("o"), pointer("o"), pointer("o")}));
  EXPECT_FALSE(wrong({}));
}

// Triton makes tensor maps from zeros, field by field.
TEST(Foreign, ATensorMapMayBeMadeFromZeros) {
  std::string fields;
  for (const char* f :
       {"global_address.shared::cta.b1024.b64 [m], %rd1", "rank.shared::cta.b1024.b32 [m], 0",
        "box_dim.shared::cta.b1024.b32 [m], 0, 32", "global_dim.shared::cta.b1024.b32 [m], 0, 32",
        "element_stride.shared::cta.b1024.b32 [m], 0, 1", "elemtype.shared::cta.b1024.b32 [m], 3",
        "swizzle_mode.shared::cta.b1024.b32 [m], 0"}) {
    fields += std::string("@%p1 tensormap.replace.tile.") + f + ";\n";
  }
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, 0))};
  const auto report = run_kernel(
      foreign_kernel("shl.b32 %r2, %r1, 2;\nmov.u32 %r3, m;\nadd.u32 %r3, %r3, %r2;\n"
                     "st.shared.u32 [%r3], 0;\nbar.warp.sync -1;\nsetp.eq.u32 %p1, %r1, 0;\n" +
                         fields,
                     ".shared .align 128 .b8 m[128];\n"),
      32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
}

// LLVM packs a value with an undefined one and later takes only the value out again.
TEST(Foreign, HalfOfAPackedRegisterMayBeUndefined) {
  const auto text = [](const char* taken) {
    return foreign_kernel(std::string("mov.b64 %rd3, {%r1, %r6};\nmov.b64 %rd4, %rd3;\nmov.b64 {") +
                          taken + "}, %rd4;\nst.global.u32 [%rd2], %r2;\n");
  };
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(text("%r2, _"), 32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[5], 5);
  EXPECT_TRUE(has_finding(run_kernel(text("_, %r2"), 32, buffers), FindingKind::kUninitialised));
}

// LLVM adds pairs where it needs one of their halves only (Triton's sums).
TEST(Foreign, ArithmeticOnAPairKeepsItsHalvesApart) {
  const auto text = [](const char* taken) {
    return foreign_kernel(
        std::string("cvt.rn.f32.u32 %r2, %r1;\nmov.b64 %rd3, {%r2, %r6};\n"
                    "fma.rn.f32x2 %rd4, %rd3, %rd3, %rd3;\nmov.b64 {%r3, %r4}, %rd4;\n"
                    "st.global.u32 [%rd2], ") +
        taken + ";\n");
  };
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, 0))};
  const auto report = run_kernel(text("%r3"), 32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<float>(buffers[0])[5], 30.0f);
  EXPECT_TRUE(has_finding(run_kernel(text("%r4"), 32, buffers), FindingKind::kUninitialised));
}

TEST(Foreign, TheHalvesOf128BitsAreDefinedOnTheirOwn) {
  const auto text = [](const char* taken) {
    return foreign_kernel(std::string(".reg .b128 %q<2>;\nmov.b128 %q0, {%rd2, %rd6};\n"
                                      "mov.b128 %q1, %q0;\nmov.b128 {") +
                          taken + "}, %q1;\ncvt.u32.u64 %r2, %rd3;\nst.global.u32 [%rd2], %r2;\n");
  };
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(text("%rd3, %rd4"), 32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_TRUE(
      has_finding(run_kernel(text("%rd4, %rd3"), 32, buffers), FindingKind::kUninitialised));
}

// All lanes of a warp issue one bulk store of the same bytes (FlashAttention-4's epilogue).
TEST(Foreign, LanesThatAllIssueTheSameBulkStoreAreAWarningOnSilicon) {
  const auto text = [](const char* source) {
    return foreign_kernel(
        std::string("shl.b32 %r2, %r1, 4;\nmov.u32 %r3, s;\nadd.u32 %r2, %r2, %r3;\n"
                    "st.shared.v4.u32 [%r2], {%r1, 1, 2, 3};\n"
                    "fence.proxy.async.shared::cta;\nbar.warp.sync -1;\n"
                    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [") +
            source + "], 16;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
        ".shared .align 16 .b8 s[512];\n");
  };
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(4, -1))};
  const auto report = run_kernel(text("%r3"), 32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  EXPECT_EQ(values_of<std::int32_t>(buffers[0])[3], 3);
  EXPECT_FALSE(run_kernel(text("%r3"), 32, buffers, EmulatorModel::kIsa).passed);
  EXPECT_TRUE(has_finding(run_kernel(text("%r2"), 32, buffers), FindingKind::kRace));
}

// CUTLASS and FlashAttention-4 begin a cluster with a relaxed arrival after fence.mbarrier_init.
TEST(Foreign, ARelaxedClusterArrivalPublishesFencedInits) {
  const auto text = [](const char* fence) {
    return foreign_kernel(
        std::string("mov.u32 %r2, bar;\nmov.u32 %r3, %cluster_ctarank;\n"
                    "xor.b32 %r3, %r3, 1;\nmapa.shared::cluster.u32 %r3, %r2, %r3;\n"
                    "setp.eq.u32 %p1, %r1, 0;\n"
                    "@%p1 mbarrier.init.shared.b64 [%r2], 32;\n") +
            fence +
            "barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n"
            "setp.lt.u32 %p2, %r1, 32;\n@%p2 bra W;\n"
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];\nbra D;\n"
            "W:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r2], "
            "0;\n@!%p3 bra W;\nD:\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n",
        ".shared .align 8 .b8 bar[8];\n");
  };
  const auto report_of = [&](const char* fence) {
    std::vector<EmulatorBuffer> buffers{i32_buffer("o", {-1})};
    LaunchRecipe recipe = recipe_of("k", {2, 1, 1}, {64, 1, 1}, {pointer("o")});
    recipe.cluster = {2, 1, 1};
    EmulatorOptions options;
    options.model = EmulatorModel::kIsa;
    options.seeds = 10;
    return run(load_module(text(fence)), recipe, buffers, options);
  };
  EXPECT_TRUE(report_of("fence.mbarrier_init.release.cluster;\n").passed)
      << words(report_of("fence.mbarrier_init.release.cluster;\n"));
  EXPECT_TRUE(report_of("fence.acq_rel.cluster;\n").passed);
  EXPECT_TRUE(has_finding(report_of(""), FindingKind::kRace));
}

TEST(Foreign, Lop3CombinesWithAPredicate) {
  std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(32, -1))};
  const auto report = run_kernel(
      foreign_kernel("setp.lt.u32 %p1, %r1, 16;\nlop3.or.b32 %r2|%p2, %r1, 1, 0, 0xC0, %p1;\n"
                     "lop3.and.b32 _|%p3, %r1, 2, 0, 0xC0, !%p1;\nselp.u32 %r3, 10, 0, %p2;\n"
                     "selp.u32 %r4, 100, 0, %p3;\nadd.u32 %r3, %r3, %r4;\nadd.u32 %r3, %r3, %r2;\n"
                     "st.global.u32 [%rd2], %r3;\n"),
      32, buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto got = values_of<std::int32_t>(buffers[0]);
  for (int lane = 0; lane < 32; ++lane) {
    const int want = (lane & 1) + ((lane & 1) != 0 || lane < 16 ? 10 : 0) +
                     ((lane & 2) != 0 && lane >= 16 ? 100 : 0);
    EXPECT_EQ(got[static_cast<std::size_t>(lane)], want) << lane;
  }
}

// sm_103a: FlashAttention-4 takes a row's maximum while it loads the scores.
TEST(Foreign, TensorMemoryLoadsReduce) {
  const auto text = [](const char* red) {
    return foreign_kernel(
        std::string("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], 32;\n"
                    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
                    "bar.warp.sync -1;\nld.shared.u32 %r2, [s];\n"
                    "cvt.rn.f32.u32 %r3, %r1;\nmov.b32 %r4, 0fC1200000;\n"
                    "mov.b32 %r5, 0f7FC00000;\nmov.b32 %r6, 0f40A00000;\n"
                    "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r2], {%r3,%r4,%r5,%r6};\n"
                    "tcgen05.wait::st.sync.aligned;\n"
                    "tcgen05.ld.red.sync.aligned.32x32b.x4.") +
            red +
            ".f32 {%r8,%r9,%r10,%r11}, %r12, [%r2];\ntcgen05.wait::ld.sync.aligned;\n"
            "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n"
            "st.global.u32 [%rd2], %r12;\n",
        ".shared .align 4 .b8 s[4];\n");
  };
  const auto run_red = [&](const char* red) {
    std::vector<EmulatorBuffer> buffers{f32_buffer("o", std::vector<float>(32, -1))};
    std::string kernel_text = text(red);
    kernel_text.replace(kernel_text.find("sm_100a"), 7, "sm_103a");
    const auto report = run_kernel(kernel_text, 32, buffers, EmulatorModel::kIsa);
    EXPECT_TRUE(report.passed) << words(report);
    return values_of<float>(buffers[0]);
  };
  EXPECT_EQ(run_red("max")[3], 5.0f);
  EXPECT_EQ(run_red("max")[7], 7.0f);
  EXPECT_EQ(run_red("min")[7], -10.0f);
  EXPECT_EQ(run_red("max.abs")[7], 10.0f);
  EXPECT_NE(run_red("max.NaN")[7], run_red("max.NaN")[7]);
}

// CUTLASS's first TMA tutorial: a warp that only waits has no way to hold the next copy back, so a
// phase's parity could come round again before it looks. Silicon wakes it in time.
TEST(Foreign, AWaitingWarpIsNotOvertakenByTwoPhasesOnSilicon) {
  const std::string text = foreign_kernel(
      "mov.u32 %r2, bar;\nmov.u32 %r3, s;\nsetp.eq.u32 %p1, %r1, 0;\n"
      "@%p1 mbarrier.init.shared.b64 [%r2], 1;\n@%p1 fence.mbarrier_init.release.cluster;\n"
      "bar.sync 0;\nmov.u32 %r4, 0;\nNEXT:\n@!%p1 bra WAIT;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 16;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 16, "
      "[%r2];\nWAIT:\nand.b32 %r5, %r4, 1;\nsetp.lt.u32 %p4, %r1, 32;\nTRY:\n"
      "@%p4 mbarrier.test_wait.parity.shared.b64 %p2, [%r2], %r5;\n"
      "@!%p4 mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r5;\n@!%p2 bra TRY;\n"
      "add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p3, %r4, 9;\n@%p3 bra NEXT;\n",
      ".shared .align 16 .b8 s[16];\n.shared .align 8 .b8 bar[8];\n");
  const auto report_of = [&](EmulatorModel model) {
    std::vector<EmulatorBuffer> buffers{i32_buffer("o", std::vector<std::int32_t>(4, 1))};
    EmulatorOptions options;
    options.model = model;
    options.seeds = 40;
    return run(load_module(text), recipe_of("k", {1, 1, 1}, {64, 1, 1}, {pointer("o")}), buffers,
               options);
  };
  const auto silicon = report_of(EmulatorModel::kSilicon);
  EXPECT_TRUE(silicon.passed) << words(silicon);
  const auto isa = report_of(EmulatorModel::kIsa);
  EXPECT_TRUE(has_finding(isa, FindingKind::kDeadlock)) << isa.passed << words(isa);
}

// CuTe DSL 4.5 has all lanes of a warp initialise each mbarrier; later versions elect one.
TEST(Foreign, LanesThatInitialiseOneMbarrierTogetherAreAWarningOnSilicon) {
  const auto report_of = [](const std::string& inits, EmulatorModel model) {
    std::vector<EmulatorBuffer> buffers{i32_buffer("o", {-1})};
    return run_kernel(
        foreign_kernel("mov.u32 %r2, bar;\nmov.u32 %r3, 32;\nadd.u32 %r4, %r1, 1;\n" + inits +
                           "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
                           "mbarrier.arrive.shared.b64 _, [%r2];\n"
                           "W:\nmbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;\n@!%p3 bra W;\n",
                       ".shared .align 8 .b8 bar[8];\n"),
        32, buffers, model);
  };
  const std::string once = "mbarrier.init.shared.b64 [%r2], %r3;\n";
  const auto silicon = report_of(once, EmulatorModel::kSilicon);
  EXPECT_TRUE(silicon.passed) << words(silicon);
  EXPECT_FALSE(silicon.findings.empty());
  EXPECT_TRUE(has_finding(report_of(once, EmulatorModel::kIsa), FindingKind::kBarrier));
  // What is not the same, or not at the same time, is wrong on any machine.
  for (const std::string& inits :
       {once + once, std::string("mbarrier.init.shared.b64 [%r2], %r4;\n")}) {
    const auto report = report_of(inits, EmulatorModel::kSilicon);
    EXPECT_FALSE(report.passed) << inits;
    EXPECT_TRUE(has_finding(report, FindingKind::kBarrier)) << words(report);
  }
}

// Legal text of old compilers: refused as such, not as an error of the text.
TEST(Foreign, SpecialRegistersAsVectorsAreRefusedByName) {
  const auto module = PtxModule::load(foreign_kernel("mov.v4.u32 {%r1, %r2, %r3, %r4}, %tid;\n"));
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, ErrorCode::kUnsupported) << module.error().to_string();
}

}  // namespace
}  // namespace attnjit::emulator
