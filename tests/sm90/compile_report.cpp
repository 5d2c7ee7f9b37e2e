// SPDX-License-Identifier: Apache-2.0
// The compiler's report on every sm_90a kernel of the manifests in cache/, and of a grid of depths,
// types, masks and layouts.
//
//     attnjit_sm90_compile_report [--only TEXT] [--sample N] [--spills BYTES] [--all 1]
//
// Specs with one kernel are compiled once. ../compile_report.h has flags and exit codes.
#include "../compile_report.h"

#include <cstdio>

#include "../kernel_grid.h"

namespace attnjit::sm90 {
namespace {

using kernel_test::CompileReport;
using kernel_test::CompileReportOptions;
using kernel_test::NamedSpec;

int run(const CompileReportOptions& options) {
  CompileReport report;
  for (const NamedSpec& one : kernel_test::manifest_specs({Arch::kSm90a})) report.add(one);
  int served = 0, refused = 0;
  for (const NamedSpec& one : kernel_test::sm90_grid()) {
    const bool is_served = report.add(one);
    ++(is_served ? served : refused);
    if (!is_served && options.all) std::printf("not served: %s\n", one.name.c_str());
  }
  std::printf("of the grid %d specs are served, %d are not\n", served, refused);
  return report.run(options);
}

}  // namespace
}  // namespace attnjit::sm90

int main(int argc, char** argv) {
  return attnjit::kernel_test::compile_report_main(argc, argv, attnjit::sm90::run);
}
