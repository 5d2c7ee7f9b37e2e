// SPDX-License-Identifier: Apache-2.0
// Looks up the defaults of configuration classes.
#include "models/class_defaults.h"

#include <utility>

namespace attnjit::models {
namespace {

using spec::JsonValue;

/// NOTE: read once a process, and by `attnjit manifest` alone. The text is part of the program.
const JsonValue& document() {
  static const JsonValue whole = *spec::parse_json(class_defaults_text());
  return whole;
}

}  // namespace

ClassDefaults class_defaults(std::string_view model_type) {
  const JsonValue* const found = document().find("classes")->find(model_type);
  if (found == nullptr) return {};
  return {found->find("fields"), found->find("required"), found->find("names"),
          found->find("divides")};
}

std::string_view language_part(std::string_view model_type) {
  const JsonValue* const found = document().find("parts")->find(model_type);
  return found == nullptr ? std::string_view() : std::string_view(found->text);
}

}  // namespace attnjit::models
