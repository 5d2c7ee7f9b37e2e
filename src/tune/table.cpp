// SPDX-License-Identifier: Apache-2.0
// Turns measured or modelled times into a row, and puts the row into the text of a tuning table.
#include "tune/table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "attnjit/tuning.h"

namespace attnjit::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMeasured = "measured";
constexpr const char* kModelled = "modelled";

Json match_json(const KernelPlan& plan) {
  Json match = Json::object();
  for (const auto& [name, text] : tuning_match(plan.spec)) match[name] = Json::parse(text);
  return match;
}

Json row_json(const TuneRequest& request, const TuneResult& result, std::string_view date) {
  const Measured& winner = result.variants[result.winner];
  const Measured& untuned = result.variants.front();
  Json row;
  row["match"] = match_json(untuned.variant.plan);
  row["choose"] = Json::object();
  for (const auto& [name, value] : winner.variant.choose) row["choose"][name] = value;
  const bool modelled = result.device.model_version != 0;
  Json& measured = row[modelled ? kModelled : kMeasured];
  measured["date"] = date;
  if (modelled) {
    measured["model_version"] = result.device.model_version;
  } else {
    measured["device"] = result.device.name;
    measured["driver"] = result.device.driver;
  }
  measured["sm_count"] = result.device.sm_count;
  measured["nvrtc"] = result.nvrtc_version;
  measured["num_q_heads"] = untuned.variant.plan.spec->num_q_heads;
  measured["key"] = winner.key;
  measured["untuned_key"] = untuned.key;
  measured["variants"] = result.variants.size();
  measured["ratio"] = winner.ratio;
  measured["control"] = result.control;
  measured["shapes"] = Json::array();
  for (std::size_t i = 0; i < request.shapes.size(); ++i) {
    const TuneShape& shape = request.shapes[i];
    measured["shapes"].push_back({{"batch", shape.batch},
                                  {"q_len", shape.q_len},
                                  {"kv_len", shape.kv_len},
                                  {"ms", winner.ms[i]},
                                  {"untuned_ms", untuned.ms[i]},
                                  {"ratio", winner.ratios[i]}});
  }
  return row;
}

}  // namespace

Result<std::string> table_with(std::string_view existing, const TuneRequest& request,
                               const TuneResult& result, std::string_view date) {
  Json table;
  if (existing.empty()) {
    table["rows"] = Json::array();
  } else {
    // NOTE: by the reader of tables first: it bounds depth and size, and knows what a table is.
    const Result<Tuning> known = tuning_from_json(existing);
    if (!known) return known.error();
    table = Json::parse(existing);
  }
  Json row = row_json(request, result, date);
  Json& rows = table["rows"];
  // NOTE: compared as unordered objects: a table that a person wrote may have another order.
  const nlohmann::json match = row["match"];
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const Json& other) {
    return nlohmann::json(other.value("match", Json::object())) == match;
  });
  if (same == rows.end()) {
    rows.push_back(std::move(row));
  } else if (row.contains(kModelled) && same->contains(kMeasured)) {
    return make_error(ErrorCode::kInvalid,
                      "has a row for this spec that a GPU measured: what a model says does not "
                      "replace it",
                      {}, "write to another file");
  } else {
    *same = std::move(row);
  }
  return table.dump(1) + "\n";
}

}  // namespace attnjit::tune
