// SPDX-License-Identifier: Apache-2.0
// The manifests of real models in cache/: each spec is valid, and the shapes are the models'.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "attnjit/manifest.h"
#include "source_dir.h"
#include "spec/kinds.h"

namespace attnjit {
namespace {

std::map<std::string, Manifest> read_all() {
  std::map<std::string, Manifest> manifests;
  for (const auto& file : std::filesystem::directory_iterator(ATTNJIT_SOURCE_DIR "/cache")) {
    if (file.path().extension() != ".json") continue;
    std::ifstream stream(file.path());
    const std::string text((std::istreambuf_iterator<char>(stream)),
                           std::istreambuf_iterator<char>());
    Result<Manifest> manifest = manifest_from_json(text);
    EXPECT_TRUE(manifest.ok()) << file.path() << ": " << manifest.error().to_string();
    if (manifest) manifests.emplace(file.path().stem().string(), std::move(*manifest));
  }
  return manifests;
}

/// Models without a cache of keys and values.
const std::set<std::string> kEncoders = {"embeddinggemma-2", "neomme", "ultrabert"};

TEST(Manifests, EverySpecIsValidAndOnce) {
  const std::map<std::string, Manifest> manifests = read_all();
  EXPECT_GE(manifests.size(), 10U);
  for (const auto& [name, manifest] : manifests) {
    EXPECT_FALSE(manifest.name.empty()) << name;
    EXPECT_NE(manifest.source.find("https://"), std::string::npos) << name;
    EXPECT_GE(manifest.specs.size(), 4U) << name;
    std::set<std::string> seen;
    for (const Result<SpecDocument>& spec : manifest.specs) {
      ASSERT_TRUE(spec.ok()) << name << ": " << spec.error().to_string();
      EXPECT_TRUE(seen.insert(spec_to_json(spec->spec, spec->options)).second)
          << name << " repeats a spec";
    }
  }
}

// What is served in pages of one size is served in those of the other.
TEST(Manifests, PagesOf16And64) {
  for (const auto& [name, manifest] : read_all()) {
    std::map<int, std::set<std::string>> of_size;
    for (const Result<SpecDocument>& spec : manifest.specs) {
      AttentionSpec other = spec->spec;
      other.page_size = 0;
      if (spec->spec.page_size > 0) of_size[spec->spec.page_size].insert(spec_to_json(other));
    }
    if (kEncoders.contains(name)) {
      EXPECT_TRUE(of_size.empty()) << name;
      continue;
    }
    EXPECT_EQ(of_size.size(), 2U) << name;
    EXPECT_FALSE(of_size[16].empty()) << name;
    EXPECT_EQ(of_size[16], of_size[64]) << name;
  }
}

// A decode over pages has one row, or a draft's four.
TEST(Manifests, DecodesOfOneRowAndOfFour) {
  for (const auto& [name, manifest] : read_all()) {
    std::map<int, std::set<std::string>> of_rows;
    for (const Result<SpecDocument>& spec : manifest.specs) {
      AttentionSpec other = spec->spec;
      other.max_q_len = 0;
      if (spec->spec.page_size == 0) continue;
      if (spec->spec.num_partitions == 0) of_rows[spec->spec.max_q_len].insert(spec_to_json(other));
    }
    if (of_rows.empty()) continue;
    EXPECT_EQ(of_rows.size(), 2U) << name;
    EXPECT_EQ(of_rows[1], of_rows[4]) << name;
  }
}

// attention() asks for parts of the keys where few rows see many, and for decodes. Absorbed MLA has
// its decodes over pages.
TEST(Manifests, CausalPromptsComeWithFewRows) {
  int prompts = 0;
  for (const auto& [name, manifest] : read_all()) {
    std::set<std::string> texts;
    bool absorbed = false;
    for (const Result<SpecDocument>& spec : manifest.specs) {
      texts.insert(spec_to_json(spec->spec));
      absorbed |= spec->spec.mla == Mla::kDecode;
    }
    if (absorbed) continue;
    for (const Result<SpecDocument>& spec : manifest.specs) {
      AttentionSpec other = spec->spec;
      if (other.ragged || other.page_size > 0 || other.qkv_dtype != Dtype::kBf16 ||
          other.num_partitions == 0 || other.mask.kind != MaskSpec::Kind::kCausal) {
        continue;
      }
      ++prompts;
      other.num_partitions = 0;
      EXPECT_TRUE(texts.contains(spec_to_json(other))) << name;
      other.max_q_len = 1;
      EXPECT_TRUE(texts.contains(spec_to_json(other))) << name;
    }
  }
  EXPECT_GT(prompts, 50);
}

// The kernels of small windows are of their number: sm_90a has short tiles for them.
TEST(Manifests, SmallWindowsAreConstant) {
  int small = 0;
  for (const auto& [name, manifest] : read_all()) {
    for (const Result<SpecDocument>& spec : manifest.specs) {
      const MaskSpec& mask = spec->spec.mask;
      if (mask.kind != MaskSpec::Kind::kSlidingWindow) continue;
      EXPECT_EQ(mask.constant, mask.window <= spec::kSmallWindow) << name;
      if (mask.constant) ++small;
    }
  }
  EXPECT_GT(small, 0);
}

// The first spec of each manifest is the model's dense prefill.
TEST(Manifests, ShapesAreTheModels) {
  struct Shape {
    const char* manifest;
    int heads, kv_heads, qk_depth, ov_depth;
  };
  const std::map<std::string, Manifest> manifests = read_all();
  for (const Shape& shape :
       {Shape{"llama-3.1-8b", 32, 8, 128, 128}, Shape{"llama-3.1-70b", 64, 8, 128, 128},
        Shape{"qwen3-32b", 64, 8, 128, 128}, Shape{"qwen2.5-7b", 28, 4, 128, 128},
        Shape{"mistral-7b-v0.1", 32, 8, 128, 128}, Shape{"gemma-2-9b", 16, 8, 256, 256},
        Shape{"gemma-2-27b", 32, 16, 128, 128}, Shape{"gpt-oss-120b", 64, 8, 64, 64},
        Shape{"llama-4-scout", 40, 8, 128, 128}, Shape{"deepseek-v3", 128, 128, 192, 128},
        Shape{"mpt-7b", 32, 32, 128, 128}, Shape{"falcon-7b", 71, 1, 64, 64}}) {
    const auto found = manifests.find(shape.manifest);
    ASSERT_NE(found, manifests.end()) << shape.manifest;
    const AttentionSpec spec = resolve(found->second.specs.front()->spec);
    EXPECT_EQ(spec.num_q_heads, shape.heads) << shape.manifest;
    EXPECT_EQ(spec.num_kv_heads(), shape.kv_heads) << shape.manifest;
    EXPECT_EQ(spec.qk_depth, shape.qk_depth) << shape.manifest;
    EXPECT_EQ(spec.ov_depth, shape.ov_depth) << shape.manifest;
  }
}

TEST(Manifests, SpecialAttentionIsThere) {
  const std::map<std::string, Manifest> manifests = read_all();
  const auto any = [&](const char* name, auto predicate) {
    for (const Result<SpecDocument>& spec : manifests.at(name).specs) {
      if (predicate(spec->spec)) return true;
    }
    return false;
  };
  EXPECT_TRUE(any("mistral-7b-v0.1", [](const AttentionSpec& s) { return s.mask.window == 4096; }));
  EXPECT_TRUE(any("gemma-2-9b", [](const AttentionSpec& s) { return s.score_mod.cap == 50; }));
  EXPECT_TRUE(
      any("gpt-oss-120b", [](const AttentionSpec& s) { return s.sink && s.mask.window == 128; }));
  EXPECT_TRUE(any("llama-4-scout", [](const AttentionSpec& s) {
    return s.mask.kind == MaskSpec::Kind::kAnd && s.mask.of[1].chunk == 8192;
  }));
  EXPECT_TRUE(any("deepseek-v3", [](const AttentionSpec& s) { return s.mla == Mla::kDecode; }));
  EXPECT_TRUE(any("mpt-7b", [](const AttentionSpec& s) {
    return s.score_mod.kind == ScoreModSpec::Kind::kAlibi;
  }));
}

}  // namespace
}  // namespace attnjit
