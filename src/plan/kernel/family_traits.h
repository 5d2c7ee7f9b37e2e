// SPDX-License-Identifier: Apache-2.0
// The kernel families, which of them serves a spec, and what the rest of planning asks of one.
#pragma once

#include <cstdint>

#include "spec/spec_facts.h"

namespace attnjit {

/// A family is a folder of src/plan with its plan, its knobs and its launch.
enum class FamilyId : std::uint8_t { kSm90, kSm90Mla, kSm100, kSm100Mla, kMerge };

struct FamilyTraits {
  bool splits = true;  ///< launches may split the keys
  /// Launches that choose by themselves cut the long tiles of a ragged batch. Others leave all
  /// whole: a launch knows the longest sequence alone, and parts of all cost more than they gain.
  bool cuts_ragged = false;
  bool maps = false;   ///< the main kernel can walk a map of the mask
  bool lists = false;  ///< it does so by lists of its work tiles' own
};

/// The family of a spec's kernel: a merge has its own; otherwise it is the architecture's, of which
/// absorbed MLA has one apart, which serves head_dim above 256, too.
FamilyId family_id(const SpecFacts& spec);
FamilyTraits family_traits(const SpecFacts& spec);

}  // namespace attnjit
