// SPDX-License-Identifier: Apache-2.0
// The characters of a PTX text with a position, comments skipped; the lexical level of the parser.
//
// Thread rules: confined to one parse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attnjit/result.h"

namespace attnjit::emulator {

/// A number as written: an integer, or the bits of a float.
struct Number {
  enum class Kind : std::uint8_t { kInteger, kFloat, kDouble };
  Kind kind = Kind::kInteger;
  std::uint64_t bits = 0;
};

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  int line() const { return line_; }
  int column() const;  ///< 1-based, in bytes
  bool failed() const { return failed_; }
  const Error& error() const { return error_; }
  /// Keeps the first failure; always false.
  bool fail(ErrorCode code, std::string message);
  bool invalid(std::string message) { return fail(ErrorCode::kInvalid, std::move(message)); }

  /// Skips white space and comments; false at the end of the text.
  bool more();
  /// The next character after white space, or 0.
  char peek();
  /// Whether `literal` comes next (then skipped).
  bool accept(char literal);
  bool accept(std::string_view literal);
  /// accept, or an error that names what was expected.
  bool expect(char literal);

  /// [A-Za-z_$%][A-Za-z0-9_$]*, empty if none comes next.
  std::string_view identifier();
  /// ".name" with the parts of a "::" qualification; returned without the dot; empty if none.
  std::string_view directive();
  /// An opcode with its modifiers: "cp.async.bulk.shared::cluster"; empty if none.
  std::string_view opcode();
  /// A literal without sign; nullopt if none comes next; fails on a malformed one.
  std::optional<Number> number();
  /// "..." without the quotes; nullopt if none.
  std::optional<std::string_view> string();
  /// A constant expression over integers (C's operators, precedence, 64-bit), for initialisers,
  /// array sizes and immediates. nullopt on an error. `depth` bounds the recursion.
  std::optional<Number> constant(int depth = 0) { return binary(0, depth); }

  /// Whether a label's colon comes next ("::" is none), skipped if so.
  bool accept_colon();
  /// Skips to after the brace that closes one opened before; for debug sections.
  bool skip_block();
  /// Skips the rest of the line.
  void skip_line();

  std::size_t position() const { return at_; }
  void restore(std::size_t position, int line) {
    at_ = position;
    line_ = line;
  }
  std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

 private:
  std::optional<Number> binary(int level, int depth);
  std::optional<Number> unary(int depth);

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool failed_ = false;
  Error error_;
};

}  // namespace attnjit::emulator
