// SPDX-License-Identifier: Apache-2.0
// Reads fields of a configuration.
#include "models/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "spec/text.h"

namespace attnjit::models {

using spec::describe;
using spec::JsonValue;

namespace {

/// Other names that published configurations have for a field.
constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
    {"hidden_size", "d_model"},
    {"hidden_size", "n_embd"},
    {"hidden_size", "n_embed"},
    {"num_attention_heads", "n_head"},
    {"num_attention_heads", "n_heads"},
    {"num_hidden_layers", "n_layer"},
    {"num_hidden_layers", "n_layers"},
    {"num_hidden_layers", "num_layers"},
    {"num_key_value_heads", "multi_query_group_num"},
    {"num_key_value_heads", "num_attention_groups"},
};

}  // namespace

Fields::Found Fields::find(std::string_view name) {
  std::vector<std::string_view> spellings{name};
  if (defaults_.names != nullptr) {
    if (const JsonValue* field = defaults_.names->find(name)) spellings.emplace_back(field->text);
    for (const spec::JsonMember& other : defaults_.names->members) {
      if (other.value.text == name) spellings.emplace_back(other.name);
    }
  }
  for (const auto& [usual, other] : kSpellings) {
    if (usual == name) spellings.push_back(other);
  }
  Found found;
  for (const JsonValue* object : {layer_, &object_}) {
    if (object == nullptr) continue;
    for (const std::string_view spelling : spellings) {
      read_.emplace(spelling);
      const JsonValue* const value = object->find(spelling);
      if (value != nullptr && found.value == nullptr) found = {value, true};
    }
  }
  if (found.value != nullptr || defaults_.fields == nullptr) return found;
  for (const std::string_view spelling : spellings) {
    if (const JsonValue* value = defaults_.fields->find(spelling)) return {value, false};
  }
  return found;
}

const JsonValue* Fields::value(std::string_view name) {
  const Found found = find(name);
  if (found.value == nullptr || found.value->type != JsonValue::Type::kNull) return found.value;
  if (defaults_.required != nullptr) {
    for (const JsonValue& required : defaults_.required->items) {
      if (required.text == name) fail(name, "is null, which this architecture does not allow");
    }
  }
  return nullptr;
}

const JsonValue* Fields::given(std::string_view name) {
  const Found found = find(name);
  return found.given && found.value->type != JsonValue::Type::kNull ? found.value : nullptr;
}

bool Fields::is_null(std::string_view name) {
  const Found found = find(name);
  return found.value != nullptr && found.value->type == JsonValue::Type::kNull;
}

int Fields::number_from(std::string_view name, int least, std::optional<int> otherwise) {
  const JsonValue* const found = value(name);
  if (found == nullptr) {
    if (!otherwise) {
      fail(name, fmt::format("is {}; allowed: a number from {} on",
                             is_null(name) ? "null" : "missing", least));
    }
    return otherwise.value_or(0);
  }
  if (found->type != JsonValue::Type::kInteger || found->integer < least ||
      found->integer > (1 << 20)) {
    fail(name, fmt::format("is {}; allowed: {} to 1048576", describe(*found), least));
    return 0;
  }
  return static_cast<int>(found->integer);
}

int Fields::number(std::string_view name, std::optional<int> otherwise) {
  return number_from(name, 1, otherwise);
}

int Fields::count(std::string_view name, std::optional<int> otherwise) {
  return number_from(name, 0, otherwise);
}

double Fields::real(std::string_view name) {
  const JsonValue* const found = value(name);
  if (found == nullptr) return 0;
  if ((found->type != JsonValue::Type::kReal && found->type != JsonValue::Type::kInteger) ||
      !(found->real > 0) || !std::isfinite(found->real)) {
    fail(name, "is " + describe(*found) + "; allowed: a number above 0");
    return 0;
  }
  return found->real;
}

bool Fields::flag(std::string_view name, bool otherwise) {
  const JsonValue* const found = value(name);
  if (found == nullptr) return otherwise;
  if (found->type != JsonValue::Type::kBool) {
    fail(name, "is " + describe(*found) + "; allowed: true, false");
    return otherwise;
  }
  return found->boolean;
}

std::string Fields::word(std::string_view name) {
  const JsonValue* const found = value(name);
  if (found == nullptr) return {};
  if (found->type != JsonValue::Type::kString) {
    fail(name, "is " + describe(*found) + "; allowed: a string");
    return {};
  }
  return found->text;
}

std::vector<std::string> Fields::names(std::string_view name) {
  std::vector<std::string> names;
  const JsonValue* const list = value(name);
  if (list == nullptr) return names;
  for (const JsonValue& item : list->items) {
    if (item.type != JsonValue::Type::kString) {
      fail_at(item, name, "holds " + describe(item) + "; allowed: names of kinds of layers");
      return {};
    }
    names.push_back(item.text);
  }
  if (names.empty()) fail(name, "is " + describe(*list) + "; allowed: a list of names");
  return names;
}

std::vector<int> Fields::numbers(std::string_view name) {
  std::vector<int> numbers;
  const JsonValue* const list = value(name);
  if (list == nullptr) return numbers;
  if (list->type != JsonValue::Type::kArray) {
    fail(name, "is " + describe(*list) + "; allowed: a list of numbers");
  }
  for (const JsonValue& item : list->items) {
    const bool flag = item.type == JsonValue::Type::kBool;
    if (!flag &&
        (item.type != JsonValue::Type::kInteger || item.integer < 0 || item.integer > (1 << 20))) {
      fail_at(item, name, "holds " + describe(item) + "; allowed: numbers from 0 to 1048576");
      return {};
    }
    numbers.push_back(flag ? static_cast<int>(item.boolean) : static_cast<int>(item.integer));
  }
  return numbers;
}

const JsonValue* Fields::inside(std::string_view name) {
  const JsonValue* const found = value(name);
  if (found != nullptr && found->type != JsonValue::Type::kObject) {
    fail(name, "is " + describe(*found) + "; allowed: an object");
    return nullptr;
  }
  return found;
}

void Fields::fail(std::string_view name, std::string message, std::string hint) {
  const Found found = find(name);
  if (found.value != nullptr && !found.given) message += " (by default of its class)";
  fail_at(found.given ? *found.value : object_, name, std::move(message), std::move(hint));
}

void Fields::fail_at(const JsonValue& at, std::string_view name, std::string message,
                     std::string hint) {
  if (error_) return;
  error_ = make_error(ErrorCode::kInvalid, std::move(message), std::string(name), std::move(hint));
  error_->line = at.line;
  error_->column = at.column;
}

void Fields::take_error(const Fields& inner, std::string_view name) {
  if (error_ || !inner.error_) return;
  error_ = inner.error_;
  error_->field = fmt::format("{}.{}", name, inner.error_->field);
}

}  // namespace attnjit::models
