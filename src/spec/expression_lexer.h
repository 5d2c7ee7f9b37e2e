// SPDX-License-Identifier: Apache-2.0
// Splits a snippet of the expression tier into tokens, refusing whatever is not in the grammar.
//
// Thread rules: plain values; a Lexer belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "attnjit/result.h"

namespace attnjit::spec {

struct Token {
  enum class Kind : std::uint8_t { kEnd, kName, kInt, kFloat, kSign };
  Kind kind = Kind::kEnd;
  std::string_view text;  ///< within the snippet
  int line = 1;
  int column = 1;
  std::uint32_t int_value = 0;  ///< kInt: up to 2147483648, which only a minus sign makes an i32
  float float_value = 0;        ///< kFloat: finite

  bool is(std::string_view sign) const { return kind == Kind::kSign && text == sign; }
};

/// An Error at a place of the snippet.
Error snippet_error(int line, int column, std::string message, std::string hint = {});

/// Gives the tokens of a snippet one by one. Everything that C++ gives a meaning and the grammar
/// has not (strings, comments, preprocessor spellings, assignments, scope and pointer signs, ..) is
/// an error of its own.
class Lexer {
 public:
  explicit Lexer(std::string_view code) : code_(code) {}

  /// The next token; at the end, kEnd again and again.
  Result<Token> next();

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < code_.size() ? code_[at_ + ahead] : '\0';
  }
  void skip_space();
  int column() const { return static_cast<int>(at_ - line_begin_) + 1; }
  Error error_here(std::string message, std::string hint = {}) const {
    return snippet_error(line_, column(), std::move(message), std::move(hint));
  }
  Result<Token> take(Token::Kind kind, std::size_t length);
  Result<Token> number();
  Result<Token> int_number(std::string_view text);
  Result<Token> float_number(std::string_view text);
  Result<Token> sign();

  std::string_view code_;
  std::size_t at_ = 0;
  std::size_t line_begin_ = 0;
  int line_ = 1;
};

}  // namespace attnjit::spec
