// SPDX-License-Identifier: Apache-2.0
// Says which specs the sm_90a template does not serve, and why.
#include <fmt/format.h>

#include "plan/kernel/forward_support.h"
#include "plan/kernel/signature.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {
namespace {

/// Why the template does not serve a spec whose K and V are e4m3; empty: it does, or they are not.
std::string why_no_e4m3(const SpecFacts& spec) {
  if (spec.type_of_kv() != Dtype::kE4m3) return {};
  if (spec.qk_depth % 16 != 0 || spec.ov_depth % 16 != 0) {
    return fmt::format(
        "TMA needs rows of whole 16 bytes: qk_depth {} and ov_depth {} of e4m3 must be multiples "
        "of 16",
        spec.qk_depth, spec.ov_depth);
  }
  // NOTE: with 64 keys they lack 280 bytes of shared memory, and with one V consumers spill 124
  // bytes in their loop.
  if (constexpr int kMost = 192; spec.upcasts_kv && spec.key_scales && spec.qk_depth > kMost) {
    return fmt::format(
        "the {} template has scales of rows (scales) beside a Q of another type (kv_dtype) to "
        "qk_depth {}, not {}: deeper tiles leave no memory for them",
        to_string(spec.arch), kMost, spec.qk_depth);
  }
  return {};
}

}  // namespace

std::string sm90_unsupported_reason(const ResolvedSpec& resolved, const Sm90Plan& plan) {
  const SpecFacts& spec = resolved;
  if (std::string reason = unsupported_accumulation(spec); !reason.empty()) return reason;
  if (spec.o_dtype == Dtype::kE4m3 && spec.ov_depth % 16 != 0) {
    return fmt::format("TMA needs rows of whole 16 bytes: ov_depth {} of e4m3 is no multiple of 16",
                       spec.ov_depth);
  }
  if (std::string reason = first_reason(
          {unsupported_everywhere(spec), why_no_e4m3(spec), unsupported_partitions(spec)});
      !reason.empty()) {
    return reason;
  }
  if (spec.ov_depth > spec.qk_depth) {
    return fmt::format("the sm_90a template takes ov_depth up to qk_depth ({}), not {}",
                       spec.qk_depth, spec.ov_depth);
  }
  if (spec.qk_depth % 8 != 0 || spec.ov_depth % 8 != 0) {
    return fmt::format(
        "TMA needs rows of whole 16 bytes: qk_depth {} and ov_depth {} must be multiples of 8",
        spec.qk_depth, spec.ov_depth);
  }
  // What was asked for and cannot be had is no deviation: those are the planner's own choices.
  const PlanOptions& options = resolved.options();
  if (options.pair_cta.value_or(false)) return "sm_90a has no MMA of two CTAs (pair_cta)";
  if (options.swizzle_bytes.value_or(128) != 128) {
    return fmt::format(
        "the sm_90a template pads rows to whole 128-byte blocks; swizzle_bytes is {}",
        *options.swizzle_bytes);
  }
  if (options.num_qo && *options.num_qo != plan.num_consumers) {
    return fmt::format(
        "a CTA has {} consumer warpgroups of 64 rows for this spec on sm_90a, which num_qo {} does "
        "not change: leave num_qo out",
        plan.num_consumers, *options.num_qo);
  }
  return why_no_parameters(spec);
}

}  // namespace attnjit
