// SPDX-License-Identifier: Apache-2.0
// Asks the driver for the architecture of the GPU at hand.
#include "driver/native_arch.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/architectures.h"
#include "driver/device.h"

namespace attnjit {
namespace {

/// Errors: what there is instead.
Result<Arch> arch_at_hand(const OpenDriver& open) {
  const Result<std::shared_ptr<const Driver>> driver = open();
  if (!driver) return driver.error();
  if (const Result<int> current = (*driver)->current_device(); current) {
    const Result<DeviceProperties> gpu = device_properties(**driver, *current);
    if (gpu && gpu->arch()) return *gpu->arch();
  }
  const Result<int> count = device_count(**driver);
  if (!count) return count.error();
  std::string found;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    const Result<DeviceProperties> gpu = device_properties(**driver, ordinal);
    if (!gpu) return gpu.error();
    if (gpu->arch()) return *gpu->arch();
    found += fmt::format("{}{}: {}", found.empty() ? "" : "; ", gpu->name,
                         why_not_served(10 * gpu->major + gpu->minor));
  }
  if (found.empty()) return make_error(ErrorCode::kEnvironment, "there is no GPU");
  return make_error(ErrorCode::kUnsupported, found);
}

}  // namespace

Result<Arch> native_arch(spec::ArchFrom asked, const OpenDriver& open) {
  Result<Arch> arch = arch_at_hand(open);
  if (arch) return arch;
  const Error& why = arch.error();
  const std::string reason = why.code == ErrorCode::kUnsupported
                                 ? fmt::format("the GPU at hand is not served ({})", why.message)
                                 : fmt::format("no GPU is at hand ({})", why.message);
  if (asked == spec::ArchFrom::kNative) {
    const ErrorCode code = why.code == ErrorCode::kUnsupported ? why.code : ErrorCode::kEnvironment;
    return make_error(code, fmt::format("is native, but {}", reason), "arch",
                      "name one of " + architecture_names());
  }
  return make_error(ErrorCode::kInvalid,
                    fmt::format("is missing, and {}; allowed: {}", reason, architecture_names()),
                    "arch");
}

Result<ResolvedSpec> with_native_arch(const ResolvedSpec& spec, const OpenDriver& open) {
  const spec::ArchFrom asked = spec.state().arch_from;
  if (asked == spec::ArchFrom::kSpec) return spec;
  const Result<Arch> arch = native_arch(asked, open);
  if (!arch) return arch.error();
  return spec::with_arch(spec, *arch);
}

}  // namespace attnjit
