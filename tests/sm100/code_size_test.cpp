// SPDX-License-Identifier: Apache-2.0
// How much the optimiser is given of a kernel, which its compile time follows (docs/compile.md).
#include <string>
#include <string_view>

#include "../kernel_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100CodeSize : public KernelTest {
 protected:
  static std::string ptx_of(Arch arch, int depth) {
    const auto kernel = compiled(base_spec(arch, 2, 1, depth, mask_of(Kind::kCausal)));
    return kernel ? kernel->generated.ptx : std::string();
  }
  static int count(std::string_view text, std::string_view part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
    return times;
  }
};

// Statements of PTX that a causal kernel has: 417 where the optimiser saw scores, and what is
// packed of O.
TEST_F(Sm100CodeSize, FewStatements) {
  for (const int depth : {128, 256}) {
    const std::string ptx = ptx_of(Arch::kSm100a, depth);
    EXPECT_GT(count(ptx, "begin inline asm"), 0) << depth;
    EXPECT_LT(count(ptx, "begin inline asm"), 225) << depth;
  }
}

// A row's scores and its part of O are registers with names (sm100/score_registers.cuh,
// sm100/output_registers.cuh): no probability is a value, nor a word of O. The exponentials that
// are, are of factors and of two O that are merged.
TEST_F(Sm100CodeSize, ScoresAndOutputAreNoValues) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
    const std::string ptx = ptx_of(arch, 128);
    EXPECT_EQ(count(ptx, ".reg .f32 s0_<8>"), 1) << to_string(arch);
    EXPECT_EQ(count(ptx, ".reg .f32 out<16>"), 1) << to_string(arch);
    EXPECT_EQ(count(ptx, "ex2.approx.ftz.f32 %"), 3) << to_string(arch);
    EXPECT_EQ(count(ptx, "cvt.rn.bf16x2.f32 %"), 0) << to_string(arch);
  }
}

// Of a batch whose sequences differ and whose keys have parts: one place counts the tiles of
// sequences, by five shuffles; columns of O have names; and the merge reads 16 bytes at a time of
// 16 parts and then of eight, and divides by no function.
TEST_F(Sm100CodeSize, PartsOfSequencesStandAtOnePlaceEach) {
  AttentionSpec spec =
      of_sequences(base_spec(Arch::kSm100a, 8, 4, 128, mask_of(Kind::kCausal)), 64, true);
  spec.num_partitions = 4;
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const std::string& ptx = kernel->generated.ptx;
  EXPECT_EQ(count(ptx, "shfl.sync.up"), 5);
  EXPECT_EQ(count(ptx, ".reg .f32 out<16>"), 1);
  EXPECT_EQ(count(ptx, "@p ld.global.v4.b32"), 24);
  EXPECT_EQ(count(ptx, "div.s64") + count(ptx, "div.u64") + count(ptx, "rcp.rn"), 0);
}

// A wait is no loop of the optimiser's: none asks whether it is over.
TEST_F(Sm100CodeSize, WaitsAreStatements) {
  const std::string ptx = ptx_of(Arch::kSm100a, 128);
  EXPECT_GT(count(ptx, "mbarrier.try_wait"), 0);
  EXPECT_EQ(count(ptx, "mbarrier.try_wait"), count(ptx, "@!p bra again"));
}

// The PTX instructions that one more KV tile takes, by threads of a softmax warpgroup, with what
// the other warps do for it. A place of a KV tile that is made again at each step costs four of
// them.
TEST_F(Sm100CodeSize, AKvTileTakesFewInstructions) {
  const auto kernel = compiled(base_spec(Arch::kSm100a, 1, 1, 128));
  ASSERT_NE(kernel, nullptr);
  // Two CTAs of a query tile each, whose warpgroups share the KV tiles.
  const std::uint64_t few = steps_of(*kernel, {{256}, {1024}});
  const std::uint64_t more = steps_of(*kernel, {{256}, {1024 + 4 * 128}});
  EXPECT_LE((more - few) / (2 * 4 * 128), 1031U);
}

}  // namespace
}  // namespace attnjit::sm100
