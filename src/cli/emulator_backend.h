// The emulator as a verification backend, where this build has one.
#pragma once

#include <memory>

#include "attnjit/result.h"
#include "verify/backend.h"

namespace attnjit::cli {

/// Errors: kUnsupported in a build without the emulator.
Result<std::unique_ptr<verify::Backend>> make_emulator_backend();

}  // namespace attnjit::cli
