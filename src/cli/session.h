// SPDX-License-Identifier: Apache-2.0
// What the commands share: a Service made from the environment.
#pragma once

#include <memory>

#include "attnjit/service.h"

namespace attnjit::cli {

/// A Service with the caches, NVRTC and templates that the environment names.
/// `tuning` may be null.
Result<std::unique_ptr<Service>> open_service(std::shared_ptr<const Tuning> tuning,
                                              bool accept_unconfined_helper);

/// The cache as the environment names it.
std::unique_ptr<CubinCache> open_command_cache();

/// Far enough for any compile; the helper and the cache have limits of their own.
Service::Deadline compile_deadline();

}  // namespace attnjit::cli
