// SPDX-License-Identifier: Apache-2.0
// What key material says of a kernel, and material that says nothing.
#include "cache/key_facts.h"

#include <gtest/gtest.h>

#include "attnjit/plan.h"
#include "attnjit/source.h"
#include "attnjit/spec.h"

namespace attnjit::cache {
namespace {

std::string material_of(const char* json) {
  const Result<ResolvedSpec> spec = ResolvedSpec::from_json(json);
  EXPECT_TRUE(spec) << spec.error().to_string();
  const Result<KernelPlan> made = plan(*spec);
  EXPECT_TRUE(made && made->supported);
  const Result<KernelSource> source = generate(*made);
  EXPECT_TRUE(source);
  return request_key(*made, *source).material;
}

TEST(KeyFacts, AreThoseOfTheSpecInEachFamily) {
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_103a"}) {
    const std::string begin = std::string(R"({"arch": ")") + arch + "\", ";
    const KernelFacts plain = facts_of(material_of(
        (begin + R"("num_q_heads": 8, "group": 4, "qk_depth": 128, "mask": "causal"})").c_str()));
    EXPECT_EQ(plain.dtype, "bf16");
    EXPECT_EQ(plain.kv_dtype, "");
    EXPECT_EQ(plain.qk_depth, 128);
    EXPECT_EQ(plain.ov_depth, 128);
    EXPECT_EQ(plain.group, 4);
    EXPECT_EQ(plain.page_size, 0);
    EXPECT_EQ(plain.mask, "CausalMask");
    EXPECT_FALSE(plain.ragged || plain.ragged_kv || plain.sink || plain.lse || plain.split);
    EXPECT_EQ(plain.user_code, "");
    const KernelFacts paged = facts_of(material_of(
        (begin + R"("num_q_heads": 8, "qk_depth": 64, "qkv_dtype": "fp16", "kv_dtype": "e4m3",
            "page_size": 16, "ragged": true, "sink": true, "return_lse": true,
            "mask": {"kind": "custom", "name": "odd", "code": "(kv_idx & 1) == 1"}})")
            .c_str()));
    EXPECT_EQ(paged.dtype, "fp16");
    EXPECT_EQ(paged.kv_dtype, "e4m3");
    EXPECT_EQ(paged.page_size, 16);
    EXPECT_TRUE(paged.ragged && paged.sink && paged.lse);
    EXPECT_NE(paged.user_code.find("kv_idx & 1"), std::string::npos) << paged.user_code;
  }
  const KernelFacts absorbed = facts_of(material_of(
      R"({"arch": "sm_90a", "num_q_heads": 16, "group": 16, "qk_depth": 576, "mla": "decode",
          "page_size": 64, "topk": 128})"));
  EXPECT_EQ(absorbed.qk_depth, 576);
  EXPECT_EQ(absorbed.ov_depth, 512);
  EXPECT_EQ(absorbed.topk, 128);
  EXPECT_EQ(absorbed.kv_dtype, "");
  const KernelFacts eight_bits = facts_of(material_of(
      R"({"arch": "sm_90a", "num_q_heads": 16, "group": 16, "qk_depth": 576, "mla": "decode",
          "page_size": 64, "kv_dtype": "e4m3"})"));
  EXPECT_EQ(eight_bits.kv_dtype, "e4m3");
}

TEST(KeyFacts, MaterialThatIsCutOrForeignSaysNothing) {
  const std::string whole =
      material_of(R"({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64, "mask": "causal"})");
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 50) {
    EXPECT_EQ(facts_of(std::string_view(whole).substr(0, size)).mask.empty(),
              facts_of(std::string_view(whole).substr(0, size)).dtype.empty());
  }
  EXPECT_EQ(facts_of("").qk_depth, 0);
  EXPECT_EQ(facts_of("nonsense").dtype, "");
  std::string other = whole;
  other[20] = 77;  // the format version
  EXPECT_EQ(facts_of(other).qk_depth, 0);
}

}  // namespace
}  // namespace attnjit::cache
