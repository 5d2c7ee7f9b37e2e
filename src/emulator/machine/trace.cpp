// SPDX-License-Identifier: Apache-2.0
// Writes a run's trace in Chrome's trace event format (a JSON array of complete events, "ph": "X").
#include "emulator/machine/trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "emulator/decode/program.h"

namespace attnjit::emulator {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 32) out += c;
  }
  return out;
}

}  // namespace

Status write_trace(const std::string& path, const std::vector<TraceEvent>& events,
                   const Program& program) {
  const auto close = [](std::FILE* f) { (void)std::fclose(f); };
  std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "wb"), close);
  if (file == nullptr) return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  // Units get row numbers past the warps'.
  std::map<std::string, int> units;
  std::set<std::pair<u32, int>> rows;
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  bool first = true;
  const auto flush = [&] {
    const bool ok = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
    text.clear();
    return ok;
  };
  for (const TraceEvent& e : events) {
    int row = e.warp;
    if (row < 0) row = units.emplace(e.unit, 1000 + static_cast<int>(units.size())).first->second;
    if (rows.insert({e.cta, row}).second) {
      text += fmt::format(
          "{}{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": {}, \"tid\": {}, \"args\": "
          "{{\"name\": \"{}\"}}}}",
          first ? "" : ",\n", e.cta, row,
          e.warp >= 0 ? fmt::format("warp {}", e.warp) : escaped(e.unit));
      first = false;
    }
    const Site* site = e.site < program.sites.size() ? &program.sites[e.site] : nullptr;
    if (e.kind != TraceEvent::Kind::kRun) {
      const bool wait = e.kind == TraceEvent::Kind::kWait;
      text += fmt::format(
          "{}{{\"ph\": \"{}\", \"cat\": \"{}\", \"name\": \"{} 0x{:x} phase {}\", \"pid\": {}, "
          "\"tid\": {}, "
          "\"ts\": {}, {}, \"args\": {{\"barrier\": {}, \"phase\": {}, \"issued\": {}, "
          "\"ptx_line\": {}}}}}",
          first ? "" : ",\n", wait ? "X" : "i", wait ? "wait" : "arrival", wait ? "wait" : "arrive",
          e.barrier, e.phase, e.cta, row, e.begin,
          wait ? fmt::format("\"dur\": {}", e.length) : std::string("\"s\": \"t\""), e.barrier,
          e.phase, wait ? e.begin : e.issued, site != nullptr ? site->line : 0);
      first = false;
      continue;
    }
    text += fmt::format(
        "{}{{\"ph\": \"X\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {}, \"dur\": {}, "
        "\"args\": {{\"ptx_line\": {}, \"source_line\": {}}}}}",
        first ? "" : ",\n", site != nullptr ? escaped(site->text) : "?", e.cta, row, e.begin,
        e.length, site != nullptr ? site->line : 0, site != nullptr ? site->source.line : 0);
    first = false;
    if (text.size() > (1u << 16) && !flush())
      return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  }
  text += "\n]}\n";
  if (!flush() || std::fflush(file.get()) != 0)
    return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  return {};
}

}  // namespace attnjit::emulator
