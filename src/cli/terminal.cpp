// SPDX-License-Identifier: Apache-2.0
// Asks terminals, and colours words.
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace attnjit::cli {
namespace {

constexpr std::string_view kGreen = "\033[32m", kRed = "\033[31m", kYellow = "\033[33m",
                           kPlain = "\033[0m";

struct Word {
  std::string_view text, colour;
};
constexpr std::array kWords{
    Word{"passed", kGreen}, Word{"compiled", kGreen},     Word{"FAILED", kRed},
    Word{"failed", kRed},   Word{"unsupported", kYellow}, Word{"missing", kYellow},
    Word{"refused", kRed},
};

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '/' || c == '.';
}

/// The colour of a word, or nothing.
std::string_view colour_of(std::string_view word) {
  for (const Word& known : kWords) {
    if (known.text == word) return known.colour;
  }
  return {};
}

}  // namespace

bool takes_colours(int descriptor) {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb" && ::isatty(descriptor) != 0;
}

std::string coloured(std::string_view text) {
  std::string out;
  std::string_view before;  // "0 failed" is no failure
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word_character(text[end])) ++end;
    if (end == at) {
      out += text[at++];
      continue;
    }
    const std::string_view word = text.substr(at, end - at);
    const std::string_view colour = before == "0" ? std::string_view() : colour_of(word);
    before = word;
    out += colour;
    out += word;
    if (!colour.empty()) out += kPlain;
    at = end;
  }
  return out;
}

std::string coloured_message(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::string(text);
  return std::string(kRed).append(text.substr(0, colon)).append(kPlain).append(text.substr(colon));
}

int columns_of(int descriptor) {
  struct ::winsize size {};
  const bool asked = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  return asked && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace attnjit::cli
