// SPDX-License-Identifier: Apache-2.0
// The compiler's report on every sm_100a and sm_103a kernel of the manifests in cache/, of the
// proof's attentions by name, of partitions, and of random ones: no bytes of spills or stack.
//
//     attnjit_sm100_compile_report [--only TEXT] [--sample N] [--random COUNT] [--seed S] [--all 1]
//
// Specs with one kernel are compiled once. ../compile_report.h has flags and exit codes.
#include "../compile_report.h"

#include <cstdint>

#include "../kernel_grid.h"
#include "proof_cases.h"

namespace attnjit::sm100 {
namespace {

using kernel_test::CompileReport;
using kernel_test::CompileReportOptions;
using kernel_test::NamedSpec;

int run(const CompileReportOptions& options) {
  CompileReport report;
  for (const NamedSpec& one : kernel_test::manifest_specs({Arch::kSm100a, Arch::kSm103a})) {
    report.add(one);
  }
  for (const NamedSpec& one : kernel_test::sm100_grid()) report.add(one);
  for (const ProofCase& one : named_cases()) report.add({one.name, one.spec, one.options});
  for (std::uint64_t i = 0; i < options.random; ++i) {
    const ProofCase one = random_case(options.seed, i);
    report.add({one.name, one.spec, one.options});
  }
  return report.run(options);
}

}  // namespace
}  // namespace attnjit::sm100

int main(int argc, char** argv) {
  return attnjit::kernel_test::compile_report_main(argc, argv, attnjit::sm100::run);
}
