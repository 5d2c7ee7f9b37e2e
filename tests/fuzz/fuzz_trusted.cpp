// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the lexical check of trusted bodies.
#include <cctype>
#include <string>
#include <string_view>

#include "fuzz_check.h"
#include "fuzz_targets.h"
#include "spec/trusted.h"

namespace attnjit::fuzz {
namespace {

/// The body with comments and literals blanked, or nothing if one of them is left open. Written
/// apart from the checker; knows that there are no splices, trigraphs and raw strings, which is
/// tested first.
bool blank(std::string& body) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body.compare(i, 2, "//") == 0) {
      while (i < body.size() && body[i] != '\n') body[i++] = ' ';
    } else if (body.compare(i, 2, "/*") == 0) {
      const std::size_t end = body.find("*/", i + 2);
      if (end == std::string::npos) return false;
      for (; i < end + 2; ++i) body[i] = ' ';
      --i;
    } else if (body[i] == '"' ||
               (body[i] == '\'' &&
                !(i > 0 && std::isalnum(static_cast<unsigned char>(body[i - 1])) != 0))) {
      const char quote = body[i];
      body[i++] = ' ';
      for (; i < body.size() && body[i] != quote; ++i) {
        if (body[i] == '\n') return false;
        if (body[i] == '\\') body[i++] = ' ';
        if (i < body.size()) body[i] = ' ';
      }
      if (i >= body.size()) return false;
      body[i] = ' ';
    }
  }
  return true;
}

bool holds_word(const std::string& body, std::string_view word) {
  const auto in_word = [&](std::size_t i) {
    return i < body.size() &&
           (std::isalnum(static_cast<unsigned char>(body[i])) != 0 || body[i] == '_');
  };
  for (std::size_t at = body.find(word); at != std::string::npos; at = body.find(word, at + 1)) {
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + word.size())) return true;
  }
  return false;
}

}  // namespace

void fuzz_trusted(std::string_view input) {
  const Status status = spec::check_trusted_code(input);
  if (!status) {
    const Error& error = status.error();
    require(error.code == ErrorCode::kInvalid && error.line >= 1 && error.column >= 1);
    return;
  }
  std::string body(input);
  require(body.size() <= spec::kMaxTrustedLength);
  require(body.find('#') == std::string::npos && body.find('\0') == std::string::npos);
  require(body.find("\\\n") == std::string::npos && body.find("\\\r") == std::string::npos);
  for (const char c : body) require(static_cast<unsigned char>(c) < 0x7f);
  require(blank(body));
  std::string open;
  for (const char c : body) {
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      require(!open.empty() && open.back() == (c == ')' ? '(' : c == ']' ? '[' : '{'));
      open.pop_back();
    }
  }
  require(open.empty());
  require(body.find('\\') == std::string::npos);
  for (const char* word : {"asm", "__asm", "__asm__", "_Pragma", "__has_include", "extern"}) {
    require(!holds_word(body, word));
  }
}

}  // namespace attnjit::fuzz
