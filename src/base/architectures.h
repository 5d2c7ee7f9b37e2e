// SPDX-License-Identifier: Apache-2.0
// The table of architectures: what every room knows of each but its kernels (plan/family.h).
//
// Thread rules: constant data.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attnjit/types.h"

namespace attnjit {

struct ArchTraits {
  Arch arch;
  std::string_view name;  ///< as the compiler and a spec call it
  int sm;                 ///< compute capability, 10 * major + minor
  int least_nvrtc;  ///< the first NVRTC whose kernels pass the gate, 1000 * major + 10 * minor
  int sm_count;     ///< of an H200, a B200 and a GB300: where nobody says
};

std::span<const ArchTraits> architectures();
const ArchTraits& traits_of(Arch arch);

/// "sm_90a, sm_100a, sm_103a".
std::string architecture_names();

/// Why kernels are not for a compute capability (10 * major + minor) that is no row's: "sm_120 has
/// neither wgmma nor tcgen05: not served".
std::string why_not_served(int capability);

/// What to say to a name that is no architecture's: the row that is meant ("did you mean
/// `sm_90a`?" of sm_90, compute_90 or 9.0), or why there is none. Empty: neither is known.
std::string architecture_hint(std::string_view name);

}  // namespace attnjit
