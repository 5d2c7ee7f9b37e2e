// SPDX-License-Identifier: Apache-2.0
// Fuzz target: LAUNCH.json.
#include "fuzz_check.h"
#include "fuzz_targets.h"
#include "plan/launch/launch_json.h"

namespace attnjit::fuzz {

void fuzz_launch_json(std::string_view input) {
  const Result<LaunchDocument> read = launch_from_json(input);
  if (!read) return check_error(read.error());
  const std::string text = launch_to_json(*read);
  const Result<LaunchDocument> again = launch_from_json(text);
  require(again.ok());
  require(launch_to_json(*again) == text);
}

}  // namespace attnjit::fuzz
