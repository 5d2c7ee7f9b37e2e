// SPDX-License-Identifier: Apache-2.0
// How findings of the emulator are shown.
#pragma once

#include <string>

#include "attnjit/emulator.h"

namespace attnjit::verify {

/// "race: text (forward.cuh:120, PTX line 800, CTA 0,0,0, warp 3, lane 0)".
std::string finding_text(const Finding& finding);

}  // namespace attnjit::verify
