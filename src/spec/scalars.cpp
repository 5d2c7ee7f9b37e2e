// SPDX-License-Identifier: Apache-2.0
// The numbers of a spec's masks and score modification, as kernels and launches name them.
#include "spec/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <type_traits>

#include "spec/interpreted_code.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

/// "window_right" -> "kWindowRight".
std::string constant_name(std::string_view name) {
  std::string camel = "k";
  bool begins_word = true;
  for (const char c : name) {
    if (c == '_') {
      begins_word = true;
      continue;
    }
    camel += begins_word && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    begins_word = false;
  }
  return camel;
}

template <class Node>
void add_flags(std::vector<ScalarFlag>& flags) {
  for (const KindRow<Node>& row : kinds<Node>()) {
    for (const KindScalar<Node>& scalar : row.scalars) {
      const bool known = std::any_of(flags.begin(), flags.end(), [&](const ScalarFlag& flag) {
        return flag.traits.name == scalar.name;
      });
      // What may be absent is not left to the launch.
      if (!known && !scalar.may_be_absent()) flags.push_back({scalar, scalar.is_integer()});
    }
  }
}

}  // namespace

std::vector<SpecScalar> spec_scalars(const AttentionSpec& spec) {
  std::vector<SpecScalar> found;
  std::map<std::string_view, int> seen;
  const bool in_code = interprets_mask(spec);
  visit_scalars(spec, [&](const auto& scalar, const auto& node) {
    const int position = seen[scalar.name]++;
    const std::string suffix = position == 0 ? "" : fmt::format("_{}", position);
    constexpr bool kIsMask = std::is_same_v<std::decay_t<decltype(node)>, MaskSpec>;
    found.push_back({std::string(scalar.name) + suffix, constant_name(scalar.name) + suffix, scalar,
                     scalar.is_integer(), node.constant && !spec.interpreted, node.constant,
                     kIsMask && in_code, scalar.get(node)});
  });
  return found;
}

Result<double> launch_number(const SpecScalar& scalar, std::span<const double> given,
                             std::size_t index) {
  const bool looked_at = !scalar.fixed && index < given.size() && given[index] != 0;
  const double value = looked_at ? given[index] : scalar.value;
  if (is_allowed(scalar.traits, scalar.is_integer, value)) return value;
  return invalid(scalar.name, "{} is {}; allowed at launch: {}", scalar.name, value,
                 allowed(scalar.traits, scalar.is_integer));
}

const std::vector<ScalarFlag>& scalar_flags() {
  static const std::vector<ScalarFlag> flags = [] {
    std::vector<ScalarFlag> all;
    add_flags<MaskSpec>(all);
    add_flags<ScoreModSpec>(all);
    return all;
  }();
  return flags;
}

}  // namespace attnjit::spec
