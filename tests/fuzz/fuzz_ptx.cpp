// SPDX-License-Identifier: Apache-2.0
// Fuzz target: PTX modules, parsed and decoded.
#include <cstdlib>
#include <string>

#include "attnjit/emulator.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {

void fuzz_ptx(std::string_view input) {
  const Result<PtxModule> module = PtxModule::load(std::string(input));
  if (module) return;
  const ErrorCode code = module.error().code;
  if (code != ErrorCode::kInvalid && code != ErrorCode::kUnsupported) std::abort();
}

}  // namespace attnjit::fuzz
