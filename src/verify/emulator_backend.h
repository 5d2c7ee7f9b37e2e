// SPDX-License-Identifier: Apache-2.0
// The emulator as a verification backend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attnjit/emulator.h"
#include "attnjit/result.h"
#include "verify/backend.h"

namespace attnjit::verify {

/// --model, --waive, --seeds and --sm-count. Under isa, a run also grants what its plan declares.
struct EmulatorSettings {
  std::string model = "silicon";
  std::vector<std::string> waivers;
  std::int64_t seeds = 1;
  /// Few, so that small problems give a CTA several tiles where the kernel loops over them.
  std::int64_t sm_count = 2;
};

/// A tensor as emulate() takes it.
EmulatorBuffer emulator_buffer(const std::string& name, const Tensor& tensor);

/// A problem's inputs and poisoned outputs, as emulate() takes them.
std::vector<EmulatorBuffer> emulator_buffers(const Problem& problem);

/// Errors: kInvalid for settings out of range.
Result<std::unique_ptr<Backend>> make_emulator_backend(const EmulatorSettings& settings = {});

}  // namespace attnjit::verify
