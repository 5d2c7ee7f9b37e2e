// SPDX-License-Identifier: Apache-2.0
// What the proof of the sm_100a kernel runs: attentions with their shapes, by name and at random.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/spec.h"

namespace attnjit::sm100 {

/// Lengths are the longest sequence's: where a spec is ragged or paged the others are shorter, some
/// empty (run_case.h, problem_of).
struct ProofShape {
  int batch = 1, q_len = 0, kv_len = 0;
  /// SMs that the launch is planned for: few of them make a CTA walk several tiles, many of them
  /// choose the body with one query tile.
  int sm_count = 2;
};

struct ProofCase {
  std::string name;  ///< unique
  AttentionSpec spec;
  PlanOptions options;
  ProofShape shape;
  bool persistent = false;  ///< by the knob: a CTA per SM walks the tiles, also of uneven work
};

/// At least 60 attentions that people would name, over everything that the template serves.
std::vector<ProofCase> named_cases();

/// A random attention that the template serves, with a shape: a function of seed and index alone.
ProofCase random_case(std::uint64_t seed, std::uint64_t index);

}  // namespace attnjit::sm100
