// SPDX-License-Identifier: Apache-2.0
// Prints errors and findings as JSON.
#include "cli/json.h"

namespace attnjit::cli {

Json error_json(const Error& error) {
  Json json;
  json["code"] = std::string(to_string(error.code));
  json["message"] = error.message;
  if (!error.field.empty()) json["field"] = error.field;
  if (error.line > 0) json["line"] = error.line;
  if (error.column > 0) json["column"] = error.column;
  if (!error.hint.empty()) json["hint"] = error.hint;
  for (const Error& other : error.others) json["others"].push_back(error_json(other));
  return json;
}

Json findings_json(const std::vector<CacheFinding>& findings) {
  Json json = Json::array();
  for (const CacheFinding& finding : findings) {
    json.push_back({{"path", finding.path},
                    {"problem", finding.problem},
                    {"quarantined", finding.quarantined}});
  }
  return json;
}

}  // namespace attnjit::cli
