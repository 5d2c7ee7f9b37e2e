// SPDX-License-Identifier: Apache-2.0
// Records where a kernel's plan leaves its reference configuration.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

/// Adds a deviation where the two values differ.
template <class T>
void deviate(std::vector<Deviation>& deviations, const char* name, const T& reference,
             const T& actual, const std::string& reason) {
  if (reference == actual) return;
  deviations.push_back({name, fmt::format("{}", reference), fmt::format("{}", actual), reason});
}

}  // namespace attnjit
