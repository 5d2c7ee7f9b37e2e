// SPDX-License-Identifier: Apache-2.0
// What the compiler reports on many kernels: none is to spill, and each is to compile.
//
// Thread rules: one thread uses a CompileReport; run() compiles on as many as there are cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "attnjit/source.h"
#include "kernel_grid.h"

namespace attnjit::kernel_test {

/// The flags of a report: --only TEXT takes the kernels whose name has it, --sample N each N-th,
/// --all 1 prints those without spills, too. --spills BYTES is what a kernel may spill at most, 0
/// unless it is given. --random COUNT and --seed S are for a caller with random specs.
struct CompileReportOptions {
  std::string only;
  std::size_t sample = 1;
  int spills = 0;
  std::uint64_t random = 0, seed = 20261121;
  bool all = false;
};

class CompileReport {
 public:
  /// Takes a spec that a template serves, unless its kernel is there already. Whether it is served;
  /// one that is served and makes no source is a failure of run().
  bool add(const NamedSpec& one);

  /// Compiles them. Prints the kernels that spill or fail, and counts them. The exit code: 1 where
  /// one spills more than it may or does not compile, 77: there is no NVRTC.
  int run(const CompileReportOptions& options);

 private:
  struct Entry {
    std::string name;
    KernelSource source;
  };
  std::vector<Entry> entries_;
  std::set<std::string> seen_;
  std::size_t failed_ = 0;  ///< served, and no source was made
};

/// Reads the flags and hands them to `report`, whose result is the exit code; 2: an unknown flag.
int compile_report_main(int argc, char** argv, int (*report)(const CompileReportOptions&));

}  // namespace attnjit::kernel_test
