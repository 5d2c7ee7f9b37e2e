// SPDX-License-Identifier: Apache-2.0
// Prints spans as Chrome's trace events.
#include "clock/trace.h"

#include <fmt/format.h>

#include <algorithm>
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
    std::vector<const Span*> spans;
    for (const Span& span : traced.launch->slowest.spans) spans.push_back(&span);
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span* a, const Span* b) { return a->begin < b->begin; });
    for (const Span* span : spans) add_span(traced, *span);
    // What this launch's CTAs and units are called is not the next one's.
    processes_.clear();
    units_.clear();
    unit_rows_ = 0;
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
  struct Row {
    int number = 0;
    double end = 0;  ///< of the last span
  };

  /// A unit's row that is free when the span begins: copies are under way together, and Perfetto
  /// drops spans of a row that overlap.
  int unit_row(const Span& s, std::size_t process) {
    std::vector<Row>& rows = units_[{s.cta, s.unit}];
    auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.end <= s.begin; });
    if (row == rows.end()) {
      rows.push_back({kUnitRows + unit_rows_++});
      row = rows.end() - 1;
      name("thread_name", process, row->number,
           rows.size() == 1 ? s.unit : fmt::format("{} {}", s.unit, rows.size()));
    }
    row->end = s.end;
    return row->number;
  }
  int warp_row(const TracedLaunch& traced, const Span& s, std::size_t process) {
    if (named_.insert({s.cta, s.warp}).second) {
      const std::vector<std::string>& roles = traced.names.roles;
      const auto warp = static_cast<std::size_t>(s.warp);
      const bool known = warp < roles.size() && !roles[warp].empty();
      const std::string role = known ? ", " + roles[warp] : "";
      name("thread_name", process, s.warp, fmt::format("warp {}{}", s.warp, role));
    }
    return s.warp;
  }
  static std::string what_of(const TracedLaunch& traced, const Span& s, bool known) {
    if (s.warp < 0) return std::string(known ? traced.program->sites[s.site].text : "?");
    const auto barrier = traced.names.mbarriers.find(s.barrier);
    if (s.cause == Cause::kMbarrier && barrier != traced.names.mbarriers.end())
      return "waits: " + barrier->second;
    return fmt::format("waits: {} 0x{:x}", to_string(s.cause), s.barrier);
  }

  void add_span(const TracedLaunch& traced, const Span& s) {
    const LaunchTime& launch = *traced.launch;
    const auto& sites = traced.program->sites;
    const std::size_t process = process_of(launch, s.cta);
    const int row = s.warp >= 0 ? warp_row(traced, s, process) : unit_row(s, process);
    const bool known = s.site < sites.size();
    event(fmt::format(
        "{{\"ph\": \"X\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {:.4f}, \"dur\": "
        "{:.4f}, \"args\": {{\"ptx_line\": {}, \"cycle\": {:.0f}}}}}",
        what_of(traced, s, known), process, row, traced.begin_us + s.begin / launch.mhz,
        (s.end - s.begin) / launch.mhz, known ? sites[s.site].line : 0, s.begin));
  }

  std::string text_ = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  const char* separator_ = "";
  std::size_t count_ = 0;  ///< of processes
  std::map<std::uint32_t, std::size_t> processes_;
  std::map<std::pair<std::uint32_t, std::string>, std::vector<Row>> units_;  ///< of a CTA
  int unit_rows_ = 0;
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
