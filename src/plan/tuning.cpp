// SPDX-License-Identifier: Apache-2.0
// Reads tuning tables from JSON, and finds the row that a spec matches.
#include "attnjit/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "plan/tables.h"
#include "spec/json_value.h"
#include "spec/spec_fields.h"
#include "spec/spec_reader.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using spec::JsonMember;
using spec::JsonValue;
using spec::SpecField;

const SpecField* find_match_field(std::string_view name) {
  const SpecField* field = spec::find_field(name);
  return field == nullptr || spec::is_option(*field) ? nullptr : field;
}

std::string match_names() {
  std::string names;
  for (const SpecField& field : spec::spec_fields()) {
    if (spec::is_option(field)) continue;
    if (!names.empty()) names += ", ";
    names += field.name;
  }
  return names;
}

// Reads a table; collects problems, of which the first becomes the Error and the rest its others.
class TableReader {
 public:
  Result<Tuning> read(const JsonValue& root) {
    const JsonValue* rows = nullptr;
    if (check_members(root, "tuning", {"rows", "else", "name", "source"})) {
      rows = root.find("rows");
      if (rows == nullptr || rows->type != JsonValue::Type::kArray) {
        problem(root, "tuning", "has no array \"rows\"");
        rows = nullptr;
      }
    }
    Tuning tuning;
    for (std::size_t i = 0; rows != nullptr && i < rows->items.size(); ++i) {
      tuning.rows.push_back(read_row(rows->items[i], fmt::format("rows[{}]", i)));
    }
    if (const JsonValue* others = root.find("else")) read_else(*others, tuning);
    if (first_) return *std::move(first_);
    return tuning;
  }

 private:
  template <class... Args>
  void problem(const JsonValue& at, std::string field, fmt::format_string<Args...> message,
               Args&&... args) {
    Error error = spec::invalid(std::move(field), message, std::forward<Args>(args)...);
    error.line = at.line;
    error.column = at.column;
    if (!first_) {
      first_ = std::move(error);
    } else if (first_->others.size() < static_cast<std::size_t>(spec::kMaxProblems)) {
      first_->others.push_back(std::move(error));
    }
  }

  // True for an object; each member that is unknown (where names are given) or double is a problem.
  bool check_members(const JsonValue& object, const std::string& where,
                     std::initializer_list<std::string_view> names) {
    if (object.type != JsonValue::Type::kObject) {
      problem(object, where, "is {}; allowed: an object", spec::describe(object));
      return false;
    }
    for (const JsonMember& member : object.members) {
      const std::string path = where + "." + member.name;
      if (member.duplicate) problem(member.value, path, "is given twice");
      if (names.size() > 0 && std::find(names.begin(), names.end(), member.name) == names.end()) {
        problem(member.value, path, "is unknown; allowed: {}", fmt::join(names, ", "));
      }
    }
    return true;
  }

  void read_else(const JsonValue& others, Tuning& tuning) {
    if (others.type != JsonValue::Type::kString || others.text != kModelledTuning) {
      problem(others, "else", "is {}; allowed: {}", spec::describe(others),
              spec::in_quotes(kModelledTuning));
      return;
    }
    Result<Tuning> carried = tuning_from_json(kModelledTuning);
    std::move(carried->rows.begin(), carried->rows.end(), std::back_inserter(tuning.rows));
  }

  TuningRow read_row(const JsonValue& entry, const std::string& where) {
    TuningRow row;
    if (!check_members(entry, where, {"match", "choose", "source", "measured", "modelled"}))
      return row;
    if (const JsonValue* match = entry.find("match")) read_match(*match, where + ".match", row);
    if (const JsonValue* modelled = entry.find("modelled")) {
      row.model_version = model_version(*modelled, where + ".modelled");
    }
    const JsonValue* choose = entry.find("choose");
    if (choose == nullptr) {
      problem(entry, where + ".choose", "is missing");
    } else {
      read_choose(*choose, where + ".choose", row);
    }
    return row;
  }

  void read_match(const JsonValue& match, const std::string& where, TuningRow& row) {
    if (!check_members(match, where, {})) return;
    for (const JsonMember& member : match.members) {
      const std::string path = where + "." + member.name;
      const SpecField* field = find_match_field(member.name);
      if (field == nullptr) {
        problem(member.value, path, "is no field to match; allowed: {}", match_names());
        continue;
      }
      const auto text = spec::field_text_of(*field, member.value);
      if (text) {
        row.match[member.name] = *text;
      } else {
        problem(member.value, path, "is {}; allowed: {}", spec::describe(member.value),
                spec::allowed(*field));
      }
    }
  }

  // What else a model's row says is for people.
  int model_version(const JsonValue& modelled, const std::string& where) {
    if (!check_members(modelled, where, {})) return 0;
    const JsonValue* version = modelled.find("model_version");
    if (version == nullptr) {
      problem(modelled, where + ".model_version", "is missing");
    } else if (version->type != JsonValue::Type::kInteger || version->integer < 1 ||
               version->integer > kMaxVersion) {
      problem(*version, where + ".model_version", "is {}; allowed: 1 to {}",
              spec::describe(*version), kMaxVersion);
    } else {
      return static_cast<int>(version->integer);
    }
    return 0;
  }

  void read_choose(const JsonValue& choose, const std::string& where, TuningRow& row) {
    if (!check_members(choose, where, {})) return;
    if (choose.members.empty()) problem(choose, where, "is empty; allowed: at least one choice");
    for (const JsonMember& member : choose.members) {
      if (member.value.type == JsonValue::Type::kBool) {
        row.choose[member.name] = member.value.boolean ? 1 : 0;
      } else if (member.value.type == JsonValue::Type::kInteger) {
        row.choose[member.name] = member.value.integer;
      } else {
        problem(member.value, where + "." + member.name, "is {}; allowed: an integer, true, false",
                spec::describe(member.value));
      }
    }
  }

  static constexpr std::int64_t kMaxVersion = 1 << 20;

  std::optional<Error> first_;
};

// Of two rows that match a spec: what no model made goes first, then what says more of the spec.
bool goes_before(const TuningRow& a, const TuningRow& b) {
  const auto is_modelled = [](const TuningRow& row) { return row.model_version != 0; };
  if (is_modelled(a) != is_modelled(b)) return is_modelled(b);
  return a.match.size() > b.match.size();
}

}  // namespace

Result<Tuning> tuning_from_json(std::string_view json) {
  if (json == kModelledTuning) json = modelled_table();
  const Result<JsonValue> root = spec::parse_json(json, {.max_depth = 8});
  if (!root) return root.error();
  return TableReader().read(*root);
}

const TuningRow* find_tuning(const Tuning& tuning, const AttentionSpec& resolved) {
  const TuningRow* best = nullptr;
  for (const TuningRow& row : tuning.rows) {
    bool matches = true;
    for (const auto& [name, value] : row.match) {
      const SpecField* field = find_match_field(name);
      matches = matches && field != nullptr && spec::field_text(*field, resolved) == value;
    }
    if (matches && (best == nullptr || goes_before(row, *best))) best = &row;
  }
  return best;
}

std::map<std::string, std::string> tuning_match(const AttentionSpec& resolved) {
  std::map<std::string, std::string> match;
  for (const SpecField& field : spec::spec_fields()) {
    const auto* number = std::get_if<int AttentionSpec::*>(&field.member);
    const auto is = [&](auto member) { return number != nullptr && *number == member; };
    if (spec::is_option(field) || is(&AttentionSpec::num_q_heads)) continue;
    if (is(&AttentionSpec::max_q_len) && resolved.max_q_len == 0) continue;
    if (is(&AttentionSpec::max_seq_len) && resolved.max_seq_len == 0) continue;
    std::string text = spec::field_text(field, resolved);
    if (text != "null") match[std::string(field.name)] = std::move(text);
  }
  return match;
}

}  // namespace attnjit
