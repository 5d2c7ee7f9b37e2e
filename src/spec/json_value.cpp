// SPDX-License-Identifier: Apache-2.0
// JsonValue: parsed JSON that knows where in the text each value stands, read under limits.
#include "spec/json_value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_set>
#include <utility>

#include "spec/text.h"

namespace attnjit::spec {
namespace {

/// Reads the text byte by byte and says how far the parser has come. nlohmann's SAX events carry
/// no position; it reads no further than one byte past the token of an event, which suffices to
/// find where the next token begins.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* count_;
};

/// A number that is not JSON's. The parser is given a string of the same length in its place.
struct BareNumber {
  std::size_t offset = 0;
  std::string_view spelling;
};

/// Puts strings in the place of Infinity, -Infinity and NaN, so that all offsets stay.
std::vector<BareNumber> quote_bare_numbers(std::string& text) {
  std::vector<BareNumber> found;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
      continue;
    }
    if (text[i] == '"') {
      quoted = true;
      continue;
    }
    if (i > 0 && (is_name_part(text[i - 1]) || text[i - 1] == '-')) continue;
    for (const std::string_view spelling : {"Infinity", "-Infinity", "NaN"}) {
      const std::size_t end = i + spelling.size();
      if (text.compare(i, spelling.size(), spelling) != 0) continue;
      if (end < text.size() && (is_name_part(text[end]) || text[end] == '.')) continue;
      found.push_back({i, spelling});
      text.replace(i, spelling.size(), '"' + std::string(spelling.size() - 2, 'x') + '"');
      i = end - 1;
      break;
    }
  }
  return found;
}

class TreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  TreeBuilder(std::string_view text, int max_depth, std::span<const BareNumber> bare)
      : text_(text), max_depth_(max_depth), bare_(bare) {}

  std::size_t* count() { return &count_; }
  JsonValue take_root() { return std::move(root_); }
  Error take_error() { return std::move(error_); }

  Error error_at(std::string message, std::size_t offset) {
    const auto [line, column] = position_of(offset);
    fail(std::move(message), line, column);
    return take_error();
  }

  bool null() { return add({}); }
  bool boolean(bool value) {
    return add({.type = JsonValue::Type::kBool, .boolean = value, .members = {}});
  }
  bool number_integer(number_integer_t value) {
    return add({.type = JsonValue::Type::kInteger,
                .integer = value,
                .real = static_cast<double>(value),
                .text = std::to_string(value),
                .members = {}});
  }
  bool number_unsigned(number_unsigned_t value) {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_integer(static_cast<std::int64_t>(value));
    }
    return number_float(static_cast<double>(value), std::to_string(value));
  }
  bool number_float(number_float_t value, const string_t& spelling) {
    return add({.type = JsonValue::Type::kReal, .real = value, .text = spelling, .members = {}});
  }
  bool string(string_t& value) {
    JsonValue* const placed = place(JsonValue::of_string(std::move(value)));
    if (const BareNumber* const bare = bare_at(token_begin_)) {
      const std::string_view spelling = bare->spelling;
      const bool nan = spelling == "NaN";
      placed->type = JsonValue::Type::kReal;
      placed->real = nan ? std::numeric_limits<double>::quiet_NaN()
                         : std::copysign(std::numeric_limits<double>::infinity(),
                                         spelling.front() == '-' ? -1.0 : 1.0);
      placed->text = std::string(spelling);
    }
    return true;
  }
  bool binary(binary_t&) { return false; }

  bool start_object(std::size_t) { return open(JsonValue::Type::kObject); }
  bool key(string_t& name) {
    Frame& frame = frames_.back();
    const auto [line, column] = take_position();
    if (bare_at(token_begin_) != nullptr) {
      fail("is not valid JSON: a name without quotes", line, column);
      return false;
    }
    JsonMember member;
    member.duplicate = !frame.names.insert(name).second;
    member.name = std::move(name);
    member.line = line;
    member.column = column;
    frame.node->members.push_back(std::move(member));
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(JsonValue::Type::kArray); }
  bool end_array() { return close(); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& exception) {
    // NOTE: `position` counts the bytes read, the offending one included.
    const std::size_t offset = position > 0 ? position - 1 : 0;
    std::string_view what = exception.what();
    if (const auto tag = what.find("] "); tag != std::string_view::npos)
      what.remove_prefix(tag + 2);
    if (what.starts_with("parse error")) {
      if (const auto colon = what.find(": "); colon != std::string_view::npos) {
        what.remove_prefix(colon + 2);
      }
    }
    error_ = error_at("is not valid JSON: " + printable(what, 200), offset);
    return false;
  }

 private:
  struct Frame {
    JsonValue* node;
    std::unordered_set<std::string> names;
  };

  void fail(std::string message, int line, int column) {
    error_ = make_error(ErrorCode::kInvalid, std::move(message));
    error_.line = line;
    error_.column = column;
  }

  /// Where a byte of the text stands. Called with offsets that only grow, except for errors.
  std::pair<int, int> position_of(std::size_t offset) {
    offset = std::min(offset, text_.size());
    if (offset < scanned_) {
      scanned_ = 0;
      line_ = 1;
      line_begin_ = 0;
    }
    for (; scanned_ < offset; ++scanned_) {
      if (text_[scanned_] == '\n') {
        ++line_;
        line_begin_ = scanned_ + 1;
      }
    }
    return {line_, static_cast<int>(offset - line_begin_) + 1};
  }

  /// The begin of the token of this event: the first byte after the token before that separates
  /// nothing.
  std::pair<int, int> take_position() {
    std::size_t begin = token_end_;
    while (begin < text_.size() &&
           std::string_view(" \t\r\n,:").find(text_[begin]) != std::string_view::npos) {
      ++begin;
    }
    token_end_ = count_;
    token_begin_ = begin;
    return position_of(begin);
  }

  /// The number that is no JSON's and begins at this byte, or null. Called with offsets that grow.
  const BareNumber* bare_at(std::size_t offset) {
    while (next_bare_ < bare_.size() && bare_[next_bare_].offset < offset) ++next_bare_;
    const bool here = next_bare_ < bare_.size() && bare_[next_bare_].offset == offset;
    return here ? &bare_[next_bare_] : nullptr;
  }

  JsonValue* place(JsonValue node) {
    const auto [line, column] = take_position();
    node.line = line;
    node.column = column;
    if (frames_.empty()) {
      root_ = std::move(node);
      return &root_;
    }
    JsonValue& parent = *frames_.back().node;
    if (parent.type == JsonValue::Type::kArray) {
      parent.items.push_back(std::move(node));
      return &parent.items.back();
    }
    parent.members.back().value = std::move(node);
    return &parent.members.back().value;
  }
  bool add(JsonValue node) {
    place(std::move(node));
    return true;
  }
  bool open(JsonValue::Type type) {
    // NOTE: a pointer into the parent's vector stays good: the parent grows only after this frame
    // is closed.
    JsonValue* placed = place({.type = type, .members = {}});
    if (frames_.size() >= static_cast<std::size_t>(max_depth_)) {
      fail(fmt::format("is nested too deeply; allowed: {} levels", max_depth_), placed->line,
           placed->column);
      return false;
    }
    frames_.push_back({placed, {}});
    return true;
  }
  bool close() {
    frames_.pop_back();
    token_end_ = count_;
    return true;
  }

  std::string_view text_;
  int max_depth_;
  std::size_t count_ = 0;
  std::size_t token_begin_ = 0;
  std::size_t token_end_ = 0;
  std::span<const BareNumber> bare_;
  std::size_t next_bare_ = 0;
  std::size_t scanned_ = 0;
  std::size_t line_begin_ = 0;
  int line_ = 1;
  std::vector<Frame> frames_;
  JsonValue root_;
  Error error_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const JsonMember& member : members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

JsonValue JsonValue::of_string(std::string value) {
  return {.type = Type::kString, .text = std::move(value), .members = {}};
}

Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    Error error =
        make_error(ErrorCode::kInvalid, fmt::format("the JSON text has {} bytes; allowed: up to {}",
                                                    text.size(), limits.max_bytes));
    error.line = 1;
    error.column = 1;
    return error;
  }
  std::string quoted;
  std::vector<BareNumber> bare;
  if (limits.bare_numbers) {
    quoted = text;
    bare = quote_bare_numbers(quoted);
    text = quoted;
  }
  TreeBuilder builder(text, limits.max_depth, bare);
  // NOTE: nlohmann's lexer takes a NUL for the end of the text and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return builder.error_at("is not valid JSON: a NUL byte", nul);
  }
  const CountingIterator first(text.data(), builder.count());
  const CountingIterator last(text.data() + text.size(), builder.count());
  if (!nlohmann::json::sax_parse(first, last, &builder)) return builder.take_error();
  return builder.take_root();
}

std::string describe(const JsonValue& value) {
  switch (value.type) {
    case JsonValue::Type::kNull:
      return "null";
    case JsonValue::Type::kBool:
      return value.boolean ? "true" : "false";
    case JsonValue::Type::kInteger:
    case JsonValue::Type::kReal:
      return printable(value.text);
    case JsonValue::Type::kString:
      return "the string " + in_quotes(value.text);
    case JsonValue::Type::kArray:
      return "an array";
    case JsonValue::Type::kObject:
      return "an object";
  }
  return "unknown";
}

const JsonValue& nearest(const JsonValue& root, std::string_view path) {
  for (;;) {
    if (const JsonValue* at = find_path(root, path)) return *at;
    const std::size_t cut = path.find_last_of(".[");
    path = path.substr(0, cut == std::string_view::npos ? 0 : cut);
  }
}

const JsonValue* find_path(const JsonValue& root, std::string_view path) {
  const JsonValue* at = &root;
  while (!path.empty() && at != nullptr) {
    if (path.front() == '.') {
      path.remove_prefix(1);
    } else if (path.front() == '[') {
      std::size_t index = 0;
      const char* begin = path.data() + 1;
      const auto [end, status] = std::from_chars(begin, path.data() + path.size(), index);
      if (status != std::errc{} || index >= at->items.size()) return nullptr;
      at = &at->items[index];
      path.remove_prefix(static_cast<std::size_t>(end - path.data()) + 1);
    } else {
      const std::size_t length = std::min(path.find_first_of(".["), path.size());
      at = at->find(path.substr(0, length));
      path.remove_prefix(length);
    }
  }
  return at;
}

}  // namespace attnjit::spec
