// SPDX-License-Identifier: Apache-2.0
// JsonValue: parsed JSON that knows where in the text each value stands, read under limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"

namespace attnjit::spec {

struct JsonMember;

/// One value. Members keep the text's order; a name given twice stays twice, marked.
struct JsonValue {
  enum class Type : std::uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };
  Type type = Type::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;        ///< kReal; kInteger too; not finite with bare_numbers alone
  std::string text = {};  ///< kString: the value; kInteger, kReal: the spelling
  std::vector<JsonValue> items = {};
  /// NOTE: without an initializer, which clang would need JsonMember's definition for.
  std::vector<JsonMember> members;
  int line = 0;  ///< 1-based begin of the value in the text; 0: not from a text
  int column = 0;

  const JsonValue* find(std::string_view name) const;

  static JsonValue of_string(std::string value);
};

struct JsonMember {
  std::string name;
  JsonValue value;
  bool duplicate = false;  ///< an earlier member has the same name
  int line = 0;            ///< begin of the name
  int column = 0;
};

struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 20;
  int max_depth = 64;
  bool bare_numbers = false;  ///< take Infinity, -Infinity and NaN, which Python's json writes
};

/// Parses one JSON text (RFC 8259, UTF-8). Errors, all kInvalid and with a position: too long
/// (checked before parsing), nested too deeply, not JSON, not UTF-8, a number out of double's
/// range.
Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits = {});

/// What a value is, for a message: `the string "abc"`, `12`, `an array`.
std::string describe(const JsonValue& value);

/// The value at a path such as `mask.of[1].params[0].name`, or null.
const JsonValue* find_path(const JsonValue& root, std::string_view path);

/// The value at a path, or the innermost one around it that exists.
const JsonValue& nearest(const JsonValue& root, std::string_view path);

}  // namespace attnjit::spec
