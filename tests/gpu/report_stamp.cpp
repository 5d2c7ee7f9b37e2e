// SPDX-License-Identifier: Apache-2.0
// Names the machine and the day for a recorded proof.
#include "report_stamp.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>

namespace attnjit {

std::string machine() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

}  // namespace attnjit
