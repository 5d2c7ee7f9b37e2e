// SPDX-License-Identifier: Apache-2.0
// From --spec and the fields' flags to a validated spec; from verification flags to a problem.
#pragma once

#include <memory>
#include <string>

#include "attnjit/manifest.h"
#include "attnjit/spec.h"
#include "attnjit/tuning.h"
#include "cli/arguments.h"
#include "verify/problem.h"

namespace attnjit::cli {

/// The spec for the architecture that it names, else for that of the GPU at hand. Errors: kInvalid
/// with every problem of the spec; as native_arch().
/// @param modelled an architecture that the command line names as the clock's: where the spec names
/// none, it is for that.
Result<ResolvedSpec> read_spec(const SpecArguments& arguments, const std::string& modelled = {});

/// A manifest's specs. Errors: kInvalid, named after the file.
Result<Manifest> read_manifest(const std::string& path);

/// Errors: kInvalid, named after the flag.
Result<verify::ProblemRequest> read_problem(const ProblemArguments& arguments,
                                            const AttentionSpec& spec);

/// The tuning table of a file; null for an empty path. Errors: kInvalid, named after the file.
Result<std::shared_ptr<const Tuning>> read_tuning(const std::string& path);

}  // namespace attnjit::cli
