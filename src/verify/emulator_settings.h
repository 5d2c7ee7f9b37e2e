// SPDX-License-Identifier: Apache-2.0
// The emulator's settings as people spell them.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/emulator.h"

namespace attnjit::verify {

/// Reads --model, --waive and --seeds. Errors: kInvalid.
Result<EmulatorOptions> read_emulator_settings(const std::string& model,
                                               const std::vector<std::string>& waivers,
                                               std::int64_t seeds);

}  // namespace attnjit::verify
