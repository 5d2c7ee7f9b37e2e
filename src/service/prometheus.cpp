// SPDX-License-Identifier: Apache-2.0
// Implements to_prometheus: a Service's counts for a /metrics endpoint.
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "attnjit/service.h"

namespace attnjit {
namespace {

class Text {
 public:
  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    add(fmt::format("{}_total", name), "counter", help, fmt::format("{}", value));
  }
  void seconds(std::string_view name, std::string_view help, double value) {
    add(fmt::format("{}_seconds_total", name), "counter", help, fmt::format("{:.6f}", value));
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value) {
    add(name, "gauge", help, fmt::format("{}", value));
  }
  std::string take() { return std::move(text_); }

 private:
  void add(std::string_view name, std::string_view type, std::string_view help,
           std::string_view value) {
    fmt::format_to(std::back_inserter(text_),
                   "# HELP attnjit_{0} {1}\n# TYPE attnjit_{0} {2}\nattnjit_{0} {3}\n", name, help,
                   type, value);
  }

  std::string text_;
};

}  // namespace

std::string to_prometheus(const ServiceStatistics& now) {
  Text text;
  text.counter("memory_hits", "Kernels that were loaded already.", now.memory_hits);
  text.counter("disk_hits", "Kernels found in the cache on disk.", now.disk_hits);
  text.counter("remote_hits", "Kernels found in the remote tier.", now.remote_hits);
  text.counter("compiles", "Compiles that ended, failures among them.", now.compiles);
  text.seconds("compile", "Time that compiles took.", now.compile_ms_total / 1000);
  text.counter("failures", "Requests that failed.", now.failures);
  text.counter("waits", "Requests that waited for another's compile.", now.waits);
  text.counter("fallbacks", "Requests that another kernel than the spec's own served.",
               now.fallbacks);
  text.counter("lease_waits", "Requests that waited for another machine's compile.",
               now.lease_waits);
  text.counter("alone", "Waits that ended in a compile of one's own.", now.alone);
  text.counter("quarantined", "Bad cache entries that were set aside.", now.quarantined);
  text.gauge("queued", "Background compiles that have not begun.", now.queued);
  const RemoteStatistics& remote = now.remote;
  text.counter("remote_lookups", "Look-ups in the remote tier.", remote.lookups);
  text.counter("remote_misses", "Look-ups there that found nothing.", remote.misses);
  text.counter("remote_rejected", "Answers that were not the entry asked for.", remote.rejected);
  text.counter("remote_overdue", "Requests that went on without an answer.", remote.overdue);
  text.counter("remote_errors", "Requests without a usable answer.", remote.errors);
  text.counter("remote_skipped", "Look-ups not made while the breaker was open.", remote.skipped);
  text.counter("remote_breaker_opened", "Times that the breaker opened.", remote.breaker_opened);
  text.counter("remote_puts", "Entries sent to the remote tier.", remote.puts);
  text.counter("remote_put_failures", "Entries that could not be sent.", remote.put_failures);
  text.counter("remote_put_dropped", "Entries that the queue had no room for.", remote.put_dropped);
  text.counter("remote_received_bytes", "Bytes from the remote tier.", remote.bytes_received);
  text.counter("remote_sent_bytes", "Bytes to the remote tier.", remote.bytes_sent);
  return text.take();
}

}  // namespace attnjit
