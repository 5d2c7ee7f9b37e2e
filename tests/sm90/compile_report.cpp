// SPDX-License-Identifier: Apache-2.0
// The compiler's report on every sm_90a kernel of the manifests in cache/, and of a grid of depths,
// types, masks and layouts.
//
//     attnjit_sm90_compile_report [--only TEXT] [--sample N] [--spills BYTES] [--all 1]
//
// Specs with one kernel are compiled once. ../compile_report.h has flags and exit codes.
#include "../compile_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "attnjit/spec.h"

namespace attnjit::sm90 {
namespace {

using kernel_test::CompileReport;
using kernel_test::CompileReportOptions;

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

int run(const CompileReportOptions& options) {
  CompileReport report;
  report.add_manifests({Arch::kSm90a});
  int served = 0, refused = 0;
  bool misspelt = false;
  const auto add = [&](const std::string& name, const std::string& fields) {
    const Result<SpecDocument> spec = spec_from_json(R"({"arch":"sm_90a",)" + fields + "}");
    if (!spec) {
      std::printf("no spec: %s: %s\n", name.c_str(), spec.error().to_string().c_str());
      misspelt = true;
      return;
    }
    const bool is_served = report.add(name, spec->spec, spec->options);
    ++(is_served ? served : refused);
    if (!is_served && options.all) std::printf("not served: %s\n", name.c_str());
  };
  for (const Part& depth : kDepths) {
    for (const Part& type : kTypes) {
      for (const Part& mask : kMasks) {
        for (const Part& layout : kLayouts) {
          add(fmt::format("{}, {}, {}, {}", depth.name, type.name, mask.name, layout.name),
              fmt::format("{},{},{},{}", depth.fields, type.fields, mask.fields, layout.fields));
        }
      }
    }
  }
  for (const Part& latent : kLatent) {
    for (const Part& layout : kLatentLayouts) {
      if (latent.name == kDsv32 && layout.name == kOneLength) continue;  // it has pages
      add(fmt::format("absorbed MLA, {}, {}", latent.name, layout.name),
          fmt::format("{},{}", latent.fields, layout.fields));
    }
  }
  std::printf("of the grid %d specs are served, %d are not\n", served, refused);
  const int code = report.run(options);
  return misspelt ? 1 : code;
}

}  // namespace
}  // namespace attnjit::sm90

int main(int argc, char** argv) {
  return attnjit::kernel_test::compile_report_main(argc, argv, attnjit::sm90::run);
}
