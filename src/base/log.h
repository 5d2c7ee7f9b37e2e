// SPDX-License-Identifier: Apache-2.0
// Logger: where a Service's messages go. A value that is passed down; there is no global one.
//
// Thread rules: a Logger may be used from any thread if its sink may.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "attnjit/log.h"

namespace attnjit {

class Logger {
 public:
  Logger() = default;
  explicit Logger(LogSink sink) : sink_(std::move(sink)) {}

  void debug(std::string_view text) const { write(LogLevel::kDebug, text); }
  void info(std::string_view text) const { write(LogLevel::kInfo, text); }
  void warning(std::string_view text) const { write(LogLevel::kWarning, text); }
  void error(std::string_view text) const { write(LogLevel::kError, text); }

 private:
  void write(LogLevel level, std::string_view text) const {
    if (sink_) sink_(level, text);
  }
  LogSink sink_;
};

/// A sink that writes to standard error through spdlog, from a level on that ATTNJIT_LOG_LEVEL
/// names. Where that is no level, it says so, and writes warnings.
LogSink make_stderr_sink(std::string_view level);

}  // namespace attnjit
