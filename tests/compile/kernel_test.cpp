// The real templates through spec, plan, generate and compile; skipped without NVRTC. No GPU.
#include <gtest/gtest.h>

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
      R"j("mask": "null")j",
      R"j("mask": "causal")j",
      R"j("mask": {"kind": "sliding_window", "window": 128})j",
      R"j("mask": {"kind": "chunked", "chunk": 8192, "constant": true})j",
      R"j("mask": {"kind": "and", "of": [{"kind": "causal"}, )j" + document + "]}",
      R"j("mask": {"kind": "or", "of": [{"kind": "sliding_window"}, )j" + document + "]}",
      R"j("mask": "causal", "score_mod": {"kind": "softcap", "cap": 50.0})j",
      R"j("score_mod": {"kind": "softcap", "cap": 50.0, "constant": true})j",
      R"j("mask": "causal", "score_mod": "alibi", "sink": true, "return_lse": true)j",
      R"j("mask": "causal", "score_mod": )j" + bias,
  };
  for (const std::string& rest : cases) {
    const std::string json =
        R"j({"arch": "sm_90a", "num_q_heads": 8, "group": 4, "qk_depth": 128, )j" + rest + "}";
    const auto image = compile(json);
    ASSERT_TRUE(image.ok()) << json << "\n" << image.error().to_string();
    EXPECT_EQ(image->usage.spill_bytes, 0) << json;
  }
}

}  // namespace
}  // namespace attnjit
