// SPDX-License-Identifier: Apache-2.0
// The names of an sm_100 plan's parts in texts and in JSON.
#include <array>
#include <cstddef>
#include <string_view>

#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

template <class Enum, std::size_t kSize>
std::string_view name_in(const std::array<std::string_view, kSize>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

}  // namespace

std::string_view to_string(Sm100Role::Id id) {
  static constexpr std::array<std::string_view, 9> kNames{
      "softmax", "softmax 0", "softmax 1", "correction", "mma", "load", "store", "spare", "upcast"};
  return name_in(kNames, id);
}

std::string_view to_string(Sm100Region region) {
  static constexpr std::array<std::string_view, 11> kNames{
      "Q",          "KV ring",    "K ring",       "V ring", "K rope",  "O",
      "key scales", "correction", "tmem address", "work",   "barriers"};
  return name_in(kNames, region);
}

std::string_view to_string(Sm100TmemRegion region) {
  static constexpr std::array<std::string_view, 6> kNames{"S0", "S1", "O0", "O1", "O", "Q"};
  return name_in(kNames, region);
}

std::string_view to_string(MapAxis axis) {
  static constexpr std::array<std::string_view, 8> kNames{"depth", "group",    "head", "kv_head",
                                                          "row",   "page_row", "page", "batch"};
  return name_in(kNames, axis);
}

}  // namespace attnjit
