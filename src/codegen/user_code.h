// SPDX-License-Identifier: Apache-2.0
// The parts of a rendered file that come from a spec's mask and score modification.
//
// Thread rules: pure functions.
#pragma once

#include <string>

#include "attnjit/spec.h"

namespace attnjit {

struct UserCode {
  std::string functions;       ///< definitions in namespace attnjit_user; empty: no custom code
  std::string mask;            ///< the mask as a type
  std::string score_mod;       ///< the score modification as a type
  std::string key;             ///< what of custom code decides the image, tier by tier; empty: none
  bool trusted = false;        ///< holds a function body as the user wrote it
  bool reads_offsets = false;  ///< q_offsets is to be among the Scalars
};

/// Prints a spec's mask and score modification. `first_line` is the line of the rendered file
/// `file` that `functions` begins at: after a trusted body #line leads back there.
UserCode print_user_code(const ResolvedSpec& spec, std::string_view file, int first_line);

}  // namespace attnjit
