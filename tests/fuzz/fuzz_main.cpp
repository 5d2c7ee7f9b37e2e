// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry; FUZZ_TARGET names the function of fuzz_targets.h that it runs.
#include "fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attnjit::fuzz::FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
