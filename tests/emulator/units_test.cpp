// SPDX-License-Identifier: Apache-2.0
// Small hand-made programs; what they must give is worked out from the ISA's text.
#include <cstdint>
#include <string>
#include <vector>

#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

std::string kernel_of(const std::string& shared, const std::string& body) {
  return ".version 9.0\n.target sm_100a\n.address_size 64\n" + shared +
         ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<4>, q; .reg .b32 %r<16>; "
         ".reg .b64 %d<16>;\nld.param.u64 %d1, [out];\n" +
         body + "\nret;\n}\n";
}

std::vector<std::uint32_t> words_of(const PtxModule& module, std::size_t count,
                                    std::uint64_t dynamic_smem, std::uint64_t seed) {
  std::vector<EmulatorBuffer> buffers{
      buffer_of<std::uint32_t>("out", Dtype::kI32, std::vector<std::uint32_t>(count, 99))};
  LaunchRecipe recipe = recipe_of("k", {1, 1, 1}, {1, 1, 1}, {pointer("out")});
  recipe.dynamic_smem = static_cast<decltype(recipe.dynamic_smem)>(dynamic_smem);
  EmulatorOptions options;
  options.seed = seed;
  options.model = EmulatorModel::kIsa;
  const auto report = run(module, recipe, buffers, options);
  EXPECT_TRUE(report.passed) << words(report);
  return values_of<std::uint32_t>(buffers[0]);
}

std::string keep(const std::string& value, int index) {
  return "st.global.u32 [%d1+" + std::to_string(4 * index) + "], " + value + ";\n";
}
std::string keep_wait(const std::string& wait, int index) {
  return "mbarrier.test_wait." + wait + "; selp.u32 %r4, 1, 0, q;\n" + keep("%r4", index);
}
std::string keep_count(const std::string& state, int index) {
  return "mbarrier.pending_count.b64 %r3, " + state + ";\n" + keep("%r3", index);
}

TEST(Units, MbarrierCountsPhasesAndTransactions) {
  const std::string arrive = "mbarrier.arrive.shared::cta.b64 ";
  const std::string parity = "parity.shared::cta.b64 q, [%r1], ";
  const std::string half = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;\n";
  const PtxModule module = load_module(kernel_of(
      ".shared .align 8 .b64 mb;\n",
      "mov.u32 %r1, mb;\nmbarrier.init.shared::cta.b64 [%r1], 3;\n" + arrive + "%d2, [%r1];\n" +
          keep_count("%d2", 0) + "mbarrier.arrive.noComplete.shared::cta.b64 %d3, [%r1], 1;\n" +
          keep_count("%d3", 1) + keep_wait("shared::cta.b64 q, [%r1], %d2", 2) +
          keep_wait(parity + "1", 3) + keep_wait(parity + "0", 4) +
          "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 32;\n" + arrive + "%d4, [%r1];\n" +
          keep_wait("shared::cta.b64 q, [%r1], %d2", 5) + half + half +
          keep_wait("shared::cta.b64 q, [%r1], %d2", 6) + keep_wait(parity + "0", 7) +
          keep_wait(parity + "1", 8) + "mbarrier.arrive_drop.shared::cta.b64 %d5, [%r1];\n" +
          keep_count("%d5", 9) + arrive + "_, [%r1], 2;\n" + arrive + "%d6, [%r1];\n" +
          keep_count("%d6", 10) +
          // Bytes that arrive before they are announced.
          "mbarrier.inval.shared::cta.b64 [%r1]; mbarrier.init.shared::cta.b64 [%r1], 1;\n" + half +
          keep_wait(parity + "0", 11) +
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n" +
          keep_wait(parity + "0", 12)));
  // Pending counts are those before the arrival; the dropped thread is missing from the next phase.
  const std::vector<std::uint32_t> expected{3, 2, 0, 1, 0, 0, 1, 1, 0, 3, 2, 0, 1};
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    EXPECT_EQ(words_of(module, expected.size(), 0, seed), expected) << seed;
}

TEST(Units, SharedMemorySizesAreInUnitsOf128Bytes) {
  const PtxModule module = load_module(
      kernel_of(".shared .align 4 .b8 s[100];\n.extern .shared .align 4 .b8 dynamic[];\n",
                "mov.u32 %r0, s; mov.u32 %r5, dynamic; mov.u32 %r1, %total_smem_size;"
                "mov.u32 %r2, %aggr_smem_size; mov.u32 %r3, %dynamic_smem_size;" +
                    keep("%r1", 0) + keep("%r2", 1) + keep("%r3", 2)));
  EXPECT_EQ(words_of(module, 3, 1000, 0), (std::vector<std::uint32_t>{1152, 2176, 1000}));
}

TEST(Units, CvtPackOfTwoBits) {
  const PtxModule module = load_module(
      kernel_of("",
                "mov.b32 %r1, -7; mov.b32 %r2, 7; cvt.pack.sat.s2.s32.b32 %r3, %r1, %r2, 5;"
                "cvt.pack.sat.u2.s32.b32 %r4, %r1, %r2, 5;" +
                    keep("%r3", 0) + keep("%r4", 1)));
  // -2 and 1, then 0 and 3, above them 5.
  EXPECT_EQ(words_of(module, 2, 0, 0), (std::vector<std::uint32_t>{0x59, 0x53}));
}

}  // namespace
}  // namespace attnjit::emulator
