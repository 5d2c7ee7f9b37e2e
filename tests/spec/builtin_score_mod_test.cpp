// SPDX-License-Identifier: Apache-2.0
// Which expressions are built-in score modifications, and what a spec that has one becomes.
#include "spec/builtin.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "spec/resolved_spec.h"

namespace attnjit::spec {
namespace {

using ScoreKind = ScoreModSpec::Kind;

std::optional<ScoreModSpec> found(const std::string& code) {
  const std::vector<ParamSpec> params{{.name = "cap", .type = ParamSpec::Type::kF32}};
  const Result<Expression> made = parse_expression(code, SnippetKind::kScoreMod, params);
  EXPECT_TRUE(made) << code << ": " << (made ? "" : made.error().to_string());
  return made ? builtin_score_mod(*made) : std::nullopt;
}

TEST(BuiltinScoreMod, SoftcapInAnySpelling) {
  for (const char* code :
       {"30 * tanh(score / 30)", "30.0f * tanh(score / 30.0f)", "tanh(score / 30.0) * 30.0",
        "tanhf(score * (1.0f / 30.0f)) * 30", "tanh(0.0333333333 * score) / (1 / 30.0)",
        "-30 * tanh(-score / 30)", "-(tanh(score / -30) * 30)", "60 * tanh(score / 30) / 2",
        "10 * (3 * tanh(score / 10 / 3))", "float(30) * tanh(score / float(30))"}) {
    const auto softcap = found(code);
    ASSERT_TRUE(softcap) << code;
    EXPECT_EQ(softcap->kind, ScoreKind::kSoftcap) << code;
    EXPECT_NEAR(softcap->cap, 30, 1e-4) << code;
    EXPECT_TRUE(softcap->constant) << code;
  }
}

TEST(BuiltinScoreMod, ScoresAsTheyAre) {
  for (const char* code : {"score", "(score)", "-(-score)", "2 * score / 2", "score * 1"}) {
    const auto none = found(code);
    ASSERT_TRUE(none) << code;
    EXPECT_EQ(none->kind, ScoreKind::kIdentity) << code;
  }
}

TEST(BuiltinScoreMod, WhatIsNone) {
  for (const char* code :
       {"30 * tanh(score / 31)", "-30 * tanh(score / 30)", "tanh(score) * 2",
        "30 * tanh(30 / score)", "30 * tanh(score / 30) + 1", "30 * tanh((score + 1) / 30)",
        "p.cap * tanh(score / p.cap)", "30 * sin(score / 30)", "score * 2", "-score", "30.0f",
        "score + q_idx", "1e-45f * tanh(score / 1e-45f)", "score * q_idx",
        "30 * tanh(q_idx / 30.0)", "1001 * tanh(score / 1001)", "score * 1e38 / 1e38",
        "30 * tanh(score * 1e38 / 1e38 / 30)"}) {
    EXPECT_FALSE(found(code)) << code;
  }
}

TEST(BuiltinScoreMod, ASpecHasTheBuiltinOne) {
  AttentionSpec spec;
  spec.num_q_heads = 8;
  spec.qk_depth = 128;
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "even";
  spec.mask.custom.code = "kv_idx % 2 == 0";
  spec.score_mod.kind = ScoreKind::kCustom;
  spec.score_mod.custom.name = "capped";
  spec.score_mod.custom.code = "tanh(score / 20) * 20";
  const auto resolved = [&] {
    const Result<ResolvedSpec> made = ResolvedSpec::make(spec);
    EXPECT_TRUE(made) << (made ? "" : made.error().to_string());
    return made ? *made : ResolvedSpec();
  };
  EXPECT_EQ(resolved()->score_mod.kind, ScoreKind::kSoftcap);
  EXPECT_EQ(resolved()->score_mod.cap, 20);
  EXPECT_EQ(resolved().state().snippets.size(), 1U);  // the mask's
  EXPECT_EQ(resolved().given().score_mod.kind, ScoreKind::kCustom);
  // Of what is interpreted a kernel does not depend on the code.
  spec.interpreted = true;
  EXPECT_EQ(resolved()->score_mod.kind, ScoreKind::kCustom);
  EXPECT_EQ(resolved().state().snippets.size(), 2U);
  spec.interpreted = false;
  spec.score_mod.custom.code = "tanh(score / 20) * 21";
  EXPECT_EQ(resolved()->score_mod.kind, ScoreKind::kCustom);
  EXPECT_EQ(resolved().state().snippets.size(), 2U);
}

}  // namespace
}  // namespace attnjit::spec
