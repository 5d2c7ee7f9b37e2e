// SPDX-License-Identifier: Apache-2.0
// Says which specs the sm_100 kernels do not serve, and why.

#include "plan/sm100/sm100_heuristics.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "plan/kernel/forward_support.h"
#include "plan/kernel/signature.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

// Why no pair of CTAs serves a spec; empty: one does.
std::string why_no_pair(const SpecFacts& spec, const Sm100Plan& sm100) {
  const auto alone = [](std::string_view what) {
    return fmt::format("{} by CTAs that multiply alone: pair_cta is to be false", what);
  };
  if (sm100.published) return alone("partitions of the keys and packed keys are computed");
  if (sm100.spec->upcasts_kv) return alone("K and V are upcast");
  if (spec.separate_rope) return alone("a rope part of another type (rope_dtype) is multiplied");
  if (sm100.row_copies()) {
    return alone(
        fmt::format("pages of {} rows, which hold no box of TMA, are copied", spec.page_size));
  }
  const Sm100Variant& body = sm100.variants.front();
  const std::int64_t columns = sm100.swizzle_bytes / size_of(spec.qkv_dtype);
  if (body.v_cols_per_cta() % columns != 0) {
    return fmt::format(
        "each CTA of a pair has half of V's columns, {} of {}, which are no whole blocks of {}: "
        "pair_cta is to be false",
        body.v_cols_per_cta(), body.padded_ov_depth, columns);
  }
  return {};
}

}  // namespace

std::optional<Error> sm100_check_shape(const SpecFacts& spec) {
  const Dtype kv_dtype = spec.type_of_kv();
  if (spec.ov_depth > spec.qk_depth) {
    return sm100_unsupported("ov_depth {} is above qk_depth {}", spec.ov_depth, spec.qk_depth);
  }
  for (const auto& [depth, dtype] :
       {std::pair{spec.qk_depth, spec.qkv_dtype}, std::pair{spec.ov_depth, spec.qkv_dtype},
        std::pair{spec.qk_depth, kv_dtype}, std::pair{spec.ov_depth, kv_dtype},
        std::pair{spec.ov_depth, spec.o_dtype}}) {
    const int step = 16 / size_of(dtype);
    if (depth % step != 0) {
      return sm100_unsupported(
          "depth {} of {} is no multiple of {}: a row is no multiple of 16 bytes, in "
          "which it is loaded",
          depth, to_string(dtype), step);
    }
  }
  return std::nullopt;
}

std::string sm100_why_no_tiles(const Fa4Config& config) {
  // NOTE: the reference has none above 128 either, but there are kernels of those.
  if (config.pair_cta && config.qk_depth <= kSm100Pairless && config.num_qo() == 2) {
    return fmt::format("pair_cta needs a qk_depth above {}; it is {}", kSm100Pairless,
                       config.qk_depth);
  }
  if (!config.pair_cta || config.qk_depth <= 128 || config.num_qo() == 1) {
    return config.unsupported_with_any_keys();
  }
  // FlashAttention-4 has pairs of K's depth 192 with V of 128, too.
  Fa4Config::Args alone = config.args;
  alone.pair_cta = false;
  return Fa4Config(alone).unsupported_with_any_keys();
}

std::string sm100_unsupported_reason(const ResolvedSpec& resolved, const Sm100Plan& sm100) {
  const SpecFacts& spec = resolved;
  const PlanOptions& options = resolved.options();
  const auto missing = [&](std::string_view what) {
    return fmt::format("the {} template has no {} yet", to_string(spec.arch), what);
  };
  if (std::string reason = unsupported_everywhere(spec); !reason.empty()) return reason;
  if (spec.separate_rope && spec.copies_rows) {
    return missing(fmt::format(
        "rope part of another type (rope_dtype) in pages of {} rows, which hold no box of TMA",
        spec.page_size));
  }
  // As many bytes as the rope part has elements: it is whole blocks of columns, and they are its.
  constexpr int kRopeSwizzleBytes = 64;
  if (spec.separate_rope && sm100.swizzle_bytes != kRopeSwizzleBytes) {
    return missing(fmt::format(
        "rope part of another type (rope_dtype) beside blocks of {} bytes but {} (swizzle_bytes)",
        sm100.swizzle_bytes, kRopeSwizzleBytes));
  }
  if (std::string reason = unsupported_partitions(spec); !reason.empty()) return reason;
  if (spec.partition_keys > 0 && sm100.softmax_warpgroups == 2 && options.num_qo.value_or(2) != 2) {
    return fmt::format(
        "partition_keys takes two query tiles per CTA, of a warpgroup each; num_qo is {}",
        *options.num_qo);
  }
  if (std::string reason = unsupported_accumulation(spec); !reason.empty()) return reason;
  if (sm100.cluster > 1) {
    if (std::string reason = why_no_pair(spec, sm100); !reason.empty()) return reason;
  }
  if (sm100.swizzle_bytes == 32 || (sm100.swizzle_bytes == 64 && !spec.is_e4m3)) {
    return fmt::format(
        "the {} template has no swizzle of {} bytes for {}: swizzle_bytes is to be {}",
        to_string(spec.arch), sm100.swizzle_bytes, to_string(spec.qkv_dtype),
        spec.is_e4m3 ? "64 or 128" : "128");
  }
  return why_no_parameters(spec);
}

}  // namespace attnjit
