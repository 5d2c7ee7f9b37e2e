// SPDX-License-Identifier: Apache-2.0
// Tests of a spec from the command line: flags, files, and flags over files.
#include "spec/spec_flags.h"

#include <gtest/gtest.h>

#include <set>

namespace attnjit::spec {
namespace {

TEST(SpecFlags, ThereIsOneForEachField) {
  std::set<std::string> names;
  for (const SpecFlag& flag : spec_flags()) names.insert(flag.name);
  for (const char* name : {"--arch",
                           "--num-q-heads",
                           "--group",
                           "--qk-depth",
                           "--ov-depth",
                           "--qkv-dtype",
                           "--kv-dtype",
                           "--output-dtype",
                           "--rope-dtype",
                           "--rope-gmem-dtype",
                           "--scales",
                           "--scale-dtype",
                           "--mla",
                           "--page-size",
                           "--ragged",
                           "--ragged-kv",
                           "--kv-lens-exclude-new",
                           "--sink",
                           "--return-lse",
                           "--lse-includes-sink",
                           "--merge",
                           "--accumulate",
                           "--num-partitions",
                           "--partition-keys",
                           "--cache-format",
                           "--v-layout",
                           "--topk",
                           "--max-seq-len",
                           "--mask",
                           "--score-mod",
                           "--interpreted",
                           "--swizzle-bytes",
                           "--num-qo",
                           "--debug-waits",
                           "--mask-map",
                           "--pair-cta"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  EXPECT_EQ(names.size(), 37U);
}

TEST(SpecInput, FlagsAloneMakeASpec) {
  SpecInput input;
  for (const auto& [flag, text] : {std::pair{"--num-q-heads", "8"},
                                   {"--qk-depth", "128"},
                                   {"--mask", "causal"},
                                   {"--score-mod", R"({"kind": "softcap", "cap": 30})"},
                                   {"--ragged", "true"},
                                   {"--pair-cta", "false"},
                                   {"--num-qo", "1"},
                                   {"--qkv-dtype", "fp16"}}) {
    const Status status = input.set(flag, text);
    ASSERT_TRUE(status) << status.error().to_string();
  }
  const Result<ResolvedSpec> read = input.read();
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->given().mask.kind, MaskSpec::Kind::kCausal);
  EXPECT_EQ(read->given().score_mod.cap, 30.0);
  EXPECT_TRUE(read->given().ragged);
  EXPECT_EQ(read->options().pair_cta, false);
  EXPECT_EQ(read->options().num_qo, 1);
}

TEST(SpecInput, FlagsReplaceFieldsOfTheFileBeforeAnythingIsRead) {
  Result<SpecInput> input = SpecInput::from_json(
      R"({"num_q_heads": 30, "group": 8, "qk_depth": "bad", "num_qo": 2, "mask": "causal"})");
  ASSERT_TRUE(input);
  ASSERT_TRUE(input->set("num_q_heads", "32"));
  ASSERT_TRUE(input->set("qk-depth", "64"));
  ASSERT_TRUE(input->set("--num-qo", "null"));
  ASSERT_TRUE(input->set("mask", R"({"kind": "chunked", "chunk": 16})"));
  const Result<ResolvedSpec> read = input->read();
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->given().num_q_heads, 32);
  EXPECT_EQ(read->given().qk_depth, 64);
  EXPECT_FALSE(read->options().num_qo);
  EXPECT_EQ(read->given().mask.chunk, 16);
}

TEST(SpecInput, BadFlagTextIsRefusedWithTheField) {
  for (const auto& [flag, text] : {std::pair{"qk_depth", "128x"},
                                   {"qk_depth", ""},
                                   {"qk_depth", "1e3"},
                                   {"qk_depth", "0x40"},
                                   {"qk_depth", "99999999999999999999"},
                                   {"qk_depth", "null"},
                                   {"ragged", "yes"},
                                   {"mask", "{"},
                                   {"mask", "{]"}}) {
    SpecInput input;
    ASSERT_TRUE(input.set("num_q_heads", "8"));
    ASSERT_TRUE(input.set("qk_depth", "64"));
    ASSERT_TRUE(input.set(flag, text));
    const Result<ResolvedSpec> read = input.read();
    ASSERT_FALSE(read) << flag << " " << text;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(read.error().field, flag);
    EXPECT_TRUE(read.error().others.empty()) << read.error().to_string();
    // A later flag mends it.
    ASSERT_TRUE(input.set(flag, flag == std::string("ragged") ? "true"
                                : flag == std::string("mask") ? "causal"
                                                              : "128"));
    EXPECT_TRUE(input.read());
  }
  SpecInput input;
  const Status unknown = input.set("--depth", "1");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().field, "--depth");
}

TEST(SpecInput, BadFlagsAreReportedTogetherWithEverythingElse) {
  SpecInput input;
  ASSERT_TRUE(input.set("qk_depth", "abc"));
  ASSERT_TRUE(input.set("mask", "{"));
  ASSERT_TRUE(input.set("group", "0"));
  const Result<ResolvedSpec> read = input.read();
  ASSERT_FALSE(read);
  std::vector<std::string> fields{read.error().field};
  for (const Error& error : read.error().others) fields.push_back(error.field);
  EXPECT_EQ(fields, (std::vector<std::string>{"qk_depth", "mask", "num_q_heads", "group"}));
}

TEST(SpecInput, ReadReportsProblemsOfFlagsLikeThoseOfAFile) {
  SpecInput input;
  ASSERT_TRUE(input.set("num_q_heads", "0"));
  ASSERT_TRUE(input.set("mask", "casual"));
  const Result<ResolvedSpec> read = input.read();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().field, "num_q_heads");
  ASSERT_EQ(read.error().others.size(), 2U);
  EXPECT_EQ(read.error().others[0].field, "qk_depth");
  EXPECT_EQ(read.error().others[1].field, "mask");
}

TEST(SpecInput, ProblemsOfSnippetsHaveAnExcerpt) {
  SpecInput input;
  ASSERT_TRUE(input.set("num_q_heads", "0"));
  ASSERT_TRUE(input.set("qk_depth", "64"));
  ASSERT_TRUE(input.set("mask", R"({"kind": "and", "of": ["causal", {"kind": "custom", "name": "m",
                                    "code": "true\n  && foo"}]})"));
  const Result<ResolvedSpec> read = input.read();
  ASSERT_FALSE(read);
  ASSERT_EQ(read.error().others.size(), 1U);
  EXPECT_EQ(input.excerpt(read.error()), "");
  EXPECT_EQ(input.excerpt(read.error().others[0]), "      && foo\n         ^\n");
}

TEST(SpecInput, AFileThatIsNoObjectIsRefused) {
  for (const char* text : {"[]", "3", "", "nul"}) {
    const Result<SpecInput> input = SpecInput::from_json(text);
    ASSERT_FALSE(input) << text;
    EXPECT_GT(input.error().line, 0);
  }
}

}  // namespace
}  // namespace attnjit::spec
