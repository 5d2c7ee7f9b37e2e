// SPDX-License-Identifier: Apache-2.0
// Reads the limits of control groups from the file system.
#include "base/machine_limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <thread>

namespace attnjit {
namespace {

/// The first two numbers of a file; a word that is none, as "max", is no limit.
struct Numbers {
  std::optional<std::int64_t> first, second;
};

Numbers numbers_of(const std::string& path) {
  Numbers numbers;
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) numbers.first = number;
  if (numbers.first && file >> number) numbers.second = number;
  return numbers;
}

void lessen_cores(MachineLimits& limits, std::optional<std::int64_t> quota,
                  std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  const std::int64_t cores = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  limits.cores = static_cast<int>(std::min<std::int64_t>(limits.cores, cores));
}

void lessen_memory(MachineLimits& limits, std::optional<std::int64_t> bytes) {
  if (bytes && *bytes > 0) limits.memory_bytes = std::min(limits.memory_bytes, *bytes);
}

/// Calls `read` with the folder of a group and those of its parents. Where a container sees its own
/// group as the mount, the path of /proc is not below it, and the mount itself is what counts.
template <class Read>
void each_group(const std::string& mount, std::string_view group, const Read& read) {
  for (;;) {
    while (group.ends_with('/')) group.remove_suffix(1);
    read(mount + std::string(group));
    if (group.empty()) return;
    group = group.substr(0, group.rfind('/'));
  }
}

bool names(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == controller) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

MachineLimits with_control_groups(MachineLimits machine, const std::string& root) {
  MachineLimits limits = machine;
  const std::string mounts = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:PATH
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const std::string& mount : {mounts, mounts + "/unified"}) {
        each_group(mount, group, [&](const std::string& folder) {
          const Numbers time = numbers_of(folder + "/cpu.max");
          lessen_cores(limits, time.first, time.second);
          lessen_memory(limits, numbers_of(folder + "/memory.max").first);
        });
      }
    }
    if (names(controllers, "cpu")) {
      for (const std::string_view hierarchy : {"cpu", controllers.c_str()}) {
        each_group(fmt::format("{}/{}", mounts, hierarchy), group, [&](const std::string& folder) {
          lessen_cores(limits, numbers_of(folder + "/cpu.cfs_quota_us").first,
                       numbers_of(folder + "/cpu.cfs_period_us").first);
        });
      }
    }
    if (names(controllers, "memory")) {
      each_group(mounts + "/memory", group, [&](const std::string& folder) {
        lessen_memory(limits, numbers_of(folder + "/memory.limit_in_bytes").first);
      });
    }
  }
  return limits;
}

MachineLimits machine_limits() {
  constexpr std::int64_t kUnknownMemory = std::int64_t{8} << 30;
  MachineLimits machine;
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  machine.memory_bytes = pages > 0 && page > 0 ? pages * page : kUnknownMemory;
  return with_control_groups(machine, "");
}

}  // namespace attnjit
