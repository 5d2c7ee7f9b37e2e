// SPDX-License-Identifier: Apache-2.0
// What the configuration classes of transformers have by default.
//
// Thread rules: pure functions.
#pragma once

#include <string_view>

#include "spec/json_value.h"

namespace attnjit::models {

/// The JSON text of src/models/class_defaults.json, which scripts/config-defaults writes.
std::string_view class_defaults_text();

/// One class: what fields are if they are not given, which may not be null, and their other names.
struct ClassDefaults {
  const spec::JsonValue* fields = nullptr;
  const spec::JsonValue* required = nullptr;
  const spec::JsonValue* names = nullptr;
  const spec::JsonValue* divides = nullptr;  ///< a flag: the heads must divide hidden_size
};

/// Of the class of a model_type; empty where transformers has none.
ClassDefaults class_defaults(std::string_view model_type);

/// The model_type of the language model in a model of several parts; empty where it is no such.
std::string_view language_part(std::string_view model_type);

}  // namespace attnjit::models
