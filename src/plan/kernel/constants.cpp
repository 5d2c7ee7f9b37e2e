// SPDX-License-Identifier: Apache-2.0
// The members of a kernel's struct Config as C++ literals.
#include "plan/kernel/constants.h"

#include <fmt/format.h>

#include "spec/scalars.h"

namespace attnjit {

void Constants::add(std::string name, std::int64_t value) {
  list_.push_back({"int", std::move(name), std::to_string(value)});
}

void Constants::add_bool(std::string name, bool value) {
  list_.push_back({"bool", std::move(name), value ? "true" : "false"});
}

void Constants::add_float(std::string name, double value) {
  // Hexadecimal: the same float whatever the locale and the reader's rounding.
  list_.push_back({"float", std::move(name), fmt::format("{:a}f", static_cast<float>(value))});
}

void Constants::add_arrivals(const std::vector<int>& arrivals) {
  add("kBarriers", static_cast<std::int64_t>(arrivals.size()));
  list_.push_back({"int", fmt::format("kArrivals[{}]", arrivals.size()),
                   fmt::format("{{{}}}", fmt::join(arrivals, ", "))});
}

void Constants::add_users(const SpecFacts& spec) {
  for (const spec::SpecScalar& scalar : spec::spec_scalars(spec)) {
    if (!scalar.constant || scalar.in_code) continue;
    if (scalar.is_integer) {
      add(scalar.constant_name,
          static_cast<std::int64_t>(spec::kernel_value(scalar.traits, scalar.value)));
    } else {
      add_float(scalar.constant_name, scalar.value);
    }
  }
}

}  // namespace attnjit
