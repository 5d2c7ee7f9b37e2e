// SPDX-License-Identifier: Apache-2.0
// The real templates through spec, plan, generate and compile; skipped without NVRTC. No GPU.
#include <gtest/gtest.h>

#include "../in_proof.h"
#include "attnjit/plan.h"
#include "attnjit/spec.h"
#include "kernels.h"

namespace attnjit {
namespace {

Result<KernelSource> source_of(const std::string& json) {
  Result<SpecDocument> document = spec_from_json(json);
  if (!document) return document.error();
  const Result<KernelPlan> planned = plan(document->spec, document->options);
  if (!planned) return planned.error();
  return generate(*planned);
}

class RealKernel : public testing::Test {
 protected:
  void SetUp() override {
    compiler_ = make_in_process_compiler();
    if (const auto id = compiler_->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
  }
  Result<KernelImage> compile(const std::string& json) {
    Result<KernelSource> source = source_of(json);
    if (!source) return source.error();
    CompileRequest request;
    request.source = *std::move(source);
    return compiler_->compile(request, test::in(std::chrono::milliseconds(60000)));
  }
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(RealKernel, EveryKindOfMaskAndScoreModCompilesWithoutSpills) {
  const std::string document =
      R"j({"kind": "custom", "name": "document", "code": "p.doc[q_idx] == p.doc[kv_idx]",
           "params": [{"name": "doc", "type": "i32[]"}]})j";
  const std::string bias =
      R"j({"kind": "custom", "name": "bias", "code": "score + p.slope * (float)(q_idx - kv_idx)",
           "params": [{"name": "slope", "type": "f32"}]})j";
  const std::vector<std::string> cases = {
      R"j("mask": {"kind": "and", "of": [{"kind": "causal"}, )j" + document + "]}",
      R"j("mask": "causal", "score_mod": )j" + bias,
      R"j("mask": "causal", "score_mod": "alibi", "sink": true, "return_lse": true)j",
      R"j("mask": {"kind": "or", "of": [{"kind": "sliding_window"}, )j" + document + "]}",
      R"j("mask": "null")j",
      R"j("mask": "causal")j",
      R"j("mask": {"kind": "sliding_window", "window": 128})j",
      R"j("mask": {"kind": "chunked", "chunk": 8192, "constant": true})j",
      R"j("mask": "causal", "score_mod": {"kind": "softcap", "cap": 50.0})j",
      R"j("score_mod": {"kind": "softcap", "cap": 50.0, "constant": true})j",
  };
  const std::size_t count = proof::in_proof() ? cases.size() : 3;
  for (std::size_t i = 0; i < count; ++i) {
    // Each family has every other case, for the time they take.
    const char* const arch = i % 2 == 0 ? "sm_90a" : "sm_100a";
    const std::string json = std::string(R"j({"arch": ")j") + arch +
                             R"j(", "num_q_heads": 8, "group": 4, "qk_depth": 128, )j" + cases[i] +
                             "}";
    const auto image = compile(json);
    ASSERT_TRUE(image.ok()) << json << "\n" << image.error().to_string();
    EXPECT_EQ(image->usage.spill_bytes, 0) << json;
  }
}

TEST_F(RealKernel, EveryBodyOfSm100CompilesWithoutSpills) {
  const std::vector<std::string> cases = {
      R"j("qk_depth": 192, "ov_depth": 128, "mask": "causal", "return_lse": true)j",
      R"j("qk_depth": 64, "num_qo": 1, "mask": "causal")j",
      R"j("qk_depth": 64)j",
      R"j("qk_depth": 80, "qkv_dtype": "fp16")j",
      R"j("qk_depth": 128, "num_qo": 1, "mask": "causal", "group": 4, "return_lse": true)j",
      R"j("qk_depth": 192, "mask": "causal", "sink": true)j",
      R"j("qk_depth": 192, "mla": "prefill", "num_qo": 1)j",
      R"j("arch": "sm_103a", "qk_depth": 128, "mask": "causal")j",
  };
  for (const std::string& rest : proof::some_of(cases, 2)) {
    const std::string json = R"j({"num_q_heads": 8, )j" + rest + "}";
    const auto image = compile(json);
    ASSERT_TRUE(image.ok()) << json << "\n" << image.error().to_string();
    EXPECT_EQ(image->usage.spill_bytes, 0) << json;
    EXPECT_EQ(image->usage.stack_bytes, 0) << json;
  }
}

TEST_F(RealKernel, SameBytesFromEveryCompiler) {
  const auto source = source_of(R"j({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64})j");
  ASSERT_TRUE(source.ok()) << source.error().to_string();
  CompileRequest request;
  request.source = *source;
  const auto first = compiler_->compile(request, test::in(std::chrono::milliseconds(60000)));
  const auto second =
      make_in_process_compiler()->compile(request, test::in(std::chrono::milliseconds(60000)));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->cubin, second->cubin);
}

TEST_F(RealKernel, TrustedCodeCompilesInTheHelperWithItsFaultsInPlace) {
  HelperOptions options;
  options.helper_path = ATTNJIT_TEST_WORKER;
  const auto helper = make_helper_compiler(options);
  const auto build = [&](const std::string& code) -> Result<KernelImage> {
    Result<KernelSource> source = source_of(
        R"j({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64, "mask": {"kind": "and", "of": ["causal",
             {"kind": "custom", "trusted": true, "name": "t", "code": ")j" +
        code + R"j(", "params": [{"name": "w", "type": "i32"}, {"name": "a", "type": "f32[]"},
                                {"name": "m", "type": "i32[][]"}]}]}})j");
    if (!source) return source.error();
    EXPECT_TRUE(source->trusted);
    CompileRequest request;
    request.source = *std::move(source);
    return helper->compile(request, test::in(std::chrono::milliseconds(60000)));
  };
  const std::string body = "const int b = q_idx - kv_idx; // distance\\nreturn b < p.w;";
  const auto good = build(body);
  ASSERT_TRUE(good.ok()) << good.error().to_string();
  const auto again = build(body);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->cubin, good->cubin);
  const auto indexed = build("return p.a[q_idx] > 0.0f && p.m[q_idx][kv_idx] > p.w;");
  EXPECT_TRUE(indexed.ok()) << indexed.error().to_string();
  const auto unknown = build("const int d = q_idx;\\n  return d < nope;");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(unknown.error().field, "mask.of[1].code");
  EXPECT_EQ(unknown.error().line, 2);
  EXPECT_EQ(unknown.error().column, 14);
  EXPECT_TRUE(unknown.error().others.empty()) << unknown.error().to_string();
  const auto endless = build("if (q_idx > 3) return true;");
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().field, "mask.of[1].code") << endless.error().to_string();
  EXPECT_NE(endless.error().message.find("return"), std::string::npos);
  const auto nothing = build("if (q_idx > 3) return true;\\n  return;");
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(nothing.error().field, "mask.of[1].code") << nothing.error().to_string();
  EXPECT_EQ(nothing.error().line, 2);
}

TEST_F(RealKernel, ParametersMayBeNamedAsTheirTypes) {
  const auto image = compile(
      R"j({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64, "mask": {"kind": "custom", "name": "t",
           "code": "p.Array + p.Coord + p.Params > p.later[kv_idx] + p.Matrix[0][kv_idx]",
           "params": [{"name": "Array", "type": "i32"}, {"name": "attnjit", "type": "f32"},
                      {"name": "Matrix", "type": "i32[][]"}, {"name": "Coord", "type": "i32"},
                      {"name": "Params", "type": "i32"}, {"name": "later", "type": "f32[]"},
                      {"name": "last", "type": "i32[][]"}]}})j");
  EXPECT_TRUE(image.ok()) << image.error().to_string();
}

}  // namespace
}  // namespace attnjit
