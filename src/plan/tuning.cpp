// SPDX-License-Identifier: Apache-2.0
// Reads tuning tables from JSON, and finds the row that a spec matches.
#include "attnjit/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "plan/tables.h"
#include "spec/json_problems.h"
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
    if (problems_.check_object("tuning", root, "a table", kFields)) {
      rows = root.find("rows");
      if (rows == nullptr || rows->type != JsonValue::Type::kArray) {
        problems_.add("tuning", "has no array \"rows\"", root);
        rows = nullptr;
      }
    }
    Tuning tuning;
    for (std::size_t i = 0; rows != nullptr && i < rows->items.size(); ++i) {
      tuning.rows.push_back(read_row(rows->items[i], fmt::format("rows[{}]", i)));
    }
    if (const JsonValue* others = root.find("else")) read_else(*others, tuning);
    if (!problems_.found().empty()) return problems_.take();
    return tuning;
  }

 private:
  void read_else(const JsonValue& others, Tuning& tuning) {
    if (others.type != JsonValue::Type::kString || others.text != kModelledTuning) {
      return problems_.add_wrong("else", others, spec::in_quotes(kModelledTuning));
    }
    Result<Tuning> carried = tuning_from_json(kModelledTuning);
    std::move(carried->rows.begin(), carried->rows.end(), std::back_inserter(tuning.rows));
  }

  TuningRow read_row(const JsonValue& entry, const std::string& where) {
    TuningRow row;
    if (!problems_.check_object(where, entry, "a row", kRowFields)) return row;
    if (const JsonValue* match = entry.find("match")) read_match(*match, where + ".match", row);
    if (const JsonValue* modelled = entry.find("modelled")) {
      row.model_version = model_version(*modelled, where + ".modelled");
    }
    const JsonValue* choose = entry.find("choose");
    if (choose == nullptr) {
      problems_.add(where + ".choose", "is missing", entry);
    } else {
      read_choose(*choose, where + ".choose", row);
    }
    return row;
  }

  void read_match(const JsonValue& match, const std::string& where, TuningRow& row) {
    if (!problems_.check_object(where, match, "a match", {})) return;
    for (const JsonMember& member : match.members) {
      const std::string path = where + "." + member.name;
      const SpecField* field = find_match_field(member.name);
      if (field == nullptr) {
        problems_.add(path, "is no field to match; allowed: " + match_names(), member);
        continue;
      }
      const auto text = spec::field_text_of(*field, member.value);
      if (text) {
        row.match[member.name] = *text;
      } else {
        problems_.add_wrong(path, member.value, spec::allowed(*field));
      }
    }
  }

  // What else a model's row says is for people.
  int model_version(const JsonValue& modelled, const std::string& where) {
    constexpr int kMaxVersion = 1 << 20;
    if (!problems_.check_object(where, modelled, "a model", {})) return 0;
    const std::string field = where + ".model_version";
    if (const JsonValue* version = modelled.find("model_version")) {
      const auto read =
          problems_.integer(field, *version, 1, kMaxVersion, fmt::format("1 to {}", kMaxVersion));
      return static_cast<int>(read.value_or(0));
    }
    problems_.add(field, "is missing", modelled);
    return 0;
  }

  void read_choose(const JsonValue& choose, const std::string& where, TuningRow& row) {
    if (!problems_.check_object(where, choose, "a row", {})) return;
    if (choose.members.empty()) {
      problems_.add(where, "is empty; allowed: at least one choice", choose);
    }
    for (const JsonMember& member : choose.members) {
      if (member.value.type == JsonValue::Type::kBool) {
        row.choose[member.name] = member.value.boolean ? 1 : 0;
      } else if (member.value.type == JsonValue::Type::kInteger) {
        row.choose[member.name] = member.value.integer;
      } else {
        problems_.add_wrong(spec::path_of(where, member.name), member.value,
                            "an integer, true, false");
      }
    }
  }

  static constexpr std::string_view kFields[] = {"rows", "else", "name", "source"};
  static constexpr std::string_view kRowFields[] = {"match", "choose", "source", "measured",
                                                    "modelled"};
  spec::JsonProblems problems_;
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
