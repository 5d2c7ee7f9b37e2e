// SPDX-License-Identifier: Apache-2.0
// Enumerates the legal combinations of a plan's knobs.
#include "tune/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace attnjit::tune {
namespace {

// What tells one kernel of a spec from another: its constants, and what it is launched with.
std::string identity(const KernelPlan& plan) {
  std::string text =
      fmt::format("{} {} {}", plan.main().threads, plan.main().cluster, plan.main().smem_bytes);
  for (const ConfigConstant& constant : plan.main().constants) {
    text += fmt::format("\n{} {}", constant.name, constant.value);
  }
  return text;
}

std::vector<TuningKnob> knobs_to_turn(const KernelPlan& plan) {
  std::vector<TuningKnob> knobs = tuning_knobs(plan);
  std::erase_if(knobs, [](const TuningKnob& knob) { return knob.values.empty(); });
  return knobs;
}

/// How many knobs a plan has otherwise. NOTE: what it has, not what it was asked for: a tile
/// without quarters of P has halves whether it is asked for them or for three quarters.
std::size_t turned_knobs(const KernelPlan& plan, const TuningValues& base) {
  std::size_t count = 0;
  for (const TuningKnob& knob : tuning_knobs(plan)) {
    const auto before = base.find(knob.name);
    if (before != base.end() && before->second != knob.chosen) ++count;
  }
  return count;
}

}  // namespace

Tuning table_of(TuningValues choose) {
  Tuning table;
  if (!choose.empty()) table.rows.push_back({{}, std::move(choose)});
  return table;
}

Result<Variants> enumerate_variants(const AttentionSpec& spec, const PlanOptions& options,
                                    std::size_t most) {
  // NOTE: an empty table, so that whatever table plans come with by default is left aside.
  const Tuning untuned;
  Result<KernelPlan> planned = plan(spec, options, &untuned);
  if (!planned) return std::move(planned).error();
  if (!planned->supported) return make_error(ErrorCode::kUnsupported, planned->reason);
  const std::vector<TuningKnob> knobs = knobs_to_turn(*planned);
  TuningValues base;
  for (const TuningKnob& knob : knobs) base[knob.name] = knob.chosen;
  const Tuning base_table = table_of(base);
  const Result<KernelPlan> pinned = plan(spec, options, &base_table);
  if (!pinned || identity(*pinned) != identity(*planned)) {
    return make_error(ErrorCode::kInternal, "the untuned plan's choices do not give its kernel");
  }

  Variants variants;
  std::set<std::string> seen{identity(*planned)};
  std::vector<Variant> others;
  std::vector<std::size_t> at(knobs.size(), 0);
  for (bool more = !knobs.empty(); more;) {
    TuningValues choose;
    for (std::size_t i = 0; i < knobs.size(); ++i) choose[knobs[i].name] = knobs[i].values[at[i]];
    const Tuning table = table_of(choose);
    Result<KernelPlan> tuned = plan(spec, options, &table);
    if (!tuned || !tuned->supported) {
      ++variants.illegal;
    } else if (seen.insert(identity(*tuned)).second) {
      const std::size_t turned = turned_knobs(*tuned, base);
      others.push_back({std::move(choose), *std::move(tuned), turned});
    } else {
      ++variants.duplicates;
    }
    more = false;
    for (std::size_t i = 0; i < at.size() && !more; ++i) {
      more = ++at[i] < knobs[i].values.size();
      if (!more) at[i] = 0;
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Variant& a, const Variant& b) { return a.turned < b.turned; });
  const std::size_t kept = std::min(others.size(), most > 0 ? most - 1 : 0);
  variants.left_out = others.size() - kept;
  others.resize(kept);
  variants.list.push_back({base, *std::move(planned), 0});
  std::move(others.begin(), others.end(), std::back_inserter(variants.list));
  return variants;
}

}  // namespace attnjit::tune
