// SPDX-License-Identifier: Apache-2.0
// Every recipe of docs/masks.md on one architecture, beside the reference.
#pragma once

#include "cookbook.h"
#include "kernel_fixture.h"

namespace attnjit::kernel_test {

class CookbookTest : public KernelTest {
 protected:
  explicit CookbookTest(const char* arch) : arch_(arch) {}

  // Numbers and arrays are random. A prompt, the last rows of a sequence, and more rows than keys.
  void check_masks() {
    for (const cookbook::Recipe& recipe : cookbook::recipes()) {
      SCOPED_TRACE(recipe.mask);
      const AttentionSpec spec = spec_of({{"mask", nlohmann::json::parse(recipe.mask)}});
      expect_passes(spec, {{{290}, {290}}, {{40}, {410}}, {{130}, {70}}});
    }
  }

  void check_score_mods() {
    for (nlohmann::json document : cookbook::score_mods()) {
      SCOPED_TRACE(document.dump());
      document["mask"] = "causal";
      document["ragged"] = true;
      expect_passes(spec_of(std::move(document)), {{{60, 0, 31}, {200, 30, 31}}});
    }
  }

 private:
  /// A recipe's part of a spec beside heads that share keys and values.
  AttentionSpec spec_of(nlohmann::json document) const {
    document.update({{"arch", arch_},
                     {"num_q_heads", 4},
                     {"group", 2},
                     {"qk_depth", 64},
                     {"return_lse", true}});
    const Result<SpecDocument> read = spec_from_json(document.dump());
    EXPECT_TRUE(read.ok()) << document.dump();
    return read.ok() ? read->spec : AttentionSpec{};
  }

  const char* const arch_;
};

}  // namespace attnjit::kernel_test
