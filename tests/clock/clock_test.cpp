// SPDX-License-Identifier: Apache-2.0
// Small PTX kernels whose cycles were counted by hand from the table of numbers: as differences of
// two kernels, so that what both do cancels.
#include "clock/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "../emulator/emulator_fixture.h"
#include "../temporary_folder.h"

namespace attnjit::clock {
namespace {

using attnjit::emulator::load_module;
using attnjit::emulator::pointer;
using attnjit::emulator::recipe_of;

const Parameters kP = parameters_of(Arch::kSm90a);

std::string kernel(const std::string& body, const std::string& declarations = "") {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
         ".reg .b32 %r<512>;\n.reg .f32 %f<512>;\n.reg .b64 %rd<8>;\n.reg .pred %p<4>;\n" +
         declarations + "mov.u32 %r1, %tid.x;\ncvt.rn.f32.u32 %f1, %r1;\n" + body + "ret;\n}\n";
}

std::string times(int n, const std::function<std::string(int)>& line) {
  std::string text;
  for (int i = 0; i < n; ++i) text += line(i);
  return text;
}

Result<ClockReport> timed(const std::string& text, unsigned threads, unsigned ctas = 1,
                          const ClockOptions& options = {}, std::size_t launches = 1) {
  const PtxModule module = load_module(text);
  std::vector<EmulatorBuffer> buffers{
      emulator::f32_buffer("b", std::vector<float>(std::size_t{1} << 16, 0.0f))};
  const LaunchRecipe launch = recipe_of("k", {ctas, 1, 1}, {threads, 1, 1}, {pointer("b")});
  const LaunchSequence sequence{std::vector<LaunchRecipe>(launches, launch), {}};
  return time_launches(module, sequence, buffers, options);
}

LaunchTime launch_of(const std::string& text, unsigned threads, unsigned ctas = 1) {
  Result<ClockReport> report = timed(text, threads, ctas);
  if (!report) {
    ADD_FAILURE() << report.error().to_string();
    return {};
  }
  return report->launches.at(0);
}

double cycles_of(const std::string& text, unsigned threads, unsigned ctas = 1) {
  return launch_of(text, threads, ctas).cycles;
}

std::string chain(int n) {
  return times(n, [](int) { return "fma.rn.f32 %f1, %f1, %f1, %f1;\n"; });
}
std::string apart(int n) {
  return times(n, [](int i) { return fmt::format("fma.rn.f32 %f{}, %f1, %f1, %f1;\n", i + 2); });
}
std::string exponentials(int n) {
  return times(n, [](int i) { return fmt::format("ex2.approx.ftz.f32 %f{}, %f1;\n", i + 2); });
}

TEST(Clock, DependentInstructionsWaitForTheResult) {
  EXPECT_DOUBLE_EQ(cycles_of(kernel(chain(48)), 32) - cycles_of(kernel(chain(16)), 32),
                   32 * kP.fma_latency);
}

TEST(Clock, OthersIssueEachCycle) {
  EXPECT_DOUBLE_EQ(cycles_of(kernel(apart(96)), 32) - cycles_of(kernel(apart(64)), 32),
                   32 * kP.fma_cycles);
}

/// The cycles of a text of sm_90a's on another architecture.
double cycles_on(Arch arch, std::string text, unsigned threads) {
  const std::string name(to_string(arch));
  text.replace(text.find("sm_90a"), 6, name);
  ClockOptions options;
  options.arch = arch;
  const Result<ClockReport> report = timed(text, threads, 1, options);
  EXPECT_TRUE(report);
  return report ? report->launches.at(0).cycles : 0;
}

TEST(Clock, InstructionsMoveApartFromWhatTheyWaitFor) {
  // Eight chains of eight, one after the other in the text, take turns.
  const auto chains = [](int n) {
    return kernel(times(8, [&](int c) {
      return times(n,
                   [&](int) { return fmt::format("fma.rn.f32 %f{0}, %f{0}, %f1, %f1;\n", c + 2); });
    }));
  };
  const auto more = [&](Arch arch) {
    return cycles_on(arch, chains(16), 32) - cycles_on(arch, chains(8), 32);
  };
  EXPECT_DOUBLE_EQ(more(Arch::kSm100a), 8 * 8 * kP.fma_cycles);
  // On sm_90a those alone that are near to one another.
  EXPECT_GT(more(Arch::kSm90a), 2 * 8 * 8 * kP.fma_cycles);
  EXPECT_LT(more(Arch::kSm90a), 8 * 8 * kP.fma_latency);
}

TEST(Clock, WarpsOfASubPartitionShareItsPipe) {
  const auto more = [](unsigned threads) {
    return cycles_of(kernel(exponentials(48)), threads) -
           cycles_of(kernel(exponentials(16)), threads);
  };
  EXPECT_DOUBLE_EQ(more(32), 32 * kP.xu_cycles);
  EXPECT_DOUBLE_EQ(more(128), 32 * kP.xu_cycles);      // one warp on each
  EXPECT_DOUBLE_EQ(more(256), 2 * 32 * kP.xu_cycles);  // two
}

TEST(Clock, AStallTellsOfItsPipe) {
  const WarpTimes times = launch_of(kernel(exponentials(48)), 256).slowest.warps.at(0);
  const double stalled = times.stalls[static_cast<std::size_t>(Cause::kPipe)];
  EXPECT_GT(stalled, 32 * kP.xu_cycles);
  EXPECT_DOUBLE_EQ(times.pipe_stalls[static_cast<std::size_t>(Pipe::kXu)], stalled);
}

TEST(Clock, ConstantsAndCopiesCostNothing) {
  const std::string copies = times(32, [](int i) {
    return fmt::format("mov.u32 %r{}, %r1;\nadd.s32 %r{}, 1, 2;\n", i + 2, i + 40);
  });
  EXPECT_DOUBLE_EQ(cycles_of(kernel(copies + apart(64)), 32), cycles_of(kernel(apart(64)), 32));
}

TEST(Clock, ABarrierWaitsForTheLastWarp) {
  const auto text = [](int n) {
    return kernel("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $wait;\n" + chain(n) +
                  "$wait:\nbar.sync 0, 64;\n");
  };
  const LaunchTime few = launch_of(text(16), 64), many = launch_of(text(80), 64);
  EXPECT_DOUBLE_EQ(many.cycles - few.cycles, 64 * kP.fma_latency);
  const auto waited = [](const LaunchTime& l) {
    return l.slowest.warps.at(0).stalls[static_cast<std::size_t>(Cause::kNamedBarrier)];
  };
  EXPECT_DOUBLE_EQ(waited(many) - waited(few), 64 * kP.fma_latency);
  ASSERT_EQ(many.slowest.barrier_waits.count({0, Cause::kNamedBarrier, 0}), 1u);
}

std::string products(int n, int columns, bool registers) {
  std::string d;
  for (int i = 0; i < columns / 2; ++i) d += fmt::format("{}%f{}", i == 0 ? "" : ", ", i + 8);
  const std::string a = registers ? "{%r2, %r3, %r4, %r5}" : "%rd1";
  return "mov.b64 %rd1, 0x4000010040;\nwgmma.fence.sync.aligned;\n" +
         times(n,
               [&](int) {
                 return fmt::format(
                     "wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16 {{{}}}, {}, %rd1, 1, 1, "
                     "1{};\n",
                     columns, d, a, registers ? ", 0" : ", 0, 0");
               }) +
         "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
}

TEST(Clock, ProductsTakeTheTensorCoresRate) {
  const auto one = [](int columns, bool registers) {
    return (cycles_of(kernel(products(24, columns, registers)), 128) -
            cycles_of(kernel(products(8, columns, registers)), 128)) /
           16;
  };
  EXPECT_DOUBLE_EQ(one(256, false), 128);
  EXPECT_DOUBLE_EQ(one(128, true), 64);
  EXPECT_DOUBLE_EQ(one(64, true), 32);
  // 2048 bytes of A and 1024 of B, at 128 bytes a cycle: more than the product's 16 cycles.
  EXPECT_DOUBLE_EQ(one(32, false), 24);
}

TEST(Clock, WarpgroupsShareTheTensorCores) {
  const auto more = [](unsigned threads) {
    return cycles_of(kernel(products(24, 128, true)), threads) -
           cycles_of(kernel(products(8, 128, true)), threads);
  };
  EXPECT_DOUBLE_EQ(more(128), 16 * 64);
  EXPECT_DOUBLE_EQ(more(256), 2 * 16 * 64);
}

// What a report says of memories and issue ports: eight products read 4096 bytes of B each, and one
// warp issues on one sub-partition.
TEST(Clock, TellsWhatOfMemoriesAndPortsWasInUse) {
  const LaunchTime read = launch_of(kernel(products(8, 128, true)), 128);
  EXPECT_DOUBLE_EQ(read.slowest.shared_bytes, 8 * 4096);
  EXPECT_DOUBLE_EQ(read.shared_share, 8 * 4096 / kP.operand_bytes_per_cycle / read.slowest.cycles);
  EXPECT_EQ(read.l2_share, 0);
  const SmTimes one = launch_of(kernel(apart(96)), 32).slowest;
  EXPECT_GT(one.issue_slots[0], 96);
  EXPECT_EQ(one.issue_slots[1] + one.issue_slots[2] + one.issue_slots[3], 0);
}

// The tensor cores take products in the order of their issue: a warpgroup's eight are over before
// those that another issued after them.
TEST(Clock, ProductsRunInTheOrderOfTheirIssue) {
  const auto ends = [](int second) {
    const std::string text = "setp.lt.u32 %p1, %r1, 128;\n@%p1 bra $first;\n" + chain(64) +
                             products(second, 128, true) + "bra $end;\n$first:\n" +
                             products(8, 128, true) + "$end:\n";
    return launch_of(kernel(text), 256).slowest.warps.at(0).lived;
  };
  EXPECT_NEAR(ends(8), ends(1), 64);  // in turns it would be some 400 cycles more
}

// Accumulators are registers: a product needs slots of the issue port that others leave.
TEST(Clock, ProductsWaitForSlotsThatOtherInstructionsLeave) {
  const auto lived = [](const std::string& beside) {
    const std::string text = "setp.lt.u32 %p1, %r1, 128;\n@%p1 bra $first;\n" + beside +
                             "bra $end;\n$first:\n" + products(8, 128, true) + "$end:\n";
    return launch_of(kernel(text), 256).slowest.warps.at(0).lived;
  };
  const double alone = lived("");
  EXPECT_GT(alone, 8 * 64);
  // Sparse work leaves enough of them; a sub-partition that always issues leaves none.
  EXPECT_NEAR(lived(exponentials(400)), alone, 64);
  const std::string busy = times(16, [](int) { return apart(250); });
  EXPECT_GT(lived(busy), 16 * 250);
  // A burst holds none up: what a product lacks comes later.
  EXPECT_NEAR(lived(apart(60)), alone, 4);
}

TEST(Clock, ExponentialsAreSlowerBesideProducts) {
  const auto lived = [](int count) {
    const std::string text = "setp.lt.u32 %p1, %r1, 128;\n@%p1 bra $first;\n" + exponentials(200) +
                             "bra $end;\n$first:\n" + products(count, 128, true) + "$end:\n";
    return launch_of(kernel(text), 256).slowest.warps.at(4).lived;
  };
  // The last product ends after them; the first begins some cycles after they do.
  EXPECT_NEAR(lived(60) - lived(0), 200 * kP.xu_cycles * kP.product_slows_xu, 60);
}

TEST(Clock, ResultsOfExponentialsComeLaterBesideProducts) {
  const std::string chain_of_ex2 = times(100, [](int) { return "ex2.approx.ftz.f32 %f1, %f1;\n"; });
  const auto lived = [&](int count) {
    const std::string text = "setp.lt.u32 %p1, %r1, 128;\n@%p1 bra $first;\n" + chain_of_ex2 +
                             "bra $end;\n$first:\n" + products(count, 128, true) + "$end:\n";
    return launch_of(kernel(text), 256).slowest.warps.at(4).lived;
  };
  // The last product ends after the chain.
  EXPECT_NEAR(lived(60) - lived(0), 100 * kP.product_delays_xu, 60);
}

// A warp that issues more products than may wait for the tensor cores waits itself, and what it has
// behind them begins later.
TEST(Clock, AWarpWaitsForAPlaceAmongProducts) {
  const auto lived = [](int count) {
    std::string text = products(count, 256, true);
    const std::size_t wait = text.find("wgmma.wait_group");
    const std::string work = chain(1000) + "setp.eq.u32 %p1, %r1, 4096;\n@%p1 bra $next;\n$next:\n";
    text = text.substr(0, wait) + work + text.substr(wait);
    return launch_of(kernel(text), 128).slowest.warps.at(0);
  };
  const WarpTimes few = lived(8), many = lived(16);
  EXPECT_NEAR(many.lived - few.lived, 8 * 128, 8);
  const auto stalled = [](const WarpTimes& w) {
    return w.stalls[static_cast<std::size_t>(Cause::kProduct)];
  };
  EXPECT_NEAR(stalled(many) - stalled(few), 8 * 128, 16);
  // As many as may wait, and the one that runs, are issued at once.
  const int free = static_cast<int>(kP.product_queue) + 1;
  EXPECT_LT(lived(free).lived - lived(free - 1).lived, 64);
}

// ptxas has a wait for products at the begin of its basic block, before arithmetic that PTX has
// before it: that does not run beside them, unless a branch is between.
TEST(Clock, AWaitForProductsIsAheadOfArithmetic) {
  const auto lived = [](const std::string& behind_products, const std::string& behind_wait) {
    std::string text = products(8, 128, true);
    const std::size_t wait = text.find("wgmma.wait_group");
    text = text.substr(0, wait) + behind_products + text.substr(wait) + behind_wait;
    return launch_of(kernel(text), 128).slowest.warps.at(0).lived;
  };
  const double none = lived("", "");
  EXPECT_NEAR(lived(chain(64), ""), none + 64 * kP.fma_latency, 8);
  EXPECT_DOUBLE_EQ(lived(chain(64), ""), lived("", chain(64)));
  const std::string branch = "setp.eq.u32 %p1, %r1, 4096;\n@%p1 bra $next;\n$next:\n";
  EXPECT_NEAR(lived(chain(64) + branch, ""), none, 16);
}

// Where it waits for one product after another, ptxas fills the cycles that it takes the second
// for, one a column, with exponentials that are behind the wait.
TEST(Clock, ExponentialsAreAheadOfAWait) {
  const auto lived = [](const std::string& before, int count) {
    std::string text = products(8, 128, true);
    const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
    text = text.substr(0, text.find(wait)) + before + wait + times(count, [](int i) {
             return fmt::format("ex2.approx.ftz.f32 %f{}, %f1;\n", i + 300);
           });
    return launch_of(kernel(text), 128).slowest.warps.at(0).lived;
  };
  const std::string wait = "wgmma.wait_group.sync.aligned 1;\n";
  const int ahead = static_cast<int>(128 / kP.xu_cycles);
  EXPECT_NEAR(lived("", ahead) - lived("", 0), 128, 16);
  EXPECT_NEAR(lived(wait, ahead), lived(wait, 0), 16);
  EXPECT_NEAR(lived(wait, 2 * ahead) - lived(wait, ahead), 128, 16);
  // What is computed between the waits hides as much.
  const std::string more = wait + "max.f32 %f2, %f1, %f1;\n";
  EXPECT_NEAR(lived(more, ahead) - lived(more, 0), 128, 16);
}

TEST(Clock, FloatsAreCopiedForNothing) {
  const std::string copies =
      times(64, [](int i) { return fmt::format("mov.f32 %f{}, %f1;\n", i + 2); });
  const auto more = [&](Arch arch) {
    return cycles_on(arch, kernel(copies + chain(8)), 32) - cycles_on(arch, kernel(chain(8)), 32);
  };
  EXPECT_DOUBLE_EQ(more(Arch::kSm90a), 0);
  EXPECT_GT(more(Arch::kSm100a), 32);  // whose numbers were fitted so
}

TEST(Clock, WarpsTakeTurns) {
  // Two warps of one sub-partition want the same pipe all the time.
  const LaunchTime launch = launch_of(kernel(exponentials(200)), 256);
  const auto& warps = launch.slowest.warps;
  EXPECT_NEAR(warps.at(0).lived, 400 * kP.xu_cycles, 60);
  EXPECT_NEAR(warps.at(4).lived, 400 * kP.xu_cycles, 60);
}

TEST(Clock, OnABlackwellToo) {
  std::string text = kernel(exponentials(200));
  text.replace(text.find("sm_90a"), 6, "sm_100a");
  ClockOptions options;
  options.arch = Arch::kSm100a;
  const Result<ClockReport> report = timed(text, 256, 1, options);
  ASSERT_TRUE(report);
  const auto& warps = report->launches.at(0).slowest.warps;
  const double pipe = parameters_of(Arch::kSm100a).xu_cycles;
  EXPECT_NEAR(warps.at(0).lived, 400 * pipe, 60);
  EXPECT_NEAR(warps.at(4).lived, 400 * pipe, 60);
}

// FlashAttention-4's epilogue warp stores its tile without choosing a lane.
TEST(Clock, LanesThatStoreTheSameBytesStoreOnce) {
  const auto stores = [](const std::string& guard, const std::string& offset) {
    const std::string text =
        "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd1, %rd1;\nmov.u32 %r2, tile;\n" + offset +
        "setp.eq.u32 %p1, %r1, 0;\n" +
        times(8,
              [&](int) {
                return guard + "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 4096;\n";
              }) +
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n";
    return cycles_of(kernel(text, ".shared .align 128 .b8 tile[4096];\n"), 32, 132);
  };
  const double one = stores("@%p1 ", "");
  EXPECT_NEAR(stores("", ""), one, one / 50);
  // Other places are other bytes.
  const std::string apart = "mul.wide.u32 %rd2, %r1, 4096;\nadd.s64 %rd1, %rd1, %rd2;\n";
  EXPECT_GT(stores("", apart), 4 * one);
}

TEST(Clock, AKernelReadsTheClocksCycles) {
  const auto cycles = [](int n) {
    const PtxModule module = load_module(
        kernel("mov.u64 %rd2, %clock64;\n" + chain(n) +
               "mov.u64 %rd3, %clock64;\nsub.s64 %rd4, %rd3, %rd2;\ncvt.u32.u64 %r2, %rd4;\n"
               "ld.param.u64 %rd1, [p];\nst.global.u32 [%rd1], %r2;\n"
               "st.global.f32 [%rd1 + 4], %f1;\n"));
    std::vector<EmulatorBuffer> buffers{emulator::f32_buffer("b", std::vector<float>(64, 0.0f))};
    const LaunchSequence sequence{{recipe_of("k", {1, 1, 1}, {32, 1, 1}, {pointer("b")})}, {}};
    EXPECT_TRUE(time_launches(module, sequence, buffers, {}).ok());
    std::uint32_t count = 0;
    std::memcpy(&count, buffers[0].data.data(), sizeof count);
    return count;
  };
  EXPECT_NEAR(cycles(96) - cycles(32), 64 * kP.fma_latency, 64 * kP.fma_latency - 60);
}

// Of the SMs that take from a counter one is run: it gets its share of what is taken, each time.
TEST(Clock, AnSmTakesItsShare) {
  const auto cycles = [](int tiles) {
    const std::string text =
        "ld.param.u64 %rd1, [p];\n$more:\natom.global.add.u32 %r2, [%rd1], 1;\n" + chain(64) +
        fmt::format("setp.lt.u32 %p1, %r2, {};\n@%p1 bra $more;\n", tiles);
    return launch_of(kernel(text), 1, 132).cycles;
  };
  const double one = (cycles(132 * 12) - cycles(132 * 4)) / 8;
  EXPECT_GT(one, 64 * kP.fma_latency);
  EXPECT_LT(one, 64 * kP.fma_latency + 2 * kP.l2_hit_latency);
}

/// A launch of 132 CTAs that take tiles, the first one by their number as FlashAttention-3's do;
/// the body has the tile in %r2.
LaunchTime dynamic(int tiles, bool first_is_taken, const std::string& body, unsigned sms) {
  const std::string take = "atom.global.add.u32 %r2, [%rd1], 1;\n";
  const std::string text =
      "ld.param.u64 %rd1, [p];\n" + (first_is_taken ? take : "mov.u32 %r2, %ctaid.x;\n") +
      fmt::format("$more:\nsetp.ge.u32 %p1, %r2, {};\n@%p1 bra $end;\n", tiles) + body + take +
      (first_is_taken ? "" : "add.u32 %r2, %r2, 132;\n") + "bra $more;\n$end:\n";
  ClockOptions options;
  options.sms = sms;
  const Result<ClockReport> report = timed(kernel(text), 1, 132, options);
  EXPECT_TRUE(report);
  return report ? report->launches.at(0) : LaunchTime();
}

// Who is free takes a tile: where the longest come first, who had a long one has a short one then.
TEST(Clock, WhoIsFreeTakesATile) {
  // Of 264 tiles the first takes 264 rounds, the last one.
  const std::string body = fmt::format(
      "sub.u32 %r3, 264, %r2;\n$round:\n{}sub.u32 %r3, %r3, 1;\n"
      "setp.gt.s32 %p1, %r3, 0;\n@%p1 bra $round;\n",
      chain(16));
  const auto rounds = [&](unsigned sms, bool first_is_taken) {
    const double tile = dynamic(1, true, "mov.u32 %r2, 0;\n" + body, sms).cycles;
    return dynamic(264, first_is_taken, body, sms).cycles / tile;
  };
  for (const bool first_is_taken : {false, true}) {
    EXPECT_NEAR(rounds(132, first_is_taken), 265.0 / 264, 0.05);
    // An SM that stands for 33 gets the longest of theirs.
    EXPECT_NEAR(rounds(4, first_is_taken), 265.0 / 264 + 16.0 / 264, 0.08);
  }
}

/// A launch of a CTA for each tile on a B200: each computes its own, and steals others' where
/// `steals`. The body has the tile in %r2.
LaunchTime stealing(unsigned tiles, bool steals, const std::string& body, unsigned sms) {
  const std::string ask =
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 16;\n"
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r5], "
      "[%r6];\n"
      "$wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], %r7;\n@!%p2 bra $wait;\n"
      "xor.b32 %r7, %r7, 1;\nld.shared.b128 %q, [%r5];\n"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q;\n@!%p3 bra $end;\n"
      "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r2, %q;\nbra $more;\n";
  // So much shared memory that an SM holds one CTA.
  std::string text = kernel(
      ".shared .align 16 .b8 answer[120000];\n.shared .align 8 .b64 full;\n.reg .b128 %q;\n"
      "mov.u32 %r5, answer;\nmov.u32 %r6, full;\nmov.u32 %r7, 0;\n"
      "mbarrier.init.shared::cta.b64 [%r6], 1;\nfence.mbarrier_init.release.cluster;\n"
      "mov.u32 %r2, %ctaid.x;\n$more:\n" +
      body + (steals ? ask : "") + "$end:\n");
  text.replace(text.find("sm_90a"), 6, "sm_100a");
  ClockOptions options;
  options.arch = Arch::kSm100a;
  options.sms = sms;
  const Result<ClockReport> report = timed(text, 1, tiles, options);
  EXPECT_TRUE(report);
  return report ? report->launches.at(0) : LaunchTime();
}

// Who asks for another CTA's work is given the next: where the longest tiles come first, who had a
// long one has a short one then. CTAs of a place would have the longest of each round.
TEST(Clock, WhoIsFreeSteals) {
  const auto body = [](const char* tile) {
    return fmt::format(
        "sub.u32 %r3, 296, {};\n$round:\n{}sub.u32 %r3, %r3, 1;\n"
        "setp.gt.s32 %p1, %r3, 0;\n@%p1 bra $round;\n",
        tile, chain(16));
  };
  const double one = stealing(1, true, body("0"), 1).cycles;
  EXPECT_NEAR(stealing(296, true, body("%r2"), 148).cycles / one, 297.0 / 296, 0.06);
  // An SM that stands for 37 gets the longest of theirs.
  EXPECT_NEAR(stealing(296, true, body("%r2"), 4).cycles / one, 1 + 19.0 / 296, 0.1);
}

// The last to end decides: eight of 132 SMs have a second tile.
TEST(Clock, AFewTilesMoreTakeATilesTimeMore) {
  for (const unsigned sms : {1u, 4u, 132u}) {
    const auto cycles = [&](int tiles) { return dynamic(tiles, false, chain(4000), sms).cycles; };
    EXPECT_NEAR(cycles(140) - cycles(132), 4000 * kP.fma_latency, 500) << sms;
    EXPECT_NEAR(cycles(264) - cycles(140), 0, 500) << sms;
  }
  // Where half of the SMs have their first tile done while the others are busy, those take the few
  // that are left: nobody else is late.
  const std::string body = "setp.lt.u32 %p1, %r2, 66;\n@%p1 bra $long;\nbra $short;\n$long:\n" +
                           chain(4000) + "$short:\n" + chain(4000);
  for (const unsigned sms : {4u, 132u}) {
    const auto cycles = [&](int tiles) { return dynamic(tiles, false, body, sms).cycles; };
    EXPECT_NEAR(cycles(140) - cycles(132), 0, 1000) << sms;
    EXPECT_NEAR(cycles(132 + 66 + 8) - cycles(140), 4000 * kP.fma_latency, 1000) << sms;
  }
}

std::string copies(int n) {
  return "mov.u32 %r2, bar;\nmov.u32 %r3, data;\nld.param.u64 %rd1, [p];\n"
         "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $end;\n"
         "mbarrier.init.shared::cta.b64 [%r2], 1;\n" +
         fmt::format("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {};\n", n * 16384) +
         times(n,
               [](int) {
                 return "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], "
                        "[%rd1], 16384, [%r2];\n";
               }) +
         "$again:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;\n@!%p2 bra $again;\n"
         "$end:\n";
}
const char* const kShared = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 data[16384];\n";

TEST(Clock, CopiesTakeAnSmsShareOfL2) {
  const auto more = [](unsigned ctas) {
    return (cycles_of(kernel(copies(12), kShared), 32, ctas) -
            cycles_of(kernel(copies(4), kShared), 32, ctas)) /
           8;
  };
  EXPECT_NEAR(more(1), 16384 / kP.tma_bytes, 1);
  const double share = kP.l2_gb_per_s * 1000 / kP.boost_mhz / 132;
  EXPECT_LT(share, kP.tma_bytes);
  EXPECT_NEAR(more(132), 16384 / share, 16384 / share / 20);
}

TEST(Clock, WhereCtasStayTheMiddleOfEachPartIsRun) {
  using Sms = std::vector<std::uint64_t>;
  EXPECT_EQ(launch_of(kernel(chain(4)), 32, 132).timed_sms, (Sms{16, 49, 82, 115}));
  EXPECT_EQ(launch_of(kernel(chain(4)), 32, 132 * 200).timed_sms, (Sms{0, 43, 87, 131}));
}

// A launch that writes what the next one loops by is run whole, though one SM of it is timed: each
// CTA of the second asks what its neighbour wrote.
TEST(Clock, WhatTheNextLaunchReadsIsWritten) {
  const auto entry = [](const char* name, const std::string& body) {
    return fmt::format(
        ".visible .entry {}(.param .u64 p) {{\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n"
        ".reg .pred %p<2>;\nmov.u32 %r1, %ctaid.x;\nld.param.u64 %rd1, [p];\n{}ret;\n}}\n",
        name, body);
  };
  const PtxModule module = load_module(
      ".version 9.0\n.target sm_100a\n.address_size 64\n" +
      entry("writes",
            "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd3, %rd1, %rd2;\nmov.u32 %r2, 1000;\n"
            "st.global.u32 [%rd3], %r2;\n") +
      entry("loops",
            "add.u32 %r2, %r1, 1;\nrem.u32 %r2, %r2, 132;\nmul.wide.u32 %rd2, %r2, 4;\n"
            "add.u64 %rd3, %rd1, %rd2;\nld.global.u32 %r3, [%rd3];\n$more:\n"
            "sub.u32 %r3, %r3, 1;\nsetp.gt.s32 %p1, %r3, 0;\n@%p1 bra $more;\n"));
  std::vector<EmulatorBuffer> buffers{emulator::f32_buffer("b", std::vector<float>(132, 0.0f))};
  LaunchSequence sequence;
  for (const char* const name : {"writes", "loops"}) {
    sequence.launches.push_back(recipe_of(name, {132, 1, 1}, {32, 1, 1}, {pointer("b")}));
  }
  ClockOptions options;
  options.arch = Arch::kSm100a;  // on sm_90a every CTA is run once, to see what it loads
  options.sms = 1;
  const Result<ClockReport> report = time_launches(module, sequence, buffers, options);
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(report->launches[0].timed_ctas, 1u);
  EXPECT_GT(report->launches[1].cycles, 3000);
}

// A warpgroup multiplies what a warp loads, in as many rounds as the CTA has: most have 2, number
// 99 has 6 and number 7 has 1.
TEST(Clock, TheCtaThatLoadsMostIsRun) {
  const std::string wait =
      "{1}:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [{0}], %r8;\n"
      "@!%p2 bra {1};\n";
  const std::string text =
      "mov.u32 %r2, full;\nmov.u32 %r6, empty;\nmov.u32 %r3, data;\nld.param.u64 %rd2, [p];\n"
      "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $made;\n"
      "mbarrier.init.shared::cta.b64 [%r2], 1;\nmbarrier.init.shared::cta.b64 [%r6], 128;\n"
      "$made:\nbar.sync 0;\nmov.u32 %r7, %ctaid.x;\n"
      "setp.eq.u32 %p1, %r7, 99;\nselp.u32 %r9, 6, 2, %p1;\n"
      "setp.eq.u32 %p1, %r7, 7;\nselp.u32 %r9, 1, %r9, %p1;\nmov.u32 %r10, 0;\n"
      "setp.lt.u32 %p3, %r1, 128;\n@%p3 bra $products;\n"
      "setp.ne.u32 %p1, %r1, 128;\n@%p1 bra $end;\n"
      "$load:\nand.b32 %r8, %r10, 1;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16384;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 16384, "
      "[%r2];\n" +
      fmt::format(fmt::runtime(wait), "%r6", "$given") +
      "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p1, %r10, %r9;\n@%p1 bra $load;\nbra $end;\n"
      "$products:\nand.b32 %r8, %r10, 1;\n" +
      fmt::format(fmt::runtime(wait), "%r2", "$loaded") + products(8, 128, true) +
      "mbarrier.arrive.shared::cta.b64 _, [%r6];\n"
      "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p1, %r10, %r9;\n@%p1 bra $products;\n$end:\n";
  const LaunchTime launch = launch_of(
      kernel(text, std::string(".shared .align 8 .b64 full;\n.shared .align 8 .b64 empty;\n") +
                       ".shared .align 128 .b8 data[16384];\n"),
      160, 132);
  // The most, and of the others those in the middle of each quarter.
  EXPECT_EQ(launch.timed_sms, (std::vector<std::uint64_t>{99, 49, 82, 116}));
  EXPECT_DOUBLE_EQ(launch.loaded_bytes, (130 * 2 + 6 + 1) * 16384.0);
}

// Copies that L2 limits take fewer cycles at a lower clock, so that tensor cores are busier, and
// the clock is lower still: the one that is told is that of the launch as it is told.
TEST(Clock, TheChipsClockIsThatOfItsLoad) {
  const std::string text =
      "setp.lt.u32 %p3, %r1, 128;\n@%p3 bra $products;\n"
      "sub.u32 %r1, %r1, 128;\n" +
      copies(12) + "bra $done;\n$products:\n" + products(72, 128, true) + "$done:\n";
  const LaunchTime launch = launch_of(kernel(text, kShared), 160, 132);
  const double load = kP.boost_mhz * std::cbrt(kP.free_activity / launch.tensor_share);
  EXPECT_LT(load, 0.95 * kP.boost_mhz);
  EXPECT_NEAR(launch.mhz, load, 0.012 * load);
}

// A warp's load or store of 512 bytes: more than an SM's share of L2 gives in the cycles that it
// takes of the pipe.
TEST(Clock, LoadsAndStoresOfThreadsTakeAnSmsShareOfL2) {
  const auto each = [](const char* access, unsigned ctas) {
    const auto text = [&](int n) {
      return kernel(
          "ld.param.u64 %rd1, [p];\nmul.wide.u32 %rd2, %r1, 16;\n"
          "add.s64 %rd1, %rd1, %rd2;\n" +
          times(n, [&](int i) { return fmt::format(fmt::runtime(access), i + 8); }) +
          fmt::format("st.global.f32 [%rd1], %f{};\n", n + 7));
    };
    return (cycles_of(text(48), 32, ctas) - cycles_of(text(16), 32, ctas)) / 32;
  };
  const char* const load = "ld.global.v4.f32 {{%f{0}, %f{0}, %f{0}, %f{0}}}, [%rd1];\n";
  const char* const store = "st.global.v4.f32 [%rd1], {{%f1, %f1, %f1, %f1}};\n";
  const double share = kP.l2_gb_per_s * 1000 / kP.boost_mhz / 132;
  EXPECT_NEAR(each(load, 1), 512 / kP.tma_bytes, 0.5);
  EXPECT_NEAR(each(load, 132), 512 / share, 1);
  EXPECT_NEAR(each(store, 132), 512 / share, 1);
}

Result<ClockReport> timed_pair(const std::string& text, unsigned threads, unsigned cluster) {
  const PtxModule module = load_module(text);
  std::vector<EmulatorBuffer> buffers{emulator::f32_buffer("b", std::vector<float>(64, 0.0f))};
  LaunchRecipe launch = recipe_of("k", {cluster, 1, 1}, {threads, 1, 1}, {pointer("b")});
  launch.cluster = {cluster, 1, 1};
  return time_launches(module, LaunchSequence{{launch}, {}}, buffers, {});
}

double cycles_of_pair(const std::string& text, unsigned threads, unsigned cluster) {
  Result<ClockReport> report = timed_pair(text, threads, cluster);
  if (!report) {
    ADD_FAILURE() << report.error().to_string();
    return 0;
  }
  return report->launches.at(0).cycles;
}

/// Two warps hand over to one another `n` times: of one CTA, or of two.
double handovers(int n, bool apart, const std::string& semantics = ".relaxed.cluster") {
  const std::string own =
      apart ? "mov.u32 %r4, %cluster_ctarank;\nmov.u32 %r2, bar;\nxor.b32 %r3, %r4, 1;\n"
              "mapa.shared::cluster.u32 %r3, %r2, %r3;\n"
            : "shr.u32 %r4, %r1, 5;\nmov.u32 %r5, bar;\nshl.b32 %r6, %r4, 3;\n"
              "add.u32 %r2, %r5, %r6;\nxor.b32 %r6, %r6, 8;\nadd.u32 %r3, %r5, %r6;\n";
  const std::string all =
      apart ? "barrier.cluster.arrive;\nbarrier.cluster.wait;\n" : "bar.sync 0;\n";
  const std::string arrive =
      apart ? "mbarrier.arrive" + semantics + ".shared::cluster.b64 _, [%r3];\n"
            : "mbarrier.arrive.shared::cta.b64 _, [%r3];\n";
  const auto wait = [](int side, int i) {
    return fmt::format(
        "$w{0}_{1}:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], {2};\n"
        "@!%p3 bra $w{0}_{1};\n",
        side, i, i % 2);
  };
  const std::string text =
      own +
      "and.b32 %r7, %r1, 31;\nsetp.ne.u32 %p1, %r7, 0;\n"
      "@!%p1 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
      "@!%p1 fence.mbarrier_init.release.cluster;\n" +
      all + "@%p1 bra $end;\nsetp.ne.u32 %p2, %r4, 0;\n@%p2 bra $second;\n" +
      times(n, [&](int i) { return arrive + wait(0, i); }) + "bra $end;\n$second:\n" +
      times(n, [&](int i) { return wait(1, i) + arrive; }) + "$end:\n" + (apart ? all : "");
  return cycles_of_pair(kernel(text, ".shared .align 8 .b64 bar[2];\n"), apart ? 32 : 64,
                        apart ? 2 : 1);
}

TEST(Clock, AnArrivalAtAnotherCtaTakesItsTime) {
  const auto round = [](bool apart, const char* semantics) {
    return (handovers(12, apart, semantics) - handovers(4, apart, semantics)) / 8;
  };
  const double within = round(false, ""), relaxed = round(true, ".relaxed.cluster");
  EXPECT_NEAR(relaxed - within, 2 * kP.peer_latency, 4);
  // Who releases waits until the whole GPU sees what it wrote.
  EXPECT_NEAR(round(true, ".release.cluster") - relaxed, 2 * kP.gpu_fence_latency, 4);
}

TEST(Clock, ALoadFromAnotherCtaTakesItsTime) {
  // Each load finds its own address.
  const auto text = [](int n) {
    return kernel(
        "mov.u32 %r2, bar;\nmov.u32 %r3, %cluster_ctarank;\nxor.b32 %r3, %r3, 1;\n"
        "mapa.shared::cluster.u32 %r3, %r2, %r3;\nst.shared::cluster.u32 [%r3], %r3;\n"
        "barrier.cluster.arrive;\nbarrier.cluster.wait;\n" +
            times(n, [](int) { return "ld.shared::cluster.u32 %r3, [%r3];\n"; }) +
            "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
        ".shared .align 8 .b64 bar;\n");
  };
  EXPECT_NEAR((cycles_of_pair(text(24), 32, 2) - cycles_of_pair(text(8), 32, 2)) / 16,
              kP.peer_latency + kP.lsu_cycles, 1);
}

TEST(Clock, ABarrierOfAClusterTakesItsTime) {
  const auto text = [](int n) {
    return kernel(times(n, [](int) { return "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"; }));
  };
  EXPECT_NEAR((cycles_of_pair(text(12), 32, 2) - cycles_of_pair(text(4), 32, 2)) / 8,
              kP.peer_latency, 4);
}

TEST(Clock, ManyCtasAreExtrapolated) {
  const LaunchTime some = launch_of(kernel(chain(400)), 1024, 132 * 8),
                   many = launch_of(kernel(chain(400)), 1024, 132 * 80);
  EXPECT_EQ(some.ctas_per_sm, 2u);
  EXPECT_EQ(some.left_ctas, 0u);
  EXPECT_GT(many.left_ctas, 0u);
  EXPECT_NEAR(many.cycles / some.cycles, 10, 0.5);
}

// Who is free takes the next CTA: long ones that follow one another by as many as there are SMs do
// not meet on one of them.
TEST(Clock, CtasGoToWhoIsFree) {
  const std::string text =
      "mov.u32 %r2, %ctaid.x;\nrem.u32 %r2, %r2, 132;\n"
      "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra $end;\n" +
      chain(8000) + "$end:\n";
  const double one = cycles_of(kernel(text), 1024);
  EXPECT_LT(launch_of(kernel(text), 1024, 132 * 12).cycles, 4 * one);
}

TEST(Clock, IsDeterministic) {
  const std::string text = kernel(copies(5) + exponentials(40), kShared);
  EXPECT_EQ(cycles_of(text, 256, 7), cycles_of(text, 256, 7));
}

/// Has the allocator hand out the next blocks of each small size in an order of its own.
void shuffle_heap(unsigned seed) {
  constexpr std::size_t kBlocks = 64;
  std::mt19937 random(seed);
  for (std::size_t size = 24; size < 512; size += 16) {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(std::make_unique<char[]>(size));
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (auto& block : blocks) block.reset();
  }
}

TEST(Clock, TurnsDoNotHangOnAddresses) {
  // Three CTAs of an SM have products at the same time: one of them a long end. So it matters whose
  // turn comes after whose.
  const std::string text = kernel(
      "mov.u32 %r6, %ctaid.x;\nsetp.lt.u32 %p1, %r6, 132;\n@%p1 bra $wide;\n"
      "setp.lt.u32 %p1, %r6, 264;\n@%p1 bra $narrow;\n" +
      products(8, 64, true) + chain(400) + "ret;\n$narrow:\n" + products(8, 64, true) +
      "ret;\n$wide:\n" + products(8, 256, true));
  const double once = cycles_of(text, 128, 396);
  for (unsigned seed = 0; seed < 16; ++seed) {
    shuffle_heap(seed);
    EXPECT_EQ(cycles_of(text, 128, 396), once);
  }
}

TEST(Clock, TheTraceHasEveryLaunch) {
  ClockOptions options;
  const test::TemporaryFolder folder;
  options.trace_file = folder / "trace.json";
  const Result<ClockReport> report = timed(kernel("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $wait;\n" +
                                                  chain(16) + "$wait:\nbar.sync 0, 64;\n"),
                                           64, 1, options, 2);
  ASSERT_TRUE(report) << report.error().to_string();
  std::ifstream file(options.trace_file);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, double> begins;  // by process, which is a CTA of a launch
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") begins.emplace(event.at("pid"), event.at("ts"));
  }
  ASSERT_EQ(begins.size(), 2u);
  EXPECT_NEAR(begins.at(1) - begins.at(0), report->launches[1].us, 1e-3);
}

// Perfetto drops what overlaps in a row: copies that are under way together have a row each.
TEST(Clock, SpansOfARowOfTheTraceDoNotOverlap) {
  ClockOptions options;
  const test::TemporaryFolder folder;
  options.trace_file = folder / "trace.json";
  const Result<ClockReport> report = timed(kernel(copies(5), kShared), 32, 1, options);
  ASSERT_TRUE(report) << report.error().to_string();
  std::ifstream file(options.trace_file);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, std::vector<std::pair<double, double>>> rows;
  std::map<int, std::string> names;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const int row = event.at("tid");
    if (event.at("name") == "thread_name") names[row] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    rows[row].emplace_back(begin, begin + event.at("dur").get<double>());
  }
  std::size_t all = 0, of_copies = 0;
  for (auto& [row, spans] : rows) {
    all += spans.size();
    of_copies += names.at(row).rfind("copies", 0) == 0 ? 1 : 0;
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_GE(spans[i].first, spans[i - 1].second - 1e-3) << names.at(row);
  }
  EXPECT_GT(all, 5u);
  EXPECT_GT(of_copies, 1u);
}

TEST(Clock, RefusesAKernelThatWaitsInVain) {
  const Result<ClockReport> report = timed(kernel("bar.sync 0, 64;\n"), 32);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(report.error().field, "timing");
}

// A finding stops the clock, and a warning does not.
TEST(Clock, RefusesAKernelThatBreaksARule) {
  const std::string declared = ".shared .align 8 .b8 bar[8];\nmov.u32 %r2, bar;\n";
  const std::string inits = "mbarrier.init.shared.b64 [%r2], 32;\n";  // by all lanes
  EXPECT_GT(cycles_of(kernel(inits, declared), 32), 0);
  const Result<ClockReport> report = timed(kernel(inits + inits, declared), 32);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(report.error().field, "timing");
}

TEST(Clock, RefusesAKernelOfAnotherArchitecture) {
  const auto on_b200 = [](const char* target) {
    std::string text = kernel("");
    text.replace(text.find("sm_90a"), 6, target);
    ClockOptions options;
    options.arch = Arch::kSm100a;
    return timed(text, 32, 1, options);
  };
  for (const char* other : {"sm_90a", "sm_101", "sm_103a", "sm_120"}) {
    const Result<ClockReport> report = on_b200(other);
    ASSERT_FALSE(report) << other;
    EXPECT_EQ(report.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(report.error().field, "timing");
  }
  for (const char* good : {"sm_80", "sm_90", "sm_100", "sm_100a"}) EXPECT_TRUE(on_b200(good));
}

TEST(Clock, KnowsEachArchitecture) {
  EXPECT_EQ(timing_arch("sm_1").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(timing_arch("sm_1").error().field, "timing");
  for (const char* name : {"sm_90a", "sm_100a", "sm_103a"}) {
    const Result<Arch> arch = timing_arch(name);
    ASSERT_TRUE(arch) << name;
    for (const ParameterRow& row : parameter_table(*arch)) EXPECT_FALSE(row.name.empty());
  }
}

// A GB300's exponentials are twice as fast; what else is known to differ is in the table.
TEST(Clock, ABlackwellUltraDiffersWhereItIsKnownTo) {
  const Parameters b200 = parameters_of(Arch::kSm100a), b300 = parameters_of(Arch::kSm103a);
  EXPECT_EQ(b300.xu_cycles * 2, b200.xu_cycles);
  EXPECT_EQ(b300.sms, 152);
  EXPECT_EQ(b300.tensor_flop_per_cycle, b200.tensor_flop_per_cycle);
  EXPECT_EQ(parameter_table(Arch::kSm103a).size(), parameter_table(Arch::kSm100a).size());
}

}  // namespace
}  // namespace attnjit::clock
