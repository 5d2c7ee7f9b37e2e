// SPDX-License-Identifier: Apache-2.0
// The members of a kernel's struct Config as C++ literals.
#include "plan/kernel/constants.h"

#include <fmt/format.h>

#include <utility>

#include "plan/kernel/partials.h"
#include "spec/scalars.h"

namespace attnjit {

void Constants::add(std::string name, FieldValue value) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    list_.push_back({"bool", std::move(name), *flag ? "true" : "false"});
  } else if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) {
    list_.push_back({"int", std::move(name), std::to_string(*number)});
  } else if (const double* real = std::get_if<double>(&value)) {
    // Hexadecimal: the same float whatever the locale and the reader's rounding.
    const auto narrow = static_cast<float>(*real);
    list_.push_back({"float", std::move(name), fmt::format("{:a}f", narrow)});
  } else {
    const auto& numbers = std::get<std::vector<std::int64_t>>(value);
    list_.push_back({"int", fmt::format("{}[{}]", name, numbers.size()),
                     fmt::format("{{{}}}", fmt::join(numbers, ", "))});
  }
}

void Constants::add_barriers(const BarrierList& barriers, std::span<const char* const> groups) {
  for (const char* group : groups) add(group, barriers.first_of(group));
  for (const char* group : groups.empty() ? barriers.groups() : std::vector<const char*>()) {
    add(group, barriers.first_of(group));
  }
  std::vector<std::int64_t> arrivals;
  for (const BarrierPlan& barrier : barriers.all()) arrivals.push_back(barrier.arrivals);
  add("kBarriers", barriers.size());
  add("kArrivals", std::move(arrivals));
}

void Constants::add_spec(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  add("kBf16", spec.qkv_dtype == Dtype::kBf16);
  add("kE4m3", spec.is_e4m3);
  add("kUpcastsKv", spec.upcasts_kv);
  add("kScales", static_cast<int>(spec.scales));
  add("kOutputBf16", spec.o_dtype == Dtype::kBf16);
  add("kOutputBytes", size_of(spec.o_dtype));
  add("kQkDepth", spec.qk_depth);
  add("kOvDepth", spec.ov_depth);
  add("kGroup", spec.group);
  add("kSink", spec.sink);
  add("kReturnLse", spec.return_lse);
  add("kLseIncludesSink", spec.lse_includes_sink);
  // NOTE: a list of keys (topk) names rows of the pool: no sequence has pages.
  add("kPageSize", spec.has_page_table ? spec.page_size : 0);
  add("kRagged", spec.ragged);
  add("kRaggedKv", spec.ragged_kv);
  add("kKvLensExcludeNew", spec.kv_lens_exclude_new);
  // Whether a row's maximum moves when its own scores say so: its bits are then its own.
  add("kRescaleByRow", spec.partition_keys > 0);
  add("kMergeOnePart", merges_one_part(spec));
  add("kDebugWaits", resolved.options().debug_waits.value_or(false));
  for (const spec::SpecScalar& scalar : spec::spec_scalars(spec)) {
    if (!scalar.constant || scalar.in_code) continue;
    if (scalar.is_integer) {
      add(scalar.constant_name,
          static_cast<std::int64_t>(spec::kernel_value(scalar.traits, scalar.value)));
    } else {
      add(scalar.constant_name, scalar.value);
    }
  }
}

}  // namespace attnjit
