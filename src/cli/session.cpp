// SPDX-License-Identifier: Apache-2.0
// Opens the Service and the cache that the environment asks for.
#include "cli/session.h"

#include "base/environment.h"
#include "base/log.h"

namespace attnjit::cli {

Result<std::unique_ptr<Service>> open_service(std::shared_ptr<const Tuning> tuning,
                                              bool accept_unconfined_helper) {
  ServiceOptions options;
  options.tuning = std::move(tuning);
  options.accept_unconfined_helper = accept_unconfined_helper;
  return Service::create(std::move(options));
}

std::unique_ptr<CubinCache> open_command_cache() {
  CacheOptions options;
  options.layers = default_cache_layers();
  options.log = make_stderr_sink(read_environment().log_level.value_or("warn"));
  return open_cache(options);
}

Service::Deadline compile_deadline() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(5);
}

}  // namespace attnjit::cli
