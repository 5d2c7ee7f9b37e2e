// SPDX-License-Identifier: Apache-2.0
// Manifest: a named list of specs to compile ahead, as `attnjit prewarm` takes it.
//
// Thread rules: plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"

namespace attnjit {

/// {"name": .., "source": .., "specs": [SPEC, ...]}: the specs have no arch, which comes from the
/// command line. A spec that is wrong is an Error in its place, so that the others are still
/// served.
struct Manifest {
  std::string name;                         ///< the model's
  std::string source;                       ///< where its numbers are from
  std::vector<Result<SpecDocument>> specs;  ///< in the text's order; arch is the default
};

/// Reads a manifest of at most 16 MiB and 65536 specs. Errors: kInvalid for anything wrong outside
/// the specs, every problem at once; fields of a spec's problems begin with "specs[i].".
ATTNJIT_EXPORT Result<Manifest> manifest_from_json(std::string_view json);

}  // namespace attnjit
