// SPDX-License-Identifier: Apache-2.0
// What readers of JSON say of members and values that they do not take.
#include "spec/json_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spec/spec_fields.h"
#include "spec/text.h"

namespace attnjit::spec {

std::string path_of(const std::string& object, std::string_view member) {
  return (object.empty() ? object : object + ".") + printable(member);
}

std::string suggestion(std::string_view name, std::span<const std::string_view> names) {
  const std::string_view best = closest(name, names);
  return best.empty() ? std::string{} : fmt::format("did you mean `{}`?", best);
}

bool JsonProblems::full() const { return found_.size() >= static_cast<std::size_t>(kMaxProblems); }

Error JsonProblems::take() { return combine(std::move(found_)); }

void JsonProblems::check_members(const std::string& field, const JsonValue& object,
                                 std::string_view object_name,
                                 std::span<const std::string_view> names,
                                 std::string (*hint)(std::string_view name)) {
  for (const JsonMember& member : object.members) {
    if (full()) return;
    const std::string path = path_of(field, member.name);
    if (member.duplicate) {
      add(path, "is given twice; allowed: once", member);
    } else if (!names.empty() && std::ranges::find(names, member.name) == names.end()) {
      std::string say = hint == nullptr ? std::string() : hint(member.name);
      if (say.empty()) say = suggestion(member.name, names);
      add(path, fmt::format("is no field of {}; allowed: {}", object_name, join(names)), member,
          std::move(say));
    }
  }
}

bool JsonProblems::check_object(const std::string& field, const JsonValue& value,
                                std::string_view object_name,
                                std::span<const std::string_view> names) {
  if (value.type != JsonValue::Type::kObject) {
    add_wrong(field, value, "an object");
    return false;
  }
  check_members(field, value, object_name, names);
  return true;
}

std::optional<bool> JsonProblems::boolean(const std::string& field, const JsonValue& value) {
  if (value.type == JsonValue::Type::kBool) return value.boolean;
  add_wrong(field, value, "true, false");
  return std::nullopt;
}

std::optional<std::int64_t> JsonProblems::integer(const std::string& field, const JsonValue& value,
                                                  std::int64_t min, std::int64_t max,
                                                  const std::string& allowed) {
  using Type = JsonValue::Type;
  if (value.type == Type::kInteger && value.integer >= min && value.integer <= max) {
    return value.integer;
  }
  const bool fraction = value.type == Type::kReal && value.real >= static_cast<double>(min) &&
                        value.real <= static_cast<double>(max);
  add_wrong(field, value, allowed, fraction ? "write it without a decimal point or exponent" : "");
  return std::nullopt;
}

std::optional<std::string> JsonProblems::string(const std::string& field, const JsonValue& value,
                                                const std::string& allowed) {
  if (value.type == JsonValue::Type::kString) return value.text;
  add_wrong(field, value, allowed);
  return std::nullopt;
}

void JsonProblems::add_wrong(const std::string& field, const JsonValue& value,
                             const std::string& allowed, std::string hint) {
  add(field, "is " + describe(value) + "; allowed: " + allowed, value, std::move(hint));
}

}  // namespace attnjit::spec
