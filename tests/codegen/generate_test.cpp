// SPDX-License-Identifier: Apache-2.0
// generate: hand-made plans, so that every part of the rendered file is seen.
#include <gtest/gtest.h>

#include <algorithm>

#include "attnjit/source.h"
#include "codegen/user_code.h"

namespace attnjit {
namespace {

using Kind = KernelParameter::Kind;

TemplateSet templates() {
  const SourceFile* rendered = TemplateSet::embedded().find("attention.cu.tmpl");
  return TemplateSet(
      std::vector<SourceFile>{*rendered,
                              {"common/mask.cuh", "#pragma once\n"},
                              {"sm90/forward.cuh", "#pragma once\n#include \"common/mask.cuh\"\n"},
                              {"sm100/forward.cuh", "#pragma once\n"}});
}

KernelPlan plan_of(const MaskSpec& mask, const ScoreModSpec& score_mod = {},
                   Arch arch = Arch::kSm90a) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = 8;
  spec.qk_depth = 128;
  spec.mask = mask;
  spec.score_mod = score_mod;
  KernelPlan plan;
  plan.spec = ResolvedSpec::make(spec).value();
  plan.supported = true;
  plan.main().entry = "attnjit_forward";
  plan.main().kernel_header = "sm90/forward.cuh";
  plan.main().threads = 384;
  plan.main().constants = {{"int", "kTileM", "128"}, {"bool", "kSink", "false"}};
  plan.main().parameters = {{"tm_q", Kind::kTensorMap, ""},
                            {"lse", Kind::kPointer, "float"},
                            {"kv_len", Kind::kI32, ""},
                            {"stride", Kind::kI64, ""},
                            {"scale", Kind::kF32, ""}};
  return plan;
}

MaskSpec of_kind(MaskSpec::Kind kind) {
  MaskSpec mask;
  mask.kind = kind;
  return mask;
}

MaskSpec custom(std::string name, std::string code, bool trusted = false,
                std::vector<ParamSpec> params = {}) {
  MaskSpec mask = of_kind(MaskSpec::Kind::kCustom);
  mask.custom = {std::move(name), std::move(code), trusted, std::move(params)};
  return mask;
}

TEST(Generate, PrintsTheWholeFile) {
  const auto source = generate(plan_of({}), templates());
  ASSERT_TRUE(source.ok()) << source.error().to_string();
  EXPECT_EQ(
      source->text,
      R"(// An attention kernel for sm_90a, rendered from its plan: constants, user's functions, entry.
// Everything else is in the header that this file includes.

/// What the plan fixed at compile time.
struct Config {
  static constexpr int kTileM = 128;
  static constexpr bool kSink = false;
};

#include "sm90/forward.cuh"

/// Run-time values of the built-in masks and score modifications.
struct Scalars {
};

/// What user code sees as p: a parameter of its own hides a scalar of the same name.
struct Params : Scalars {
};

/// The other arguments of the launch, tensor maps by address.
struct Arguments {
  const attnjit::TensorMap* tm_q;
  float* lse;
  int kv_len;
  long long stride;
  float scale;
};

using Mask = attnjit::NullMask;
using ScoreMod = attnjit::IdentityScoreMod;

extern "C" __global__ void __launch_bounds__(384, 1) attnjit_forward(
    const __grid_constant__ attnjit::TensorMap tm_q,
    float* lse,
    int kv_len,
    long long stride,
    float scale) {
  const Arguments arguments{&tm_q, lse, kv_len, stride, scale};
  const Params params{{}};
  attnjit::sm90::forward<Config, Mask, ScoreMod>(arguments, params);
}
)");
  EXPECT_EQ(source->entries, std::vector<std::string>{"attnjit_forward"});
  EXPECT_EQ(source->arch, Arch::kSm90a);
  EXPECT_FALSE(source->trusted);
  EXPECT_TRUE(source->user_code.empty());
}

TEST(Generate, HoldsTheHeadersThatItIncludesAndNoOther) {
  const TemplateSet before = templates();
  const auto source = generate(plan_of({}), before);
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->headers.size(), 2u);
  EXPECT_EQ(source->headers.files()[0].name, "common/mask.cuh");
  EXPECT_EQ(source->headers.files()[1].name, "sm90/forward.cuh");
  const auto edited = [&before](const std::string& name) {
    std::vector<SourceFile> files = before.files();
    for (SourceFile& file : files) {
      if (file.name == name) file.text += "// edited\n";
    }
    return TemplateSet(std::move(files));
  };
  EXPECT_EQ(generate(plan_of({}), edited("sm100/forward.cuh"))->template_digest,
            source->template_digest);
  for (const char* name : {"common/mask.cuh", "sm90/forward.cuh", "attention.cu.tmpl"}) {
    EXPECT_NE(generate(plan_of({}), edited(name))->template_digest, source->template_digest);
  }
}

TEST(Generate, OptionsHoldTheArchitectureAndNoPath) {
  const auto source = generate(plan_of({}, {}, Arch::kSm103a), templates());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(
      std::count(source->options.begin(), source->options.end(), "--gpu-architecture=sm_103a"), 1);
  for (const std::string& option : source->options) {
    EXPECT_EQ(option.find('/'), std::string::npos) << option;
    EXPECT_EQ(option.find("lineinfo"), std::string::npos) << option;
  }
}

TEST(Generate, ComposesMasks) {
  MaskSpec window = of_kind(MaskSpec::Kind::kSlidingWindow);
  MaskSpec constant = window;
  constant.window = 128;
  constant.constant = true;
  MaskSpec chunked = of_kind(MaskSpec::Kind::kChunked);
  MaskSpec any = of_kind(MaskSpec::Kind::kOr);
  any.of = {constant, window, chunked};
  MaskSpec all = of_kind(MaskSpec::Kind::kAnd);
  all.of = {of_kind(MaskSpec::Kind::kCausal), any};
  KernelPlan plan = plan_of(all);
  plan.main().parameters.push_back({"window_1", Kind::kI32, "", ScalarSource{1}});
  plan.main().parameters.push_back({"chunk", Kind::kI32, "", ScalarSource{2}});
  const auto source = generate(plan, templates());
  ASSERT_TRUE(source.ok()) << source.error().to_string();
  EXPECT_NE(source->text.find("using Mask = attnjit::AndMask<attnjit::CausalMask, "
                              "attnjit::OrMask<attnjit::SlidingWindowMask<Config::kWindow>, "
                              "attnjit::OrMask<attnjit::SlidingWindowMask<&Scalars::window_1>, "
                              "attnjit::ChunkedMask<&Scalars::chunk>>>>;"),
            std::string::npos)
      << source->text;
  EXPECT_NE(source->text.find("struct Scalars {\n  int window_1;\n  int chunk;\n};"),
            std::string::npos);
  EXPECT_NE(source->text.find("const Params params{{window_1, chunk}};"), std::string::npos);
}

TEST(Generate, ComposesScoreMods) {
  ScoreModSpec mod;
  mod.kind = ScoreModSpec::Kind::kAlibi;
  EXPECT_NE(generate(plan_of({}, mod), templates())->text.find("attnjit::AlibiScoreMod;"),
            std::string::npos);
  mod.slopes = true;
  EXPECT_NE(generate(plan_of({}, mod), templates())
                ->text.find("attnjit::AlibiSlopesScoreMod<&Scalars::slopes>;"),
            std::string::npos);
  mod.kind = ScoreModSpec::Kind::kSoftcap;
  KernelPlan plan = plan_of({}, mod);
  plan.main().parameters.push_back({"cap", Kind::kF32, "", ScalarSource{0}});
  EXPECT_NE(generate(plan, templates())->text.find("attnjit::SoftcapScoreMod<&Scalars::cap>"),
            std::string::npos);
  mod.cap = 30;
  mod.constant = true;
  EXPECT_NE(
      generate(plan_of({}, mod), templates())->text.find("attnjit::SoftcapScoreMod<Config::kCap>"),
      std::string::npos);
}

TEST(Generate, ARunTimeScalarThatThePlanLacksIsADefect) {
  const auto source = generate(plan_of(of_kind(MaskSpec::Kind::kSlidingWindow)), templates());
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::kInternal);
  EXPECT_NE(source.error().message.find("'window'"), std::string::npos);
}

TEST(Generate, UserParametersBecomeParams) {
  const MaskSpec mask = custom("document", "return p.doc.data[q_idx] == p.doc.data[kv_idx];", true,
                               {{"doc", ParamSpec::Type::kI32Array},
                                {"near", ParamSpec::Type::kI32},
                                {"bias", ParamSpec::Type::kI32Matrix},
                                {"slope", ParamSpec::Type::kF32}});
  KernelPlan plan = plan_of(mask);
  const auto incomplete = generate(plan, templates());
  ASSERT_FALSE(incomplete.ok());
  EXPECT_EQ(incomplete.error().code, ErrorCode::kInternal);
  using Part = ParamSource::Part;
  std::vector<KernelParameter>& parameters = plan.main().parameters;
  const std::vector<KernelParameter> declared{
      {"param_doc", Kind::kPointer, "const int", ParamSource{0, Part::kValue}},
      {"param_doc_n", Kind::kI32, "", ParamSource{0, Part::kExtent0}},
      {"param_near", Kind::kI32, "", ParamSource{1, Part::kValue}},
      {"param_bias", Kind::kPointer, "const int", ParamSource{2, Part::kValue}},
      {"param_bias_rows", Kind::kI32, "", ParamSource{2, Part::kExtent0}},
      {"param_bias_cols", Kind::kI32, "", ParamSource{2, Part::kExtent1}},
      {"param_slope", Kind::kF32, "", ParamSource{3, Part::kValue}}};
  parameters.insert(parameters.end(), declared.begin(), declared.end());
  const auto source = generate(plan, templates());
  ASSERT_TRUE(source.ok()) << source.error().to_string();
  EXPECT_NE(source->text.find("struct Params : Scalars {\n  ::attnjit::Array<int> doc;\n"
                              "  int near;\n  ::attnjit::Matrix<int> bias;\n  float slope;\n};"),
            std::string::npos)
      << source->text;
  EXPECT_NE(source->text.find("const Params params{{}, {param_doc, param_doc_n}, param_near, "
                              "{param_bias, param_bias_rows, param_bias_cols}, param_slope};"),
            std::string::npos)
      << source->text;
  EXPECT_EQ(source->text.find("  const int* param_doc;"), std::string::npos);
}

/// The line of the rendered file that a #line after trusted code claims for itself is its own.
void expect_lines_lead_back(const KernelSource& source) {
  int number = 1, claims = 0;
  std::size_t at = 0;
  while (at < source.text.size()) {
    const std::size_t end = source.text.find('\n', at);
    const std::string line = source.text.substr(at, end - at);
    if (line.rfind("#line ", 0) == 0 && line.find("\"attention.cu\"") != std::string::npos) {
      EXPECT_EQ(std::stoi(line.substr(6)), number + 1) << source.text;
      ++claims;
    }
    ++number;
    at = end + 1;
  }
  EXPECT_GT(claims, 0);
}

TEST(Generate, TrustedBodiesKeepTheirLines) {
  MaskSpec both = of_kind(MaskSpec::Kind::kAnd);
  const MaskSpec first = custom("first", "int x = q_idx;\n\n  return x > kv_idx;", true);
  both.of = {first, of_kind(MaskSpec::Kind::kCausal), custom("second", "return true;", true),
             first};
  ScoreModSpec mod;
  mod.kind = ScoreModSpec::Kind::kCustom;
  mod.custom = {"warp", "return score\n+ 1.0f;", true, {}};
  const auto source = generate(plan_of(both, mod), templates());
  ASSERT_TRUE(source.ok()) << source.error().to_string();
  EXPECT_TRUE(source->trusted);
  for (const char* text :
       {"struct Mask_first {", "struct Mask_second {", "struct Mask_first_2 {",
        "struct ScoreMod_warp {",
        "#line 1 \"user:mask.of[0].code\"\nint x = q_idx;\n\n  return x > kv_idx;\n    }\n  "
        "}\n#line",
        "#line 1 \"user:mask.of[2].code\"\nreturn true;\n    }\n  }\n#line",
        "#line 1 \"user:score_mod.code\"\nreturn score\n+ 1.0f;\n    }\n  }\n#line"}) {
    EXPECT_NE(source->text.find(text), std::string::npos) << text << "\n" << source->text;
  }
  expect_lines_lead_back(*source);
  EXPECT_EQ(source->user_code.rfind("trusted:", 0), 0u);
  EXPECT_NE(std::find(source->options.begin(), source->options.end(), "--diag-error=940"),
            source->options.end());
}

TEST(Generate, RowsOfTheBatchAreFoundByWhereSequencesBegin) {
  const auto of = [](const std::string& code, bool trusted, bool ragged) {
    MaskSpec both = of_kind(MaskSpec::Kind::kOr);
    both.of = {custom("first", "return kv_idx > 3;", true), custom("second", code, trusted)};
    KernelPlan plan = plan_of(both);
    AttentionSpec spec = plan.spec;
    spec.ragged = ragged;
    plan.spec = ResolvedSpec::make(spec).value();
    plan.kernels[0].parameters.push_back(
        {"q_offsets", Kind::kPointer, "const int", BufferId{BufferId::Kind::kQOffsets, 0}});
    return *generate(plan, templates());
  };
  for (const bool trusted : {false, true}) {
    const std::string code = trusted ? "return total_row > kv_idx;" : "total_row > kv_idx";
    const KernelSource ragged = of(code, trusted, true), even = of(code, trusted, false);
    expect_lines_lead_back(ragged);
    expect_lines_lead_back(even);
    for (const char* text :
         {"struct Scalars {\n  const int* q_offsets;\n};",
          "row_of_batch(at, p.Scalars::q_offsets[at.b])", "const Params params{{q_offsets}};"}) {
      EXPECT_NE(ragged.text.find(text), std::string::npos) << text << "\n" << ragged.text;
      EXPECT_EQ(even.text.find(text), std::string::npos) << text << "\n" << even.text;
    }
    EXPECT_NE(even.text.find("row_of_batch(at, expr_mul(at.b, at.q_len))"), std::string::npos);
    const char* const call = trusted ? "total_row = attnjit_user::total_row(c, p);"
                                     : "return (total_row(c, p) > c.kv_idx);";
    EXPECT_NE(even.text.find(call), std::string::npos) << even.text;
  }
  // Other code has nothing of it.
  const KernelSource other = of("q_row > kv_idx", false, true);
  EXPECT_EQ(other.text.find("total_row"), std::string::npos);
  EXPECT_EQ(other.text.find("struct Scalars {\n  const int* q_offsets;"), std::string::npos);
}

TEST(Generate, UserCodeCannotBecomeAPlaceholder) {
  const auto source =
      generate(plan_of(custom("x", "/*{entry}*/ return true; /*{nothing}*/", true)), templates());
  ASSERT_TRUE(source.ok()) << source.error().to_string();
  EXPECT_NE(source->text.find("/*{entry}*/ return true; /*{nothing}*/\n"), std::string::npos);
}

TEST(Generate, ExpressionsArePrintedFromTheirTree) {
  const auto text = [](const std::string& code) {
    return generate(plan_of(custom("x", code)), templates())->text;
  };
  // What the tree does not hold makes no difference: space, comments' room, redundant brackets.
  EXPECT_EQ(text("q_idx>kv_idx"), text("  ((q_idx)\n  > kv_idx)"));
  EXPECT_NE(text("q_idx>kv_idx").find("struct Mask_x {"), std::string::npos);
}

TEST(Generate, ExpressionsThatDecideTilesSayWhat) {
  const auto has = [](const MaskSpec& mask, const std::string& part) {
    return generate(plan_of(mask), templates())->text.find(part) != std::string::npos;
  };
  const std::string tiles = "static IntRange tiles(const Tile& t, const Params& p)";
  EXPECT_TRUE(has(custom("x", "q_idx > kv_idx"), "kDecidesTiles = true;"));
  EXPECT_TRUE(has(custom("x", "q_idx > kv_idx"), tiles));
  EXPECT_TRUE(has(custom("x", "q_idx > kv_idx"), "range_greater(t.q_idx, t.kv_idx)"));
  EXPECT_TRUE(has(custom("x", "sin(float(q_idx)) > 0.0f"), "kDecidesTiles = false;"));
  EXPECT_FALSE(has(custom("x", "sin(float(q_idx)) > 0.0f"), tiles));
  EXPECT_TRUE(has(custom("x", "return true;", true), "kDecidesTiles = false;"));
}

TEST(Generate, IsDeterministic) {
  const auto a = generate(plan_of(of_kind(MaskSpec::Kind::kCausal)));
  const auto b = generate(plan_of(of_kind(MaskSpec::Kind::kCausal)));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->text, b->text);
  EXPECT_EQ(a->options, b->options);
  EXPECT_EQ(a->template_digest, b->template_digest);
}

// What takes most of the time of a spec that is new: it is done once for a shape.
TEST(Generate, HeadersAreFoundAndDigestedOnce) {
  const TemplateSet set = templates();
  const auto a = generate(plan_of(of_kind(MaskSpec::Kind::kCausal)), set);
  const TemplateSet copy = set;
  const auto b = generate(plan_of(of_kind(MaskSpec::Kind::kNull)), copy);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_FALSE(a->headers.files().empty());
  EXPECT_EQ(&a->headers.files(), &b->headers.files());
  EXPECT_EQ(a->headers.digest(), HeaderSet(a->headers.files()).digest());
}

TEST(Generate, WhatNoTemplateServesIsUnsupported) {
  KernelPlan plan = plan_of({});
  plan.supported = false;
  plan.reason = "because";
  const auto refused = generate(plan, templates());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().message, "because");
}

// A folder that is not whole is the environment's fault, whichever file it lacks.
TEST(Generate, AnIncompleteSetOfTemplatesIsNoFaultOfTheSpec) {
  const KernelPlan plan = plan_of({});
  const auto whole = generate(plan, templates());
  ASSERT_TRUE(whole.ok()) << whole.error().to_string();
  std::vector<std::string> needed{"attention.cu.tmpl"};
  for (const SourceFile& header : whole->headers) needed.push_back(header.name);
  EXPECT_GT(needed.size(), 1u);
  for (const std::string& missing : needed) {
    std::vector<SourceFile> files = templates().files();
    std::erase_if(files, [&](const SourceFile& file) { return file.name == missing; });
    const auto source = generate(plan, TemplateSet(std::move(files)));
    ASSERT_FALSE(source.ok()) << missing;
    EXPECT_EQ(source.error().code, ErrorCode::kEnvironment) << source.error().to_string();
    EXPECT_NE(source.error().message.find(missing), std::string::npos);
    EXPECT_NE(source.error().hint.find("ATTNJIT_TEMPLATES"), std::string::npos);
  }
}

}  // namespace
}  // namespace attnjit
