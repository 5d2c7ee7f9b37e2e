// SPDX-License-Identifier: Apache-2.0
// Launches that cut long work tiles on sm_100a (common/cut_list.cuh). Skipped without NVRTC.
#include <vector>

#include "../cuts_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Cuts : public CutsTest {
 protected:
  Sm100Cuts() : CutsTest(Arch::kSm100a) {}
};

TEST_F(Sm100Cuts, Chunks) { expect_all(chunks(), 2); }
TEST_F(Sm100Cuts, LayoutsOfKeys) { expect_all(layouts_of_keys(), 1); }
TEST_F(Sm100Cuts, TypesAndMasks) { expect_all(types_and_masks(), 3); }
TEST_F(Sm100Cuts, ShallowHeads) { expect_all(shallow_heads(), 2); }
TEST_F(Sm100Cuts, RowsOfPages) { expect_all(rows_of_pages(), 3); }
TEST_F(Sm100Cuts, OddGroups) { expect_all(odd_groups(), 1); }
TEST_F(Sm100Cuts, TheMergeIsNeeded) { expect_merge_needed(); }
TEST_F(Sm100Cuts, ShortKeysAreWrittenWhole) { expect_short_keys_whole(); }

// What an expression hides is not walked: parts are counted without it. And a launch of few rows
// has one query tile a CTA, while slots have room for two.
TEST_F(Sm100Cuts, HiddenTilesAndFewRows) {
  AttentionSpec hidden = cut_spec(2, 1, 64, 16);
  hidden.mask = expression_of("kv_idx <= q_idx && kv_idx / 512 % 3 != 1");
  AttentionSpec masked = cut_spec(4, 2, 64, 0);
  masked.ragged_kv = true;
  masked.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  AttentionSpec drafts = cut_spec(6, 3, 128, 64);
  drafts.max_q_len = 4;
  expect_all({{hidden, {{300, 1}, {6000, 5000}}, {7}},
              {drafts, {{4, 1, 2}, {5000, 300, 4000}}, {5, 11}},
              {masked, {{5, 1}, {5000, 60}}, {6}}},
             2);
}

}  // namespace
}  // namespace attnjit::sm100
