// SPDX-License-Identifier: Apache-2.0
// The variants of a kernel that a tuning table could choose: every legal combination of the plan's
// knobs, each kernel once.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "attnjit/plan.h"
#include "attnjit/result.h"
#include "attnjit/tuning.h"

namespace attnjit::tune {

struct Variant {
  TuningValues choose;  ///< a value for every knob
  KernelPlan plan;
  std::size_t turned = 0;  ///< knobs of which it has another value than the untuned plan
};

struct Variants {
  std::vector<Variant> list;   ///< the untuned plan first, then by the number of knobs turned
  std::size_t illegal = 0;     ///< combinations that the plan refuses
  std::size_t duplicates = 0;  ///< combinations that give a kernel that another one gives
  std::size_t left_out = 0;    ///< legal ones beyond `most`
};

/// Of these most are tried, where nobody says how many.
inline constexpr std::size_t kMaxVariants = 256;

/// A table whose one row makes these choices for every spec.
Tuning table_of(TuningValues choose);

/// Errors: those of plan(); kUnsupported with the plan's reason; kInternal if the untuned plan
/// cannot be written as a row.
Result<Variants> enumerate_variants(const AttentionSpec& spec, const PlanOptions& options,
                                    std::size_t most);

}  // namespace attnjit::tune
