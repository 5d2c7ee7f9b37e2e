// SPDX-License-Identifier: Apache-2.0
// The facts that choices of the sm_90a kernel depend on, as a set, and tables of rows that choose
// by it: what a row asks for and what it excludes is data, and the first row that fits decides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "plan/sm90/sm90_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

using Sm90Traits = std::uint64_t;

enum Sm90Trait : Sm90Traits {
  // Of the spec. Columns of Q and K, at most; and of V.
  kTo64 = 1ULL << 0,
  kTo96 = 1ULL << 1,
  kTo128 = 1ULL << 2,
  kTo192 = 1ULL << 3,
  kAt256 = 1ULL << 4,
  kVTo128 = 1ULL << 5,
  kVBelow256 = 1ULL << 6,
  kE4m3 = 1ULL << 7,  ///< Q, K and V
  kDecode = 1ULL << 8,
  kPaged = 1ULL << 9,
  kLse = 1ULL << 11,
  kODtypeDiffers = 1ULL << 12,  ///< O has another type than Q
  // Its mask: none; causal; either; some. What hides more than causal does.
  kNoMask = 1ULL << 13,
  kCausal = 1ULL << 14,
  kSimple = 1ULL << 15,
  kWindowed = 1ULL << 16,
  kSliding = 1ULL << 17,
  kChunked = 1ULL << 18,
  kBools = 1ULL << 19,    ///< a tensor, of which nothing is added to scores
  kNumbers = 1ULL << 20,  ///< a tensor that is added to scores
  kAdds = 1ULL << 50,     ///< the same, also where the mask is interpreted
  kSmallWindow = 1ULL << 21,
  kMuchWhole = 1ULL << 22,  ///< LongSequence::much_whole
  kRising = 1ULL << 49,     ///< LongSequence::rising
  kBlocks = 1ULL << 23,     ///< custom code looks up blocks of rows that see keys of their own
  kIdentity = 1ULL << 24,   ///< no score modification
  kSoftcap = 1ULL << 25,
  kNeedsFewRegisters = 1ULL << 26,  ///< mask and score modification need few registers of their own
  kCapped = 1ULL << 27,  ///< a softcap of few registers, which leaves three consumers enough
  kUpcast = 1ULL << 28,
  kKeyScales = 1ULL << 29,
  kBlockSparse = 1ULL << 30,
  kBlockMask = 1ULL << 31,
  kBlockMaskBits = 1ULL << 32,
  kKvLens = 1ULL << 33,
  kRowCopies = 1ULL << 34,
  // Of the plan, as it stands.
  kSplit = 1ULL << 35,
  kStreamK = 1ULL << 36,
  kCuts = 1ULL << 37,
  kFixedParts = 1ULL << 10,  ///< partition_keys
  kBoxes = 1ULL << 38,       ///< a KV tile comes in several boxes of TMA, or in none
  kUnits = 1ULL << 39,       ///< rows of a position do not divide a box: they are counted in units
  kHeadsApart = 1ULL << 40,  ///< the heads of a group have tiles of their own
  kOneConsumer = 1ULL << 41,
  kTwoConsumers = 1ULL << 42,
  kThreeConsumers = 1ULL << 43,
  kTwoCtas = 1ULL << 44,  ///< per SM
  kShortTile = 1ULL << 45,
  kSums = 1ULL << 46,  ///< the tensor cores sum P's rows
  kQInRegisters = 1ULL << 47,
  kRematerializesRows = 1ULL << 48,  ///< consumers find rows' places again
};

/// Facts that are had, and that are not.
struct Sm90Case {
  Sm90Traits all = 0;
  Sm90Traits none = 0;
  constexpr bool fits(Sm90Traits traits) const {
    return (traits & all) == all && (traits & none) == 0;
  }
};

template <class Choice>
struct Sm90Row {
  Sm90Case when;
  Choice choice;
};

/// Whether a case of a table fits.
template <std::size_t kSize>
bool sm90_any(const Sm90Case (&cases)[kSize], Sm90Traits traits) {
  return std::ranges::any_of(cases, [&](const Sm90Case& one) { return one.fits(traits); });
}

/// The choice of the first row that fits. @pre the last row fits always.
template <class Choice, std::size_t kSize>
const Choice& sm90_first(const Sm90Row<Choice> (&rows)[kSize], Sm90Traits traits) {
  return std::ranges::find_if(rows, [&](const auto& row) { return row.when.fits(traits); })->choice;
}

/// The facts of a spec; and with them those of its plan so far, which change with the plan.
Sm90Traits sm90_spec_traits(const ResolvedSpec& resolved);
Sm90Traits sm90_traits(const Sm90Plan& plan);

}  // namespace attnjit
