// SPDX-License-Identifier: Apache-2.0
// Opens the Service and the cache that the environment asks for.
#include "cli/session.h"

#include "base/environment.h"
#include "base/log.h"
#include "cli/spec_source.h"

namespace attnjit::cli {

Result<std::unique_ptr<Service>> open_service(std::shared_ptr<const Tuning> tuning,
                                              bool accept_unconfined_helper) {
  ServiceOptions options;
  options.tuning = std::move(tuning);
  options.accept_unconfined_helper = accept_unconfined_helper;
  options.flush_at_end = std::chrono::milliseconds(2000);
  return Service::create(std::move(options));
}

Result<Session> open_session(const SpecArguments& arguments, const ResolvedSpec& spec) {
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.tuning);
  if (!tuning) return std::move(tuning).error();
  Result<std::unique_ptr<Service>> service =
      open_service(std::move(*tuning), arguments.accept_unconfined_helper);
  if (!service) return std::move(service).error();
  Result<PreparedSpec> prepared = (*service)->prepare(spec);
  if (!prepared) return std::move(prepared).error();
  return Session{std::move(*service), std::move(*prepared)};
}

Result<std::unique_ptr<CubinCache>> open_command_cache(SignatureOptions given) {
  CacheOptions options;
  Result<SignatureOptions> signatures = with_environment(std::move(given));
  if (!signatures) return std::move(signatures).error();
  options.signatures = *std::move(signatures);
  options.layers = default_cache_layers();
  options.log = make_stderr_sink(read_environment().log_level.value_or("warn"));
  return open_cache(options);
}

Service::Deadline compile_deadline() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(5);
}

}  // namespace attnjit::cli
