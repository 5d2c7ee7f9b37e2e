// SPDX-License-Identifier: Apache-2.0
// in_order: whether a table has a row for each value of an enumeration, in the order of these.
#pragma once

#include <cstddef>
#include <functional>

namespace attnjit {

/// Whether `key` of the rows is `first`, and one more for each row after it.
template <class Rows, class Key>
constexpr bool in_order(const Rows& rows, Key key, std::size_t first = 0) {
  for (const auto& row : rows) {
    if (static_cast<std::size_t>(std::invoke(key, row)) != first++) return false;
  }
  return true;
}

}  // namespace attnjit
