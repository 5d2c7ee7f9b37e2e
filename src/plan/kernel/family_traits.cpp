// SPDX-License-Identifier: Apache-2.0
// Says which family serves a spec, and what each can do.
#include "plan/kernel/family_traits.h"

namespace attnjit {

FamilyId family_id(const SpecFacts& spec) {
  if (spec.merge) return FamilyId::kMerge;
  const bool mla = spec.mla == Mla::kDecode || spec.head_dim_above_256;
  switch (spec.arch) {
    case Arch::kSm90a:
      return mla ? FamilyId::kSm90Mla : FamilyId::kSm90;
    case Arch::kSm100a:
    case Arch::kSm103a:
      break;
  }
  return mla ? FamilyId::kSm100Mla : FamilyId::kSm100;
}

FamilyTraits family_traits(const SpecFacts& spec) {
  switch (family_id(spec)) {
    case FamilyId::kSm90:
      return {.cuts_ragged = true, .maps = true};
    case FamilyId::kSm100:
      return {.cuts_ragged = true, .maps = true, .lists = true};
    case FamilyId::kSm90Mla:
    case FamilyId::kSm100Mla:
      return {};
    case FamilyId::kMerge:
      break;
  }
  return {.splits = false};
}

}  // namespace attnjit
