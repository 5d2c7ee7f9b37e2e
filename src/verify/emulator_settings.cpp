// SPDX-License-Identifier: Apache-2.0
// Turns the emulator's settings, as people spell them, into EmulatorOptions.
#include "verify/emulator_settings.h"

#include <fmt/format.h>

namespace attnjit::verify {
namespace {

constexpr std::int64_t kMaxSeeds = 1000000;

Error invalid(std::string field, std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
}

}  // namespace

Result<EmulatorOptions> read_emulator_settings(const std::string& model,
                                               const std::vector<std::string>& waivers,
                                               std::int64_t seeds) {
  EmulatorOptions options;
  if (model != "isa" && model != "silicon") {
    return invalid("model", fmt::format("is '{}'; allowed: isa, silicon", model.substr(0, 64)));
  }
  options.model = model == "isa" ? EmulatorModel::kIsa : EmulatorModel::kSilicon;
  for (const std::string& waiver : waivers) {
    if (waiver != "in-order-mma") {
      return invalid("waive", fmt::format("is '{}'; allowed: in-order-mma", waiver.substr(0, 64)));
    }
    options.in_order_issue = true;
  }
  if (seeds < 1 || seeds > kMaxSeeds) {
    return invalid("seeds", fmt::format("is {}; allowed: 1 to {}", seeds, kMaxSeeds));
  }
  options.seeds = static_cast<std::uint32_t>(seeds);
  return options;
}

}  // namespace attnjit::verify
