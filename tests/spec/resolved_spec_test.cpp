// SPDX-License-Identifier: Apache-2.0
// ResolvedSpec: what is checked, filled in and parsed when one is made.
#include "spec/resolved_spec.h"

#include <gtest/gtest.h>

namespace attnjit {
namespace {

MaskSpec custom(std::string name, std::string code, bool trusted = false,
                std::vector<ParamSpec> params = {}) {
  MaskSpec mask;
  mask.kind = MaskSpec::Kind::kCustom;
  mask.custom = {std::move(name), std::move(code), trusted, std::move(params)};
  return mask;
}

AttentionSpec spec_with(MaskSpec mask) {
  AttentionSpec spec;
  spec.num_q_heads = 8;
  spec.qk_depth = 192;
  spec.ov_depth = 128;
  spec.mask = std::move(mask);
  return spec;
}

TEST(ResolvedSpec, HoldsWhatWasGivenAndItsDefaults) {
  PlanOptions options;
  options.num_qo = 1;
  const auto resolved = ResolvedSpec::make(spec_with({}), options);
  ASSERT_TRUE(resolved.ok()) << resolved.error().to_string();
  EXPECT_EQ(resolved->given(), spec_with({}));
  EXPECT_FALSE(resolved->given().rope_dtype);
  EXPECT_EQ((*resolved)->rope_dtype, Dtype::kBf16);
  EXPECT_EQ((*resolved)->output_dtype, Dtype::kBf16);
  EXPECT_EQ(resolved->options(), options);
  EXPECT_EQ(*ResolvedSpec(), AttentionSpec{});

  const auto read = ResolvedSpec::from_json(spec_to_json(spec_with({}), options));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->given(), spec_with({}));
  EXPECT_EQ(read->options(), options);
}

// Planning looks at no GPU, so it refuses what is left to the one at hand.
TEST(ResolvedSpec, KnowsWhoSaysItsArchitecture) {
  const auto from = [](const char* arch) {
    const auto read =
        ResolvedSpec::from_json(std::string(R"({"num_q_heads": 8, "qk_depth": 64)") + arch + "}");
    EXPECT_TRUE(read.ok()) << read.error().to_string();
    return *read;
  };
  using spec::ArchFrom;
  EXPECT_EQ(from("").state().arch_from, ArchFrom::kNothing);
  EXPECT_EQ(from(R"(, "arch": "native")").state().arch_from, ArchFrom::kNative);
  EXPECT_EQ(from(R"(, "arch": "sm_90a")").state().arch_from, ArchFrom::kSpec);
  EXPECT_EQ(ResolvedSpec::make(spec_with({}))->state().arch_from, ArchFrom::kSpec);
  const ResolvedSpec given = spec::with_arch(from(""), Arch::kSm103a);
  EXPECT_EQ(given.state().arch_from, ArchFrom::kSpec);
  EXPECT_EQ(given->arch, Arch::kSm103a);
  EXPECT_EQ(given.given().arch, Arch::kSm103a);
  const auto plain = spec_from_json(R"({"num_q_heads": 8, "qk_depth": 64, "arch": "native"})");
  ASSERT_FALSE(plain.ok());
  EXPECT_EQ(plain.error().field, "arch");
}

TEST(ResolvedSpec, HoldsItsSnippetsInPreorderTheScoreModificationLast) {
  MaskSpec inner;
  inner.kind = MaskSpec::Kind::kOr;
  inner.of = {custom("b", "return true;", true), custom("c", "q_idx > 1")};
  MaskSpec tree;
  tree.kind = MaskSpec::Kind::kAnd;
  tree.of = {custom("a", "q_idx > 0"), inner, MaskSpec{}};
  AttentionSpec spec = spec_with(tree);
  spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
  spec.score_mod.custom = {"s", "score + q_idx", false, {}};
  const auto resolved = ResolvedSpec::make(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.error().to_string();
  const spec::Snippets& snippets = resolved->state().snippets;
  ASSERT_EQ(snippets.size(), 4U);
  ASSERT_TRUE(snippets[0] && !snippets[1] && snippets[2] && snippets[3]);
  EXPECT_EQ(spec::print_cuda(*snippets[0]),
            spec::print_cuda(*spec::parse_expression("q_idx > 0", spec::SnippetKind::kMask, {})));
  EXPECT_EQ(snippets[2]->root().op, spec::ExprOp::kGreater);
  EXPECT_EQ(snippets[3]->kind, spec::SnippetKind::kScoreMod);
}

TEST(ResolvedSpec, ExpressionsThatAreBuiltInMasksBecomeThem) {
  using Kind = MaskSpec::Kind;
  const auto kind = [](const std::string& code) {
    return (*ResolvedSpec::make(spec_with(custom("x", code))))->mask.kind;
  };
  EXPECT_EQ(kind("kv_idx <= q_idx"), Kind::kCausal);
  EXPECT_EQ(kind("q_idx - kv_idx >= 0"), Kind::kCausal);
  EXPECT_EQ(kind("kv_idx >= 0"), Kind::kNull);
  EXPECT_EQ(kind("kv_idx < q_idx"), Kind::kCustom);
  // What a launch is given stays declared, and what its author wrote is kept.
  const auto given = ResolvedSpec::make(
      spec_with(custom("x", "kv_idx <= q_idx", false, {{"w", ParamSpec::Type::kI32}})));
  EXPECT_EQ((*given)->mask.kind, Kind::kCustom);
  // In a tree the other snippets keep their order.
  MaskSpec all;
  all.kind = Kind::kAnd;
  all.of = {custom("a", "q_idx > 1"), custom("b", "kv_idx <= q_idx"), custom("c", "q_idx > 2")};
  const auto tree = ResolvedSpec::make(spec_with(all));
  ASSERT_TRUE(tree);
  EXPECT_EQ((*tree)->mask.of[1].kind, Kind::kCausal);
  EXPECT_EQ(tree->given().mask.of[1].kind, Kind::kCustom);
  const spec::Snippets& snippets = tree->state().snippets;
  ASSERT_EQ(snippets.size(), 2U);
  EXPECT_EQ(spec::print_cuda(*snippets[1]), "(c.q_idx > 2)");
}

TEST(ResolvedSpec, RefusedCodeIsPlacedInItsField) {
  MaskSpec both;
  both.kind = MaskSpec::Kind::kAnd;
  both.of = {MaskSpec{}, custom("x", "q_idx >= kv_idx &&\n  nope")};
  const auto expression = ResolvedSpec::make(spec_with(both));
  ASSERT_FALSE(expression.ok());
  EXPECT_EQ(expression.error().field, "mask.of[1].code");
  EXPECT_EQ(expression.error().line, 2);
  EXPECT_EQ(expression.error().column, 3);
  const auto body = ResolvedSpec::make(spec_with(custom("x", "#define X\nreturn true;", true)));
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(body.error().field, "mask.code");
}

// Both become parts of identifiers in the rendered source.
TEST(ResolvedSpec, NamesThatAreNoIdentifiersAreRefused) {
  for (const char* name : {"", "A", "a b", "x{};", "\n"}) {
    const auto resolved = ResolvedSpec::make(spec_with(custom(name, "return true;", true)));
    ASSERT_FALSE(resolved.ok()) << name;
    EXPECT_EQ(resolved.error().field, "mask.name");
  }
  for (const char* name : {"", "1x", "int", "a b", "x; int y"}) {
    const auto resolved =
        ResolvedSpec::make(spec_with(custom("x", "true", false, {{name, ParamSpec::Type::kI32}})));
    ASSERT_FALSE(resolved.ok()) << name;
    EXPECT_EQ(resolved.error().field, "mask.params[0].name");
  }
}

}  // namespace
}  // namespace attnjit
