// SPDX-License-Identifier: Apache-2.0
// JsonProblems: collects every problem of a JSON text, each with its field and where that stands.
//
// Thread rules: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "spec/json_value.h"

namespace attnjit::spec {

/// A member's path: "specs[3].mask.kind"; of the root's members their names alone.
std::string path_of(const std::string& object, std::string_view member);

/// "did you mean `x`?", of the name that `name` is a misspelling of; empty: of none.
std::string suggestion(std::string_view name, std::span<const std::string_view> names);

class JsonProblems {
 public:
  /// Adds one, at a value or at a member's name. After kMaxProblems no more are kept.
  template <class Place>
  void add(std::string field, std::string message, const Place& at, std::string hint = {}) {
    if (full()) return;
    found_.push_back(
        make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint)));
    found_.back().line = at.line;
    found_.back().column = at.column;
  }
  /// The same of a value that is not what is allowed: "is .., allowed: ..".
  void add_wrong(const std::string& field, const JsonValue& value, const std::string& allowed,
                 std::string hint = {});
  bool full() const;
  std::vector<Error>& found() { return found_; }
  /// The first, which carries the others. @pre there is one.
  Error take();

  /// Adds a problem for each member that is given twice, or is not of `names`, unless these are
  /// none. `object_name`: what has no such field ("a spec"); `hint`: what to say first of an
  /// unknown name, or empty.
  void check_members(const std::string& field, const JsonValue& object,
                     std::string_view object_name, std::span<const std::string_view> names,
                     std::string (*hint)(std::string_view name) = nullptr);
  /// Whether a value is an object, whose members are checked.
  bool check_object(const std::string& field, const JsonValue& value, std::string_view object_name,
                    std::span<const std::string_view> names);

  // What a value is that has the type; nothing, and a problem, where it has not.
  std::optional<bool> boolean(const std::string& field, const JsonValue& value);
  std::optional<std::int64_t> integer(const std::string& field, const JsonValue& value,
                                      std::int64_t min, std::int64_t max,
                                      const std::string& allowed);
  std::optional<std::string> string(const std::string& field, const JsonValue& value,
                                    const std::string& allowed = "a string");

 private:
  std::vector<Error> found_;
};

}  // namespace attnjit::spec
