// SPDX-License-Identifier: Apache-2.0
// Parses the lines of NVRTC's program log.
#include "compile/compile_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace attnjit {
namespace {

constexpr std::string_view kUserPrefix = "user:";
constexpr std::size_t kMaxMessages = 1000;

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

/// Digits, and nothing else, as a number.
std::optional<int> number(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The number that ends right before `suffix`, as in "256 bytes smem".
int number_before(std::string_view line, std::string_view suffix) {
  const std::size_t end = line.find(suffix);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  return number(line.substr(begin, end - begin)).value_or(0);
}

/// The text between the first two single quotes.
std::string quoted(std::string_view line) {
  const std::size_t begin = line.find('\'');
  if (begin == std::string_view::npos) return {};
  const std::size_t end = line.find('\'', begin + 1);
  if (end == std::string_view::npos) return {};
  return std::string(line.substr(begin + 1, end - begin - 1));
}

/// "FILE(LINE): error #20: text", with any of the front end's severities.
std::optional<CompilerMessage> message_of(std::string_view line) {
  constexpr std::array<std::string_view, 7> kSeverities = {"catastrophic error",
                                                           "internal error",
                                                           "command-line error",
                                                           "error",
                                                           "warning",
                                                           "remark",
                                                           "note"};
  for (std::size_t at = line.find("): "); at != std::string_view::npos;
       at = line.find("): ", at + 1)) {
    const std::size_t open = line.rfind('(', at);
    if (open == std::string_view::npos || open == 0) continue;
    const auto position = number(line.substr(open + 1, at - open - 1));
    if (!position) continue;
    const std::string_view rest = line.substr(at + 3);
    for (const std::string_view severity : kSeverities) {
      if (!starts_with(rest, severity)) continue;
      std::string_view text = rest.substr(severity.size());
      if (!starts_with(text, ":") && !starts_with(text, " #")) continue;
      const std::size_t colon = text.find(": ");
      if (colon == std::string_view::npos) continue;
      CompilerMessage message;
      message.file = std::string(line.substr(0, open));
      message.line = *position;
      message.error = severity.find("error") != std::string_view::npos;
      message.text = std::string(text.substr(colon + 2));
      return message;
    }
  }
  return std::nullopt;
}

/// `... at line 3 of "user:mask.code"` and `... at line 3 of user:mask.code`.
void read_origin(std::string_view line, CompilerMessage& message) {
  constexpr std::string_view kAt = "at line ";
  const std::size_t at = line.rfind(kAt);
  if (at == std::string_view::npos || !message.origin_file.empty()) return;
  std::string_view rest = line.substr(at + kAt.size());
  const std::size_t of = rest.find(" of ");
  if (of == std::string_view::npos) return;
  const auto position = number(rest.substr(0, of));
  std::string_view file = rest.substr(of + 4);
  if (starts_with(file, "\"")) file.remove_prefix(1);
  while (!file.empty() && (file.back() == '"' || file.back() == ' ')) file.remove_suffix(1);
  if (!position || !starts_with(file, kUserPrefix)) return;
  message.origin_file = std::string(file);
  message.origin_line = *position;
}

/// The column of a caret line, which is indented by two more than the source.
int caret_column(std::string_view line) {
  const std::size_t caret = line.find('^');
  if (caret == std::string_view::npos || caret < 2) return 0;
  if (line.find_first_not_of(" \t") != caret) return 0;
  if (line.find_first_not_of(" ~", caret + 1) != std::string_view::npos) return 0;
  return static_cast<int>(caret) - 1;
}

/// "(C7508)", anywhere in a line of ptxas.
bool is_advisory(std::string_view line) {
  const std::size_t at = line.find("(C7");
  if (at != std::string_view::npos) {
    const std::size_t close = line.find(')', at);
    if (close != std::string_view::npos && number(line.substr(at + 2, close - at - 2))) return true;
  }
  return line.find("Potential Performance Loss") != std::string_view::npos;
}

/// A row of `--time`'s table, "attention.cu, NVVM Optimizer, 10, ms". The file's name may hold
/// commas, so it is read from the right.
void read_time(std::string_view row, CompileTimes& times) {
  const std::size_t unit = row.rfind(", ");
  if (unit == std::string_view::npos || unit == 0 || row.substr(unit + 2) != "ms") return;
  const std::size_t number = row.rfind(", ", unit - 1);
  if (number == std::string_view::npos || number == 0) return;
  const std::size_t phase = row.rfind(", ", number - 1);
  if (phase == std::string_view::npos) return;
  const std::string_view digits = row.substr(number + 2, unit - number - 2);
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc() || !(value >= 0 && value < 1e9)) return;
  const std::string_view name = row.substr(phase + 2, number - phase - 2);
  if (name == "CUDA C++ Frontend") times.frontend_ms += value;
  if (name == "NVVM Optimizer") times.optimizer_ms += value;
  if (name == "PTX Translation") times.ptxas_ms += value;
}

class Parser {
 public:
  Parser(ParsedLog& out, const std::vector<std::string_view>& files) : out_(out), files_(files) {}

  void line(std::string_view text) {
    if (text == "File name, phase name, metric, unit") {
      in_table_ = true;
      return;
    }
    if (in_table_ && !text.empty()) return read_time(text, out_.times);
    in_table_ = false;
    if (starts_with(text, "ptxas")) {
      hidden_ = false;
      open_ = false;
      ptxas(text);
      keep(text);
      return;
    }
    if (std::optional<CompilerMessage> message = message_of(text)) {
      hidden_ = !is_ours(message->file);
      open_ = !hidden_ && out_.messages.size() < kMaxMessages;
      if (open_) out_.messages.push_back(*std::move(message));
      if (!hidden_) keep(text);
      return;
    }
    if (text.empty()) {
      if (!hidden_) keep(text);
      hidden_ = false;
      open_ = false;
      return;
    }
    if (hidden_) return;
    if (open_) {
      CompilerMessage& message = out_.messages.back();
      if (message.column == 0) message.column = caret_column(text);
      read_origin(text, message);
    }
    keep(text);
  }

 private:
  bool is_ours(std::string_view file) const {
    return starts_with(file, kUserPrefix) ||
           std::find(files_.begin(), files_.end(), file) != files_.end();
  }

  void keep(std::string_view text) {
    out_.text += text;
    out_.text += '\n';
  }

  FunctionUsage& function(const std::string& name) {
    for (FunctionUsage& known : out_.functions) {
      if (known.name == name) return known;
    }
    out_.functions.emplace_back();
    out_.functions.back().name = name;
    return out_.functions.back();
  }

  void ptxas(std::string_view text) {
    if (starts_with(text, "ptxas fatal") || starts_with(text, "ptxas error") ||
        text.find("; error   :") != std::string_view::npos ||
        text.find("; fatal   :") != std::string_view::npos) {
      out_.ptxas_errors.emplace_back(text);
      return;
    }
    if (is_advisory(text)) {
      out_.advisories.emplace_back(text);
      return;
    }
    if (text.find("Compiling entry function '") != std::string_view::npos) {
      entry_ = quoted(text);
      function(entry_).entry = true;
      return;
    }
    constexpr std::string_view kProperties = "Function properties for ";
    if (const std::size_t at = text.find(kProperties); at != std::string_view::npos) {
      current_ = std::string(text.substr(at + kProperties.size()));
      return;
    }
    if (text.find("bytes stack frame") != std::string_view::npos) {
      FunctionUsage& usage = function(current_);
      usage.stack_bytes = number_before(text, " bytes stack frame");
      usage.spill_bytes =
          number_before(text, " bytes spill stores") + number_before(text, " bytes spill loads");
      return;
    }
    constexpr std::string_view kUsed = ": Used ";
    if (text.find(kUsed) != std::string_view::npos) {
      FunctionUsage& usage = function(entry_);
      usage.registers = number_before(text, " registers");
      usage.barriers = number_before(text, " barriers");
      usage.static_smem_bytes = number_before(text, " bytes smem");
    }
  }

  ParsedLog& out_;
  const std::vector<std::string_view>& files_;
  std::string entry_, current_;
  bool hidden_ = false;  ///< inside a message of a file that is not ours
  bool open_ = false;    ///< inside the last message
  bool in_table_ = false;
};

}  // namespace

ParsedLog parse_log(std::string_view log, const std::vector<std::string_view>& files) {
  ParsedLog parsed;
  Parser parser(parsed, files);
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    parser.line(log.substr(0, end));
    log = end == std::string_view::npos ? std::string_view() : log.substr(end + 1);
  }
  while (!parsed.text.empty() && parsed.text.back() == '\n') parsed.text.pop_back();
  return parsed;
}

}  // namespace attnjit
