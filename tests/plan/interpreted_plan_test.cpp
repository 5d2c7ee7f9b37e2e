// SPDX-License-Identifier: Apache-2.0
// Plans and launches of kernels that interpret custom code: what hangs on the code, and what not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "attnjit/launch.h"
#include "attnjit/source.h"
#include "spec/spec_fields.h"
#include "spec/stack_code.h"

namespace attnjit {
namespace {

AttentionSpec interpreted_spec(const char* mask, Arch arch = Arch::kSm90a) {
  const std::string json = R"({"num_q_heads": 8, "group": 2, "qk_depth": 128, "interpreted": true,
                               "arch": ")" +
                           std::string(to_string(arch)) + R"(", "mask": )" + mask + "}";
  const Result<SpecDocument> read = spec_from_json(json);
  EXPECT_TRUE(read.ok()) << json;
  return read.ok() ? read->spec : AttentionSpec{};
}

std::string reason_of(const AttentionSpec& spec) {
  const Result<KernelPlan> made = plan(spec);
  EXPECT_TRUE(made.ok()) << made.error().to_string();
  if (!made.ok()) return "";
  EXPECT_FALSE(made->supported);
  return made->reason;
}

constexpr const char* kWindowedDocuments = R"({"kind": "and", "of": [
    {"kind": "sliding_window"},
    {"kind": "custom", "name": "doc", "code": "p.doc[q_idx] == p.doc[kv_idx] + p.first",
     "params": [{"name": "doc", "type": "i32[]"}, {"name": "first", "type": "i32"}]}]})";

struct Launched {
  StackCode code = {};
  std::vector<std::string> arrays;  // buffers
};

Launched launched(const KernelPlan& plan, const std::vector<double>& numbers,
                  const std::vector<UserParamShape>& params) {
  LaunchShapes shapes;
  shapes.q_len = shapes.kv_len = 100;
  LaunchScalars scalars;
  scalars.values = numbers;
  const Result<LaunchSequence> sequence = plan_launch(plan, shapes, scalars, params);
  Launched found;
  EXPECT_TRUE(sequence.ok()) << sequence.error().to_string();
  if (!sequence.ok()) return found;
  const std::vector<KernelParameter>& parameters = plan.main().parameters;
  const std::vector<KernelArgument>& args = sequence->launches.back().args;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name == "stack_code") {
      const auto& bytes = std::get<KernelArgument::Bytes>(args[i].value).data;
      EXPECT_EQ(bytes.size(), sizeof(StackCode));
      std::memcpy(&found.code, bytes.data(), sizeof(StackCode));
    } else if (parameters[i].name.starts_with("stack_array_")) {
      found.arrays.push_back(std::get<KernelArgument::Pointer>(args[i].value).buffer);
    }
  }
  return found;
}

TEST(InterpretedPlan, ALaunchGivesTheCode) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const Result<KernelPlan> made = plan(interpreted_spec(kWindowedDocuments, arch));
    ASSERT_TRUE(made.ok() && made->supported);
    for (const KernelParameter& parameter : made->main().parameters) {
      EXPECT_FALSE(std::holds_alternative<ParamSource>(parameter.source)) << parameter.name;
      EXPECT_FALSE(std::holds_alternative<ScalarSource>(parameter.source)) << parameter.name;
    }
    const Launched one = launched(*made, {30}, {{"doc", 0, {77, 0, 0}}, {"first", 5}});
    EXPECT_GT(one.code.mask_end, 5);
    EXPECT_EQ(one.code.score_end, one.code.mask_end);
    EXPECT_EQ(one.code.extents[0][0], 77);
    ASSERT_EQ(one.arrays.size(), static_cast<std::size_t>(kStackArrays));
    EXPECT_EQ(one.arrays[0], "param_doc");
    EXPECT_EQ(one.arrays[1], "");
    // Other numbers are other literals, and nothing else.
    const Launched other = launched(*made, {31}, {{"doc", 0, {77, 0, 0}}, {"first", 6}});
    EXPECT_EQ(other.code.mask_end, one.code.mask_end);
    int differing = 0;
    for (int i = 0; i < 2 * one.code.mask_end; ++i) {
      const bool same = one.code.words[i] == other.code.words[i];
      differing += same ? 0 : 1;
      EXPECT_TRUE(same || i % 2 == 1) << i;
    }
    EXPECT_EQ(differing, 2);
    // An array without elements has no address.
    EXPECT_EQ(launched(*made, {30}, {{"doc", 0, {0, 0, 0}}, {"first", 5}}).arrays[0], "");
  }
}

TEST(InterpretedPlan, LaunchesAreCheckedAsThoseOfTheOwnKernel) {
  const Result<KernelPlan> made = plan(interpreted_spec(kWindowedDocuments));
  ASSERT_TRUE(made.ok() && made->supported);
  LaunchShapes shapes;
  shapes.q_len = shapes.kv_len = 100;
  const std::vector<UserParamShape> params{{"doc", 0, {100, 0, 0}}, {"first", 5}};
  const auto field_of = [&](std::vector<double> numbers, const std::vector<UserParamShape>& given) {
    const auto sequence = plan_launch(*made, shapes, {0, std::move(numbers)}, given);
    return sequence.ok() ? std::string("none") : sequence.error().field;
  };
  EXPECT_EQ(field_of({30}, params), "none");
  EXPECT_EQ(field_of({}, params), "window") << "it is left to the launch";
  EXPECT_EQ(field_of({-3}, params), "window");
  EXPECT_EQ(field_of({30.5}, params), "window");
  EXPECT_EQ(field_of({1e300}, params), "window");
  EXPECT_EQ(field_of({std::numeric_limits<double>::quiet_NaN()}, params), "window");
  EXPECT_EQ(field_of({30, 1}, params), "scalars");
  EXPECT_EQ(field_of({30}, {params[0]}), "param_first");
  EXPECT_EQ(field_of({30}, {params[0], {"first", 1.5F}}), "param_first");
  EXPECT_EQ(field_of({30}, {{"doc", 0, {-1, 0, 0}}, params[1]}), "param_doc");
}

// A spec without a bound leaves it to the launch to give one, which takes more code.
TEST(InterpretedPlan, AnyNumberOfALaunchFitsAPlanThatIsSupported) {
  const auto of_terms = [](int terms) {
    std::string sum = "q_idx";
    for (int i = 0; i < terms; ++i) sum += " + b";
    return plan(
        interpreted_spec((R"({"kind": "and", "of": [{"kind": "sliding_window", "window": -1},
                             {"kind": "custom", "name": "long", "code": ")" +
                          sum + R"( == kv_idx"}]})")
                             .c_str()));
  };
  int terms = 200;
  while (of_terms(terms)->supported) ++terms;
  ASSERT_GT(terms, 200);
  const Result<KernelPlan> longest = of_terms(terms - 1);
  LaunchShapes shapes;
  shapes.q_len = shapes.kv_len = 100;
  for (const double window : {0.0, -1.0, 1.0, 30.0, 2147483647.0}) {
    const auto sequence = plan_launch(*longest, shapes, {0, {window}}, {});
    EXPECT_TRUE(sequence.ok()) << window << ": " << sequence.error().to_string();
  }
}

TEST(InterpretedPlan, WhatIsNotInterpretedIsNamed) {
  const auto says = [](const AttentionSpec& spec, std::string_view part) {
    const std::string reason = reason_of(spec);
    EXPECT_NE(reason.find(part), std::string::npos) << reason;
  };
  std::string sum = "q_idx";
  for (int i = 0; i < 150; ++i) sum += " + b";
  says(
      interpreted_spec(
          (R"({"kind": "custom", "name": "long", "code": ")" + sum + " == " + sum + "\"}").c_str()),
      "longer than the 256 instructions");
  says(interpreted_spec(R"({"kind": "and", "of": [{"kind": "materialized", "dtype": "u8"},
                   {"kind": "custom", "name": "any", "code": "kv_idx > 3"}]})"),
       "materialized");
  says(interpreted_spec(
           R"({"kind": "custom", "name": "body", "code": "return true;", "trusted": true})"),
       "trusted");
  AttentionSpec bias = interpreted_spec(R"({"kind": "materialized", "dtype": "f32"})");
  bias.score_mod.kind = ScoreModSpec::Kind::kCustom;
  bias.score_mod.custom.name = "twice";
  bias.score_mod.custom.code = "2 * score";
  says(bias, "beside a mask that is added to scores");
  AttentionSpec mla =
      interpreted_spec(R"({"kind": "custom", "name": "any", "code": "kv_idx > 3"})");
  mla.mla = Mla::kDecode;
  mla.group = mla.num_q_heads = 16;
  mla.qk_depth = 576;
  mla.ov_depth = 512;
  says(mla, "absorbed MLA interprets no custom code");
}

// Nothing of the mask is part of the text, nor of what is planned of tiles.
TEST(InterpretedPlan, TheTextIsOfTheShape) {
  const auto text = [](const char* mask, Arch arch) {
    const Result<KernelPlan> made = plan(interpreted_spec(mask, arch));
    EXPECT_TRUE(made.ok() && made->supported) << mask;
    return generate(*made, TemplateSet::embedded())->text;
  };
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a}) {
    const std::string one = text(kWindowedDocuments, arch);
    EXPECT_NE(one.find("attnjit::InterpretedMask"), std::string::npos);
    for (const char* const mask :
         {R"({"kind": "custom", "name": "any", "code": "true"})",
          R"({"kind": "custom", "name": "causal", "code": "kv_idx <= q_idx"})",
          R"({"kind": "or", "of": [{"kind": "causal"}, {"kind": "chunked", "chunk": 7},
              {"kind": "custom", "name": "head", "code": "h * kv_h == b"}]})"}) {
      EXPECT_EQ(text(mask, arch), one) << mask;
    }
    EXPECT_EQ(text(R"("causal")", arch).find("stack_code"), std::string::npos);
  }
}

}  // namespace
}  // namespace attnjit
