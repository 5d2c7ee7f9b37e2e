// SPDX-License-Identifier: Apache-2.0
// Prints spans as Chrome's trace events.
#include "clock/trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>

namespace attnjit::clock {

Status write_trace(const std::string& path, const LaunchTime& launch,
                   const emulator::Program& program) {
  const auto close = [](std::FILE* f) { static_cast<void>(std::fclose(f)); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "wb"), close);
  if (file == nullptr) return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  constexpr int kUnitRows = 1000;
  std::map<std::string, int> units;
  std::set<std::pair<std::uint32_t, int>> named;
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  const char* separator = "";
  for (const Span& s : launch.slowest.spans) {
    const int row =
        s.warp >= 0
            ? s.warp
            : units.emplace(s.unit, kUnitRows + static_cast<int>(units.size())).first->second;
    if (named.insert({s.cta, row}).second) {
      text += fmt::format(
          "{}{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": {}, \"tid\": {}, \"args\": "
          "{{\"name\": \"{}\"}}}}",
          separator, s.cta, row, s.warp >= 0 ? fmt::format("warp {}", s.warp) : s.unit);
      separator = ",\n";
    }
    const bool known = s.site < program.sites.size();
    const std::string name = s.warp >= 0
                                 ? fmt::format("waits: {} 0x{:x}", to_string(s.cause), s.barrier)
                                 : std::string(known ? program.sites[s.site].text : "?");
    text += fmt::format(
        "{}{{\"ph\": \"X\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {:.4f}, \"dur\": "
        "{:.4f}, \"args\": {{\"ptx_line\": {}, \"cycle\": {:.0f}}}}}",
        separator, name, s.cta, row, s.begin / launch.mhz, (s.end - s.begin) / launch.mhz,
        known ? program.sites[s.site].line : 0, s.begin);
    separator = ",\n";
  }
  text += "\n]}\n";
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  }
  return {};
}

}  // namespace attnjit::clock
