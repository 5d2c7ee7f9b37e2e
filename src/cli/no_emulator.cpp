// SPDX-License-Identifier: Apache-2.0
// What stands in for the emulator in a build without it.
#include "cli/emulator_backend.h"
#include "cli/report.h"

namespace attnjit::cli {
namespace {

Error not_built() {
  return make_error(ErrorCode::kUnsupported, "the emulator is not in this build");
}

}  // namespace

Result<std::unique_ptr<verify::Backend>> make_emulator_backend(const EmulatorSettings&) {
  return not_built();
}
Result<Report> run_emulate(const EmulateArguments&) { return not_built(); }

}  // namespace attnjit::cli
