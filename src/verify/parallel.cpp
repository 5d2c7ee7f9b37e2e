// SPDX-License-Identifier: Apache-2.0
// Runs the iterations of a loop on all cores.
#include "verify/parallel.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace attnjit::verify {

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body) {
  if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::int64_t workers = std::min<std::int64_t>(threads, count);
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> pool;
  for (std::int64_t i = 1; i < workers; ++i) {
    try {
      pool.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // fewer threads than wished for do the same work
    }
  }
  work();
  for (std::thread& thread : pool) thread.join();
}

}  // namespace attnjit::verify
