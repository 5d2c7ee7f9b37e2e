// SPDX-License-Identifier: Apache-2.0
// Which modifiers go with which types: what PTX has is decoded, what it does not have is refused.
#include <array>
#include <string>

#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

std::string kernel_of(const std::string& line) {
  return ".version 9.0\n.target sm_100a\n.address_size 64\n"
         ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
         ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b128 "
         "%q<4>;\n" +
         line + "\nret;\n}\n";
}

TEST(Forms, ModifiersThatPtxDoesNotHaveAreNotModelled) {
  for (const char* line : {
           "add.relu.f32 %r0, %r1, %r2;",
           "add.approx.f32 %r0, %r1, %r2;",
           "add.NaN.f32 %r0, %r1, %r2;",
           "add.sat.u32 %r0, %r1, %r2;",
           "add.rn.bf16.ftz %h0, %h1, %h2;",
           "abs.sat.f32 %r0, %r1;",
           "brev.sat.b32 %r0, %r1;",
           "and.u32 %r0, %r1, %r2;",
           "popc.f32 %r0, %r1;",
           "min.rn.f32 %r0, %r1, %r2;",
           "min.abs.f32 %r0, %r1, %r2;",
           "min.f64 %d0, %d1, %d2, %d3;",
           "div.approx.u32 %r0, %r1, %r2;",
           "tanh.approx.ftz.f32 %r0, %r1;",
           "ex2.approx.bf16 %h0, %h1;",
           "setp.lt.ftz.s32 %p0, %r1, %r2;",
           "setp.lo.s32 %p0, %r1, %r2;",
           "setp.equ.u32 %p0, %r1, %r2;",
           "cvt.rn.u32.u64 %r0, %d1;",
           "cvt.rn.ftz.f64.s32 %d0, %r1;",
           "cvt.rz.satfinite.e4m3x2.f32 %h0, %r1, %r2;",
           "cvt.rs.f16x2.f32 %r0, %r1, %r2, %r3;",
           "redux.sync.add.abs.s32 %r0, %r1, -1;",
           "match.any.sync.u32 %r0, %r1, -1;",
           "atom.global.add.noftz.f32 %r0, [%d1], %r2;",
           "atom.global.add.f16 %h0, [%d1], %h2;",
           "red.acquire.gpu.global.add.u32 [%d1], %r2;",
           "ld.L1::bogus.global.b32 %r0, [%d1];",
           "ld.release.gpu.global.b32 %r0, [%d1];",
           "st.acquire.gpu.global.b32 [%d1], %r0;",
           "ld.global.f16 %h0, [%d1];",
           "ld.shared.v4.b64 {%d1, %d2, %d3, %d4}, [%r0];",
           "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 [%r0], "
           "%r1, "
           "[%r2];",
           "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.ashift [%r0], [%r1], %d2, %r3, [%r4], "
           "[%r5], %p0;",
           "fence.relaxed.gpu;",
           "mbarrier.init.relaxed.cta.shared.b64 [%r0], 1;",
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.exch.b128 [%d1], [%r1], %r2;",
           "cp.reduce.async.bulk.tensor.1d.global.shared::cta.exch.bulk_group [%d1, {%r2}], [%r1];",

           "barrier.cluster.wait.relaxed;",
           "fence.proxy.bogus;",
       }) {
    const auto module = PtxModule::load(kernel_of(line));
    ASSERT_FALSE(module) << line;
    // Something that a form needs is missing where the rest is right: that text is not valid.
    const std::string text(line);
    const bool incomplete =
        text.find("add.f16") != std::string::npos || text.find("ex2.") != std::string::npos;
    EXPECT_EQ(module.error().code, incomplete ? ErrorCode::kInvalid : ErrorCode::kUnsupported)
        << line;
    EXPECT_EQ(module.error().line, 7) << line;
  }
}

TEST(Forms, WhatAFormNeedsMustBeThere) {
  for (const char* line :
       {"fma.f32 %r0, %r1, %r2, %r3;", "div.f32 %r0, %r1, %r2;", "sqrt.f32 %r0, %r1;",
        "sin.f32 %r0, %r1;", "cvt.f16.f32 %h0, %r1;", "cvt.s32.f32 %r0, %r1;",
        "mul.s32 %r0, %r1, %r2;", "ld.relaxed.global.b32 %r0, [%d1];", "fence.acq_rel;"}) {
    const auto module = PtxModule::load(kernel_of(line));
    ASSERT_FALSE(module) << line;
    EXPECT_EQ(module.error().code, ErrorCode::kInvalid) << line;
  }
}

TEST(Forms, ModifiersInAnyOrder) {
  for (const char* line :
       {"max.f32.ftz %r0, %r1, %r2;", "cvt.bf16x2.rn.f32 %r0, %r1, %r2;",
        "ld.gpu.acquire.global.b32 %r0, [%d1];", "shfl.bfly.sync.b32 %r0, %r1, 1, 31, -1;",
        "ld.global.nc.L1::no_allocate.L2::128B.v8.b32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%d1];",
        "atom.global.v4.f32.add {%r0,%r1,%r2,%r3}, [%d1], {%r4,%r5,%r6,%r7};",
        "cvt.pack.sat.s2.s32.b32 %r0, %r1, %r2, %r3;", "membar.proxy.alias;",
        "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;"}) {
    const auto module = PtxModule::load(kernel_of(line));
    EXPECT_TRUE(module) << line << ": " << module.error().to_string();
  }
}

std::array<std::uint64_t, 4> results_of(const std::string& body) {
  const PtxModule module =
      load_module(kernel_of("ld.param.u64 %d6, [in]; ld.param.u64 %d7, [out];" + body));
  std::vector<EmulatorBuffer> buffers{
      buffer_of<std::uint64_t>("in", Dtype::kI64, {0x3FF8000000000001, 5, 6, 7}),
      buffer_of<std::uint64_t>("out", Dtype::kI64, {0, 0, 0, 0})};
  const auto report =
      run(module, recipe_of("k", {1, 1, 1}, {1, 1, 1}, {pointer("in"), pointer("out")}), buffers);
  EXPECT_TRUE(report.passed) << words(report);
  const auto v = values_of<std::uint64_t>(buffers[1]);
  return {v[0], v[1], v[2], v[3]};
}

TEST(Forms, Lop3CombinesItsResultWithAPredicate) {
  // q is read before p is written, both in one register; a result of zero with .and, not zero with
  // .or.
  const auto v = results_of(
      "mov.b32 %r1, 12; mov.b32 %r2, 10; setp.eq.u32 %p1, %r1, 12;"
      "lop3.and.b32 %r3|%p1, %r1, %r2, 0, 0xC0, %p1; selp.u64 %d0, 1, 0, %p1;"
      "cvt.u64.u32 %d1, %r3; st.global.v2.b64 [%d7], {%d0, %d1};"
      "lop3.or.b32 _|%p2, %r1, %r2, 0, 0x00, !%p1; selp.u64 %d2, 1, 0, %p2;"
      "lop3.and.b32 _|%p3, %r1, %r2, 0, 0x00, %p1; selp.u64 %d3, 1, 0, %p3;"
      "st.global.v2.b64 [%d7+16], {%d2, %d3};");
  EXPECT_EQ(v, (std::array<std::uint64_t, 4>{1, 8, 0, 0}));
}

TEST(Forms, DivFullCoversTheWholeRange) {
  // 2^127 / 2^127: .approx gives zero for divisors past 2^126, .full does not.
  const auto v = results_of(
      "mov.b32 %r1, 0x7F000000; div.full.f32 %r2, %r1, %r1; div.approx.f32 %r3, %r1, %r1;"
      "cvt.u64.u32 %d1, %r2; cvt.u64.u32 %d2, %r3; st.global.v2.b64 [%d7], {%d1, %d2};"
      "mov.b32 %r4, 0x7FFFFF; mad24.hi.sat.s32 %r5, %r4, %r4, 0x7FFFFFF0;"
      "ld.global.b64 %d3, [%d6]; rcp.approx.ftz.f64 %d4, %d3; cvt.u64.u32 %d5, %r5;"
      "st.global.v2.b64 [%d7+16], {%d4, %d5};");
  EXPECT_EQ(v, (std::array<std::uint64_t, 4>{0x3F800000, 0, 0x3FE5555500000000, 0x7FFFFFFF}));
}

TEST(Forms, AtomicsOf128Bits) {
  const auto v = results_of(
      "mov.b64 %d0, 0; mov.b64 %d1, 3; mov.b64 %d2, 4; mov.b128 %q0, {%d0, %d0};"
      "mov.b128 %q1, {%d1, %d2}; atom.global.cas.b128 %q2, [%d7], %q1, %q0;"
      "atom.global.cas.b128 %q2, [%d7], %q0, %q1; atom.global.exch.b128 %q3, [%d7], %q2;"
      "st.global.b128 [%d7+16], %q3;");
  EXPECT_EQ(v, (std::array<std::uint64_t, 4>{0, 0, 3, 4}));
}

}  // namespace
}  // namespace attnjit::emulator
