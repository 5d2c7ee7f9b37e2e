// SPDX-License-Identifier: Apache-2.0
// Groups of query heads that do not divide a query tile's 128 rows, on sm_100a. Skipped
// without NVRTC.
#include "../groups_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Groups : public GroupsTest {
 protected:
  Sm100Groups() : GroupsTest(Arch::kSm100a) {}
};

TEST_F(Sm100Groups, OfEverySize) { expect_every_size(128); }
TEST_F(Sm100Groups, OfEveryLayout) { expect_packed(some_of(every_layout(), 3)); }
TEST_F(Sm100Groups, WhatHangsOnTheHead) { expect_packed(some_of(what_hangs_on_the_head(), 3)); }
TEST_F(Sm100Groups, LoadKeysOnce) { expect_keys_loaded_once(); }
TEST_F(Sm100Groups, WrongLengthsDoNoHarm) { expect_no_harm_of_lengths(); }

TEST_F(Sm100Groups, ThatAreNotPacked) {
  expect_others_not_packed();
  AttentionSpec drafts = base_spec(Arch::kSm100a, 12, 6, 128);
  drafts.max_q_len = 21;
  EXPECT_TRUE(packs(drafts));
  drafts.max_q_len = 22;
  EXPECT_FALSE(packs(drafts));
}

}  // namespace
}  // namespace attnjit::sm100
