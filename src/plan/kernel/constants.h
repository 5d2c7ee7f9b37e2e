// SPDX-License-Identifier: Apache-2.0
// Constants: collects the members of a kernel's struct Config, each written as C++ takes it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

class Constants {
 public:
  void add(std::string name, std::int64_t value);
  void add_bool(std::string name, bool value);
  void add_float(std::string name, double value);
  /// kBarriers, and kArrivals: of each barrier those that complete a phase.
  template <class Barrier>
  void add_barriers(const std::vector<Barrier>& barriers) {
    std::vector<int> arrivals;
    arrivals.reserve(barriers.size());
    for (const Barrier& barrier : barriers) arrivals.push_back(barrier.arrivals);
    add_arrivals(arrivals);
  }
  /// Those of masks and score modification that are compiled in.
  void add_users(const SpecFacts& spec);

  std::vector<ConfigConstant> take() && { return std::move(list_); }

 private:
  void add_arrivals(const std::vector<int>& arrivals);

  std::vector<ConfigConstant> list_;
};

}  // namespace attnjit
