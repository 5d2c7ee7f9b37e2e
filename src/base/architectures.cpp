// SPDX-License-Identifier: Apache-2.0
// The rows of the table of architectures.
#include "base/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/in_order.h"

namespace attnjit {
namespace {

constexpr std::array kArchitectures{ArchTraits{Arch::kSm90a, "sm_90a", 90, 12090, 132},
                                    ArchTraits{Arch::kSm100a, "sm_100a", 100, 12090, 148},
                                    ArchTraits{Arch::kSm103a, "sm_103a", 103, 12090, 152}};

static_assert(in_order(kArchitectures, &ArchTraits::arch), "kArchitectures is indexed by Arch");

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The compute capability that a name tells in any of the ways in which it is written: sm_90a,
/// SM90, compute_90, 90a, 9.0. 0: none.
int capability_of(std::string_view name) {
  std::string text;
  for (const char c : name) text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view rest = text;
  for (const std::string_view prefix : {"compute", "sm", "_", "-", " "}) {
    if (rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
  }
  if (rest.ends_with('a') || rest.ends_with('f')) rest.remove_suffix(1);
  std::string digits(rest);
  if (const std::size_t dot = digits.find('.'); dot != std::string::npos) digits.erase(dot, 1);
  if (digits.size() < 2 || digits.size() > 3 ||
      !std::all_of(digits.begin(), digits.end(), is_digit))
    return 0;
  int capability = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), capability);
  return capability;
}

}  // namespace

std::string why_not_served(int capability) {
  // NOTE: sm_101 and sm_110, of Jetson Thor, have tcgen05, but no kernels here.
  const bool neither = capability < 90 || (capability >= 120 && capability < 130);
  return neither ? fmt::format("sm_{} has neither wgmma nor tcgen05: not served", capability)
                 : fmt::format("sm_{} is not served", capability);
}

std::string architecture_hint(std::string_view name) {
  const int capability = capability_of(name);
  if (capability == 0) return {};
  for (const ArchTraits& traits : kArchitectures) {
    if (traits.sm == capability) return fmt::format("did you mean `{}`?", traits.name);
  }
  return why_not_served(capability);
}

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
