// SPDX-License-Identifier: Apache-2.0
// Every recipe of docs/masks.md on sm_90a.
#include "../cookbook_fixture.h"

namespace attnjit::sm90 {
namespace {

using Sm90Cookbook = kernel_test::CookbookTest<Arch::kSm90a>;

TEST_F(Sm90Cookbook, Masks) { check_masks(); }
TEST_F(Sm90Cookbook, ScoreModifications) { check_score_mods(); }

}  // namespace
}  // namespace attnjit::sm90
