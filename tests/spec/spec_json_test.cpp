// SPDX-License-Identifier: Apache-2.0
// Tests of a spec's JSON: reading, every problem with its place, the canonical writer, defaults.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "attnjit/manifest.h"
#include "attnjit/spec.h"
#include "source_dir.h"
#include "spec/spec_fields.h"

namespace attnjit {
namespace {

constexpr const char* kMinimal = R"({"num_q_heads": 32, "qk_depth": 128})";

std::vector<Error> problems(const std::string& json) {
  Result<SpecDocument> read = spec_from_json(json);
  if (read) return {};
  std::vector<Error> all{read.error()};
  all.insert(all.end(), read.error().others.begin(), read.error().others.end());
  all[0].others.clear();
  for (const Error& error : all) EXPECT_EQ(error.code, ErrorCode::kInvalid);
  return all;
}

/// The one problem of a minimal spec with `members` added.
Error problem_with(const std::string& members) {
  const std::vector<Error> all =
      problems(R"({"num_q_heads": 32, "qk_depth": 128, )" + members + "}");
  EXPECT_EQ(all.size(), 1U) << members << "\n" << (all.empty() ? "" : all[0].to_string());
  return all.empty() ? Error{} : all.front();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SpecJson, MinimalSpecHasTheDefaultsOfTheDesign) {
  const Result<SpecDocument> read = spec_from_json(kMinimal);
  ASSERT_TRUE(read) << read.error().to_string();
  AttentionSpec expected;
  expected.num_q_heads = 32;
  expected.qk_depth = 128;
  EXPECT_EQ(read->spec, expected);
  EXPECT_EQ(read->options, PlanOptions{});

  const AttentionSpec resolved = resolve(read->spec);
  EXPECT_EQ(resolved.arch, Arch::kSm100a);
  EXPECT_EQ(resolved.group, 1);
  EXPECT_EQ(resolved.ov_depth, 128);
  EXPECT_EQ(resolved.qkv_dtype, Dtype::kBf16);
  EXPECT_EQ(resolved.output_dtype, Dtype::kBf16);
  EXPECT_FALSE(resolved.rope_dtype);
  EXPECT_FALSE(resolved.rope_gmem_dtype);
  EXPECT_FALSE(resolved.scale_dtype);
  EXPECT_EQ(resolved.num_partitions, 1);
  EXPECT_TRUE(resolved.lse_includes_sink);
  EXPECT_EQ(resolved.v_layout, VLayout::kRow);
}

TEST(SpecJson, ReadsTheExampleOfTheDesign) {
  const Result<SpecDocument> read = spec_from_json(
      R"({"arch": "sm_100a", "num_q_heads": 64, "group": 8, "qk_depth": 128, "page_size": 64,
          "ragged": true, "return_lse": true,
          "mask": {"kind": "and", "of": [{"kind": "causal"},
                    {"kind": "custom", "name": "document", "code": "p.doc[q_idx] == p.doc[kv_idx]",
                     "params": [{"name": "doc", "type": "i32[]"}]}]},
          "score_mod": {"kind": "softcap", "cap": 50.0}})");
  ASSERT_TRUE(read) << read.error().to_string();
  const AttentionSpec& spec = read->spec;
  EXPECT_EQ(spec.num_kv_heads(), 8);
  ASSERT_EQ(spec.mask.of.size(), 2U);
  EXPECT_EQ(spec.mask.of[0].kind, MaskSpec::Kind::kCausal);
  ASSERT_EQ(spec.mask.of[1].custom.params.size(), 1U);
  EXPECT_EQ(spec.mask.of[1].custom.params[0], (ParamSpec{"doc", ParamSpec::Type::kI32Array}));
  EXPECT_EQ(spec.score_mod.kind, ScoreModSpec::Kind::kSoftcap);
  EXPECT_EQ(spec.score_mod.cap, 50.0);
  EXPECT_FALSE(spec.score_mod.constant);
}

TEST(SpecJson, EveryFieldIsReadAndWrittenInTheOrderOfTheTable) {
  const std::string all =
      R"({"arch":"sm_90a","num_q_heads":16,"group":4,"qk_depth":192,"ov_depth":128,)"
      R"("qkv_dtype":"e4m3","output_dtype":"fp16","rope_dtype":"bf16","rope_gmem_dtype":"fp16",)"
      R"("scales":"token","scale_dtype":"f32","mla":"prefill","page_size":16,"ragged":true,)"
      R"("kv_lens_exclude_new":true,"sink":true,)"
      R"("return_lse":true,"lse_includes_sink":false,"partition_keys":512,"max_q_len":2,)"
      R"("max_seq_len":4096,)"
      R"("mask":{"kind":"or","of":["causal",{"kind":"sliding_window","window":4,"constant":true},)"
      R"({"kind":"chunked","chunk":8},{"kind":"materialized","dtype":"u8"},"sliding_window"]},)"
      R"("score_mod":{"kind":"softcap","cap":0.1,"constant":true},)"
      R"("swizzle_bytes":64,"num_qo":2,"pair_cta":false,"mask_map":true})";
  const Result<SpecDocument> read = spec_from_json(all);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(spec_to_json(read->spec, read->options), all);
  // Those that do not go with the others.
  for (
      const std::string text :
      {R"({"arch":"sm_100a","num_q_heads":1,"qk_depth":64,"ragged_kv":true,"num_partitions":0})",
       R"({"arch":"sm_100a","num_q_heads":1,"qk_depth":64,"v_layout":"transposed"})",
       R"({"arch":"sm_100a","num_q_heads":1,"qk_depth":64,"return_lse":true,"merge":true,"accumulate":true})",
       R"({"arch":"sm_100a","num_q_heads":1,"qk_depth":576,"mla":"decode","cache_format":"dsv32","page_size":64,"topk":2048})"}) {
    const Result<SpecDocument> other = spec_from_json(text);
    ASSERT_TRUE(other) << other.error().to_string();
    EXPECT_EQ(spec_to_json(other->spec, other->options), text);
  }
}

TEST(SpecJson, NullLeavesAnOptionalFieldUnset) {
  const Result<SpecDocument> read = spec_from_json(
      R"({"num_q_heads": 1, "qk_depth": 64, "rope_dtype": null, "scale_dtype": null,
          "num_qo": null, "pair_cta": null})");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_FALSE(read->spec.rope_dtype);
  EXPECT_FALSE(read->options.num_qo);
}

TEST(SpecJson, MissingRequiredFieldsAreBothReported) {
  const std::vector<Error> all = problems("{}");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].field, "num_q_heads");
  EXPECT_EQ(all[1].field, "qk_depth");
  EXPECT_TRUE(contains(all[0].message, "is missing; allowed: an integer, 1 to"));
}

TEST(SpecJson, EveryProblemIsReportedAtOnceWithItsPlace) {
  const std::vector<Error> all = problems(
      "{\n"
      "  \"num_q_heads\": 30, \"group\": 4,\n"
      "  \"qk_depth\": \"128\",\n"
      "  \"qkv_dtyp\": \"bf16\",\n"
      "  \"page_size\": -16,\n"
      "  \"mask\": {\"kind\": \"and\", \"of\": [\"causal\", {\"kind\": \"chunkd\"}]}\n"
      "}");
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0].field, "qkv_dtyp");
  EXPECT_EQ(all[0].hint, "did you mean `qkv_dtype`?");
  EXPECT_EQ(all[0].line, 4);
  EXPECT_EQ(all[0].column, 3);
  EXPECT_EQ(all[1].field, "qk_depth");
  EXPECT_TRUE(contains(all[1].message, "is the string \"128\"; allowed: an integer"));
  EXPECT_EQ(all[1].line, 3);
  EXPECT_EQ(all[1].column, 15);
  EXPECT_EQ(all[2].field, "page_size");
  EXPECT_TRUE(contains(all[2].message, "is -16; allowed: an integer, 0 to"));
  EXPECT_EQ(all[3].field, "mask.of[1].kind");
  EXPECT_EQ(all[3].hint, "did you mean `chunked`?");
  EXPECT_EQ(all[3].line, 6);
  EXPECT_EQ(all[4].field, "group");
  EXPECT_TRUE(contains(all[4].message, "is 4; allowed: a divisor of num_q_heads, which is 30"));
  EXPECT_EQ(all[4].line, 2);
  EXPECT_EQ(all[4].column, 31);
}

struct BadCase {
  const char* members;
  const char* field;
  const char* message;
};

class SpecJsonBad : public testing::TestWithParam<BadCase> {};

TEST_P(SpecJsonBad, IsRefusedWithFieldValueAndWhatIsAllowed) {
  const Error error = problem_with(GetParam().members);
  EXPECT_EQ(error.field, GetParam().field);
  EXPECT_TRUE(contains(error.message, GetParam().message)) << error.to_string();
  EXPECT_GT(error.line, 0) << error.to_string();
  EXPECT_GT(error.column, 0);
}

TEST(SpecJson, CacheFormatsSayWhatKIsOf) {
  AttentionSpec spec;
  spec.num_q_heads = spec.group = 16;
  spec.qk_depth = 576;
  spec.mla = Mla::kDecode;
  spec.page_size = 64;
  spec.cache_format = CacheFormat::kDsv32;
  EXPECT_TRUE(validate(spec).empty());
  spec.kv_dtype = Dtype::kE4m3;
  const std::vector<Error> problems = validate(spec);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems.front().field, "kv_dtype");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SpecJsonBad,
    testing::Values(
        BadCase{R"("arch": "sm_100")", "arch", "allowed: sm_90a, sm_100a, sm_103a"},
        BadCase{R"("arch": 100)", "arch", "is 100"},
        BadCase{R"("group": 0)", "group", "is 0; allowed: an integer, 1 to"},
        BadCase{R"("group": 5)", "group", "is 5; allowed: a divisor"},
        BadCase{R"("group": 64)", "group", "is 64; allowed: a divisor"},
        BadCase{R"("group": 2.0)", "group", "is 2.0; allowed: an integer"},
        BadCase{R"("group": 4294967297)", "group", "is 4294967297"},
        BadCase{R"("group": 18446744073709551617)", "group", "is 18446744073709551617"},
        BadCase{R"("group": true)", "group", "is true"},
        BadCase{R"("group": null)", "group", "is null"},
        BadCase{R"("group": [1])", "group", "is an array"},
        BadCase{R"("ov_depth": 0)", "ov_depth", "is 0; allowed"},
        BadCase{R"("ov_depth": -1)", "ov_depth", "is -1; allowed"},
        BadCase{R"("qkv_dtype": "f32")", "qkv_dtype", "allowed: bf16, fp16, e4m3"},
        BadCase{R"("output_dtype": "i32")", "output_dtype", "allowed: bf16, fp16, e4m3, f32"},
        BadCase{R"("scale_dtype": "e4m3")", "scale_dtype", "allowed: f32"},
        BadCase{R"("qkv_dtype": "e5m2")", "qkv_dtype", "allowed: bf16, fp16, e4m3"},
        BadCase{R"("scales": "row")", "scales", "allowed: none, tensor, head, token"},
        BadCase{R"("scales": "head")", "scales", "allowed with k and v of e4m3, which are bf16"},
        BadCase{R"("kv_dtype": "f32")", "kv_dtype", "allowed: bf16, fp16, e4m3"},
        BadCase{R"("kv_dtype": "fp16")", "kv_dtype",
                "is fp16; allowed: qkv_dtype, which is bf16, or e4m3 beside bf16 and fp16"},
        BadCase{R"("qkv_dtype": "e4m3", "kv_dtype": "bf16")", "kv_dtype",
                "qkv_dtype, which is e4m3"},
        BadCase{R"("kv_dtype": "e4m3", "merge": true)", "merge", "allowed with arch"},
        BadCase{R"("mla": "absorbed")", "mla", "allowed: none, prefill, decode"},
        BadCase{R"("page_size": 1e9)", "page_size", "is 1e9"},
        BadCase{R"("ragged": 1)", "ragged", "is 1; allowed: true, false"},
        BadCase{R"("ragged": "true")", "ragged", "is the string \"true\""},
        BadCase{R"("num_partitions": -1)", "num_partitions", "is -1"},
        BadCase{R"("ragged_kv": true, "page_size": 16)", "ragged_kv", "without pages"},
        BadCase{R"("kv_lens_exclude_new": true)", "kv_lens_exclude_new", "with kv_lens"},
        BadCase{R"("kv_lens_exclude_new": true, "ragged": true, "ragged_kv": true)",
                "kv_lens_exclude_new", "without ragged_kv"},
        BadCase{R"("merge": true, "page_size": 16)", "merge", "alone"},
        BadCase{R"("cache_format": "dsv4")", "cache_format", "allowed: plain, dsv32"},
        BadCase{R"("v_layout": "column")", "v_layout", "allowed: row, transposed"},
        BadCase{R"("cache_format": "dsv32", "page_size": 64)", "cache_format", "with mla decode"},
        BadCase{R"("topk": 64)", "topk", "is 64; allowed with page_size"},
        BadCase{R"("topk": -1, "page_size": 1)", "topk", "is -1; allowed"},
        BadCase{R"("topk": 64, "page_size": 1, "mask": "causal")", "mask", "with topk: null"},
        BadCase{R"("topk": 64, "page_size": 1, "score_mod": "alibi")", "score_mod", "softcap"},
        BadCase{R"("topk": 64, "page_size": 1, "kv_lens_exclude_new": true)", "kv_lens_exclude_new",
                "without topk"},
        BadCase{R"("merge": true, "mask": "causal")", "merge", "alone"},
        BadCase{R"("merge": true, "sink": true)", "merge", "alone"},
        BadCase{R"("partition_keys": -1)", "partition_keys", "is -1"},
        BadCase{R"("partition_keys": 2147483647)", "partition_keys", "1073741824"},
        BadCase{R"("partition_keys": 64, "num_partitions": 0)", "num_partitions", "partition_keys"},
        BadCase{R"("partition_keys": 64, "num_partitions": 1)", "num_partitions", "partition_keys"},
        BadCase{R"("max_seq_len": 2147483648)", "max_seq_len", "is 2147483648"},
        BadCase{R"("swizzle_bytes": 16)", "swizzle_bytes", "is 16; allowed: 32, 64, 128"},
        BadCase{R"("num_qo": 3)", "num_qo", "is 3; allowed: 1, 2"},
        BadCase{R"("pair_cta": 2)", "pair_cta", "is 2; allowed: true, false"},
        BadCase{R"("sink": true, "sink": false)", "sink", "is given twice"},
        BadCase{R"("num_kv_heads": 8)", "num_kv_heads", "is no field of a spec"},
        BadCase{R"("mask": "casual")", "mask", "is \"casual\"; allowed: null, causal"},
        BadCase{R"("mask": 7)", "mask", "is 7; allowed: an object, or one of the names"},
        BadCase{R"("mask": {})", "mask.kind", "is missing"},
        BadCase{R"("mask": {"kind": null})", "mask.kind", "is null"},
        BadCase{R"("mask": {"kind": "causal", "window": 4})", "mask.window",
                "is no field of the mask causal; allowed: kind"},
        BadCase{R"("mask": {"kind": "sliding_window", "window": 0})", "mask.window", "is 0"},
        BadCase{R"("mask": {"kind": "sliding_window", "window": 1.5})", "mask.window", "is 1.5"},
        BadCase{R"("mask": {"kind": "sliding_window", "window": 99999999999})", "mask.window",
                "is 99999999999"},
        BadCase{R"("mask": {"kind": "sliding_window", "constant": true})", "mask.window",
                "is missing; allowed with \"constant\": true"},
        BadCase{R"("mask": {"kind": "chunked", "chunk": -1})", "mask.chunk", "is -1"},
        BadCase{R"("mask": {"kind": "chunked", "chunk": 2, "constant": 1})", "mask.constant",
                "is 1"},
        BadCase{R"("mask": {"kind": "and"})", "mask.of", "is missing; allowed: an array"},
        BadCase{R"("mask": {"kind": "and", "of": []})", "mask.of", "has 0 masks"},
        BadCase{R"("mask": {"kind": "or", "of": ["causal"]})", "mask.of", "has 1 mask;"},
        BadCase{R"("mask": {"kind": "or", "of": "causal"})", "mask.of", "is the string"},
        BadCase{R"("mask": {"kind": "or", "of": ["causal", ["causal"]]})", "mask.of[1]",
                "is an array"},
        BadCase{R"("mask": {"kind": "materialized", "dtype": "i32"})", "mask.dtype",
                "allowed: f32, u8, bits, bf16, fp16"},
        BadCase{R"("mask": {"kind": "sliding_window", "window": -2})", "mask.window", "is -2"},
        BadCase{R"("mask": {"kind": "sliding_window", "window": 4, "window_right": -2})",
                "mask.window_right", "is -2; allowed: an integer, 0 or more, or -1: no bound"},
        BadCase{R"("mask": {"kind": "chunked", "chunk": 4, "window_right": 2})",
                "mask.window_right", "is no field"},
        BadCase{R"("score_mod": {"kind": "alibi", "slopes": 1})", "score_mod.slopes", "is 1"},
        BadCase{R"("score_mod": {"kind": "softcap", "slopes": true})", "score_mod.slopes",
                "is no field"},
        BadCase{R"("mask": {"kind": "and", "of": ["materialized", "materialized"]})", "mask.of[1]",
                "second materialized mask"},
        BadCase{R"("score_mod": "softcaps")", "score_mod", "allowed: identity, alibi, softcap"},
        BadCase{R"("score_mod": {"kind": "softcap", "cap": 0})", "score_mod.cap", "is 0"},
        BadCase{R"("score_mod": {"kind": "softcap", "cap": -1.5})", "score_mod.cap", "is -1.5"},
        BadCase{R"("score_mod": {"kind": "softcap", "cap": 1e39})", "score_mod.cap",
                "range of f32"},
        BadCase{R"("score_mod": {"kind": "softcap", "cap": 1e-39})", "score_mod.cap",
                "range of f32"},
        BadCase{R"("score_mod": {"kind": "softcap", "constant": true})", "score_mod.cap",
                "is missing"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": 5})", "mask.code", "is 5"},
        BadCase{R"("mask": {"kind": "custom", "name": "m"})", "mask.code", "is missing"},
        BadCase{R"("mask": {"kind": "custom", "code": "true"})", "mask.name", "is missing"},
        BadCase{R"("mask": {"kind": "custom", "name": "../x", "code": "true"})", "mask.name",
                "is \"../x\"; allowed: 1 to 64"},
        BadCase{R"("mask": {"kind": "custom", "name": "Upper", "code": "true"})", "mask.name",
                "is \"Upper\""},
        BadCase{R"("mask": {"kind": "custom", "name": "", "code": "true"})", "mask.name",
                "is \"\""},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true", "params": {}})",
                "mask.params", "is an object; allowed: an array"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true", "params": ["a"]})",
                "mask.params[0]", "is the string"},
        BadCase{
            R"("mask": {"kind": "custom", "name": "m", "code": "true", "params": [{"name": "a"}]})",
            "mask.params[0].type", "is missing; allowed: i32, f32, i32[], f32[], i32[][]"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "a", "type": "f64[][]"}]})",
                "mask.params[0].type", "is the string \"f64[][]\""},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "a", "type": "i32", "value": 3}]})",
                "mask.params[0].value", "is no field of a parameter"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "while", "type": "i32"}]})",
                "mask.params[0].name", "a name that C++ reserves"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "a b", "type": "i32"}]})",
                "mask.params[0].name", "no identifier"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "q_idx", "type": "i32"}]})",
                "mask.params[0].name", "already sees"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "__x", "type": "i32"}]})",
                "mask.params[0].name", "reserves"},
        BadCase{R"("mask": {"kind": "and", "of": ["causal", {"kind": "custom", "name": "m",
                            "code": "true", "params": [{"name": "x", "type": "i32"},
                                                       {"name": "x", "type": "i32"}]}]})",
                "mask.of[1].params[1].name", "as params[0] is named"},
        BadCase{R"("mask": {"kind": "custom", "name": "m", "code": "true",
                            "params": [{"name": "x", "type": "i32"}]},
                   "score_mod": {"kind": "custom", "name": "s", "code": "score",
                                 "params": [{"name": "x", "type": "f32"}]})",
                "score_mod.params[0].type", "other custom code"},
        BadCase{R"("mask": {"kind": "or", "of": [
                     {"kind": "custom", "name": "m", "code": "q_idx == kv_idx"},
                     {"kind": "custom", "name": "m", "code": "q_idx >= kv_idx"}]})",
                "mask.of[1].name", "as another mask is named"}));

TEST(SpecJson, AnMlaSpecNeedsRoomForTheRopePart) {
  const std::vector<Error> all =
      problems(R"({"num_q_heads": 8, "qk_depth": 64, "mla": "prefill"})");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].field, "qk_depth");
}

TEST(SpecJson, UnsupportedIsNotInvalid) {
  for (const char* json :
       {R"({"num_q_heads": 1, "qk_depth": 64, "ov_depth": 128})",
        R"({"num_q_heads": 1, "qk_depth": 100})", R"({"num_q_heads": 3, "qk_depth": 1024})",
        R"({"num_q_heads": 1, "qk_depth": 128, "page_size": 17})",
        R"({"num_q_heads": 1, "qk_depth": 128, "pair_cta": true, "num_qo": 1})",
        R"({"num_q_heads": 1, "qk_depth": 128, "mla": "decode"})"}) {
    EXPECT_TRUE(spec_from_json(json)) << json;
  }
}

// --- text that is not a spec ---------------------------------------------------------------------

TEST(SpecJson, SyntaxErrorsHaveLineAndColumn) {
  const std::vector<Error> all = problems("{\n  \"num_q_heads\": 32,\n  \"qk_depth\": 12x\n}");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].line, 3);
  EXPECT_EQ(all[0].column, 17);
  EXPECT_TRUE(contains(all[0].message, "is not valid JSON"));
}

TEST(SpecJson, HostileTextsEndInOneCleanError) {
  const std::string deep_mask = [] {
    std::string text = R"("causal")";
    for (int i = 0; i < 29; ++i) text = R"({"kind":"and","of":["causal",)" + text + "]}";
    return R"({"num_q_heads":1,"qk_depth":64,"mask":)" + text + "}";
  }();
  const std::string wide_mask = [] {
    std::string text = R"("causal")";
    for (int i = 0; i < 1000; ++i) text += R"(,"causal")";
    return R"({"num_q_heads":1,"qk_depth":64,"mask":{"kind":"or","of":[)" + text + "]}}";
  }();
  const std::string many_unknown = [] {
    std::string text = R"({"num_q_heads":1,"qk_depth":64)";
    for (int i = 0; i < 40000; ++i) text += ",\"u" + std::to_string(i) + "\":1";
    return text + "}";
  }();
  const std::vector<std::string> texts = {
      "",
      " ",
      "[",
      "{",
      "null",
      "[]",
      "\"causal\"",
      "12",
      "NaN",
      R"({"num_q_heads": NaN, "qk_depth": 64})",
      R"({"num_q_heads": 1e999, "qk_depth": 64})",
      R"({"num_q_heads": 1, "qk_depth": 64} x)",
      R"({"num_q_heads": 1, "qk_depth": 64,})",
      R"({"num_q_heads": 1, /* c */ "qk_depth": 64})",
      "{\"num_q_heads\": 1, \"qk_depth\": 64, \"a\xff\": 1}",
      "{\"num_q_heads\": 1, \"qk_depth\": 64, \"mask\": \"\xc0\x80\"}",
      std::string("{\"num_q_heads\": 1, \"qk_depth\": 64}\0", 36),
      R"({"num_q_heads": 1, "qk_depth": 64, "\u0000": 1})",
      R"({"num_q_heads": 1, "qk_depth": 64, "mask": "\ud800"})",
      std::string(100 << 20, '['),
      std::string(100 << 20, ' '),
      std::string(500000, '['),
      std::string(500000, '{'),
      R"({"num_q_heads": )" + std::string(500000, '9') + "}",
      deep_mask,
      wide_mask,
      many_unknown,
  };
  for (const std::string& text : texts) {
    const std::clock_t begin = std::clock();  // of this process: other tests run beside it
    const std::vector<Error> all = problems(text);
    EXPECT_LT(std::clock() - begin, 2 * CLOCKS_PER_SEC) << text.substr(0, 60);
    ASSERT_FALSE(all.empty()) << text.substr(0, 60);
    EXPECT_LE(all.size(), 64U);
    EXPECT_GT(all[0].line, 0) << text.substr(0, 60) << ": " << all[0].to_string();
    for (const Error& error : all) {
      EXPECT_LT(error.to_string().size(), 2000U);
      for (const char c : error.to_string()) {
        ASSERT_TRUE(c == '\n' || (c >= 0x20 && c <= 0x7e)) << text.substr(0, 60);
      }
    }
  }
}

// --- round trip ----------------------------------------------------------------------------------

class RandomSpec {
 public:
  explicit RandomSpec(unsigned seed) : random_(seed) {}

  SpecDocument document() {
    SpecDocument made;
    AttentionSpec& spec = made.spec;
    spec.arch = static_cast<Arch>(below(3));
    spec.group = 1 << below(4);
    spec.num_q_heads = spec.group * (1 + below(64));
    spec.mla = static_cast<Mla>(below(3));
    spec.qk_depth = 65 + below(512);
    if (coin()) spec.ov_depth = 1 + below(600);
    spec.qkv_dtype = mma_dtype();
    if (coin()) spec.output_dtype = Dtype::kF32;
    if (coin()) spec.rope_dtype = mma_dtype();
    if (coin()) spec.rope_gmem_dtype = mma_dtype();
    if (spec.qkv_dtype == Dtype::kE4m3) spec.scales = static_cast<Scales>(below(4));
    if (coin()) spec.scale_dtype = Dtype::kF32;
    if (coin()) spec.page_size = below(300);
    spec.ragged = coin();
    spec.ragged_kv = spec.page_size == 0 && coin();
    spec.kv_lens_exclude_new = !spec.ragged_kv && (spec.ragged || spec.page_size > 0) && coin();
    spec.sink = coin();
    spec.return_lse = coin();
    spec.lse_includes_sink = coin();
    spec.num_partitions = below(4);
    if (spec.num_partitions == 1 && coin()) spec.partition_keys = below(1 << 20);
    spec.max_q_len = coin() ? 0 : below(9);
    spec.max_seq_len = coin() ? 0 : below(1 << 20);
    spec.mask = mask(0);
    spec.score_mod = score_mod();
    if (coin()) made.options.swizzle_bytes = 32 << below(3);
    if (coin()) made.options.num_qo = 1 + below(2);
    if (coin()) made.options.pair_cta = coin();
    if (coin()) made.options.mask_map = coin();
    return made;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool coin() { return below(2) == 0; }
  Dtype mma_dtype() { return static_cast<Dtype>(below(3)); }

  MaskSpec mask(int depth) {
    MaskSpec made;
    made.kind = static_cast<MaskSpec::Kind>(below(8));
    switch (made.kind) {
      case MaskSpec::Kind::kSlidingWindow:
        made.constant = coin();
        if (made.constant || coin()) made.window = coin() ? -1 : 1 + below(1 << 20);
        made.window_right = coin() ? 0 : coin() ? -1 : 1 + below(1 << 20);
        break;
      case MaskSpec::Kind::kChunked:
        made.constant = coin();
        if (made.constant || coin()) made.chunk = 1 + below(1 << 20);
        break;
      case MaskSpec::Kind::kAnd:
      case MaskSpec::Kind::kOr:
        if (depth >= 3) {
          made.kind = MaskSpec::Kind::kCausal;
          break;
        }
        for (int i = 0; i < 2 + below(2); ++i) made.of.push_back(mask(depth + 1));
        break;
      case MaskSpec::Kind::kMaterialized:
        if (materialized_) {
          made.kind = MaskSpec::Kind::kNull;
          break;
        }
        materialized_ = true;
        made.dtype = spec::kMaskDtypes[below(static_cast<int>(std::size(spec::kMaskDtypes)))];
        break;
      case MaskSpec::Kind::kCustom:
        made.custom = {"m" + std::to_string(++names_),
                       "q_idx - kv_idx < p.w && \"\"[0] == 0",
                       true,
                       {{"w", ParamSpec::Type::kI32}}};
        made.custom.code = "return q_idx - kv_idx < p.w;\n\t// \"\\\"";
        break;
      default:
        break;
    }
    return made;
  }

  ScoreModSpec score_mod() {
    ScoreModSpec made;
    made.kind = static_cast<ScoreModSpec::Kind>(below(4));
    if (made.kind == ScoreModSpec::Kind::kSoftcap) {
      made.constant = coin();
      if (made.constant || coin()) made.cap = 0.1 * (1 + below(1000));
    } else if (made.kind == ScoreModSpec::Kind::kAlibi) {
      made.slopes = coin();
    } else if (made.kind == ScoreModSpec::Kind::kCustom) {
      made.custom = {"s", "score * p.f[h]", false, {{"f", ParamSpec::Type::kF32Array}}};
    }
    return made;
  }

  std::mt19937 random_;
  bool materialized_ = false;
  int names_ = 0;
};

TEST(SpecJson, WritingAndReadingGivesTheSameSpec) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const SpecDocument made = RandomSpec(seed).document();
    const std::string json = spec_to_json(made.spec, made.options);
    const Result<SpecDocument> read = spec_from_json(json);
    ASSERT_TRUE(read) << seed << ": " << json << "\n" << read.error().to_string();
    // What is the default is not written.
    ASSERT_EQ(resolve(read->spec), resolve(made.spec)) << seed << ": " << json;
    ASSERT_EQ(read->options, made.options) << seed << ": " << json;
    ASSERT_EQ(spec_to_json(read->spec, read->options), json);
  }
}

TEST(SpecJson, DefaultsAreLeftOut) {
  const Result<SpecDocument> read = spec_from_json(
      R"({"mask": {"kind": "null"}, "score_mod": "identity", "group": 1, "page_size": 0,
          "qk_depth": 64, "num_q_heads": 2, "arch": "sm_100a", "num_partitions": 1})");
  ASSERT_TRUE(read);
  // But not the architecture: JSON without one is for the GPU at hand.
  EXPECT_EQ(spec_to_json(read->spec, read->options),
            R"({"arch":"sm_100a","num_q_heads":2,"qk_depth":64})");
}

TEST(SpecJson, WritingASpecThatIsNotUtf8DoesNotThrow) {
  AttentionSpec spec;
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.code = "\xff\xfe";
  EXPECT_NO_THROW((void)spec_to_json(spec));
  EXPECT_FALSE(validate(spec).empty());
}

// --- defaults and validation of values made in C++ -----------------------------------------------

TEST(Resolve, FillsWhatDependsOnOtherFields) {
  AttentionSpec spec;
  spec.num_q_heads = 128;
  spec.qk_depth = 192;
  spec.mla = Mla::kPrefill;
  spec.qkv_dtype = Dtype::kE4m3;
  ASSERT_TRUE(validate(spec).empty());
  const AttentionSpec prefill = resolve(spec);
  EXPECT_EQ(prefill.ov_depth, 128);
  EXPECT_EQ(prefill.output_dtype, Dtype::kBf16);
  EXPECT_EQ(prefill.rope_dtype, Dtype::kE4m3);
  EXPECT_EQ(prefill.rope_gmem_dtype, Dtype::kE4m3);
  EXPECT_EQ(resolve(prefill), prefill);

  spec.mla = Mla::kDecode;
  spec.qk_depth = 576;
  spec.qkv_dtype = Dtype::kFp16;
  EXPECT_EQ(resolve(spec).ov_depth, 512);
  EXPECT_EQ(resolve(spec).output_dtype, Dtype::kFp16);

  spec.mla = Mla::kNone;
  EXPECT_EQ(resolve(spec).ov_depth, 576);
  EXPECT_FALSE(resolve(spec).rope_dtype);
  spec.ov_depth = 512;
  spec.rope_dtype = Dtype::kBf16;
  EXPECT_EQ(resolve(spec).rope_dtype, Dtype::kBf16);

  // Where there is no sink, that it is not counted says nothing.
  spec.lse_includes_sink = false;
  EXPECT_TRUE(resolve(spec).lse_includes_sink);
  spec.sink = true;
  EXPECT_FALSE(resolve(spec).lse_includes_sink);
}

TEST(Validate, ReportsEveryProblemOfAStruct) {
  AttentionSpec spec;
  spec.num_q_heads = -1;
  spec.qk_depth = 1 << 30;
  spec.qkv_dtype = Dtype::kI64;
  spec.page_size = -4;
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  spec.mask.window = std::int64_t{1} << 40;
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  spec.score_mod.cap = std::nan("");
  PlanOptions options;
  options.num_qo = 7;
  std::vector<std::string> fields;
  for (const Error& error : validate(spec, options)) fields.push_back(error.field);
  EXPECT_EQ(fields, (std::vector<std::string>{"num_q_heads", "qk_depth", "qkv_dtype", "page_size",
                                              "num_qo", "mask.window", "score_mod.cap"}));
}

TEST(Validate, ABottomlessMaskTreeEndsInOneProblem) {
  AttentionSpec spec;
  spec.num_q_heads = 1;
  spec.qk_depth = 64;
  for (int i = 0; i < 40; ++i) {
    MaskSpec outer;
    outer.kind = MaskSpec::Kind::kAnd;
    outer.of = {MaskSpec{}, std::move(spec.mask)};
    spec.mask = std::move(outer);
  }
  const std::vector<Error> all = validate(spec);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(contains(all[0].message, "too large"));
}

TEST(SpecJson, EveryGoldenVectorsSpecIsValid) {
  std::ifstream file(ATTNJIT_SOURCE_DIR "/tests/plan/data/config_vectors.json");
  ASSERT_TRUE(file);
  const nlohmann::json vectors = nlohmann::json::parse(file);
  int count = 0;
  for (const auto& [kind, cases] : vectors.items()) {
    if (!cases.is_array()) continue;
    for (const auto& one : cases) {
      const Result<SpecDocument> read = spec_from_json(one.at("spec").dump());
      EXPECT_TRUE(read) << one.at("spec") << (read ? "" : read.error().to_string());
      ++count;
    }
  }
  EXPECT_GT(count, 100);
}

// --- manifests -----------------------------------------------------------------------------------

TEST(Manifest, ReadsSpecsAndKeepsTheErrorsOfWrongOnesInTheirPlaces) {
  const Result<Manifest> read = manifest_from_json(
      R"({"name": "model", "source": "config.json", "specs": [
           {"num_q_heads": 32, "group": 4, "qk_depth": 128, "mask": "causal"},
           {"num_q_heads": 32, "group": 5, "qk_depth": 128},
           {"num_q_heads": 32, "qk_depth": 128, "arch": "sm_90a"},
           null]})");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->name, "model");
  ASSERT_EQ(read->specs.size(), 4U);
  EXPECT_TRUE(read->specs[0]);
  ASSERT_FALSE(read->specs[1]);
  EXPECT_EQ(read->specs[1].error().field, "specs[1].group");
  EXPECT_EQ(read->specs[1].error().line, 3);
  ASSERT_FALSE(read->specs[2]);
  EXPECT_EQ(read->specs[2].error().field, "specs[2].arch");
  ASSERT_FALSE(read->specs[3]);
  EXPECT_EQ(read->specs[3].error().field, "specs[3]");
}

TEST(Manifest, RefusesWhatIsNoManifest) {
  for (const char* json : {"[]", "{}", R"({"specs": {}})", R"({"specs": []})",
                           R"({"spec": [{"num_q_heads": 1, "qk_depth": 64}]})",
                           R"({"name": 3, "specs": [{}]})", "{"}) {
    const Result<Manifest> read = manifest_from_json(json);
    ASSERT_FALSE(read) << json;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
    EXPECT_GT(read.error().line, 0);
  }
}

}  // namespace
}  // namespace attnjit
