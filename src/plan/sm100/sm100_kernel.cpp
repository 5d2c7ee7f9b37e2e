// SPDX-License-Identifier: Apache-2.0
// Fills the template's side of an sm_100 plan: its constants, its parameters and the specs it
// serves.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "plan/kernel_parameters.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

using Names = std::pair<std::string_view, std::string_view>;

// Regions of shared memory and the Config members that hold where they begin; 0 where there is
// none. The ring's lie elsewhere in the body with one query tile, which has more stages.
constexpr std::array<Names, 5> kRegions{{
    {"Q", "kQOffset"},
    {"correction", "kCorrectionOffset"},
    {"barriers", "kBarrierOffset"},
    {"tmem address", "kTmemAddressOffset"},
    {"work", "kWorkOffset"},
}};
constexpr std::array<Names, 3> kRingRegions{{
    {"K ring", "kKOffset"},
    {"V ring", "kVOffset"},
    {"K rope", "kKRopeOffset"},
}};

// The first barriers of groups that the template addresses by index.
constexpr std::array<Names, 12> kBarriers{{
    {"S0_cons[0]", "kBarSCons"},
    {"C0_prod", "kBarC"},
    {"S0_prod", "kBarSProd"},
    {"Q0_prod", "kBarQProd"},
    {"Q0_cons", "kBarQCons"},
    {"K_prod", "kBarKProd"},
    {"K_cons", "kBarKCons"},
    {"V_prod", "kBarVProd"},
    {"V_cons", "kBarVCons"},
    {"O0_prod", "kBarOProd"},
    {"O0_staged", "kBarOStaged"},
    {"tail_prod", "kBarVTail"},
}};

std::string unsupported_reason(const AttentionSpec& spec, const PlanOptions& options,
                               const Sm100Plan& sm100) {
  const auto missing = [&](std::string_view what) {
    return fmt::format("the {} template has no {} yet", to_string(spec.arch), what);
  };
  if (sm100.reference == "depth512") return missing("depths 256 and 512 (qk_depth)");
  if (std::string reason = why_no_forward(spec); !reason.empty()) return reason;
  if (options.pair_cta.value_or(false)) return missing("pairs of CTAs (pair_cta)");
  if (options.swizzle_bytes.value_or(128) != 128) {
    return missing(fmt::format("swizzle of {} bytes (swizzle_bytes)", *options.swizzle_bytes));
  }
  return why_no_parameters(spec);
}

class Constants {
 public:
  explicit Constants(KernelPlan& plan) : plan_(plan) {}
  void add(std::string name, std::int64_t value) {
    plan_.constants.push_back({"int", std::move(name), std::to_string(value)});
  }
  void add_list(const std::string& name, std::size_t size, const std::string& values) {
    plan_.constants.push_back(
        {"int", fmt::format("{}[{}]", name, size), fmt::format("{{{}}}", values)});
  }
  void add_bool(std::string name, bool value) {
    plan_.constants.push_back({"bool", std::move(name), value ? "true" : "false"});
  }
  void add_float(std::string name, double value) {
    plan_.constants.push_back(
        {"float", std::move(name), fmt::format("{:a}f", static_cast<float>(value))});
  }

 private:
  KernelPlan& plan_;
};

// Where a barrier, or the first of its group, stands; -1, which is no barrier, where there is none.
std::int64_t barrier_index(const Sm100Variant& body, std::string_view name) {
  const auto found =
      std::find_if(body.barriers.begin(), body.barriers.end(), [&](const BarrierPlan& barrier) {
        return barrier.name == name || barrier.name == fmt::format("{}[0]", name);
      });
  return found == body.barriers.end() ? -1 : found - body.barriers.begin();
}

std::int64_t region_begin(const Sm100Variant& body, std::string_view region) {
  const std::string_view name = body.use_fused_kv && (region == "K ring" || region == "V ring")
                                    ? std::string_view("KV ring")
                                    : region;
  const auto found = std::find_if(body.smem.begin(), body.smem.end(),
                                  [&](const Sm100SmemRegion& r) { return r.name == name; });
  return found == body.smem.end() ? 0 : found->begin;
}

// What the two bodies of a plan have each of their own: rings of other lengths at other places.
void add_rings(const Sm100Variant& body, const std::string& suffix, Constants& constants) {
  constants.add("kStages" + suffix, body.num_kv_stages);
  constants.add("kRopeBuffers" + suffix, body.num_rope_buffers);
  for (const auto& [region, constant] : kRingRegions) {
    constants.add(std::string(constant) + suffix, region_begin(body, region));
  }
}

// What they share.
void add_body(const Sm100Variant& body, Constants& constants) {
  constants.add_bool("kFusedKv", body.use_fused_kv);
  constants.add("kKStageBytes", body.k_stage_bytes);
  constants.add("kVStageBytes", body.use_fused_kv ? body.k_stage_bytes : body.v_stage_bytes);
  for (const auto& [region, constant] : kRegions) {
    constants.add(std::string(constant), region_begin(body, region));
  }
  for (const auto& [barrier, constant] : kBarriers) {
    const bool in_ring = barrier.starts_with("K_") || barrier.starts_with("V_");
    const std::string name = body.use_fused_kv && in_ring ? fmt::format("KV{}", barrier.substr(1))
                                                          : std::string(barrier);
    constants.add(std::string(constant), barrier_index(body, name));
  }
  std::string arrivals;
  for (const BarrierPlan& barrier : body.barriers) {
    arrivals += fmt::format("{}{}", arrivals.empty() ? "" : ", ", barrier.arrivals);
  }
  constants.add("kBarriers", static_cast<std::int64_t>(body.barriers.size()));
  constants.add_list("kArrivals", body.barriers.size(), arrivals);
}

void add_constants(const Sm100Plan& sm100, KernelPlan& plan) {
  const AttentionSpec& spec = plan.spec;
  const Sm100Variant& variant = sm100.variants.front();
  Constants constants(plan);
  constants.add_bool("kBf16", spec.qkv_dtype == Dtype::kBf16);
  constants.add_bool("kOutputBf16", spec.output_dtype.value_or(spec.qkv_dtype) == Dtype::kBf16);
  constants.add("kQkDepth", spec.qk_depth);
  constants.add("kOvDepth", spec.ov_depth);
  constants.add("kGroup", spec.group);
  constants.add_bool("kFuseGqa", variant.fuse_gqa);
  constants.add("kPageSize", spec.page_size);
  constants.add_bool("kRagged", spec.ragged);
  constants.add_bool("kSink", spec.sink);
  constants.add_bool("kReturnLse", spec.return_lse);
  constants.add_bool("kLseIncludesSink", spec.lse_includes_sink);
  constants.add("kThreads", sm100.threads);
  constants.add("kNumQo", variant.num_qo);
  constants.add("kTileN", variant.BN);
  constants.add("kQkStages", variant.num_qk_stages);
  constants.add("kPvKeys0", variant.pv_keys.at(0));
  constants.add("kPvKeys1", variant.pv_keys.at(1));
  constants.add_bool("kSwitchTo1Q", sm100.can_switch_to_1q);
  add_body(variant, constants);
  add_rings(variant, "", constants);
  if (sm100.can_switch_to_1q) add_rings(sm100.variants.back(), "1Q", constants);
  for (const MemoryRange& range : variant.tmem) constants.add("kTmem" + range.name, range.begin);
  constants.add("kTmemColumns", variant.tmem_allocated);
  for (const Sm100Role& role : sm100.roles) {
    if (role.name == "softmax 0") constants.add("kSoftmaxRegisters", role.registers);
    if (role.name == "correction") constants.add("kCorrectionRegisters", role.registers);
    if (role.name == "mma") constants.add("kOtherRegisters", role.registers);
  }
  constants.add("kExp2FmaPairs", sm100.exp2_fma_pairs);
  constants.add_float("kRescaleThreshold", sm100.rescale_threshold);
  constants.add("kSmemBytes", sm100.smem_bytes);
  add_user_constants(spec, plan);
}

}  // namespace

void fill_sm100_kernel(const Sm100Plan& sm100, KernelPlan& plan) {
  plan.reason = unsupported_reason(plan.spec, plan.spec.options(), sm100);
  plan.supported = plan.reason.empty();
  if (!plan.supported) return;
  add_constants(sm100, plan);
  std::vector<std::string> integers{"num_q_heads", "total_tiles"};
  if (plan.spec->ragged) {
    integers.insert(integers.end(), {"batch", "total_q"});
  } else {
    integers.insert(integers.end(), {"q_len", "m_tiles", "total_heads", "section_heads"});
  }
  if (plan.spec->page_size > 0) integers.emplace_back("max_pages");
  if (plan.spec->page_size == 0 && !plan.spec->ragged) integers.emplace_back("kv_len");
  if (sm100.can_switch_to_1q) integers.emplace_back("one_query");
  add_forward_parameters(plan.spec, integers, plan);
}

}  // namespace attnjit
