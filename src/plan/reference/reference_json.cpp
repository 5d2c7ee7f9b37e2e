// SPDX-License-Identifier: Apache-2.0
// Prints the reference configurations as JSON, and chooses the one that a spec gets.
#include "plan/reference/reference_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "plan/kernel/fields.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kNames{"auto", "fa4", "mla", "depth512", "sm90"};

std::int64_t default_swizzle(Dtype dtype) { return size_of(dtype) == 1 ? 64 : 128; }

std::int64_t ov_depth_of(const AttentionSpec& spec) { return resolve(spec).ov_depth; }

Json name_or_null(const std::optional<Dtype>& dtype) {
  return dtype ? Json(std::string(to_string(*dtype))) : Json(nullptr);
}

#define MEMBER(name) ATTNJIT_MEMBER(Config, name)

// What TMAConsumerPipeline derives from a configuration, for K or for V.
Json pipeline_json(const Fa4Config& config, bool is_k) {
  const std::int64_t q = config.qkv_dtype_size();
  const std::int64_t k_rows = config.k_rows_per_cta(), v_cols = config.v_cols_per_cta();
  const std::int64_t tile_rows = is_k ? k_rows : config.BN;
  const std::int64_t full_k_bytes =
      k_rows * q * config.padded_ov_depth + k_rows * config.rope_depth() * config.rope_dtype_size();
  return Json{{"BK", is_k ? config.BK0() : config.BK1()},
              {"BMN", is_k ? k_rows : v_cols},
              {"full_kv_bytes", is_k ? full_k_bytes : v_cols * config.BN * q},
              {"staged_k_bytes", k_rows * config.BK0() * q},
              {"is_k_major", is_k},
              {"num_qk_stages_effective", is_k ? config.num_qk_stages : 1},
              {"kv_sub_tile_rows", kv_sub_tile_rows(tile_rows, config.args.page_size)},
              {"kv_num_sub_tiles", kv_num_sub_tiles(tile_rows, config.args.page_size)}};
}

// What the oldest kernel of the family (SM100MHA2Q) derives from a configuration: element offsets
// of its shared memory, sizes of its tiles. It knew no fused ring, no rope part and no pair.
Json mha_2q_json(const Fa4Config& config) {
  using Config = Fa4Config;
  const std::int64_t q = config.qkv_dtype_size();
  const std::int64_t half = config.BM() / 2, depth = config.padded_qk_depth;
  const std::int64_t swizzle = config.swizzle_elements();
  const std::int64_t kv_offset = config.BM() * depth;
  const std::int64_t kv_elements = 2 * config.num_kv_stages * depth * config.BN;
  const std::int64_t correction = (kv_offset + kv_elements) * q / 4;  // floats
  Json json;
  add_members(config, json, MEMBER(BM), MEMBER(BN), std::pair{"HalfBM", half},
              std::pair{"MMA_M", half}, std::pair{"MMA_K", 16}, std::pair{"num_m_mmas", 2},
              std::pair{"padded_depth", depth}, std::pair{"qkv_dt_size", q},
              std::pair{"swizzle_granularity", swizzle}, std::pair{"q_offset", 0},
              std::pair{"kv_offset", kv_offset}, std::pair{"correction_offset", correction},
              std::pair{"mbar_offset", (correction + config.correction_smem_elements()) * 4 /
                                           Fa4Config::mbar_size},
              std::pair{"qo_elements", depth * half}, std::pair{"qo_bytes", q * depth * half},
              std::pair{"k_elements", swizzle * config.BN},
              std::pair{"k_bytes", q * swizzle * config.BN},
              std::pair{"v_bytes_per_mma", q * 16 * depth});
  return json;
}

// Launch-time values of a configuration with a 1Q and a 2Q variant.
template <class Config>
void add_launch(Json& json, const Config& config, const ResolvedQuery* query) {
  const auto switched = config.switch_1q_config();
  add_members(config, json, MEMBER(q_tile_rows), MEMBER(can_switch_to_1q),
              MEMBER(launch_smem_used));
  json["switch_1q_smem_used"] = switched.smem_used;
  json["switch_1q_num_kv_stages"] = switched.num_kv_stages;
  json["switch_1q_num_qk_stages"] = switched.num_qk_stages;
  json["switch_1q_use_fused_kv"] = switched.use_fused_kv;
  json["switch_1q_supported"] = switched.Fa4Config::supported();
  if (query != nullptr) {
    json["prefer_1q"] = config.prefer_1q(query->max_prompt_len, query->num_partitions,
                                         query->batch_size, query->sm_count);
  }
}

template <class Config>
void add_tile(Json& json, const Config& config) {
  add_members(config, json, MEMBER(MMA_M), MEMBER(MMA_K), MEMBER(BM), MEMBER(BN), MEMBER(BK0),
              MEMBER(BK1), MEMBER(BM_eff), MEMBER(PairBM_eff), MEMBER(fuse_gqa));
}

void add_head(Json& json, ConfigKind kind, const std::string& reason) {
  json["config"] = std::string(to_string(kind));
  json["supported"] = reason.empty();
  json["reason"] = reason;
}

Json fa4_json(const AttentionSpec& spec, const PlanOptions& options, const ResolvedQuery* query) {
  const Fa4Config config(fa4_args(spec, options));
  Json json;
  add_head(json, ConfigKind::kFa4, config.unsupported_reason());
  add_fa4(json, config);
  add_launch(json, config, query);
  return json;
}

std::string mla_reason(const AttentionSpec& spec, const PlanOptions& options,
                       const MlaConfig& config) {
  if (spec.mla == Mla::kDecode) return "mla decode (absorbed) has no reference configuration";
  if (options.pair_cta.value_or(false)) return "pair_cta is not for mla";
  if (ov_depth_of(spec) != config.nope_depth) {
    return fmt::format("ov_depth is {}; with a rope part of {} it must be {}", ov_depth_of(spec),
                       config.rope_depth, config.nope_depth);
  }
  return config.unsupported_reason();
}

Json mla_json(const AttentionSpec& spec, const PlanOptions& options, const ResolvedQuery* query) {
  using Config = MlaConfig;
  const Config config(mla_args(spec, options));
  Json json;
  add_head(json, ConfigKind::kMla, mla_reason(spec, options, config));
  add_fa4(json, config);
  add_members(config, json, MEMBER(rope_depth), MEMBER(nope_depth), MEMBER(cache_depth));
  json["rope_gmem_dtype"] = std::string(to_string(config.mla.rope_gmem_dtype));
  json["rope_mma_dtype"] = std::string(to_string(config.mla.rope_mma_dtype));
  add_members(config, json, MEMBER(rope_gmem_dtype_size), MEMBER(rope_mma_dtype_size),
              MEMBER(qkv_swizzle_mode), MEMBER(rope_mma_swizzle_mode),
              MEMBER(rope_gmem_swizzle_mode), MEMBER(output_swizzle_mode));
  add_launch(json, config, query);
  Json inner;
  add_fa4(inner, config);
  inner["supported"] = config.Fa4Config::supported();
  json["fa4_config"] = std::move(inner);
  return json;
}

Json depth512_json(const AttentionSpec& spec, const PlanOptions& options) {
  using Config = Depth512Config;
  const Config config(depth512_args(spec, options));
  Json json;
  add_head(json, ConfigKind::kDepth512,
           spec.mla != Mla::kNone ? "depth512 is not for mla" : config.unsupported_reason());
  json["qkv_dtype"] = std::string(to_string(config.args.qkv_dtype));
  add_members(config, json, MEMBER(num_q_heads), MEMBER(num_kv_heads), MEMBER(group),
              MEMBER(qk_depth), MEMBER(ov_depth));
  add_members(config, json, std::pair{"page_size", config.args.page_size}, MEMBER(swizzle_mode),
              std::pair{"swizzle_bytes", config.swizzle_mode}, std::pair{"pair_cta", true},
              MEMBER(cta_group), MEMBER(split_o));
  add_tile(json, config);
  add_members(config, json, MEMBER(num_kv_stages), MEMBER(num_qk_stages), MEMBER(v_cols_per_cta),
              MEMBER(k_rows_per_cta), MEMBER(TMEM_O), MEMBER(TMEM_O_hi), MEMBER(TMEM_S_even),
              MEMBER(TMEM_S_odd), MEMBER(tmem_used), MEMBER(sm100_tmem_cols), MEMBER(q_bytes),
              MEMBER(p_buffer_bytes), MEMBER(kv_stage_bytes), MEMBER(smem_used),
              MEMBER(sm100_smem_carveout), MEMBER(num_mbarriers), MEMBER(mbar_size),
              MEMBER(num_threads), MEMBER(qkv_dtype_size));
  json["kv_sub_tile_rows"] = kv_sub_tile_rows(config.k_rows_per_cta(), config.args.page_size);
  return json;
}

// Of per-token scales, where there are some.
std::optional<Dtype> scale_dtype_of(const AttentionSpec& spec) {
  if (spec.scale_dtype || spec.scales != Scales::kToken) return spec.scale_dtype;
  return Dtype::kF32;
}

// What Fa4Config and Depth512Config take alike.
template <class Args>
void fill_args(const AttentionSpec& spec, const PlanOptions& options, Args& args) {
  args.qkv_dtype = spec.qkv_dtype;
  args.num_q_heads = spec.num_q_heads;
  args.group = spec.group;
  args.qk_depth = spec.qk_depth;
  args.ov_depth = ov_depth_of(spec);
  args.swizzle_mode = options.swizzle_bytes.value_or(default_swizzle(spec.qkv_dtype));
  args.page_size = spec.page_size;
}

}  // namespace

void add_fa4(Json& json, const Fa4Config& config) {
  using Config = Fa4Config;
  json["qkv_dtype"] = std::string(to_string(config.args.qkv_dtype));
  json["rope_dtype"] = name_or_null(config.args.rope_dtype);
  json["scale_dtype"] = name_or_null(config.args.scale_dtype);
  add_members(config, json, MEMBER(num_q_heads), MEMBER(num_kv_heads), MEMBER(group),
              MEMBER(qk_depth), MEMBER(ov_depth), MEMBER(padded_qk_depth), MEMBER(padded_ov_depth),
              std::pair{"page_size", config.args.page_size},
              std::pair{"is_mla", config.args.is_mla}, MEMBER(swizzle_mode),
              std::pair{"swizzle_bytes", config.swizzle_mode}, MEMBER(num_qo), MEMBER(pair_cta),
              MEMBER(cta_group));
  add_tile(json, config);
  add_members(config, json, MEMBER(TMEM_S0), MEMBER(TMEM_S1), MEMBER(TMEM_P0), MEMBER(TMEM_P1),
              MEMBER(TMEM_C0), MEMBER(TMEM_C1), MEMBER(TMEM_O0), MEMBER(TMEM_O1), MEMBER(tmem_used),
              MEMBER(sm100_tmem_cols), MEMBER(use_fused_kv), MEMBER(num_kv_stages),
              MEMBER(num_qk_stages), MEMBER(num_pv_stages), MEMBER(v_cols_per_cta),
              MEMBER(k_rows_per_cta), MEMBER(q_nope_bytes), MEMBER(q_rope_bytes),
              MEMBER(rope_depth), MEMBER(num_rope_buffers), MEMBER(num_k_scale_bufs),
              MEMBER(smem_used), MEMBER(sm100_smem_carveout), MEMBER(num_mbarriers),
              MEMBER(mbar_size), MEMBER(num_threads), MEMBER(num_correction_cols),
              MEMBER(correction_smem_elements), MEMBER(num_active_warps_per_group),
              MEMBER(num_active_threads_per_group), MEMBER(qkv_dtype_size), MEMBER(rope_dtype_size),
              MEMBER(scale_dtype_size), MEMBER(description));
  json["kv_sub_tile_rows"] = kv_sub_tile_rows(config.k_rows_per_cta(), config.args.page_size);
  json["kv_num_sub_tiles"] = kv_num_sub_tiles(config.k_rows_per_cta(), config.args.page_size);
  json["consumer_pipeline"] =
      Json{{"K", pipeline_json(config, true)}, {"V", pipeline_json(config, false)}};
  json["TMAConsumerPipeline"] = json["consumer_pipeline"];
  json["SM100MHA2Q"] = mha_2q_json(config);
}

#undef MEMBER

std::string_view to_string(ConfigKind kind) { return kNames.at(static_cast<std::size_t>(kind)); }

std::optional<ConfigKind> config_kind_from_string(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ConfigKind>(found - kNames.begin());
}

ConfigKind resolve_config_kind(ConfigKind kind, const AttentionSpec& spec,
                               const PlanOptions& options) {
  if (kind != ConfigKind::kAuto) return kind;
  if (spec.arch == Arch::kSm90a) return ConfigKind::kSm90;
  if (options.num_qo) return ConfigKind::kFa4;
  if (spec.mla != Mla::kNone) return ConfigKind::kMla;
  if (spec.qk_depth == 256 || spec.qk_depth == 512) return ConfigKind::kDepth512;
  return ConfigKind::kFa4;
}

Fa4Config::Args fa4_args(const AttentionSpec& spec, const PlanOptions& options) {
  Fa4Config::Args args;
  fill_args(spec, options, args);
  args.rope_dtype = spec.rope_dtype;
  args.is_mla = spec.mla != Mla::kNone;
  if (args.is_mla && !args.rope_dtype) args.rope_dtype = spec.qkv_dtype;
  args.scale_dtype = scale_dtype_of(spec);
  args.pair_cta = options.pair_cta.value_or(false);
  args.num_qo = options.num_qo.value_or(2);
  return args;
}

MlaConfig::Args mla_args(const AttentionSpec& spec, const PlanOptions& options) {
  MlaConfig::Args args;
  args.qkv_dtype = spec.qkv_dtype;
  args.rope_mma_dtype = spec.rope_dtype.value_or(spec.qkv_dtype);
  args.rope_gmem_dtype = spec.rope_gmem_dtype.value_or(args.rope_mma_dtype);
  args.scale_dtype = scale_dtype_of(spec);
  args.num_q_heads = spec.num_q_heads;
  args.group = spec.group;
  args.depth = spec.qk_depth;
  args.page_size = spec.page_size;
  args.num_qo = options.num_qo.value_or(2);
  return args;
}

Depth512Config::Args depth512_args(const AttentionSpec& spec, const PlanOptions& options) {
  Depth512Config::Args args;
  fill_args(spec, options, args);
  return args;
}

Json reference_to_json(const AttentionSpec& spec, const PlanOptions& options, ConfigKind kind,
                       const ResolvedQuery* query) {
  switch (kind) {
    case ConfigKind::kMla:
      return mla_json(spec, options, query);
    case ConfigKind::kDepth512:
      return depth512_json(spec, options);
    default:
      return fa4_json(spec, options, query);
  }
}

}  // namespace attnjit
