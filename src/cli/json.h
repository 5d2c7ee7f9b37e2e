// SPDX-License-Identifier: Apache-2.0
// JSON of the command line: how values and errors are printed. For .cpp files of this folder only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attnjit/cache.h"
#include "attnjit/result.h"

namespace attnjit::cli {

using Json = nlohmann::ordered_json;

/// Text of an object, ended by a newline. Bytes that are no UTF-8 are replaced, numbers that JSON
/// lacks (NaN, infinity) are null.
inline std::string to_text(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// {"code", "message", "field", "line", "column", "hint", "others"}, empty members left out.
Json error_json(const Error& error);

/// An array of {"path", "problem", "quarantined"}.
Json findings_json(const std::vector<CacheFinding>& findings);

}  // namespace attnjit::cli
