// SPDX-License-Identifier: Apache-2.0
// The tuning tables that travel inside the library.
#pragma once

#include <string_view>

namespace attnjit {

/// The JSON text of src/plan/tables/modelled.json: what the clock's models chose.
std::string_view modelled_table();

}  // namespace attnjit
