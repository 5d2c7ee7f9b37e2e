// SPDX-License-Identifier: Apache-2.0
// The compiler's report on every sm_100a and sm_103a kernel of the manifests in cache/, of the
// proof's attentions by name, of partitions, and of random ones: no bytes of spills or stack.
//
//     attnjit_sm100_compile_report [--only TEXT] [--sample N] [--random COUNT] [--seed S] [--all 1]
//
// Specs with one kernel are compiled once. ../compile_report.h has flags and exit codes.
#include "../compile_report.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "proof_cases.h"

namespace attnjit::sm100 {
namespace {

using kernel_test::CompileReport;
using kernel_test::CompileReportOptions;

/// Keys split by number and by keys, over every way in which K and V come.
void add_partitions(CompileReport& report) {
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
          report.add(name, spec, {});
          spec.scales = Scales::kHead;
          spec.kv_dtype = Dtype::kE4m3;
          report.add(name + ", e4m3 K and V", spec, {});
          spec.kv_dtype.reset();
          spec.qkv_dtype = Dtype::kE4m3;
          report.add(name + ", e4m3", spec, {});
          spec.scales = Scales::kToken;
          spec.output_dtype = Dtype::kE4m3;
          report.add(name + ", e4m3 with scales of rows", spec, {});
        }
      }
    }
  }
}

int run(const CompileReportOptions& options) {
  CompileReport report;
  report.add_manifests({Arch::kSm100a, Arch::kSm103a});
  add_partitions(report);
  for (const ProofCase& one : named_cases()) report.add(one.name, one.spec, one.options);
  for (std::uint64_t i = 0; i < options.random; ++i) {
    const ProofCase one = random_case(options.seed, i);
    report.add(one.name, one.spec, one.options);
  }
  return report.run(options);
}

}  // namespace
}  // namespace attnjit::sm100

int main(int argc, char** argv) {
  return attnjit::kernel_test::compile_report_main(argc, argv, attnjit::sm100::run);
}
