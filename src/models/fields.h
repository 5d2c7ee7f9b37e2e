// SPDX-License-Identifier: Apache-2.0
// Fields: reads a configuration's fields, those that it leaves out from its class, and remembers
// which were read.
//
// Thread rules: one thread per object.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "models/class_defaults.h"
#include "spec/json_value.h"

namespace attnjit::models {

/// Reads fields of an object. The first problem is kept; what is read after it is 0.
class Fields {
 public:
  Fields(const spec::JsonValue& object, ClassDefaults defaults)
      : object_(object), defaults_(defaults) {}

  /// From here on, fields of `layer` stand before those of the configuration; null: none do.
  void set_layer(const spec::JsonValue* layer) { layer_ = layer; }

  const spec::JsonValue& object() const { return object_; }
  const ClassDefaults& defaults() const { return defaults_; }

  /// A field that is not null: given, or else the class's.
  const spec::JsonValue* value(std::string_view name);
  bool has(std::string_view name) { return value(name) != nullptr; }
  /// The same, if the configuration itself has it.
  const spec::JsonValue* given(std::string_view name);
  /// True if the configuration says null.
  bool is_null(std::string_view name);

  /// A number from 1 to 2^20, or `otherwise` where there is none.
  int number(std::string_view name, std::optional<int> otherwise = {});
  /// The same, from 0.
  int count(std::string_view name, std::optional<int> otherwise = {});
  double real(std::string_view name);
  bool flag(std::string_view name, bool otherwise);
  std::string word(std::string_view name);
  /// The names, numbers or flags of a list; empty where it is not given.
  std::vector<std::string> names(std::string_view name);
  std::vector<int> numbers(std::string_view name);
  /// An object inside this one, or null. It has no class.
  const spec::JsonValue* inside(std::string_view name);

  void fail(std::string_view name, std::string message, std::string hint = {});
  void fail_at(const spec::JsonValue& at, std::string_view name, std::string message,
               std::string hint = {});
  const std::optional<Error>& error() const { return error_; }
  /// The problem of an object inside this one.
  void take_error(const Fields& inner, std::string_view name);

  /// Names that were asked for.
  const std::set<std::string, std::less<>>& read() const { return read_; }

 private:
  struct Found {
    const spec::JsonValue* value = nullptr;
    bool given = false;
  };
  /// A member of the layer or of the configuration, by any of its names; else the class's.
  Found find(std::string_view name);
  int number_from(std::string_view name, int least, std::optional<int> otherwise);

  const spec::JsonValue& object_;
  ClassDefaults defaults_;
  const spec::JsonValue* layer_ = nullptr;
  std::set<std::string, std::less<>> read_;
  std::optional<Error> error_;
};

}  // namespace attnjit::models
