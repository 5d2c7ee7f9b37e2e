// SPDX-License-Identifier: Apache-2.0
// The rows of the table of architectures.
#include "base/architectures.h"

#include <array>

namespace attnjit {
namespace {

constexpr std::array kArchitectures{ArchTraits{Arch::kSm90a, "sm_90a", 90, 12000, 132},
                                    ArchTraits{Arch::kSm100a, "sm_100a", 100, 12080, 148},
                                    ArchTraits{Arch::kSm103a, "sm_103a", 103, 12090, 152}};

constexpr bool architectures_in_order() {
  for (std::size_t i = 0; i < kArchitectures.size(); ++i) {
    if (static_cast<std::size_t>(kArchitectures[i].arch) != i) return false;
  }
  return true;
}
static_assert(architectures_in_order(), "kArchitectures is indexed by Arch");

}  // namespace

std::span<const ArchTraits> architectures() { return kArchitectures; }

const ArchTraits& traits_of(Arch arch) { return kArchitectures[static_cast<std::size_t>(arch)]; }

std::string architecture_names() {
  std::string names;
  for (const ArchTraits& traits : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += traits.name;
  }
  return names;
}

std::string_view to_string(Arch arch) { return traits_of(arch).name; }

std::optional<Arch> arch_from_string(std::string_view name) {
  for (const ArchTraits& traits : kArchitectures) {
    if (traits.name == name) return traits.arch;
  }
  return std::nullopt;
}

}  // namespace attnjit
