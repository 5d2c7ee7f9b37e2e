// SPDX-License-Identifier: Apache-2.0
// The grids of specs by name.
#include "kernel_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "attnjit/manifest.h"
#include "source_dir.h"

namespace attnjit::kernel_test {
namespace {

/// Fields of a spec, as JSON.
struct Part {
  const char* name;
  const char* fields;
};

constexpr Part kDepths[] = {
    {"64", R"("qk_depth":64)"},   {"80", R"("qk_depth":80)"},
    {"96", R"("qk_depth":96)"},   {"112", R"("qk_depth":112)"},
    {"128", R"("qk_depth":128)"}, {"160", R"("qk_depth":160)"},
    {"192", R"("qk_depth":192)"}, {"192/128", R"("qk_depth":192,"ov_depth":128)"},
    {"224", R"("qk_depth":224)"}, {"256", R"("qk_depth":256)"},
    {"320", R"("qk_depth":320)"}, {"512", R"("qk_depth":512)"}};
constexpr Part kTypes[] = {
    {"bf16", R"("qkv_dtype":"bf16")"},
    {"fp16 to e4m3", R"("qkv_dtype":"fp16","output_dtype":"e4m3")"},
    {"e4m3", R"("qkv_dtype":"e4m3","scales":"head")"},
    {"e4m3 to e4m3", R"("qkv_dtype":"e4m3","output_dtype":"e4m3")"},
    {"bf16 to f32", R"("qkv_dtype":"bf16","output_dtype":"f32")"},
    {"e4m3, rows' scales, to f32", R"("qkv_dtype":"e4m3","scales":"token","output_dtype":"f32")"},
    {"bf16 over e4m3", R"("kv_dtype":"e4m3","scales":"tensor")"}};
constexpr Part kMasks[] = {
    {"no mask", R"("mask":"null")"},
    {"causal", R"("mask":"causal")"},
    {"window", R"("mask":{"kind":"sliding_window","window":512})"},
    {"chunks and softcap",
     R"("mask":{"kind":"chunked","chunk":256},"score_mod":{"kind":"softcap","cap":30})"},
    {"documents",
     R"("mask":{"kind":"custom","name":"documents","code":"p.doc[q_idx] == p.doc[kv_idx]",)"
     R"("params":[{"name":"doc","type":"i32[]"}]})"},
    {"dilated", R"("mask":{"kind":"custom","name":"dilated","code":"(q_idx - kv_idx) % 3 == 0"})"},
    {"materialized bits", R"("mask":{"kind":"materialized","dtype":"bits"})"},
    {"materialized bf16", R"("mask":{"kind":"materialized","dtype":"bf16"})"}};
constexpr Part kLayouts[] = {
    {"one length", R"("num_q_heads":8,"group":1)"},
    {"groups of 6, sinks, LSE", R"("num_q_heads":12,"group":6,"sink":true,"return_lse":true)"},
    {"ragged", R"("num_q_heads":12,"group":6,"ragged":true,"ragged_kv":true,"return_lse":true)"},
    {"pages of 64", R"("num_q_heads":8,"group":2,"page_size":64,"sink":true)"},
    {"pages of 1, ragged", R"("num_q_heads":12,"group":6,"page_size":1,"ragged":true)"},
    {"pages of 16, partitions",
     R"("num_q_heads":32,"group":8,"page_size":16,"ragged":true,"num_partitions":0)"},
    {"partitions of 256 keys",
     R"("num_q_heads":8,"group":8,"partition_keys":256,"return_lse":true)"},
    {"partitions", R"("num_q_heads":8,"group":4,"num_partitions":0)"}};
constexpr const char *kDsv32 = "dsv32", *kOneLength = "one length";
constexpr Part kLatent[] = {
    {"576/512", R"("mla":"decode","num_q_heads":128,"group":128,"qk_depth":576)"},
    {"320/256, 16 heads", R"("mla":"decode","num_q_heads":16,"group":16,"qk_depth":320)"},
    {"e4m3", R"("mla":"decode","num_q_heads":128,"group":128,"qk_depth":576,"kv_dtype":"e4m3")"},
    {kDsv32, R"("mla":"decode","num_q_heads":128,"group":128,"qk_depth":576,)"
             R"("cache_format":"dsv32")"}};
constexpr Part kLatentLayouts[] = {
    {kOneLength, R"("mask":"null")"},
    {"pages of 64", R"("mask":"causal","page_size":64,"num_partitions":0)"},
    {"pages of 1, LSE", R"("mask":"causal","page_size":1,"return_lse":true)"},
    {"pages of 64, keys in parts", R"("mask":"causal","page_size":64,"partition_keys":512)"},
    {"lists of 2048", R"("mask":"null","page_size":64,"topk":2048,"num_partitions":0)"}};

/// A row of a grid is spelt right: a mistake in one is the end.
NamedSpec grid_spec(const std::string& name, const std::string& fields) {
  Result<SpecDocument> spec = spec_from_json(R"({"arch":"sm_90a",)" + fields + "}");
  if (!spec) {
    std::fprintf(stderr, "no spec: %s: %s\n", name.c_str(), spec.error().to_string().c_str());
    std::abort();
  }
  return {name, spec->spec, spec->options};
}

}  // namespace

std::vector<NamedSpec> manifest_specs(const std::vector<Arch>& archs) {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(ATTNJIT_SOURCE_DIR "/cache")) {
    if (file.path().extension() == ".json") files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<NamedSpec> specs;
  for (const auto& path : files) {
    std::ifstream stream(path);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    const Result<Manifest> manifest = manifest_from_json(text);
    if (!manifest) continue;
    for (std::size_t i = 0; i < manifest->specs.size(); ++i) {
      if (!manifest->specs[i]) continue;
      for (const Arch arch : archs) {
        AttentionSpec spec = manifest->specs[i]->spec;
        spec.arch = arch;
        specs.push_back({fmt::format("{}, specs[{}], {}", path.stem().string(), i, to_string(arch)),
                         std::move(spec), manifest->specs[i]->options});
      }
    }
  }
  return specs;
}

std::vector<NamedSpec> sm90_grid() {
  std::vector<NamedSpec> specs;
  for (const Part& depth : kDepths) {
    for (const Part& type : kTypes) {
      for (const Part& mask : kMasks) {
        for (const Part& layout : kLayouts) {
          specs.push_back(grid_spec(
              fmt::format("{}, {}, {}, {}", depth.name, type.name, mask.name, layout.name),
              fmt::format("{},{},{},{}", depth.fields, type.fields, mask.fields, layout.fields)));
        }
      }
    }
  }
  for (const Part& latent : kLatent) {
    for (const Part& layout : kLatentLayouts) {
      if (latent.name == kDsv32 && layout.name == kOneLength) continue;  // it has pages
      specs.push_back(grid_spec(fmt::format("absorbed MLA, {}, {}", latent.name, layout.name),
                                fmt::format("{},{}", latent.fields, layout.fields)));
    }
  }
  return specs;
}

std::vector<NamedSpec> sm100_grid() {
  std::vector<NamedSpec> specs;
  struct Layout {
    const char* name;
    int page_size;
    bool ragged, ragged_kv;
  };
  constexpr Layout kLayouts[] = {{"one length", 0, false, false},
                                 {"pages of 16", 16, false, false},
                                 {"pages of 24, ragged", 24, true, false},
                                 {"pages of 1, ragged", 1, true, false},
                                 {"ragged keys", 0, true, true}};
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
    for (const auto& [qk_depth, ov_depth] :
         {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}, {512, 512}}) {
      for (const Layout& layout : kLayouts) {
        for (const int keys : {0, 256}) {
          AttentionSpec spec;
          spec.arch = arch;
          spec.num_q_heads = 12;
          spec.group = 6;
          spec.qk_depth = qk_depth;
          spec.ov_depth = ov_depth;
          spec.page_size = layout.page_size;
          spec.ragged = layout.ragged;
          spec.ragged_kv = layout.ragged_kv;
          spec.return_lse = spec.sink = true;
          spec.mask.kind = MaskSpec::Kind::kCausal;
          spec.partition_keys = keys;
          if (keys == 0) spec.num_partitions = 0;
          if (layout.page_size > 0) spec.max_q_len = 4;
          const std::string name =
              fmt::format("partitions, {}, {}, {}/{}, keys {}", to_string(arch), layout.name,
                          qk_depth, ov_depth, keys);
          specs.push_back({name, spec, {}});
          spec.scales = Scales::kHead;
          spec.kv_dtype = Dtype::kE4m3;
          specs.push_back({name + ", e4m3 K and V", spec, {}});
          spec.kv_dtype.reset();
          spec.qkv_dtype = Dtype::kE4m3;
          specs.push_back({name + ", e4m3", spec, {}});
          spec.scales = Scales::kToken;
          spec.output_dtype = Dtype::kE4m3;
          specs.push_back({name + ", e4m3 with scales of rows", spec, {}});
        }
      }
    }
  }
  return specs;
}

}  // namespace attnjit::kernel_test
