// SPDX-License-Identifier: Apache-2.0
// Every recipe of docs/masks.md on sm_90a, beside the reference.
#include "../cookbook.h"

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

using Sm90Cookbook = KernelTest;

/// A recipe's part of a spec beside heads that share keys and values.
AttentionSpec spec_of(nlohmann::json document) {
  document.update({{"arch", "sm_90a"},
                   {"num_q_heads", 4},
                   {"group", 2},
                   {"qk_depth", 64},
                   {"return_lse", true}});
  const Result<SpecDocument> read = spec_from_json(document.dump());
  EXPECT_TRUE(read.ok()) << document.dump();
  return read.ok() ? read->spec : AttentionSpec{};
}

// Numbers and arrays are random. A prompt, the last rows of a sequence, and more rows than keys.
TEST_F(Sm90Cookbook, Masks) {
  for (const cookbook::Recipe& recipe : cookbook::recipes()) {
    SCOPED_TRACE(recipe.mask);
    const AttentionSpec spec = spec_of({{"mask", nlohmann::json::parse(recipe.mask)}});
    expect_passes(spec, {{{290}, {290}}, {{40}, {410}}, {{130}, {70}}});
  }
}

TEST_F(Sm90Cookbook, ScoreModifications) {
  for (nlohmann::json document : cookbook::score_mods()) {
    SCOPED_TRACE(document.dump());
    document["mask"] = "causal";
    document["ragged"] = true;
    expect_passes(spec_of(std::move(document)), {{{60, 0, 31}, {200, 30, 31}}});
  }
}

}  // namespace
}  // namespace attnjit::sm90
