// SPDX-License-Identifier: Apache-2.0
// Tuning: measured or modelled choices of tiles and stages for given specs, as a plain value that
// planning takes.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"

namespace attnjit {

struct KernelPlan;  // plan.h

/// Overrides by name: a tile, a stage count, a register budget. The planner of the architecture
/// knows the names, and refuses all others.
using TuningValues = std::map<std::string, std::int64_t>;

/// One row of a tuning table: a pattern of spec fields, and what is chosen where it matches.
struct TuningRow {
  /// Spec fields by their JSON names with the value's canonical JSON text ("\"bf16\"", "128",
  /// "true"; for mask and score_mod their kind). A field that is absent matches anything.
  std::map<std::string, std::string> match;
  TuningValues choose;
  /// Of the clock's model whose times made the row (docs/clock.md); 0: a GPU or a person made it.
  int model_version = 0;
};

/// A tuning table. Of the rows that match a spec, those that no model made go before those that one
/// made. Among them the one with the most fields wins; of equals, the first.
struct Tuning {
  std::vector<TuningRow> rows;
};

/// Names the rows that the library carries, which the clock's models of sm_100a and sm_103a made:
/// no GPU has measured them, and no plan takes them unasked.
inline constexpr std::string_view kModelledTuning = "modelled";

/// Reads a table: {"rows": [{"match": {"arch": "sm_100a", "qk_depth": 128}, "choose": {"BN":
/// 128}}]}. A row with "modelled" is a model's, and has its "model_version" there; "name" and
/// "source" of the table, "source" and "measured" of a row are for people. "else": "modelled" adds
/// the library's rows to the table; and the text kModelledTuning is a table of these alone. Errors:
/// kInvalid with each problem: text that is not JSON, a field that no spec has, a value of the
/// wrong type.
ATTNJIT_EXPORT Result<Tuning> tuning_from_json(std::string_view json);

/// The row for a spec, or null. `resolved` has every default filled in.
ATTNJIT_EXPORT const TuningRow* find_tuning(const Tuning& tuning, const AttentionSpec& resolved);

/// A choice that a row can make for a kernel.
struct TuningKnob {
  std::string name;
  /// The values that `attnjit tune` tries; plan() says which of them a kernel can take together
  /// with other choices. Empty: a row may choose it, but it is left alone.
  std::vector<std::int64_t> values;
  std::int64_t chosen = 0;  ///< what the plan has
};

/// Every choice that a row can make for this kernel. Empty for a plan that is not supported.
ATTNJIT_EXPORT std::vector<TuningKnob> tuning_knobs(const KernelPlan& plan);

/// What a row that is made for this spec matches: the fields that shape a kernel, with this spec's
/// values. Heads are left out; max_seq_len is left out where it is 0.
ATTNJIT_EXPORT std::map<std::string, std::string> tuning_match(const AttentionSpec& resolved);

}  // namespace attnjit
