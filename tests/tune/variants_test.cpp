// SPDX-License-Identifier: Apache-2.0
// The variants are every legal kernel of the plan's knobs, once.
#include "tune/variants.h"

#include <algorithm>
#include <set>

#include "plan/sm100/sm100_plan.h"
#include "tune_fixture.h"

namespace attnjit::tune {
namespace {

std::string constants_of(const KernelPlan& plan) {
  std::string text;
  for (const ConfigConstant& constant : plan.main().constants) {
    text += constant.name + "=" + constant.value + ";";
  }
  return text;
}

std::int64_t chosen_of(const KernelPlan& plan, const std::string& name) {
  for (const TuningKnob& knob : tuning_knobs(plan)) {
    if (knob.name == name) return knob.chosen;
  }
  return -1;
}

TEST(Variants, EachKernelOnceTheUntunedFirst) {
  const Result<Variants> variants = enumerate_variants(small_spec(), {}, 100000);
  ASSERT_TRUE(variants.ok()) << variants.error().to_string();
  EXPECT_GT(variants->list.size(), 20U);
  EXPECT_GT(variants->illegal, 0U);
  EXPECT_GT(variants->duplicates, 0U);
  EXPECT_EQ(variants->left_out, 0U);
  EXPECT_EQ(constants_of(variants->list.front().plan), constants_of(plan(small_spec()).value()));
  std::set<std::string> seen;
  for (const Variant& variant : variants->list) {
    EXPECT_TRUE(seen.insert(constants_of(variant.plan)).second);
    const Tuning table = table_of(variant.choose);
    EXPECT_EQ(constants_of(plan(small_spec(), {}, &table).value()), constants_of(variant.plan));
    EXPECT_LE(variant.plan.main().smem_bytes, 232448);
  }
}

// A knob that is added to the plan is tried without a change here: every legal value of every knob
// is in some variant.
TEST(Variants, EveryKnobIsTurned) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    AttentionSpec spec = small_spec();
    spec.arch = arch;
    const KernelPlan untuned = plan(spec).value();
    const Variants variants = enumerate_variants(spec, {}, 100000).value();
    ASSERT_FALSE(tuning_knobs(untuned).empty());
    for (const TuningKnob& knob : tuning_knobs(untuned)) {
      for (const std::int64_t value : knob.values) {
        const Tuning table = table_of({{knob.name, value}});
        const Result<KernelPlan> alone = plan(spec, {}, &table);
        if (!alone) continue;
        // NOTE: what it has, not what was asked: a plan may fall back from what does not fit.
        const std::int64_t now = chosen_of(*alone, knob.name);
        bool found = false;
        for (const Variant& variant : variants.list) {
          found = found || chosen_of(variant.plan, knob.name) == now;
        }
        EXPECT_TRUE(found) << knob.name << " = " << value << " on " << to_string(arch);
      }
    }
  }
}

// Pairs take nothing over: those that do are tried although pairs are the default.
TEST(Variants, TilesAreStolenWherePairsAreTheDefault) {
  AttentionSpec spec;
  spec.arch = Arch::kSm100a;
  spec.num_q_heads = spec.group = 8;
  spec.qk_depth = 256;
  const Variants variants = enumerate_variants(spec, {}, 100000).value();
  ASSERT_EQ(variants.list.front().plan.sm100->cluster, 2);
  int found = 0;
  for (const Variant& variant : variants.list) {
    if (!variant.plan.sm100->steals_tiles()) continue;
    ++found;
    EXPECT_EQ(variant.choose.at("pair_cta"), 0);
  }
  EXPECT_GT(found, 0);
}

TEST(Variants, TheNearestAreKept) {
  const Variants all = enumerate_variants(small_spec(), {}, 100000).value();
  const Variants few = enumerate_variants(small_spec(), {}, 5).value();
  ASSERT_EQ(few.list.size(), 5U);
  EXPECT_EQ(few.left_out, all.list.size() - 5);
  for (const Variant& variant : few.list) {
    int changed = 0;
    for (const auto& [name, value] : variant.choose) {
      changed += few.list.front().choose.at(name) == value ? 0 : 1;
    }
    EXPECT_LE(changed, 1);
    EXPECT_LE(variant.turned, 1U);
  }
  EXPECT_EQ(enumerate_variants(small_spec(), {}, 1).value().list.size(), 1U);
}

// What `attnjit tune` tries by default: all kernels that have one or two knobs otherwise, though
// some specs have thousands in all.
TEST(Variants, TheDefaultLimitHasAllOfTwoKnobs) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    for (const int depth : {64, 128, 256}) {
      AttentionSpec spec = small_spec();
      spec.arch = arch;
      spec.qk_depth = depth;
      SCOPED_TRACE(spec_to_json(spec));
      const Variants all = enumerate_variants(spec, {}, 100000).value();
      const auto near = std::count_if(all.list.begin(), all.list.end(),
                                      [](const Variant& variant) { return variant.turned <= 2; });
      EXPECT_LE(static_cast<std::size_t>(near), TuneRequest().max_variants);
    }
  }
}

// A tile of 96 keys has halves of P, whether it is asked for them or for three quarters: nobody
// turned that knob.
TEST(Variants, AKnobThatChangesNothingIsNotTurned) {
  AttentionSpec spec = small_spec();
  spec.arch = Arch::kSm100a;
  spec.partition_keys = 192;
  const Variants variants = enumerate_variants(spec, {}, 100000).value();
  ASSERT_EQ(chosen_of(variants.list.front().plan, "pv_first_quarters"), 2);
  const auto once =
      std::count_if(variants.list.begin(), variants.list.end(), [](const Variant& variant) {
        return variant.turned == 1 && chosen_of(variant.plan, "pv_first_quarters") == 2;
      });
  EXPECT_GT(once, 0);
}

TEST(Variants, WhatCannotBePlannedIsAnError) {
  AttentionSpec spec = small_spec();
  spec.v_layout = VLayout::kTransposed;  // of which there is no kernel
  EXPECT_EQ(enumerate_variants(spec, {}, 100).error().code, ErrorCode::kUnsupported);
  spec.qk_depth = -1;
  EXPECT_EQ(enumerate_variants(spec, {}, 100).error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace attnjit::tune
