// SPDX-License-Identifier: Apache-2.0
// What the wait of one warp for a product says of the other warps of its warpgroup, and that all
// four execute the same ones.
#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

/// A warpgroup multiplies; one thread, behind its warp's wait, tells a fifth warp, which writes
/// where all four parts read.
const char* const kOneThreadTells = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {
.reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 8 .b64 bar; .shared .align 1024 .b8 data[16384];
mov.u32 %r1, %tid.x; mov.u32 %r2, bar; mov.u32 %r3, data; mov.u32 %r5, 0;
shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r3;
$fill: st.shared.u32 [%r4], 0; add.u32 %r4, %r4, 640; add.u32 %r6, %r3, 16384;
setp.lt.u32 %p1, %r4, %r6; @%p1 bra $fill;
setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared::cta.b64 [%r2], 1;
fence.proxy.async; bar.sync 0;
setp.ge.u32 %p1, %r1, 128; @%p1 bra $writes;
and.b32 %r4, %r3, 262143; shr.u32 %r4, %r4, 4; cvt.u64.u32 %rd1, %r4;
or.b64 %rd1, %rd1, 0x4000010000;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
@%p2 mbarrier.arrive.shared::cta.b64 _, [%r2];
bra $end;
$writes: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0; @!%p3 bra $writes;
setp.eq.u32 %p3, %r1, 128;
@%p3 st.shared.u32 [%r3], 1;
$end: ret;
})";

EmulatorReport run_by(EmulatorModel model) {
  std::vector<EmulatorBuffer> buffers;
  EmulatorOptions options;
  options.model = model;
  return run(load_module(kOneThreadTells), recipe_of("k", {1, 1, 1}, {160, 1, 1}, {}), buffers,
             options);
}

TEST(Warpgroup, OnSiliconTheFourWaitTogether) {
  const EmulatorReport report = run_by(EmulatorModel::kSilicon);
  EXPECT_TRUE(report.findings.empty()) << words(report);
}

TEST(Warpgroup, TheIsaPromisesEachWarpItsOwn) {
  EXPECT_TRUE(has_finding(run_by(EmulatorModel::kIsa), FindingKind::kRace));
}

/// The first warp waits in a statement of its own.
const char* const kAWarpWaitsByItself = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {
.reg .b32 %r<4>; .reg .pred %p<2>;
mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, BOUND; @%p1 bra $first;
wgmma.wait_group.sync.aligned 0; bra $end;
$first: wgmma.wait_group.sync.aligned 0;
$end: ret;
})";

EmulatorReport run_split_at(const std::string& thread) {
  std::string ptx = kAWarpWaitsByItself;
  ptx.replace(ptx.find("BOUND"), 5, thread);
  std::vector<EmulatorBuffer> buffers;
  return run(load_module(ptx), recipe_of("k", {1, 1, 1}, {256, 1, 1}, {}), buffers, {});
}

TEST(Warpgroup, AllFourExecuteTheSameWait) {
  EXPECT_TRUE(has_finding(run_split_at("32"), FindingKind::kAligned));
  const EmulatorReport report = run_split_at("128");
  EXPECT_TRUE(report.findings.empty()) << words(report);
}

}  // namespace
}  // namespace attnjit::emulator
