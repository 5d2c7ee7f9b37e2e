#include "attnjit/tuning.h"

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

std::string_view mla_name(Mla mla) {
  switch (mla) {
    case Mla::kNone:
      return "none";
    case Mla::kPrefill:
      return "prefill";
    case Mla::kDecode:
      return "decode";
  }
  return "none";
}

std::string_view mask_kind_name(MaskSpec::Kind kind) {
  switch (kind) {
    case MaskSpec::Kind::kNull:
      return "null";
    case MaskSpec::Kind::kCausal:
      return "causal";
    case MaskSpec::Kind::kSlidingWindow:
      return "sliding_window";
    case MaskSpec::Kind::kChunked:
      return "chunked";
    case MaskSpec::Kind::kAnd:
      return "and";
    case MaskSpec::Kind::kOr:
      return "or";
    case MaskSpec::Kind::kMaterialized:
      return "materialized";
    case MaskSpec::Kind::kCustom:
      return "custom";
  }
  return "null";
}

std::string_view score_mod_kind_name(ScoreModSpec::Kind kind) {
  switch (kind) {
    case ScoreModSpec::Kind::kIdentity:
      return "identity";
    case ScoreModSpec::Kind::kAlibi:
      return "alibi";
    case ScoreModSpec::Kind::kSoftcap:
      return "softcap";
    case ScoreModSpec::Kind::kCustom:
      return "custom";
  }
  return "identity";
}

Json dtype_value(const std::optional<Dtype>& dtype) {
  return dtype ? Json(std::string(to_string(*dtype))) : Json(nullptr);
}

struct Field {
  const char* name;
  Json (*value)(const AttentionSpec&);
};

Json text(std::string_view value) { return Json(std::string(value)); }

// What a row may match on: every field that decides a kernel's text.
const std::array kFields{
    Field{"arch", [](const AttentionSpec& s) { return text(to_string(s.arch)); }},
    Field{"num_q_heads", [](const AttentionSpec& s) { return Json(s.num_q_heads); }},
    Field{"group", [](const AttentionSpec& s) { return Json(s.group); }},
    Field{"qk_depth", [](const AttentionSpec& s) { return Json(s.qk_depth); }},
    Field{"ov_depth", [](const AttentionSpec& s) { return Json(s.ov_depth); }},
    Field{"qkv_dtype", [](const AttentionSpec& s) { return text(to_string(s.qkv_dtype)); }},
    Field{"output_dtype", [](const AttentionSpec& s) { return dtype_value(s.output_dtype); }},
    Field{"rope_dtype", [](const AttentionSpec& s) { return dtype_value(s.rope_dtype); }},
    Field{"rope_gmem_dtype", [](const AttentionSpec& s) { return dtype_value(s.rope_gmem_dtype); }},
    Field{"scale_dtype", [](const AttentionSpec& s) { return dtype_value(s.scale_dtype); }},
    Field{"mla", [](const AttentionSpec& s) { return text(mla_name(s.mla)); }},
    Field{"page_size", [](const AttentionSpec& s) { return Json(s.page_size); }},
    Field{"ragged", [](const AttentionSpec& s) { return Json(s.ragged); }},
    Field{"sink", [](const AttentionSpec& s) { return Json(s.sink); }},
    Field{"return_lse", [](const AttentionSpec& s) { return Json(s.return_lse); }},
    Field{"lse_includes_sink", [](const AttentionSpec& s) { return Json(s.lse_includes_sink); }},
    Field{"num_partitions", [](const AttentionSpec& s) { return Json(s.num_partitions); }},
    Field{"max_seq_len", [](const AttentionSpec& s) { return Json(s.max_seq_len); }},
    Field{"mask", [](const AttentionSpec& s) { return text(mask_kind_name(s.mask.kind)); }},
    Field{"score_mod",
          [](const AttentionSpec& s) { return text(score_mod_kind_name(s.score_mod.kind)); }},
};

const Field* find_field(std::string_view name) {
  for (const Field& field : kFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

std::string field_names() {
  std::string names;
  for (const Field& field : kFields) {
    if (!names.empty()) names += ", ";
    names += field.name;
  }
  return names;
}

// Collects problems; the first becomes the Error, the rest its others.
class Problems {
 public:
  void add(std::string field, std::string message) {
    Error error = make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
    if (first_) {
      first_->others.push_back(std::move(error));
    } else {
      first_ = std::move(error);
    }
  }
  std::optional<Error>& first() { return first_; }

 private:
  std::optional<Error> first_;
};

bool same_type(const Json& a, const Json& b) {
  if (a.is_null()) return b.is_string();  // an unset dtype
  if (a.is_number_integer()) return b.is_number_integer();
  return a.type() == b.type();
}

void read_match(const Json& match, const std::string& where, TuningRow& row, Problems& problems) {
  if (!match.is_object()) {
    problems.add(where, "is not an object of spec fields");
    return;
  }
  const AttentionSpec prototype;
  for (const auto& [name, value] : match.items()) {
    const Field* field = find_field(name);
    if (field == nullptr) {
      problems.add(where + "." + name, "is no spec field; allowed: " + field_names());
    } else if (!value.is_null() && !same_type(field->value(prototype), value)) {
      problems.add(where + "." + name, "is " + value.dump() + ", of the wrong type");
    } else {
      row.match[name] = value.dump();
    }
  }
}

void read_choose(const Json& choose, const std::string& where, TuningRow& row, Problems& problems) {
  if (!choose.is_object() || choose.empty()) {
    problems.add(where, "is not an object of at least one choice");
    return;
  }
  for (const auto& [name, value] : choose.items()) {
    if (value.is_boolean()) {
      row.choose[name] = value.get<bool>() ? 1 : 0;
    } else if (value.is_number_integer() &&
               !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)) {
      row.choose[name] = value.get<std::int64_t>();
    } else {
      problems.add(where + "." + name, "is " + value.dump() + "; allowed: an integer or a boolean");
    }
  }
}

}  // namespace

Result<Tuning> tuning_from_json(std::string_view json) {
  // NOTE: a depth limit of its own: the parser is iterative, but a Json value is destroyed
  // recursively only as deep as it nests, and no valid table nests deeper than 4.
  constexpr int kMaxDepth = 8;
  bool too_deep = false;
  const Json document = Json::parse(
      json,
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  if (too_deep) {
    return make_error(ErrorCode::kInvalid, "nests deeper than a tuning table does", "tuning");
  }
  if (document.is_discarded()) {
    return make_error(ErrorCode::kInvalid, "is not JSON", "tuning");
  }
  Problems problems;
  Tuning tuning;
  if (!document.is_object() || !document.contains("rows") || !document["rows"].is_array()) {
    return make_error(ErrorCode::kInvalid, "has no array \"rows\"", "tuning");
  }
  for (const auto& [name, value] : document.items()) {
    if (name != "rows" && name != "name" && name != "source") {
      problems.add("tuning." + name, "is unknown; allowed: rows, name, source");
    }
  }
  std::size_t index = 0;
  for (const Json& entry : document["rows"]) {
    const std::string where = "rows[" + std::to_string(index++) + "]";
    if (!entry.is_object()) {
      problems.add(where, "is not an object");
      continue;
    }
    for (const auto& [name, value] : entry.items()) {
      if (name != "match" && name != "choose" && name != "source") {
        problems.add(where + "." + name, "is unknown; allowed: match, choose, source");
      }
    }
    TuningRow row;
    if (entry.contains("match")) read_match(entry["match"], where + ".match", row, problems);
    read_choose(entry.contains("choose") ? entry["choose"] : Json(), where + ".choose", row,
                problems);
    tuning.rows.push_back(std::move(row));
  }
  if (problems.first()) return *std::move(problems.first());
  return tuning;
}

const TuningRow* find_tuning(const Tuning& tuning, const AttentionSpec& resolved) {
  const TuningRow* best = nullptr;
  for (const TuningRow& row : tuning.rows) {
    bool matches = true;
    for (const auto& [name, value] : row.match) {
      const Field* field = find_field(name);
      matches = matches && field != nullptr && field->value(resolved).dump() == value;
    }
    if (matches && (best == nullptr || row.match.size() > best->match.size())) best = &row;
  }
  return best;
}

}  // namespace attnjit
