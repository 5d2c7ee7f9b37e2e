// SPDX-License-Identifier: Apache-2.0
// The lexical check of trusted function bodies: it keeps a body inside its function.
#include "spec/trusted.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "spec/expression_lexer.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

/// Words that a body may not hold, and what they are. NOTE: one key must not give two images, as
/// with the time of a compile.
constexpr std::string_view kAssembly = "assembly", kSpelling = "a preprocessor spelling",
                           kTime = "the time of the compile", kModule = "a module declaration",
                           kAttribute = "an attribute of the compiler";
constexpr std::pair<std::string_view, std::string_view> kRefusedWords[] = {
    {"asm", kAssembly},           {"__asm", kAssembly},
    {"__asm__", kAssembly},       {"_asm", kAssembly},
    {"_Pragma", kSpelling},       {"__pragma", kSpelling},
    {"__has_include", kSpelling}, {"__has_include_next", kSpelling},
    {"__has_embed", kSpelling},   {"__has_include__", kSpelling},
    {"defined", kSpelling},       {"__VA_OPT__", kSpelling},
    {"__VA_ARGS__", kSpelling},   {"__TIME__", kTime},
    {"__DATE__", kTime},          {"__TIMESTAMP__", kTime},
    {"import", kModule},          {"module", kModule},
    {"export", kModule},          {"extern", "a declaration outside the function"},
    {"__global__", "a kernel"},   {"__attribute__", kAttribute},
    {"__attribute", kAttribute},  {"__declspec", kAttribute}};

/// Signs that stand for # or for brackets (C++17 5.5, and trigraphs as C++14 has them).
constexpr std::string_view kAlternativeSigns[] = {"%:", "<:", ":>", "<%", "%>"};
constexpr std::string_view kTrigraphEnds = "=/'()!<>-";

bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class BodyChecker {
 public:
  explicit BodyChecker(std::string_view code) : code_(code) {}

  Status run() {
    while (at_ < code_.size() && !failed_) step();
    if (failed_) return std::move(error_);
    if (!open_.empty()) {
      return snippet_error(open_.back().line, open_.back().column,
                           fmt::format("`{}` is never closed", open_.back().sign));
    }
    if (!has_return_) {
      return snippet_error(line_, column(), "the function body ends without a return",
                           "a mask returns a bool, a score modification a float");
    }
    return {};
  }

 private:
  struct Open {
    char sign;
    int line;
    int column;
  };

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < code_.size() ? code_[at_ + ahead] : '\0';
  }
  int column() const { return static_cast<int>(at_ - line_begin_) + 1; }

  void fail(std::string message, std::string hint = {}) {
    fail_at(line_, column(), std::move(message), std::move(hint));
  }
  void fail_at(int line, int column, std::string message, std::string hint = {}) {
    if (failed_) return;
    failed_ = true;
    error_ = snippet_error(line, column, std::move(message), std::move(hint));
  }

  /// Passes one character, which must be plain ASCII text and no part of an alternative spelling
  /// that an earlier phase of translation would replace anywhere, literals and comments included.
  void advance() {
    const char c = peek();
    const auto byte = static_cast<unsigned char>(c);
    if (c == '#') {
      return fail("`#` is a preprocessor sign", "it is not allowed in strings and comments either");
    }
    if (byte >= 0x7f) {
      return fail(fmt::format("the byte 0x{:02x} is no ASCII character", byte),
                  "snippets are plain ASCII, comments included");
    }
    if (byte < 0x20 && c != '\n' && c != '\t' && c != '\r') {
      return fail(fmt::format("the control character 0x{:02x}", byte));
    }
    if (c == '\r' && peek(1) != '\n') {
      return fail("a carriage return without a line feed",
                  "some compilers end a line and a comment there");
    }
    // NOTE: translation splices lines before it finds the end of a comment or a literal, and some
    // compilers take spaces between the backslash and the line's end for a splice too.
    if (c == '\\') {
      std::size_t ahead = 1;
      while (peek(ahead) == ' ' || peek(ahead) == '\t' || peek(ahead) == '\r') ++ahead;
      if (peek(ahead) == '\n' || at_ + ahead >= code_.size()) {
        return fail("a backslash at the end of a line joins lines");
      }
    }
    if (c == '?' && peek(1) == '?' && peek(2) != '\0' &&
        kTrigraphEnds.find(peek(2)) != std::string_view::npos) {
      return fail("a trigraph");
    }
    if (c == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    }
    ++at_;
  }
  void advance(std::size_t count) {
    for (std::size_t i = 0; i < count && !failed_; ++i) advance();
  }

  void step() {
    const char c = peek();
    if (c == '/' && peek(1) == '/') {
      while (at_ < code_.size() && peek() != '\n' && !failed_) advance();
    } else if (c == '/' && peek(1) == '*') {
      block_comment();
    } else if (c == '"' || c == '\'') {
      literal(c);
    } else if (is_name_begin(c)) {
      word();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else {
      sign();
    }
  }

  void block_comment() {
    const int line = line_;
    const int begin = column();
    advance(2);
    while (!failed_) {
      if (at_ >= code_.size()) return fail_at(line, begin, "the comment is never closed");
      if (peek() == '*' && peek(1) == '/') return advance(2);
      advance();
    }
  }

  void literal(char quote) {
    const int line = line_;
    const int begin = column();
    advance();
    while (!failed_) {
      if (at_ >= code_.size() || peek() == '\n' || peek() == '\r') {
        return fail_at(line, begin, "the literal is not closed on its line");
      }
      if (peek() == '\\') {
        advance();
        if (!failed_) advance();
      } else if (peek() == quote) {
        return advance();
      } else {
        advance();
      }
    }
  }

  std::size_t word_length() const {
    std::size_t length = 0;
    while (is_name_part(peek(length))) ++length;
    return length;
  }

  void refuse_word(std::string_view text) {
    for (const auto& [word, what] : kRefusedWords) {
      if (text == word)
        fail(fmt::format("`{}` is {}, which a function body may not hold", text, what));
    }
  }

  void word() {
    const std::size_t length = word_length();
    const std::string_view text = code_.substr(at_, length);
    if (peek(length) == '"' || peek(length) == '\'') {
      return fail("a literal with a prefix", "raw strings are not allowed; write a plain one");
    }
    refuse_word(text);
    has_return_ |= text == "return";
    advance(length);
  }

  /// A preprocessing number (C++20 5.9) with its digit separators. A quote that touches a number
  /// and separates no digits is refused: readings of it differ.
  void number() {
    advance();
    while (!failed_) {
      const char c = peek();
      const char before = code_[at_ - 1];
      const bool exponent_sign =
          (c == '+' || c == '-') && std::string_view("eEpP").find(before) != std::string_view::npos;
      const bool separator = c == '\'' && is_hex_digit(before) && is_hex_digit(peek(1));
      if (c == '"' || (c == '\'' && !separator)) return fail("a quote that touches a number");
      if (!is_name_part(c) && c != '.' && !exponent_sign && !separator) return;
      // NOTE: C++ reads 1.asm as one number; other readings should find no refused word either.
      if (is_name_begin(c) && !is_name_part(before)) refuse_word(code_.substr(at_, word_length()));
      advance();
    }
  }

  void sign() {
    const std::string_view rest = code_.substr(at_);
    for (const std::string_view alternative : kAlternativeSigns) {
      if (rest.starts_with(alternative)) {
        return fail(fmt::format("`{}` is another spelling of a bracket or of #", alternative),
                    "write a space between its characters, or the plain sign");
      }
    }
    const char c = peek();
    if (c == '\\') return fail("a backslash outside a literal");
    if (c == '(' || c == '[' || c == '{') {
      if (open_.size() >= static_cast<std::size_t>(kMaxTrustedNesting)) {
        return fail(
            fmt::format("brackets are nested too deeply; allowed: {} levels", kMaxTrustedNesting));
      }
      open_.push_back({c, line_, column()});
    } else if (c == ')' || c == ']' || c == '}') {
      const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_.empty()) {
        return fail(fmt::format("`{}` closes what the function body did not open", c));
      }
      if (open_.back().sign != opening) {
        return fail(fmt::format("`{}` closes the `{}` of line {}, column {}", c, open_.back().sign,
                                open_.back().line, open_.back().column));
      }
      open_.pop_back();
    }
    advance();
  }

  std::string_view code_;
  std::size_t at_ = 0;
  std::size_t line_begin_ = 0;
  int line_ = 1;
  std::vector<Open> open_;
  bool has_return_ = false;
  bool failed_ = false;
  Error error_;
};

}  // namespace

Status check_trusted_code(std::string_view code) {
  if (code.size() > kMaxTrustedLength) {
    return snippet_error(1, 1,
                         fmt::format("the function body has {} bytes; allowed: up to {}",
                                     code.size(), kMaxTrustedLength));
  }
  return BodyChecker(code).run();
}

}  // namespace attnjit::spec
