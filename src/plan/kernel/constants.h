// SPDX-License-Identifier: Apache-2.0
// Constants: collects the members of a kernel's struct Config, each written as C++ takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/plan.h"
#include "plan/kernel/fields.h"
#include "plan/kernel/memory_layout.h"
#include "spec/spec_facts.h"

namespace attnjit {

class Constants {
 public:
  void add(std::string name, FieldValue value);
  /// What every attention kernel knows of its spec, and the numbers of masks and score
  /// modification that are compiled in.
  void add_spec(const ResolvedSpec& resolved);
  /// The fields of a table that have constants.
  template <class Plan, std::size_t kSize>
  void add_fields(const Field<Plan> (&fields)[kSize], const Plan& plan) {
    for (const Field<Plan>& field : fields) {
      if (field.constant != nullptr) add(field.constant, field.value(plan));
    }
  }
  /// The ranks of the first of each group of barriers, or of these groups, -1 where there is none;
  /// kBarriers, and kArrivals: of each barrier those that complete a phase.
  void add_barriers(const BarrierList& barriers, std::span<const char* const> groups = {});
  std::vector<ConfigConstant> take() && { return std::move(list_); }

 private:
  std::vector<ConfigConstant> list_;
};

}  // namespace attnjit
