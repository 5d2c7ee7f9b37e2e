// SPDX-License-Identifier: Apache-2.0
// Splits a snippet of the expression tier into tokens, refusing whatever is not in the grammar.
#include "spec/expression_lexer.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "spec/text.h"

namespace attnjit::spec {
namespace {

/// Spellings that C++ reads as one token and the grammar refuses. Longest first.
struct RefusedSign {
  std::string_view text;
  std::string_view what;
  std::string_view hint;
};
constexpr std::string_view kCompare = "to compare, write ==";
constexpr RefusedSign kRefused[] = {
    {"%:%:", "a preprocessor sign", ""},
    {"<<=", "an assignment", kCompare},
    {">>=", "an assignment", kCompare},
    {"<=>", "the three-way comparison", "compare with <, <=, ==, !=, >= or >"},
    {"...", "an ellipsis", ""},
    {"->*", "a pointer access", ""},
    {"?\?", "how a trigraph begins", "an operand of ?: is missing"},
    {"%:", "a preprocessor sign", ""},
    {"<:", "a digraph", "write ["},
    {":>", "a digraph", "write ]"},
    {"<%", "a digraph", ""},
    {"%>", "a digraph", ""},
    {"//", "a comment", "leave comments out of the snippet"},
    {"/*", "a comment", "leave comments out of the snippet"},
    {"++", "an assignment", "to add, write a space between the two signs"},
    {"--", "an assignment", "to subtract a negative number, write a space between the two signs"},
    {"+=", "an assignment", kCompare},
    {"-=", "an assignment", kCompare},
    {"*=", "an assignment", kCompare},
    {"/=", "an assignment", kCompare},
    {"%=", "an assignment", kCompare},
    {"&=", "an assignment", kCompare},
    {"|=", "an assignment", kCompare},
    {"^=", "an assignment", kCompare},
    {"->", "a pointer access", "a parameter is written p.name"},
    {"::", "a scope", "call the listed functions by their plain names"},
    {"##", "a preprocessor sign", ""},
    {"#", "a preprocessor sign", ""},
    {"=", "an assignment", kCompare},
    {";", "the end of a statement", "a snippet is one expression: write no semicolon"},
    {"{", "a block", "a snippet is one expression; a function body needs \"trusted\": true"},
    {"}", "a block", "a snippet is one expression; a function body needs \"trusted\": true"},
    {"\"", "a string", ""},
    {"'", "a character literal", "write its number"},
    {"\\", "a backslash", ""},
    {"@", "no sign of C", ""},
    {"$", "no sign of C", ""},
    {"`", "no sign of C", ""},
};

/// The grammar's signs. Longest first.
constexpr std::string_view kSigns[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")",
                                       "[",  "]",  ",",  ".",  "+",  "-",  "*",  "/",  "%", "<",
                                       ">",  "!",  "~",  "&",  "|",  "^",  "?",  ":"};

}  // namespace

Error snippet_error(int line, int column, std::string message, std::string hint) {
  Error error = make_error(ErrorCode::kInvalid, std::move(message), {}, std::move(hint));
  error.line = line;
  error.column = column;
  return error;
}

void Lexer::skip_space() {
  for (; at_ < code_.size(); ++at_) {
    const char c = code_[at_];
    if (c == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

Result<Token> Lexer::take(Token::Kind kind, std::size_t length) {
  Token token;
  token.kind = kind;
  token.text = code_.substr(at_, length);
  token.line = line_;
  token.column = column();
  at_ += length;
  return token;
}

Result<Token> Lexer::next() {
  skip_space();
  if (at_ >= code_.size()) return take(Token::Kind::kEnd, 0);
  const char c = peek();
  if (is_name_begin(c)) {
    std::size_t length = 1;
    while (is_name_part(peek(length))) ++length;
    if (peek(length) == '"' || peek(length) == '\'') {
      at_ += length;
      return error_here("a string is no part of an expression");
    }
    return take(Token::Kind::kName, length);
  }
  if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
  return sign();
}

Result<Token> Lexer::number() {
  // A preprocessing number, as C reads it: what it swallows is then a good number or refused whole.
  std::size_t length = 1;
  for (;; ++length) {
    const char c = peek(length);
    const char before = peek(length - 1);
    const bool exponent_sign = (c == '+' || c == '-') && (before == 'e' || before == 'E');
    if (!is_name_part(c) && c != '.' && !exponent_sign) break;
    // NOTE: in 0xE+1 C takes the + for an exponent's; here it is an addition.
    if (exponent_sign && (peek(1) == 'x' || peek(1) == 'X')) break;
  }
  const std::string_view text = code_.substr(at_, length);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (!hex && text.find_first_of(".eEfF") != std::string_view::npos) return float_number(text);
  return int_number(text);
}

Result<Token> Lexer::int_number(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = hex ? text.substr(2) : text;
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, status] = std::from_chars(digits.data(), end, value, hex ? 16 : 10);
  if (status == std::errc::result_out_of_range || (stop == end && value > 2147483648U)) {
    return error_here(
        fmt::format("the integer {} is out of range; allowed: up to 2147483647", printable(text)),
        "integers are i32");
  }
  if (status != std::errc{} || stop != end) {
    return error_here(fmt::format("{} is no number", printable(text)),
                      "integers are decimal, or hexadecimal after 0x, without a suffix");
  }
  if (!hex && digits.size() > 1 && digits.front() == '0') {
    return error_here(fmt::format("{} has a leading 0, which C reads as octal", printable(text)),
                      "write it decimal");
  }
  if (hex && value > 2147483647U) {
    return error_here(
        fmt::format("the integer {} is out of range; allowed: up to 0x7fffffff", printable(text)),
        "integers are i32; the sign bit is (-2147483648)");
  }
  Result<Token> token = take(Token::Kind::kInt, text.size());
  token->int_value = static_cast<std::uint32_t>(value);
  return token;
}

Result<Token> Lexer::float_number(std::string_view text) {
  std::string_view digits = text;
  if (digits.ends_with('f') || digits.ends_with('F')) digits.remove_suffix(1);
  const bool has_point_or_exponent = digits.find_first_of(".eE") != std::string_view::npos;
  float value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, status] = std::from_chars(digits.data(), end, value);
  if (!has_point_or_exponent || stop != end ||
      (status != std::errc{} && status != std::errc::result_out_of_range)) {
    return error_here(fmt::format("{} is no number", printable(text)),
                      "floats are written 1.5, 1e-3 or 1.5f");
  }
  if (status == std::errc::result_out_of_range) {
    // NOTE: from_chars reports underflow in the same way; such a literal rounds to 0, as in C.
    double wide = 0;
    const bool fits = std::from_chars(digits.data(), end, wide).ec == std::errc{};
    if (!fits || wide >= 1) {
      return error_here(
          fmt::format("the float {} is out of range; allowed: 0 and 1.2e-38 to 3.4e38",
                      printable(text)),
          "floats are f32");
    }
    value = static_cast<float>(wide);
  }
  Result<Token> token = take(Token::Kind::kFloat, text.size());
  token->float_value = value;
  return token;
}

Result<Token> Lexer::sign() {
  const std::string_view rest = code_.substr(at_);
  // NOTE: <= and >= begin like <=> and >>=, == like =; so the grammar's own are tried in between.
  for (const RefusedSign& refused : kRefused) {
    if (!rest.starts_with(refused.text)) continue;
    if (refused.text == "=" && rest.starts_with("==")) continue;
    return error_here(
        fmt::format("`{}` is {}, which is no part of an expression", refused.text, refused.what),
        std::string(refused.hint));
  }
  for (const std::string_view known : kSigns) {
    if (rest.starts_with(known)) return take(Token::Kind::kSign, known.size());
  }
  const auto byte = static_cast<unsigned char>(rest.front());
  return error_here(
      byte >= 0x80
          ? fmt::format("the byte 0x{:02x} is no ASCII character", byte)
          : fmt::format("the control character 0x{:02x} is no part of an expression", byte),
      byte >= 0x80 ? "snippets are plain ASCII" : "");
}

}  // namespace attnjit::spec
