// SPDX-License-Identifier: Apache-2.0
// Prints spans as Chrome's trace events.
#include "clock/trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace attnjit::clock {
namespace {

/// The events, one after the other.
class TraceText {
 public:
  void add(const TracedLaunch& traced) {
    for (const Span& span : traced.launch->slowest.spans) add_span(traced, span);
    // What this launch's CTAs and units are called is not the next one's.
    processes_.clear();
    units_.clear();
    named_.clear();
  }
  std::string finish() { return std::move(text_) + "\n]}\n"; }

 private:
  static constexpr int kUnitRows = 1000;

  void event(const std::string& fields) {
    text_ += separator_;
    text_ += fields;
    separator_ = ",\n";
  }
  void name(const char* what, std::size_t process, int row, const std::string& name) {
    event(fmt::format(
        "{{\"ph\": \"M\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"args\": {{\"name\": "
        "\"{}\"}}}}",
        what, process, row, name));
  }
  std::size_t process_of(const LaunchTime& launch, std::uint32_t cta) {
    const auto [it, is_new] = processes_.emplace(cta, count_);
    if (is_new) name("process_name", count_++, 0, fmt::format("{}, CTA {}", launch.entry, cta));
    return it->second;
  }
  int row_of(const Span& s) {
    if (s.warp >= 0) return s.warp;
    return units_.emplace(s.unit, kUnitRows + static_cast<int>(units_.size())).first->second;
  }

  void add_span(const TracedLaunch& traced, const Span& s) {
    const LaunchTime& launch = *traced.launch;
    const auto& sites = traced.program->sites;
    const std::size_t process = process_of(launch, s.cta);
    const int row = row_of(s);
    if (named_.insert({s.cta, row}).second)
      name("thread_name", process, row, s.warp >= 0 ? fmt::format("warp {}", s.warp) : s.unit);
    const bool known = s.site < sites.size();
    const std::string what = s.warp >= 0
                                 ? fmt::format("waits: {} 0x{:x}", to_string(s.cause), s.barrier)
                                 : std::string(known ? sites[s.site].text : "?");
    event(fmt::format(
        "{{\"ph\": \"X\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {:.4f}, \"dur\": "
        "{:.4f}, \"args\": {{\"ptx_line\": {}, \"cycle\": {:.0f}}}}}",
        what, process, row, traced.begin_us + s.begin / launch.mhz, (s.end - s.begin) / launch.mhz,
        known ? sites[s.site].line : 0, s.begin));
  }

  std::string text_ = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  const char* separator_ = "";
  std::size_t count_ = 0;  ///< of processes
  std::map<std::uint32_t, std::size_t> processes_;
  std::map<std::string, int> units_;
  std::set<std::pair<std::uint32_t, int>> named_;
};

}  // namespace

Status write_trace(const std::string& path, const std::vector<TracedLaunch>& launches) {
  const auto close = [](std::FILE* f) { static_cast<void>(std::fclose(f)); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "wb"), close);
  if (file == nullptr) return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  TraceText trace;
  for (const TracedLaunch& launch : launches) trace.add(launch);
  const std::string text = trace.finish();
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    return make_error(ErrorCode::kIo, "the trace cannot be written", path);
  }
  return {};
}

}  // namespace attnjit::clock
