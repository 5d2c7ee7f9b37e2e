// SPDX-License-Identifier: Apache-2.0
// What the commands share: a Service made from the environment, and the cache.
#pragma once

#include <memory>

#include "attnjit/service.h"
#include "cli/arguments.h"

namespace attnjit::cli {

/// A Service with the caches, NVRTC and templates that the environment names.
/// `tuning` may be null.
Result<std::unique_ptr<Service>> open_service(std::shared_ptr<const Tuning> tuning,
                                              bool accept_unconfined_helper);

/// A Service with the spec that a command works on.
struct Session {
  std::unique_ptr<Service> service;
  PreparedSpec prepared;
};
/// Reads the tuning table that `arguments` name, opens the Service and prepares the spec. Errors:
/// as read_tuning, open_service and Service::prepare.
Result<Session> open_session(const SpecArguments& arguments, const ResolvedSpec& spec);

/// The cache as the environment names it; `given` comes before it. Errors: kInvalid where that is
/// none.
Result<std::unique_ptr<CubinCache>> open_command_cache(SignatureOptions given = {});

/// Far enough for any compile; the helper and the cache have limits of their own.
Service::Deadline compile_deadline();

}  // namespace attnjit::cli
