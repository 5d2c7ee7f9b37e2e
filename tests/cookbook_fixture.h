// SPDX-License-Identifier: Apache-2.0
// Every recipe of docs/masks.md on one architecture, beside the reference.
#pragma once

#include "cookbook.h"
#include "kernel_fixture.h"

namespace attnjit::kernel_test {

template <Arch kArch>
class CookbookTest : public KernelTest {
 protected:
  // Numbers and arrays are random. A prompt, the last rows of a sequence, and more rows than keys.
  // Beside the proof each family takes every second recipe, and together they take all; and one of
  // the lengths by turns.
  void check_masks() {
    const std::vector<Lengths> lengths{{{290}, {290}}, {{40}, {410}}, {{130}, {70}}};
    std::size_t number = 0;
    for (const cookbook::Recipe& recipe : cookbook::recipes()) {
      if (!of_turn(number++)) continue;
      SCOPED_TRACE(recipe.mask);
      const AttentionSpec spec =
          cookbook::spec_of(kArch, {{"mask", nlohmann::json::parse(recipe.mask)}});
      expect_passes(spec, in_proof() ? lengths : std::vector{lengths[number / 2 % 3]});
    }
  }

  void check_score_mods() {
    std::size_t number = 0;
    for (nlohmann::json document : cookbook::score_mods()) {
      if (!of_turn(number++)) continue;
      SCOPED_TRACE(document.dump());
      document["mask"] = "causal";
      document["ragged"] = true;
      expect_passes(cookbook::spec_of(kArch, std::move(document)), {{{60, 0, 31}, {200, 30, 31}}});
    }
  }

 private:
  static bool of_turn(std::size_t number) {
    return in_proof() || number % 2 == (kArch == Arch::kSm90a ? 0U : 1U);
  }
};

}  // namespace attnjit::kernel_test
