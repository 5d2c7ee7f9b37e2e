// SPDX-License-Identifier: Apache-2.0
// Report: what a command has to say. Commands return it; main alone writes to standard output.
#pragma once

#include <string>

#include "attnjit/result.h"
#include "cli/arguments.h"

namespace attnjit::cli {

struct Report {
  int exit_code = 0;
  std::string text;       ///< for people
  std::string json;       ///< one object, with --json
  std::string note;       ///< for standard error either way; may be empty
  bool verbatim = false;  ///< text is source code: its bytes are printed as they are
};

Result<Report> run_plan(const PlanArguments& arguments);
Result<Report> run_generate(const GenerateArguments& arguments);
Result<Report> run_compile(const CompileArguments& arguments);
Result<Report> run_prewarm(const PrewarmArguments& arguments);
Result<Report> run_verify(const VerifyArguments& arguments);
Result<Report> run_reference(const ReferenceArguments& arguments);
Result<Report> run_emulate(const EmulateArguments& arguments);
Result<Report> run_bench(const BenchArguments& arguments);
Result<Report> run_tune(const TuneArguments& arguments);
Result<Report> run_cache(const CacheArguments& arguments);
Result<Report> run_manifest(const ManifestArguments& arguments);
Result<Report> run_doctor(const DoctorArguments& arguments);

}  // namespace attnjit::cli
