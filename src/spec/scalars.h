// SPDX-License-Identifier: Apache-2.0
// The numbers of a spec's masks and score modification, as kernels and launches name them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "attnjit/result.h"
#include "spec/kinds.h"

namespace attnjit::spec {

/// One number of a spec. Its index in spec_scalars() is its index in LaunchScalars::values.
struct SpecScalar {
  std::string name;           ///< as a kernel parameter: "window", "window_1", .., "cap"
  std::string constant_name;  ///< as a member of Config: "kWindow", "kWindow_1", .., "kCap"
  ScalarTraits traits;
  bool is_integer = false;  ///< an i32 in the kernel, otherwise an f32
  bool constant = false;    ///< compiled in, and part of the key
  bool fixed = false;    ///< the spec's value is the only one: what a launch gives is passed over
  bool in_code = false;  ///< of a mask that is interpreted: the kernel knows nothing of it
  double value = 0;      ///< the spec's; 0: given at launch
};

/// Every number of a spec: those of the mask tree in preorder, then those of the score
/// modification. The second number of a name gets the suffix _1, the third _2, ..
std::vector<SpecScalar> spec_scalars(const AttentionSpec& spec);

/// The number that a launch has: of what it gives the one at `index`, where that is not 0 nor left
/// out and the spec's is not the only one; else the spec's. Errors: kInvalid, at the number's name,
/// for one that no launch may have.
Result<double> launch_number(const SpecScalar& scalar, std::span<const double> given,
                             std::size_t index);

/// What a launch gives for a number, as a flag of the command line: each name once.
struct ScalarFlag {
  ScalarTraits traits;
  bool is_integer = false;
};
const std::vector<ScalarFlag>& scalar_flags();

}  // namespace attnjit::spec
