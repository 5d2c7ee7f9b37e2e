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
  int least_nvrtc;        ///< the first NVRTC that compiles for it, 1000 * major + 10 * minor
  int sm_count;           ///< of an H200, a B200 and a GB300: where nobody says
};

std::span<const ArchTraits> architectures();
const ArchTraits& traits_of(Arch arch);

/// "sm_90a, sm_100a, sm_103a".
std::string architecture_names();

}  // namespace attnjit
