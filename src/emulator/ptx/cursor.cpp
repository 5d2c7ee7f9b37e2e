// SPDX-License-Identifier: Apache-2.0
// The lexical level of the PTX parser: white space, names, numbers, constant expressions.
#include "emulator/ptx/cursor.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>

namespace attnjit::emulator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool starts_name(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%'; }
bool continues_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }
bool continues_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

constexpr int kMaxDepth = 100;

std::string printable(char c) {
  if (c >= 32 && c < 127) return std::string("'") + c + "'";
  return fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace

bool Cursor::fail(ErrorCode code, std::string message) {
  if (!failed_) {
    failed_ = true;
    error_ = make_error(code, std::move(message), "ptx");
    error_.line = line_;
    error_.column = column();
  }
  return false;
}

int Cursor::column() const {
  const std::size_t before = at_ == 0 ? std::string_view::npos : text_.rfind('\n', at_ - 1);
  return static_cast<int>(before == std::string_view::npos ? at_ + 1 : at_ - before);
}

bool Cursor::more() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' ||
               (c == '\0' && at_ + 1 == text_.size())) {
      ++at_;  // NVRTC's length counts a terminating zero; callers often pass it on
    } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '*') {
      at_ += 2;
      for (;;) {
        if (at_ + 1 >= text_.size()) {
          at_ = text_.size();
          invalid("a comment is not closed");
          return false;
        }
        if (text_[at_] == '*' && text_[at_ + 1] == '/') break;
        if (text_[at_] == '\n') ++line_;
        ++at_;
      }
      at_ += 2;
    } else {
      return true;
    }
  }
  return false;
}

char Cursor::peek() { return more() ? text_[at_] : '\0'; }

bool Cursor::accept(char literal) {
  if (!more() || text_[at_] != literal) return false;
  ++at_;
  return true;
}

bool Cursor::accept(std::string_view literal) {
  if (!more() || text_.substr(at_, literal.size()) != literal) return false;
  at_ += literal.size();
  return true;
}

bool Cursor::expect(char literal) {
  if (accept(literal)) return true;
  if (!more()) return invalid(fmt::format("the text ends where '{}' is expected", literal));
  return invalid(fmt::format("{} where '{}' is expected", printable(text_[at_]), literal));
}

std::string_view Cursor::identifier() {
  if (!more() || !starts_name(text_[at_])) return {};
  const std::size_t begin = at_++;
  while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::string_view Cursor::directive() {
  if (!more() || text_[at_] != '.' || at_ + 1 >= text_.size() || !continues_word(text_[at_ + 1]))
    return {};
  const std::size_t begin = ++at_;
  while (at_ < text_.size()) {
    if (continues_word(text_[at_])) {
      ++at_;
    } else if (text_[at_] == ':' && at_ + 2 < text_.size() && text_[at_ + 1] == ':' &&
               continues_word(text_[at_ + 2])) {
      at_ += 2;
    } else {
      break;
    }
  }
  return text_.substr(begin, at_ - begin);
}

std::string_view Cursor::opcode() {
  if (!more() || !is_letter(text_[at_])) return {};
  const std::size_t begin = at_;
  while (at_ < text_.size() && continues_word(text_[at_])) ++at_;
  while (at_ < text_.size() && text_[at_] == '.' && !directive().empty()) {
  }
  return text_.substr(begin, at_ - begin);
}

std::optional<Number> Cursor::number() {
  if (!more() || !is_digit(text_[at_])) return std::nullopt;
  const std::size_t begin = at_;
  const auto hex_float = [&](int digits, Number::Kind kind) -> std::optional<Number> {
    Number n;
    n.kind = kind;
    const char* first = text_.data() + begin + 2;
    const char* last = text_.data() + text_.size();
    if (last - first < digits) {
      invalid("a hexadecimal float is cut short");
      return std::nullopt;
    }
    const auto [end, ec] = std::from_chars(first, first + digits, n.bits, 16);
    if (ec != std::errc() || end != first + digits) {
      invalid(fmt::format("a hexadecimal float needs {} digits", digits));
      return std::nullopt;
    }
    at_ = begin + 2 + static_cast<std::size_t>(digits);
    return n;
  };
  const char second = begin + 1 < text_.size() ? text_[begin + 1] : '\0';
  if (text_[begin] == '0' && (second == 'f' || second == 'F'))
    return hex_float(8, Number::Kind::kFloat);
  if (text_[begin] == '0' && (second == 'd' || second == 'D'))
    return hex_float(16, Number::Kind::kDouble);

  int base = 10;
  std::size_t digits = begin;
  if (text_[begin] == '0' && (second == 'x' || second == 'X')) {
    base = 16;
    digits += 2;
  } else if (text_[begin] == '0' && (second == 'b' || second == 'B')) {
    base = 2;
    digits += 2;
  } else {
    // A decimal point or exponent makes it a double.
    std::size_t end = begin;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const bool point = end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1]);
    const bool exponent = end < text_.size() && (text_[end] == 'e' || text_[end] == 'E');
    if (point || exponent) {
      Number n;
      n.kind = Number::Kind::kDouble;
      double value = 0;
      const auto [stop, ec] =
          std::from_chars(text_.data() + begin, text_.data() + text_.size(), value);
      if (ec != std::errc()) {
        invalid("a floating-point literal is out of range");
        return std::nullopt;
      }
      at_ = static_cast<std::size_t>(stop - text_.data());
      n.bits = std::bit_cast<std::uint64_t>(value);
      return n;
    }
    if (text_[begin] == '0' && end > begin + 1) base = 8;
  }
  Number n;
  const auto [stop, ec] =
      std::from_chars(text_.data() + digits, text_.data() + text_.size(), n.bits, base);
  if (ec != std::errc()) {
    invalid("an integer literal is malformed or does not fit 64 bits");
    return std::nullopt;
  }
  at_ = static_cast<std::size_t>(stop - text_.data());
  if (at_ < text_.size() && (text_[at_] == 'U' || text_[at_] == 'u')) ++at_;
  if (at_ < text_.size() && continues_name(text_[at_])) {
    invalid(fmt::format("{} inside a number", printable(text_[at_])));
    return std::nullopt;
  }
  return n;
}

std::optional<std::string_view> Cursor::string() {
  if (!accept('"')) return std::nullopt;
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
    ++at_;
  }
  if (at_ >= text_.size() || text_[at_] != '"') {
    invalid("a string is not closed");
    return std::nullopt;
  }
  const std::string_view result = text_.substr(begin, at_ - begin);
  ++at_;
  return result;
}

bool Cursor::accept_colon() {
  if (!more() || text_[at_] != ':') return false;
  if (at_ + 1 < text_.size() && text_[at_ + 1] == ':') return false;
  ++at_;
  return true;
}

bool Cursor::skip_block() {
  int depth = 1;
  while (more()) {
    const char c = text_[at_];
    if (c == '"') {
      if (!string()) return false;
      continue;
    }
    ++at_;
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0) return true;
  }
  return invalid("a section is not closed");
}

void Cursor::skip_line() {
  while (at_ < text_.size() && text_[at_] != '\n') ++at_;
}

std::optional<Number> Cursor::unary(int depth) {
  if (depth > kMaxDepth) {
    invalid("a constant expression is nested too deep");
    return std::nullopt;
  }
  if (accept('-')) {
    auto n = unary(depth + 1);
    if (!n) return n;
    if (n->kind == Number::Kind::kInteger) n->bits = 0 - n->bits;
    if (n->kind == Number::Kind::kFloat) n->bits ^= 0x80000000u;
    if (n->kind == Number::Kind::kDouble) n->bits ^= 0x8000000000000000u;
    return n;
  }
  if (accept('+')) return unary(depth + 1);
  if (accept('~') || accept('!')) {
    const bool logical = text_[at_ - 1] == '!';
    auto n = unary(depth + 1);
    if (!n) return n;
    if (n->kind != Number::Kind::kInteger) {
      invalid("'~' and '!' need an integer");
      return std::nullopt;
    }
    n->bits = logical ? (n->bits == 0 ? 1 : 0) : ~n->bits;
    return n;
  }
  if (accept('(')) {
    for (const std::string_view cast : {".s64", ".u64"}) {
      if (accept(cast)) {
        if (!expect(')')) return std::nullopt;
        return unary(depth + 1);
      }
    }
    auto n = binary(0, depth + 1);
    if (!n || !expect(')')) return std::nullopt;
    return n;
  }
  auto n = number();
  if (!n && !failed_) {
    if (!more()) {
      invalid("the text ends where a number is expected");
    } else {
      invalid(fmt::format("{} where a number is expected", printable(text_[at_])));
    }
  }
  return n;
}

std::optional<Number> Cursor::binary(int level, int depth) {
  // Precedence climbing over C's levels, weakest first: the recursion is as deep as the
  // parentheses.
  static constexpr std::array<std::array<std::string_view, 4>, 10> kLevels = {
      {{"||"},
       {"&&"},
       {"|"},
       {"^"},
       {"&"},
       {"==", "!="},
       {"<=", ">=", "<", ">"},
       {"<<", ">>"},
       {"+", "-"},
       {"*", "/", "%"}}};
  auto left = unary(depth);
  while (left) {
    std::string_view op;
    int op_level = 0;
    for (int l = level; l < static_cast<int>(kLevels.size()) && op.empty(); ++l) {
      for (const std::string_view candidate : kLevels[static_cast<std::size_t>(l)]) {
        if (candidate.empty() || !more() || text_.substr(at_, candidate.size()) != candidate)
          continue;
        const std::string_view next = text_.substr(at_ + candidate.size(), 1);
        // A longer operator is not its prefix: "<<" is not "<", "||" is not "|".
        if (candidate.size() == 1 && (next == candidate || next == "=")) continue;
        op = candidate;
        op_level = l;
        break;
      }
    }
    if (op.empty()) return left;
    at_ += op.size();
    const auto right = binary(op_level + 1, depth + 1);
    if (!right) return right;
    if (left->kind != Number::Kind::kInteger || right->kind != Number::Kind::kInteger) {
      invalid("an operator of a constant expression needs integers");
      return std::nullopt;
    }
    const std::uint64_t a = left->bits;
    const std::uint64_t b = right->bits;
    const auto sa = static_cast<std::int64_t>(a);
    const auto sb = static_cast<std::int64_t>(b);
    std::uint64_t r = 0;
    if (op == "||") r = (a != 0 || b != 0) ? 1 : 0;
    if (op == "&&") r = (a != 0 && b != 0) ? 1 : 0;
    if (op == "|") r = a | b;
    if (op == "^") r = a ^ b;
    if (op == "&") r = a & b;
    if (op == "==") r = a == b ? 1 : 0;
    if (op == "!=") r = a != b ? 1 : 0;
    if (op == "<=") r = sa <= sb ? 1 : 0;
    if (op == ">=") r = sa >= sb ? 1 : 0;
    if (op == "<") r = sa < sb ? 1 : 0;
    if (op == ">") r = sa > sb ? 1 : 0;
    if (op == "<<") r = b < 64 ? a << b : 0;
    if (op == ">>") r = b < 64 ? a >> b : 0;
    if (op == "+") r = a + b;
    if (op == "-") r = a - b;
    if (op == "*") r = a * b;
    if (op == "/" || op == "%") {
      if (b == 0 || (sb == -1 && sa == INT64_MIN)) {
        invalid("a constant expression divides by zero");
        return std::nullopt;
      }
      r = static_cast<std::uint64_t>(op == "/" ? sa / sb : sa % sb);
    }
    left->bits = r;
  }
  return left;
}

}  // namespace attnjit::emulator
