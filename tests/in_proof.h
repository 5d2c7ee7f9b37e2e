// SPDX-License-Identifier: Apache-2.0
// What tells a proof from a usual run, which takes some of a test's cases, for each costs a compile
// or much of the time. Thread rules: pure functions over the environment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "attnjit/types.h"

namespace attnjit::proof {

/// Orders of execution that each launch is tried in: 1, and more in the proofs, which set
/// ATTNJIT_TEST_SEEDS. A long proof is shared out with ATTNJIT_TEST_FIRST_SEED.
inline std::uint64_t seeds() {
  const char* const text = std::getenv("ATTNJIT_TEST_SEEDS");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

/// Whether this run is a proof, which takes every case.
inline bool in_proof() { return seeds() > 1; }

/// The first `count` of a list of cases, and all of them in a proof.
template <typename T>
std::vector<T> some_of(std::vector<T> cases, std::size_t count = 1) {
  if (!in_proof() && cases.size() > count) cases.erase(cases.begin() + count, cases.end());
  return cases;
}

/// The same of a list that the families share: those of Blackwell begin with its last case.
template <typename T>
std::vector<T> some_of(Arch arch, std::vector<T> cases, std::size_t count = 1) {
  if (arch != Arch::kSm90a) std::reverse(cases.begin(), cases.end());
  return some_of(std::move(cases), count);
}

}  // namespace attnjit::proof
