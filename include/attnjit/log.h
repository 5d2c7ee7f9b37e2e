// SPDX-License-Identifier: Apache-2.0
// LogSink: where attnjit's messages go; a value handed to whatever logs. There is no global logger.
//
// Thread rules: a sink may be called from any thread, several at once. It should not throw.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace attnjit {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };
using LogSink = std::function<void(LogLevel, std::string_view)>;

}  // namespace attnjit
