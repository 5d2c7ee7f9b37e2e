// SPDX-License-Identifier: Apache-2.0
// Writes the PTX of small tcgen05 kernels: shared memory and tensor memory are filled from images,
// given instructions run, tensor memory is dumped.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/model/tmem_layout.h"
#include "emulator_fixture.h"

namespace attnjit::emulator {

inline EmulatorOptions isa(std::uint64_t seed = 0) {
  EmulatorOptions options;
  options.model = EmulatorModel::kIsa;
  options.seed = seed;
  return options;
}

/// One execution of the operation under test. Addresses of tensor memory are relative to the
/// allocation, those of shared memory to the image.
struct TensorStep {
  std::uint64_t a = 0, b = 0;  ///< descriptors, their start without the image's base
  std::uint32_t descriptor = 0;
  std::uint32_t d = 0, enable = 0;
  std::uint32_t a_tmem = 0, scale_a = 0, scale_b = 0;
  std::uint32_t unused[2] = {};
  std::array<std::uint32_t, 8> x{};  ///< further operands
};
static_assert(sizeof(TensorStep) == 80);

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// A kernel of 128 threads: `operation` uses %td, %ta, %da, %db, %id, %pe, %sa, %sb, %x0..%x7 of
/// the step that is executed. Dumps 512 columns of 128 lanes, [cta][lane][column]. The parts in
/// @...@ are what a test may damage.
inline std::string tensor_kernel(const std::string& operation, int cta_group) {
  std::string text = R"(
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 image[];
.visible .entry k(.param .u64 p_image, .param .u32 p_bytes, .param .u64 p_init,
                  .param .u64 p_steps, .param .u32 p_count, .param .u64 p_out)
.reqntid 128
{
  .reg .pred %p, %pe, %q;
  .reg .b32 %r<40>;
  .reg .b32 %td, %ta, %id, %sa, %sb, %tm, %thr, %lane, %warp, %rank, %x<8>, %base, %mb;
  .reg .b64 %a<20>, %da, %db;
  .reg .b16 %h;
  .shared .align 8 .b8 control[32];
  mov.u32 %thr, %tid.x;
  and.b32 %lane, %thr, 31;
  shr.u32 %warp, %thr, 5;
  mov.u32 %rank, %cluster_ctarank;
  mov.u32 %mb, control;
  mov.u32 %base, image;
  setp.ne.u32 %p, %warp, 0;
  @%p bra SKIP_ALLOC;
  add.u32 %r0, %mb, 8;
  tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [%r0], 512;
SKIP_ALLOC:
  setp.ne.u32 %p, %thr, 0;
  @%p bra SKIP_INIT;
  mbarrier.init.shared::cta.b64 [%mb], 1;
  fence.mbarrier_init.release.cluster;
SKIP_INIT:
  // The image.
  ld.param.u64 %a0, [p_image];
  ld.param.u32 %r1, [p_bytes];
  mul.wide.u32 %a1, %rank, %r1;
  add.u64 %a0, %a0, %a1;
  shl.b32 %r2, %thr, 4;
COPY:
  setp.ge.u32 %p, %r2, %r1;
  @%p bra COPIED;
  cvt.u64.u32 %a2, %r2;
  add.u64 %a2, %a0, %a2;
  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%a2];
  add.u32 %r3, %base, %r2;
  st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};
  add.u32 %r2, %r2, 2048;
  bra COPY;
COPIED:
  fence.proxy.async.shared::cta;
  tcgen05.fence::before_thread_sync;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tm, [%mb+8];
  // Tensor memory.
  ld.param.u64 %a0, [p_init];
  mul.wide.u32 %a1, %rank, 262144;
  add.u64 %a0, %a0, %a1;
  mul.wide.u32 %a1, %thr, 2048;
  add.u64 %a0, %a0, %a1;
  shl.b32 %r9, %warp, 21;
  add.u32 %r9, %r9, %tm;
  mov.u32 %r2, 0;
FILL:
  ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%a0];
  ld.global.v4.b32 {%r14, %r15, %r16, %r17}, [%a0+16];
  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17};
  add.u64 %a0, %a0, 32;
  add.u32 %r9, %r9, 8;
  add.u32 %r2, %r2, 8;
  setp.lt.u32 %p, %r2, 512;
  @%p bra FILL;
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  tcgen05.fence::after_thread_sync;
  // The steps.
  setp.ne.u32 %p, %thr, 0;
  setp.ne.u32 %q, %rank, 0;
  or.pred %p, %p, %q;
  @%p bra SKIP_STEPS;
  ld.param.u64 %a0, [p_steps];
  ld.param.u32 %r1, [p_count];
  and.b32 %r8, %base, 0x3FFFF;
  shr.u32 %r8, %r8, 4;
  cvt.u64.u32 %a1, %r8;
STEP:
  ld.global.v2.b64 {%da, %db}, [%a0];
  add.u64 %da, %da, %a1;
  add.u64 %db, %db, %a1;
  ld.global.b32 %id, [%a0+16];
  ld.global.b32 %td, [%a0+20];
  add.u32 %td, %td, %tm;
  ld.global.b32 %r3, [%a0+24];
  setp.ne.u32 %pe, %r3, 0;
  ld.global.b32 %ta, [%a0+28];
  add.u32 %ta, %ta, %tm;
  ld.global.b32 %sa, [%a0+32];
  add.u32 %sa, %sa, %tm;
  ld.global.b32 %sb, [%a0+36];
  add.u32 %sb, %sb, %tm;
  ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%a0+48];
  ld.global.v4.b32 {%x4, %x5, %x6, %x7}, [%a0+64];
  OPERATION
  add.u64 %a0, %a0, 80;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra STEP;
  COMMIT
SKIP_STEPS:
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%mb], 0;
  @!%p bra WAIT;
  tcgen05.fence::after_thread_sync;
  // The dump.
  ld.param.u64 %a0, [p_out];
  mul.wide.u32 %a1, %rank, 262144;
  add.u64 %a0, %a0, %a1;
  mul.wide.u32 %a1, %thr, 2048;
  add.u64 %a0, %a0, %a1;
  shl.b32 %r9, %warp, 21;
  add.u32 %r9, %r9, %tm;
  mov.u32 %r2, 0;
DUMP:
  tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%r9];
  tcgen05.wait::ld.sync.aligned;
  st.global.v4.b32 [%a0], {%r10, %r11, %r12, %r13};
  st.global.v4.b32 [%a0+16], {%r14, %r15, %r16, %r17};
  add.u64 %a0, %a0, 32;
  add.u32 %r9, %r9, 8;
  add.u32 %r2, %r2, 8;
  setp.lt.u32 %p, %r2, 512;
  @%p bra DUMP;
  tcgen05.fence::before_thread_sync;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  tcgen05.fence::after_thread_sync;
  setp.ne.u32 %p, %warp, 0;
  @%p bra DONE;
  tcgen05.relinquish_alloc_permit.cta_group::GROUP.sync.aligned;
  tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %tm, 512;
DONE:
  ret;
}
)";
  text = replaced(text, "OPERATION", operation);
  text = replaced(
      text, "COMMIT",
      cta_group == 1
          ? "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%mb];"
          : "mov.b16 %h, 3;\n  tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
            ".multicast::cluster.b64 [%mb], %h;");
  return replaced(text, "GROUP", std::to_string(cta_group));
}

/// What a run of a tensor kernel gave.
struct TensorRun {
  EmulatorReport report;
  std::vector<std::uint32_t> tmem;  ///< [cta][lane][column]
  std::uint32_t at(int cta, int lane, int column) const {
    return tmem[(static_cast<std::size_t>(cta) * 128 + lane) * 512 + column];
  }
};

inline TensorRun run_tensor(const std::string& ptx, int ctas,
                            const std::vector<std::uint8_t>& image,
                            const std::vector<std::uint32_t>& init,
                            const std::vector<TensorStep>& steps,
                            const EmulatorOptions& options = {}) {
  const PtxModule module = load_module(ptx);
  std::vector<std::uint8_t> records(steps.size() * sizeof(TensorStep));
  std::memcpy(records.data(), steps.data(), records.size());
  const std::size_t words = static_cast<std::size_t>(ctas) * 128 * 512;
  std::vector<std::uint32_t> fill = init;
  fill.resize(words, 0);
  std::vector<EmulatorBuffer> buffers{
      buffer_of("image", Dtype::kU8, image), buffer_of("init", Dtype::kU32, fill),
      buffer_of("steps", Dtype::kU8, records),
      buffer_of("out", Dtype::kU32, std::vector<std::uint32_t>(words))};
  LaunchRecipe recipe = recipe_of(
      "k", {static_cast<std::uint32_t>(ctas), 1, 1}, {128, 1, 1},
      {pointer("image"), scalar(static_cast<std::int32_t>(image.size() / ctas)), pointer("init"),
       pointer("steps"), scalar(static_cast<std::int32_t>(steps.size())), pointer("out")});
  recipe.cluster = {static_cast<std::uint32_t>(ctas), 1, 1};
  recipe.dynamic_smem = static_cast<std::uint32_t>(image.size() / ctas);
  TensorRun result;
  result.report = run(module, recipe, buffers, options);
  result.tmem = values_of<std::uint32_t>(buffers[3]);
  return result;
}

}  // namespace attnjit::emulator
