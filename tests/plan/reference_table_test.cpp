// SPDX-License-Identifier: Apache-2.0
// Every row of data/reference_tables.json, straight against the configurations.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/reference/reference_json.h"
#include "source_dir.h"

namespace attnjit {
namespace {

using Json = nlohmann::json;

Json tables() {
  std::ifstream file(std::string(ATTNJIT_SOURCE_DIR) + "/tests/plan/data/reference_tables.json");
  return Json::parse(file);
}

std::optional<Dtype> dtype_of(const Json& spec, const char* name) {
  if (!spec.contains(name)) return std::nullopt;
  return dtype_from_string(spec[name].get<std::string>());
}

Json reference_of(const Json& json, ConfigKind kind) {
  AttentionSpec spec;
  spec.num_q_heads = json["num_q_heads"];
  spec.group = json["group"];
  spec.qk_depth = json["qk_depth"];
  spec.ov_depth = json["ov_depth"];
  spec.qkv_dtype = *dtype_of(json, "qkv_dtype");
  spec.rope_dtype = dtype_of(json, "rope_dtype");
  spec.scale_dtype = dtype_of(json, "scale_dtype");
  spec.page_size = json["page_size"];
  if (json.value("mla", "none") == "prefill") spec.mla = Mla::kPrefill;
  PlanOptions options;
  options.swizzle_bytes = json["swizzle_bytes"];
  if (json.contains("num_qo")) options.num_qo = json["num_qo"];
  if (json.contains("pair_cta")) options.pair_cta = json["pair_cta"];
  return Json::parse(reference_to_json(spec, options, kind, nullptr).dump());
}

void expect_rows(const char* table, ConfigKind kind, std::size_t count) {
  const Json rows = tables()[table];
  EXPECT_EQ(rows.size(), count);
  for (const Json& row : rows) {
    const Json actual = reference_of(row["spec"], kind);
    for (const auto& [name, value] : row["expect"].items()) {
      ASSERT_TRUE(actual.contains(name)) << row["name"] << " " << name;
      EXPECT_EQ(actual[name], value) << row["name"] << " " << name;
    }
  }
}

TEST(ReferenceTables, Fa4) { expect_rows("fa4", ConfigKind::kFa4, 64); }
TEST(ReferenceTables, Depth512) { expect_rows("depth512", ConfigKind::kDepth512, 16); }
TEST(ReferenceTables, Launch) { expect_rows("launch", ConfigKind::kFa4, 12); }

}  // namespace
}  // namespace attnjit
