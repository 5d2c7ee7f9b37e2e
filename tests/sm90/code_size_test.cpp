// SPDX-License-Identifier: Apache-2.0
// How much code kernels have, which is what their compile time follows (docs/compile.md).
#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../map_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90CodeSize : public KernelTest {
 protected:
  static std::string ptx_of(Arch arch, int depth, const MaskSpec& mask = mask_of(Kind::kCausal)) {
    const auto kernel = compiled(base_spec(arch, 2, 1, depth, mask));
    return kernel ? kernel->generated.ptx : std::string();
  }
  static int count(std::string_view text, std::string_view part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
    return times;
  }
  // A module's kernels, each from its name on.
  static std::vector<std::string_view> kernels_of(std::string_view ptx) {
    std::vector<std::string_view> all;
    for (std::size_t at = ptx.find(".entry"); at != ptx.npos;) {
      const std::size_t next = ptx.find(".entry", at + 1);
      all.push_back(ptx.substr(at, next - at));
      at = next;
    }
    return all;
  }
  static MaskSpec documents_of_n() {
    return over_arrays("kv_idx <= q_idx && q_idx / p.n == kv_idx / p.n", {{"n", Type::kI32}});
  }
  // Of the first kernel, without what says of which line they are.
  static std::string instructions_of(const std::string& ptx) {
    std::istringstream lines(ptx.substr(std::min(ptx.find(".entry"), ptx.size())));
    std::string all, line;
    while (std::getline(lines, line) && line != "}") {
      if (line.starts_with('\t') && !line.starts_with("\t.loc")) all += line + '\n';
    }
    return all;
  }
};

// An exact division is more instructions than all else that ends a row.
TEST_F(Sm90CodeSize, NoRowEndsWithAnExactDivision) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const std::string ptx = ptx_of(arch, 128);
    EXPECT_EQ(count(ptx, "div.rn.f32"), 0) << to_string(arch);
    EXPECT_EQ(count(ptx, "rcp.rn.f32"), 0) << to_string(arch);
    EXPECT_GT(count(ptx, "rcp.approx.ftz.f32"), 0) << to_string(arch);
  }
}

// One place loads each of Q, K and V: blocks of 64 columns.
TEST_F(Sm90CodeSize, OnePlaceLoadsEachTensor) {
  EXPECT_EQ(count(ptx_of(Arch::kSm90a, 128), "cp.async.bulk.tensor.4d.shared"), 3 * 2);
  EXPECT_EQ(count(ptx_of(Arch::kSm90a, 256), "cp.async.bulk.tensor.4d.shared"), 3 * 4);
}

// O is scaled and packed by statements of eight registers: the optimiser sees no product of them.
TEST_F(Sm90CodeSize, OutputIsPackedByEights) {
  const std::string ptx = ptx_of(Arch::kSm90a, 128);
  EXPECT_EQ(count(ptx, "mul.f32 x, o0_"), 32);
  EXPECT_EQ(count(ptx, "mul.f32 y, o0_"), 32);
  EXPECT_EQ(count(ptx, "cvt.rn.bf16x2.f32 %"), 8 * 4 + 2 * 16);
}

// A causal mask's tiles are two copies of code, which are 8 and 4 wgmma each at depth 128: what
// multiplies P V before a tile by itself does after the last one, too.
TEST_F(Sm90CodeSize, OnePlaceMultipliesPvByItself) {
  EXPECT_EQ(count(ptx_of(Arch::kSm90a, 128), "wgmma.mma_async"), 2 * (8 + 4));
  EXPECT_EQ(count(ptx_of(Arch::kSm90a, 256), "wgmma.mma_async"), 2 * (16 + 4));
}

// So it does of an expression without a map whose tiles have few keys: there were 28.
TEST_F(Sm90CodeSize, OnePlaceMultipliesPvByItselfOfAnExpression) {
  EXPECT_EQ(count(ptx_of(Arch::kSm90a, 128, documents_of_n()), "wgmma.mma_async"), 2 * (8 + 4));
}

// head_dim above 256: both consumers make S in one place, of 32 wgmma, and multiply their half of P
// V in three, of 8 each. A store's condition is a predicate: behind a branch ptxas makes two of
// each shuffle.
TEST_F(Sm90CodeSize, HeadDimAbove256HasOneWalk) {
  const std::string ptx = ptx_of(Arch::kSm90a, 512);
  EXPECT_EQ(count(ptx, "wgmma.mma_async"), 32 + 3 * 8);
  EXPECT_EQ(count(ptx, "@p st.global.v4.b32"), 16);
}

// The optimiser sees no register of O or of S before it is read (sm90/named_registers.cuh): with
// both it was given 800 statements of PTX at depth 128, and 1,200 at depth 256; with S 420 and 517;
// where it saw what is read of S 311 and 375.
TEST_F(Sm90CodeSize, AccumulatorsAreRegistersWithNames) {
  const std::string small = ptx_of(Arch::kSm90a, 128);
  EXPECT_EQ(count(small, ".reg .f32 o0_<64>"), 1);
  EXPECT_EQ(count(small, ".reg .f32 s0_<32>"), 1);
  EXPECT_LT(count(small, "begin inline asm"), 230);
  const std::string large = ptx_of(Arch::kSm90a, 256);
  EXPECT_EQ(count(large, ".reg .f32 o0_<128>"), 1);
  EXPECT_EQ(count(large, ".reg .f32 s0_<32>"), 1);
  EXPECT_LT(count(large, "begin inline asm"), 300);
}

// Scores become probabilities in the registers of S, by statements of eight
// (sm90/score_registers.cuh): of 16-bit types the optimiser sees no exponential but those of the
// rows' corrections, and hides no score.
TEST_F(Sm90CodeSize, ScoresAreNoValuesOfTheOptimiser) {
  for (const int depth : {128, 256}) {
    const std::string ptx = ptx_of(Arch::kSm90a, depth);
    EXPECT_EQ(count(ptx, "ex2.approx.ftz.f32 %"), 2 * 2) << depth;
    EXPECT_EQ(count(ptx, "selp.f32 s0_"), 32) << depth;
  }
}

// Each body has registers of its own: with the same ones for S products would be serialised, which
// the compiler's check refuses.
TEST_F(Sm90CodeSize, BodiesShareNoScores) {
  const auto kernel = compiled(base_spec(Arch::kSm90a, 2, 1, 128, mask_of(Kind::kNull)), nullptr,
                               CompileTo::kImage);
  ASSERT_TRUE(kernel);
  EXPECT_EQ(count(kernel->generated.ptx, ".reg .f32 s0_<40>"), 1);
  EXPECT_EQ(count(kernel->generated.ptx, ".reg .f32 s1_<64>"), 1);
}

// sm_100a. Scores are hidden where a mask cuts a tile by one copy of the code for all columns; one
// warp counts where a CTA's only work tile lies; and the optimiser sees statements of a pair, or of
// 16 columns. It was given 1,101 statements of PTX.
TEST_F(Sm90CodeSize, BlackwellsRolesHaveFewStatements) {
  const std::string ptx = ptx_of(Arch::kSm100a, 128);
  EXPECT_EQ(count(ptx, "selp.f32 s"), 32);
  EXPECT_LT(count(ptx, "div.u32"), 6);
  EXPECT_LT(count(ptx, "begin inline asm"), 480);
}

// The kernel that makes a map has one place where a warp asks what elements of arrays are among:
// here of two operands.
TEST_F(Sm90CodeSize, OnePlaceOfAMapAsksAboutElements) {
  EXPECT_EQ(count(ptx_of(Arch::kSm90a, 128, causal_documents()), "redux.sync.min.s32"), 2);
}

// Each read of an array is a branch to the optimiser. On sm_100a the four words of a row share the
// place that asks about a score, of which eight are asked together: there were 73 reads in all. The
// kernel that makes the map reads elements, and rows' scores, four at a time and at no second place
// for what is left of a fourth: it had 24 and 30.
TEST_F(Sm90CodeSize, ElementsAreReadAtFewPlaces) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const std::string ptx = ptx_of(arch, 128, causal_documents());
    const auto kernels = kernels_of(ptx);
    ASSERT_GE(kernels.size(), 2u);
    EXPECT_LE(count(kernels[0], "ld.global"), arch == Arch::kSm90a ? 25 : 29) << to_string(arch);
    EXPECT_LT(count(kernels[1], "ld.global"), 20) << to_string(arch);
  }
}

// An expression without a map asks about a thread's two rows together, and of a tile of 64 keys
// about two columns; on sm_100a about four of a row. A division of the key's number counts them:
// there were 14, and 17 where the latter were eight.
TEST_F(Sm90CodeSize, ExpressionsAskBothRowsTogether) {
  const auto divisions = [](Arch arch) {
    return count(ptx_of(arch, 128, documents_of_n()), "div.s32");
  };
  EXPECT_LE(divisions(Arch::kSm90a), 8);
  EXPECT_LE(divisions(Arch::kSm100a), 13);
}

// What a division shows of tiles has no second meaning for divisors that are not positive: there
// were 3 differences of 64 bits on sm_90a, and 8 on sm_100a.
TEST_F(Sm90CodeSize, TilesAskAboutPositiveDivisorsAlone) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    EXPECT_EQ(count(ptx_of(arch, 128, documents_of_n()), "sub.s64"), 0) << to_string(arch);
  }
}

// Where CTAs take tiles V is loaded at two places: with other work, and after the last.
TEST_F(Sm90CodeSize, TwoPlacesLoadVOfDynamicTiles) {
  const std::string ptx = ptx_of(Arch::kSm90a, 128, documents_of_n());
  EXPECT_EQ(count(ptx, "cp.async.bulk.tensor.4d.shared"), 4 * 2);
}

// What a tensor adds to scores hides by itself: beside it an `or` hides nothing, and its other
// parts are not asked. Asked, an expression spilled 32 bytes in absorbed MLA and 92 at depth 512.
TEST_F(Sm90CodeSize, BesideAddedNumbersAnOrAsksNoOtherPart) {
  MaskSpec first_keys = mask_of(Kind::kCustom);
  first_keys.custom.name = "first_keys";
  first_keys.custom.code = "kv_idx < 4";
  const MaskSpec added = verify::materialized_mask(Dtype::kBf16);
  const MaskSpec either = verify::tree(Kind::kOr, {added, first_keys});
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const std::string of_tensor = instructions_of(ptx_of(arch, 512, added));
    EXPECT_NE(of_tensor, "");
    EXPECT_TRUE(instructions_of(ptx_of(arch, 512, either)) == of_tensor) << to_string(arch);
  }
}

}  // namespace
}  // namespace attnjit::sm90
