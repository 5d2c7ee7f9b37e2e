// SPDX-License-Identifier: Apache-2.0
// Implements the sink that writes messages from a level upwards to standard error.
#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>

#include "base/printable.h"

namespace attnjit {

LogSink make_stderr_sink(std::string_view level) {
  auto logger = std::make_shared<spdlog::logger>("attnjit",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("[%H:%M:%S.%e] [%l] %v");
  const auto least = spdlog::level::from_str(std::string(level));
  // NOTE: to spdlog a name that it does not know is `off`.
  const bool known = least != spdlog::level::off || level == "off";
  logger->set_level(known ? least : spdlog::level::warn);
  if (!known) {
    logger->warn("ATTNJIT_LOG_LEVEL is '{}'; allowed: debug, info, warn, error",
                 printable(level.substr(0, 64)));
  }
  return [logger](LogLevel severity, std::string_view text) {
    const std::string shown = printable(text);
    const spdlog::string_view_t view(shown);
    switch (severity) {
      case LogLevel::kDebug:
        logger->debug(view);
        break;
      case LogLevel::kInfo:
        logger->info(view);
        break;
      case LogLevel::kWarning:
        logger->warn(view);
        break;
      case LogLevel::kError:
        logger->error(view);
        break;
    }
  };
}

}  // namespace attnjit
