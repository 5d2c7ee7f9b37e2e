// SPDX-License-Identifier: Apache-2.0
// Tuning tables and knobs of Sm90Plan.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "attnjit/tuning.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

TEST(Sm90Plan, TuningIsAppliedAndChecked) {
  const auto tuned = [](TuningValues values) {
    Tuning tuning;
    tuning.rows.push_back({{}, std::move(values)});
    return plan(sm90_spec(128), {}, &tuning);
  };
  Result<KernelPlan> narrow = tuned({{"BN", 64}, {"num_stages", 4}});
  ASSERT_TRUE(narrow.ok());
  EXPECT_EQ(narrow->sm90->BN, 64);
  EXPECT_EQ(narrow->sm90->num_stages, 4);
  EXPECT_EQ(tuned({{"BN", 100}}).error().field, "tuning.BN");
  EXPECT_EQ(tuned({{"num_stages", 1}}).error().field, "tuning.num_stages");
  EXPECT_EQ(tuned({{"BK", 64}}).error().field, "tuning.BK");
  AttentionSpec parts = sm90_spec(128);
  parts.partition_keys = 512;
  Tuning wide;
  wide.rows.push_back({{}, {{"BN", 80}}});
  const Result<KernelPlan> uneven = plan(parts, {}, &wide);
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.error().field, "tuning.BN");
  const Result<KernelPlan> large = tuned({{"BN", 192}, {"num_stages", 4}});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kInvalid);
}

// A table that was made before knobs had the field's words.
TEST(Sm90Plan, KnobsAreCalledByTheirOldNamesToo) {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"num_row_stages", 1}}});
  AttentionSpec spec = sm90_spec(128);
  spec.kv_dtype = Dtype::kE4m3;
  const Result<KernelPlan> tuned = plan(spec, {}, &tuning);
  ASSERT_TRUE(tuned.ok()) << tuned.error().to_string();
  EXPECT_EQ(tuned->sm90->num_raw_stages, 1);
  EXPECT_NE(plan_of(spec).sm90->num_raw_stages, 1);
  spec = sm90_spec(128);
  spec.page_size = 64;
  spec.ragged = true;
  ASSERT_TRUE(plan_of(spec).sm90->dynamic_schedule);
  tuning.rows.front().choose = {{"claims_work", 0}};
  const Result<KernelPlan> still = plan(spec, {}, &tuning);
  ASSERT_TRUE(still.ok()) << still.error().to_string();
  EXPECT_FALSE(still->sm90->dynamic_schedule);
  tuning.rows.front().choose = {{"old", 1}};
  EXPECT_FALSE(plan(spec, {}, &tuning).ok());
}

// Each value of each knob is taken or refused with its name, and a plan's own choice can be pinned.
TEST(Sm90Plan, EveryKnobIsAppliedAndReadBack) {
  for (const int depth : {64, 128, 256}) {
    const KernelPlan untuned = plan_of(sm90_spec(depth));
    TuningValues pinned;
    for (const TuningKnob& knob : tuning_knobs(untuned)) {
      pinned[knob.name] = knob.chosen;
      EXPECT_NE(std::find(knob.values.begin(), knob.values.end(), knob.chosen), knob.values.end());
      int taken = 0;
      for (const std::int64_t value : knob.values) {
        Tuning tuning;
        tuning.rows.push_back({{}, {{knob.name, value}}});
        const Result<KernelPlan> tuned = plan(sm90_spec(depth), {}, &tuning);
        if (!tuned) {
          EXPECT_EQ(tuned.error().code, ErrorCode::kInvalid);
          continue;
        }
        ++taken;
        // NOTE: a plan may fall back from what does not fit (Q's second buffer), never silently
        // take another knob's value.
        for (const TuningKnob& now : tuning_knobs(*tuned)) {
          if (now.name == knob.name && knob.name != "num_q_stages") {
            EXPECT_EQ(now.chosen, value) << knob.name << " at depth " << depth;
          }
        }
      }
      EXPECT_GT(taken, 0) << knob.name;
    }
    Tuning tuning;
    tuning.rows.push_back({{}, pinned});
    const Result<KernelPlan> again = plan(sm90_spec(depth), {}, &tuning);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(constants_of(*again), constants_of(untuned));
  }
}

TEST(Sm90Plan, ARowIsMadeForASpecAndItsLikes) {
  AttentionSpec spec = sm90_spec(128);
  const KernelPlan planned = plan_of(spec);
  Tuning tuning;
  tuning.rows.push_back({tuning_match(planned.spec), {{"BN", 112}}});
  const auto keys = [&](const AttentionSpec& asked) {
    return plan(asked, {}, &tuning).value().sm90->BN;
  };
  EXPECT_EQ(keys(spec), 112);
  spec.num_q_heads = 64;
  EXPECT_EQ(keys(spec), 112);
  spec.max_seq_len = 4096;
  EXPECT_EQ(keys(spec), 112);
  for (const auto change : {+[](AttentionSpec& s) { s.group = 2; },
                            +[](AttentionSpec& s) { s.qkv_dtype = Dtype::kFp16; },
                            +[](AttentionSpec& s) { s.return_lse = true; },
                            +[](AttentionSpec& s) { s.mask.kind = MaskSpec::Kind::kCausal; },
                            +[](AttentionSpec& s) { s.ov_depth = 64; }}) {
    AttentionSpec other = spec;
    change(other);
    EXPECT_NE(keys(other), 112);
  }
  // A spec with a bound has rows of its own.
  const std::map<std::string, std::string> bounded = tuning_match(plan_of(spec).spec);
  EXPECT_EQ(bounded.at("max_seq_len"), "4096");
}

}  // namespace
}  // namespace attnjit
