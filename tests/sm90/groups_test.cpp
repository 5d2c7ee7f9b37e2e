// SPDX-License-Identifier: Apache-2.0
// Groups of query heads that do not divide a consumer's 64 rows, on sm_90a. Skipped
// without NVRTC.
#include "../groups_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Groups : public GroupsTest {
 protected:
  Sm90Groups() : GroupsTest(Arch::kSm90a) {}
};

TEST_F(Sm90Groups, OfEverySize) { expect_every_size(64); }
TEST_F(Sm90Groups, OfEveryLayout) { expect_packed(some_of(every_layout(), 3)); }
TEST_F(Sm90Groups, WhatHangsOnTheHead) { expect_packed(some_of(what_hangs_on_the_head(), 3)); }
TEST_F(Sm90Groups, LoadKeysOnce) { expect_keys_loaded_once(); }
TEST_F(Sm90Groups, WrongLengthsDoNoHarm) { expect_no_harm_of_lengths(); }

TEST_F(Sm90Groups, ThatAreNotPacked) {
  expect_others_not_packed();
  AttentionSpec slopes = groups_spec(5, 192, 16);
  EXPECT_TRUE(packs(slopes));
  slopes.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  EXPECT_FALSE(packs(slopes));
  AttentionSpec drafts = base_spec(Arch::kSm90a, 12, 6, 128);
  drafts.max_q_len = 10;
  EXPECT_TRUE(packs(drafts));
  drafts.max_q_len = 11;
  EXPECT_FALSE(packs(drafts));
}

}  // namespace
}  // namespace attnjit::sm90
