// SPDX-License-Identifier: Apache-2.0
// Every recipe of docs/masks.md on sm_100a.
#include "../cookbook_fixture.h"

namespace attnjit::sm100 {
namespace {

using Sm100Cookbook = kernel_test::CookbookTest<Arch::kSm100a>;

TEST_F(Sm100Cookbook, Masks) { check_masks(); }
TEST_F(Sm100Cookbook, ScoreModifications) { check_score_mods(); }

}  // namespace
}  // namespace attnjit::sm100
