// SPDX-License-Identifier: Apache-2.0
// A spec from the command line: a JSON file, flags of the fields' names, or both.
#include "spec/spec_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "spec/kinds.h"
#include "spec/spec_fields.h"
#include "spec/spec_reader.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;

enum class FlagType : std::uint8_t { kInt, kBool, kName, kNameOrJson };
constexpr std::array kFlagTypes{"INT", "BOOL", "NAME", "NAME|JSON"};

template <class T>
constexpr bool kIsOptional = requires {
  typename T::value_type;
};

template <class T>
constexpr FlagType flag_type() {
  if constexpr (kIsOptional<T>) return flag_type<typename T::value_type>();
  if (Masking<T>) return FlagType::kNameOrJson;
  if (std::is_same_v<T, bool>) return FlagType::kBool;
  return std::is_enum_v<T> ? FlagType::kName : FlagType::kInt;
}

FlagType type_of(const SpecField& field) {
  return visit_field(field, SpecDocument{}, []<class T>(const T&) { return flag_type<T>(); });
}

std::string flag_name(std::string_view field) {
  std::string name = "--" + std::string(field);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

template <class Node>
void add_plain_kinds(std::vector<std::string>& values) {
  for (const KindRow<Node>& row : kinds<Node>()) {
    if (row.holds == Holds::kNothing || row.holds == Holds::kSlopes) values.emplace_back(row.name);
  }
}

/// What a shell can offer for a field: the names that stand alone.
std::vector<std::string> values_of(const SpecField& field) {
  std::vector<std::string> values;
  if (field.name == "mask") {
    add_plain_kinds<MaskSpec>(values);
  } else if (field.name == "score_mod") {
    add_plain_kinds<ScoreModSpec>(values);
  } else if (type_of(field) == FlagType::kName || !field.values.empty()) {
    const std::string all = allowed(field);
    for (std::size_t at = 0; at <= all.size();) {
      const std::size_t end = std::min(all.find(", ", at), all.size());
      values.push_back(all.substr(at, end - at));
      at = end + 2;
    }
  }
  return values;
}

Error bad_value(const SpecField& field, std::string_view text) {
  return invalid(std::string(field.name), "is {}; allowed: {}", in_quotes(text), allowed(field));
}

Result<JsonValue> parse_text(const SpecField& field, std::string_view text) {
  JsonValue value;
  const bool is_optional =
      visit_field(field, SpecDocument{}, []<class T>(const T&) { return kIsOptional<T>; });
  if (text == "null" && is_optional) return value;
  switch (type_of(field)) {
    case FlagType::kInt: {
      const char* end = text.data() + text.size();
      const auto [stop, status] = std::from_chars(text.data(), end, value.integer);
      if (status != std::errc{} || stop != end) return bad_value(field, text);
      value.type = JsonValue::Type::kInteger;
      value.real = static_cast<double>(value.integer);
      value.text = std::string(text);
      return value;
    }
    case FlagType::kBool:
      if (text != "true" && text != "false") return bad_value(field, text);
      value.type = JsonValue::Type::kBool;
      value.boolean = text == "true";
      return value;
    case FlagType::kName:
      return JsonValue::of_string(std::string(text));
    case FlagType::kNameOrJson: {
      const std::size_t begin = text.find_first_not_of(" \t\r\n");
      const bool is_json = begin != std::string_view::npos &&
                           std::string_view("{[\"").find(text[begin]) != std::string_view::npos;
      if (!is_json) return JsonValue::of_string(std::string(text));
      Result<JsonValue> parsed = parse_json(text);
      if (parsed) return parsed;
      Error error = std::move(parsed).error();
      error.field = std::string(field.name);
      return error;
    }
  }
  return bad_value(field, text);
}

}  // namespace

const std::vector<SpecFlag>& spec_flags() {
  static const std::vector<SpecFlag> flags = [] {
    std::vector<SpecFlag> all;
    for (const SpecField& field : spec_fields()) {
      const FlagType type = type_of(field);
      all.push_back({flag_name(field.name), std::string(field.name), type == FlagType::kBool,
                     kFlagTypes.at(static_cast<std::size_t>(type)),
                     fmt::format("{}: {}", field.help, allowed(field)), values_of(field)});
    }
    return all;
  }();
  return flags;
}

SpecInput::SpecInput() { root_.type = JsonValue::Type::kObject; }

Result<SpecInput> SpecInput::from_json(std::string_view text) {
  Result<JsonValue> root = parse_json(text);
  if (!root) return std::move(root).error();
  const JsonValue* specs = root->find("specs");
  if (specs != nullptr && specs->type == JsonValue::Type::kArray) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is a manifest of {} specs", specs->items.size()), {},
                      "name one of them, as FILE#0, or give the file to attnjit prewarm");
  }
  return from_object(std::move(root).value());
}

Result<SpecInput> SpecInput::from_manifest(std::string_view text, std::size_t index) {
  JsonLimits limits;
  limits.max_bytes = kMaxManifestBytes;
  const Result<JsonValue> root = parse_json(text, limits);
  if (!root) return root.error();
  const JsonValue* specs = root->find("specs");
  if (specs == nullptr || specs->type != JsonValue::Type::kArray) {
    return make_error(ErrorCode::kInvalid, "is no manifest", {},
                      "FILE#N is a spec of one: an object {name, source, specs}");
  }
  if (index >= specs->items.size()) {
    return invalid("specs", "there is no spec {}; allowed: 0 to {}", index,
                   static_cast<std::ptrdiff_t>(specs->items.size()) - 1);
  }
  return from_object(specs->items[index]);
}

Result<SpecInput> SpecInput::from_object(JsonValue root) {
  if (root.type != JsonValue::Type::kObject) {
    Error error =
        make_error(ErrorCode::kInvalid,
                   "the spec is " + describe(root) + "; allowed: an object with the spec's fields");
    error.line = root.line;
    error.column = root.column;
    return error;
  }
  SpecInput input;
  input.root_ = std::move(root);
  return input;
}

Status SpecInput::set(std::string_view name, std::string_view text) {
  std::string plain(name.starts_with("--") ? name.substr(2) : name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  const SpecField* field = find_field(plain);
  if (field == nullptr) {
    return make_error(ErrorCode::kInvalid, "is no field of a spec", printable(name));
  }
  std::erase_if(root_.members, [&](const JsonMember& member) { return member.name == plain; });
  std::erase_if(bad_flags_, [&](const Error& error) { return error.field == plain; });
  Result<JsonValue> value = parse_text(*field, text);
  if (!value) {
    bad_flags_.push_back(std::move(value).error());
    return {};
  }
  JsonMember member;
  member.name = plain;
  member.value = std::move(value).value();
  root_.members.push_back(std::move(member));
  return {};
}

Result<ResolvedSpec> SpecInput::read() const {
  Result<ResolvedSpec> read = read_spec(root_);
  if (bad_flags_.empty()) return read;
  std::vector<Error> problems = bad_flags_;
  if (!read) {
    // NOTE: a field whose flag is bad is absent, which read_spec may report once more.
    const auto add = [&](const Error& error) {
      const bool known = std::any_of(bad_flags_.begin(), bad_flags_.end(),
                                     [&](const Error& bad) { return bad.field == error.field; });
      if (!known) problems.push_back(error);
    };
    Error first = read.error();
    std::vector<Error> others = std::move(first.others);
    first.others.clear();
    add(first);
    for (const Error& error : others) add(error);
  }
  return combine(std::move(problems));
}

std::string SpecInput::excerpt(const Error& error) const {
  if (!error.field.ends_with(".code") || error.line == 0) return {};
  const JsonValue* code = find_path(root_, error.field);
  if (code == nullptr || code->type != JsonValue::Type::kString) return {};
  return caret_excerpt(code->text, error.line, error.column);
}

}  // namespace attnjit::spec
