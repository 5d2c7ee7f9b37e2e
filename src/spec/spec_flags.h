// SPDX-License-Identifier: Apache-2.0
// A spec from the command line: a JSON file, flags of the fields' names, or both.
//
// Thread rules: distinct objects may be used by distinct threads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/json_value.h"

namespace attnjit::spec {

/// One flag of the command line: a field of the spec.
struct SpecFlag {
  std::string name;                 ///< "--qk-depth"
  std::string field;                ///< "qk_depth"
  bool is_bool = false;             ///< `--ragged` alone means true
  std::string type;                 ///< for --help: "INT", "BOOL", "NAME", "NAME|JSON"
  std::string help;                 ///< what it is, and what is allowed
  std::vector<std::string> values;  ///< all or some that are allowed; empty: too many, or any
};

/// The flags, in the spec's order.
const std::vector<SpecFlag>& spec_flags();

/// A spec in the making: a JSON object in which flags replace fields. Nothing is read or validated
/// before read(), so that every problem is reported at once.
class SpecInput {
 public:
  /// Starts from no fields.
  SpecInput();
  /// Starts from a file's text. Errors: not JSON, or not an object.
  static Result<SpecInput> from_json(std::string_view text);
  /// Starts from a spec of a manifest's text, counted from 0. Errors: no JSON, or no such spec.
  static Result<SpecInput> from_manifest(std::string_view text, std::size_t index);

  /// Sets a field from a flag's text, replacing what was there: an integer, true or false, a name,
  /// or JSON (mask and score_mod: text that begins with `{`). `null` sets an optional field back to
  /// its default. Text that the field's type cannot be is reported by read(), with the rest.
  /// Errors: an unknown field.
  /// @param field the field's name, or the flag's ("qk_depth", "--qk-depth", "qk-depth").
  Status set(std::string_view field, std::string_view text);

  /// Reads and validates. Errors: every problem, the first carrying the others.
  Result<ResolvedSpec> read() const;

  /// The snippet's line that a problem of read() names, with a caret below its column; empty for a
  /// problem that is not in a snippet.
  std::string excerpt(const Error& error) const;

 private:
  static Result<SpecInput> from_object(JsonValue root);

  JsonValue root_;
  std::vector<Error> bad_flags_;  ///< at most one a field
};

}  // namespace attnjit::spec
