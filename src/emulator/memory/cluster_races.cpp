// SPDX-License-Identifier: Apache-2.0
// Overlaps of what clusters touched, by a sweep over the addresses.
#include "emulator/memory/cluster_races.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace attnjit::emulator {

void ClusterRaces::append(std::vector<Access>& list, const Access& access) {
  if (!list.empty()) {
    Access& last = list.back();
    // Reads are many and tell little: they are one whatever their site.
    if (last.end == access.begin && last.written == access.written &&
        last.atomic == access.atomic && (!access.written || last.site == access.site)) {
      last.end = access.end;
      return;
    }
  }
  list.push_back(access);
}

void ClusterRaces::add(u32 buffer, std::vector<Access> accesses) {
  auto& all = buffers_[buffer];
  all.insert(all.end(), accesses.begin(), accesses.end());
}

std::vector<ClusterRaces::Race> ClusterRaces::find() {
  std::vector<Race> races;
  std::set<std::pair<u32, u32>> told;
  for (auto& [buffer, all] : buffers_) {
    std::sort(all.begin(), all.end(), [](const Access& a, const Access& b) {
      return std::tie(a.begin, a.cluster, a.end) < std::tie(b.begin, b.cluster, b.end);
    });
    // The writes and the reads that reach farthest, of two clusters each: one of the two is another
    // cluster's than the access at hand.
    std::vector<Access> open[2];
    for (const Access& access : all) {
      for (const auto& earlier_of_kind : open) {
        for (const Access& earlier : earlier_of_kind) {
          if (earlier.cluster == access.cluster || earlier.end <= access.begin ||
              (!earlier.written && !access.written) || (earlier.atomic && access.atomic))
            continue;
          if (told.emplace(earlier.site, access.site).second)
            races.push_back({earlier, access, access.begin});
        }
      }
      auto& list = open[access.written ? 1 : 0];
      const auto own = std::find_if(list.begin(), list.end(),
                                    [&](const Access& a) { return a.cluster == access.cluster; });
      if (own != list.end()) {
        if (own->end < access.end) *own = access;
      } else {
        list.push_back(access);
        if (list.size() > 2) {
          list.erase(
              std::min_element(list.begin(), list.end(),
                               [](const Access& a, const Access& b) { return a.end < b.end; }));
        }
      }
    }
  }
  return races;
}

}  // namespace attnjit::emulator
