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
  // Beside the proof each family takes every second recipe, and together they take all.
  void check_masks() {
    std::size_t number = kArch == Arch::kSm90a ? 0 : 1;
    for (const cookbook::Recipe& recipe : cookbook::recipes()) {
      if (number++ % 2 == 1 && !in_proof()) continue;
      SCOPED_TRACE(recipe.mask);
      const AttentionSpec spec =
          cookbook::spec_of(kArch, {{"mask", nlohmann::json::parse(recipe.mask)}});
      expect_passes(spec, {{{290}, {290}}, {{40}, {410}}, {{130}, {70}}});
    }
  }

  void check_score_mods() {
    for (nlohmann::json document : cookbook::score_mods()) {
      SCOPED_TRACE(document.dump());
      document["mask"] = "causal";
      document["ragged"] = true;
      expect_passes(cookbook::spec_of(kArch, std::move(document)), {{{60, 0, 31}, {200, 30, 31}}});
    }
  }
};

}  // namespace attnjit::kernel_test
