// SPDX-License-Identifier: Apache-2.0
// What the kinds of input reach in the sm_100a kernel, which walks the keys backwards: damages to
// its templates that some input must show. Skipped without NVRTC.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "../in_proof.h"
#include "damaged.h"
#include "run_case.h"

namespace attnjit::sm100 {
namespace {

using proof::some_of;
using verify::InputKind;

class Sm100Inputs : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
  }

  static ProofCase dense(int query_tiles) {
    ProofCase one;
    one.spec.num_q_heads = 1;
    one.spec.qk_depth = 64;
    one.spec.return_lse = true;
    one.options.num_qo = query_tiles;
    one.shape = {1, 141, 600, 1};
    return one;
  }

  // Null where it failed, which is told.
  static std::unique_ptr<ProofKernel> compiled(const ProofCase& one, const TemplateSet& templates) {
    Result<ProofKernel> kernel = make_kernel(one, templates);
    if (kernel) return std::make_unique<ProofKernel>(std::move(*kernel));
    ADD_FAILURE() << kernel.error().to_string();
    return nullptr;
  }

  // Why a kernel fails with an input; empty: it passes.
  static std::string failure(const ProofCase& one, const ProofKernel& kernel, InputKind input) {
    const Result<verify::Problem> problem = problem_of(one, input, 5);
    if (!problem) return problem.error().to_string();
    return judge(one.shape, kernel, *problem, 1).reason;
  }
};

constexpr const char* kRescale =
    "rescale<Layout::kOutputColumns>(tmem.o(warpgroup) + lanes, factor);";

TEST_F(Sm100Inputs, FallingAndRaisedReachTheRescale) {
  const TemplateSet trap = damaged("sm100/correction.cuh", kRescale, "asm volatile(\"trap;\");");
  for (const int query_tiles : {1, 2}) {
    const ProofCase one = dense(query_tiles);
    const auto traps = compiled(one, trap);
    ASSERT_TRUE(traps);
    for (const InputKind input : {InputKind::kFalling, InputKind::kRaised}) {
      EXPECT_NE(failure(one, *traps, input).find("trap"), std::string::npos)
          << query_tiles << " query tiles, " << verify::to_string(input);
    }
    // What made these inputs necessary.
    EXPECT_EQ(failure(one, *traps, InputKind::kRising), "");
  }
}

TEST_F(Sm100Inputs, DamagesOfTheRescaleAreSeen) {
  constexpr const char *kCorrection = "sm100/correction.cuh", *kRow = "sm100/online_row.cuh";
  struct Damage {
    const char* file;
    const char* from;
    const char* to;
  };
  const std::vector<Damage> damages = {
      {kCorrection, kRescale, ""},
      {kCorrection, kRescale, "rescale<Layout::kOutputColumns>(tmem.o(0) + lanes, factor);"},
      {kCorrection, kRescale,
       "rescale<Layout::kOutputColumns>(tmem.o(warpgroup) + lanes, factor * factor);"},
      {kCorrection,
       "if (__any_sync(0xffffffffu, factor != 1.0f)) {\n"
       "            rescale<Layout::kOutputColumns>(tmem.o(warpgroup)",
       "if (factor != 1.0f && row % 32 == 0) {\n"
       "            rescale<Layout::kOutputColumns>(tmem.o(warpgroup)"},
      {kRow, "tcgen05_st_16(o + static_cast<u32>(here), now, 0);", "tcgen05_st_16(o, now, 0);"},
      {kRow, "o + static_cast<u32>(here + 16));", "o + static_cast<u32>(here));"},
  };
  for (const auto& damage : some_of(damages, 2)) {
    const TemplateSet templates = damaged(damage.file, damage.from, damage.to);
    const auto kernel = compiled(dense(2), templates);
    ASSERT_TRUE(kernel);
    EXPECT_NE(failure(dense(2), *kernel, InputKind::kFalling) +
                  failure(dense(2), *kernel, InputKind::kRaised),
              "")
        << "passes: " << damage.to;
  }
}

// Rows of V past the end of a sequence are multiplied with weights of 0: only a NaN shows.
TEST_F(Sm100Inputs, NormalInputsShowWhatIsLeftInTheTailOfV) {
  const TemplateSet templates = damaged(
      "sm100/tail.cuh", "for (int row = first + lane / Layout::kRowUnits; row < Config::kTileN;",
      "for (int row = Config::kTileN; row < Config::kTileN;");
  for (const int of_pages : some_of<int>({1, 0})) {
    const bool paged = of_pages != 0;
    ProofCase one = dense(2);
    one.spec.page_size = paged ? 64 : 0;
    one.spec.ragged = !paged;
    one.shape = {3, 60, 150, 1};
    const auto kernel = compiled(one, templates);
    ASSERT_TRUE(kernel);
    EXPECT_NE(failure(one, *kernel, InputKind::kNormal), "") << (paged ? "paged" : "ragged");
    const auto whole = compiled(one, TemplateSet::embedded());
    ASSERT_TRUE(whole);
    EXPECT_EQ(failure(one, *whole, InputKind::kNormal), "");
  }
}

}  // namespace
}  // namespace attnjit::sm100
