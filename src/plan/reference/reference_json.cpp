// SPDX-License-Identifier: Apache-2.0
// Prints the reference configurations as JSON, and chooses the one that a spec gets.
#include "plan/reference/reference_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t default_swizzle(Dtype dtype) { return size_of(dtype) == 1 ? 64 : 128; }

std::int64_t ov_depth_of(const AttentionSpec& spec) { return resolve(spec).ov_depth; }

Json name_or_null(const std::optional<Dtype>& dtype) {
  return dtype ? Json(std::string(to_string(*dtype))) : Json(nullptr);
}

Json pipeline_json(const Fa4Config& config, bool is_k) {
  const TmaConsumerPipeline pipeline(config, is_k);
  const std::int64_t tile_rows = is_k ? config.k_rows_per_cta() : config.BN;
  return Json{{"BK", pipeline.BK},
              {"BMN", pipeline.BMN},
              {"full_kv_bytes", pipeline.full_kv_bytes},
              {"staged_k_bytes", pipeline.staged_k_bytes},
              {"is_k_major", pipeline.is_k_major},
              {"num_qk_stages_effective", pipeline.num_qk_stages_effective},
              {"kv_sub_tile_rows", kv_sub_tile_rows(tile_rows, config.args.page_size)},
              {"kv_num_sub_tiles", kv_num_sub_tiles(tile_rows, config.args.page_size)}};
}

Json mha_2q_json(const Fa4Config& config) {
  const Mha2QValues values(config);
  return Json{{"BM", config.BM},
              {"BN", config.BN},
              {"HalfBM", values.HalfBM},
              {"MMA_M", values.MMA_M},
              {"MMA_K", 16},
              {"num_m_mmas", values.num_m_mmas},
              {"padded_depth", values.padded_depth},
              {"qkv_dt_size", config.qkv_dtype_size()},
              {"swizzle_granularity", values.swizzle_granularity},
              {"q_offset", values.q_offset},
              {"kv_offset", values.kv_offset},
              {"correction_offset", values.correction_offset},
              {"mbar_offset", values.mbar_offset},
              {"qo_elements", values.qo_elements},
              {"qo_bytes", values.qo_bytes},
              {"k_elements", values.k_elements},
              {"k_bytes", values.k_bytes},
              {"v_bytes_per_mma", values.v_bytes_per_mma}};
}

// Launch-time values of a configuration with a 1Q and a 2Q variant.
template <class Config>
void add_launch(Json& json, const Config& config, const Fa4Config& switched,
                const ResolvedQuery* query) {
  json["q_tile_rows"] = config.q_tile_rows();
  json["can_switch_to_1q"] = config.can_switch_to_1q();
  json["launch_smem_used"] = config.launch_smem_used();
  json["switch_1q_smem_used"] = switched.smem_used;
  json["switch_1q_num_kv_stages"] = switched.num_kv_stages;
  json["switch_1q_num_qk_stages"] = switched.num_qk_stages;
  json["switch_1q_use_fused_kv"] = switched.use_fused_kv;
  json["switch_1q_supported"] = switched.supported();
  if (query != nullptr) {
    json["prefer_1q"] = config.prefer_1q(query->max_prompt_len, query->num_partitions,
                                         query->batch_size, query->sm_count);
  }
}

template <class Config>
void add_tile(Json& json, const Config& config) {
  json["MMA_M"] = config.MMA_M;
  json["MMA_K"] = config.MMA_K();
  json["BM"] = config.BM;
  json["BN"] = config.BN;
  json["BK0"] = config.BK0;
  json["BK1"] = config.BK1;
  json["BM_eff"] = config.BM_eff();
  json["PairBM_eff"] = config.PairBM_eff();
  json["fuse_gqa"] = config.fuse_gqa;
}

void add_fa4(Json& json, const Fa4Config& config) {
  json["qkv_dtype"] = std::string(to_string(config.args.qkv_dtype));
  json["rope_dtype"] = name_or_null(config.args.rope_dtype);
  json["scale_dtype"] = name_or_null(config.args.scale_dtype);
  json["num_q_heads"] = config.num_q_heads;
  json["num_kv_heads"] = config.num_kv_heads;
  json["group"] = config.group;
  json["qk_depth"] = config.qk_depth;
  json["ov_depth"] = config.ov_depth;
  json["padded_qk_depth"] = config.padded_qk_depth;
  json["padded_ov_depth"] = config.padded_ov_depth;
  json["page_size"] = config.args.page_size;
  json["is_mla"] = config.args.is_mla;
  json["swizzle_mode"] = config.swizzle_mode;
  json["swizzle_bytes"] = config.swizzle_mode;
  json["num_qo"] = config.num_qo();
  json["pair_cta"] = config.pair_cta;
  json["cta_group"] = config.cta_group();
  add_tile(json, config);
  json["TMEM_S0"] = Fa4Config::TMEM_S0;
  json["TMEM_S1"] = config.TMEM_S1;
  json["TMEM_P0"] = config.TMEM_P0;
  json["TMEM_P1"] = config.TMEM_P1;
  json["TMEM_C0"] = config.TMEM_C0;
  json["TMEM_C1"] = config.TMEM_C1;
  json["TMEM_O0"] = config.TMEM_O0;
  json["TMEM_O1"] = config.TMEM_O1;
  json["tmem_used"] = config.tmem_used;
  json["sm100_tmem_cols"] = Fa4Config::sm100_tmem_cols;
  json["use_fused_kv"] = config.use_fused_kv;
  json["num_kv_stages"] = config.num_kv_stages;
  json["num_qk_stages"] = config.num_qk_stages;
  json["num_pv_stages"] = config.num_pv_stages;
  json["v_cols_per_cta"] = config.v_cols_per_cta();
  json["k_rows_per_cta"] = config.k_rows_per_cta();
  json["q_nope_bytes"] = config.q_nope_bytes();
  json["q_rope_bytes"] = config.q_rope_bytes();
  json["rope_depth"] = config.rope_depth();
  json["num_rope_buffers"] = config.num_rope_buffers();
  json["num_k_scale_bufs"] = config.num_k_scale_bufs();
  json["smem_used"] = config.smem_used;
  json["sm100_smem_carveout"] = Fa4Config::sm100_smem_carveout;
  json["num_mbarriers"] = config.num_mbarriers();
  json["mbar_size"] = Fa4Config::mbar_size;
  json["num_threads"] = Fa4Config::num_threads;
  json["num_correction_cols"] = Fa4Config::num_correction_cols;
  json["correction_smem_elements"] = config.correction_smem_elements();
  json["num_active_warps_per_group"] = config.num_active_warps_per_group();
  json["num_active_threads_per_group"] = config.num_active_threads_per_group();
  json["qkv_dtype_size"] = config.qkv_dtype_size();
  json["rope_dtype_size"] = config.rope_dtype_size();
  json["scale_dtype_size"] = config.scale_dtype_size();
  json["description"] = config.description();
  json["kv_sub_tile_rows"] = kv_sub_tile_rows(config.k_rows_per_cta(), config.args.page_size);
  json["kv_num_sub_tiles"] = kv_num_sub_tiles(config.k_rows_per_cta(), config.args.page_size);
  json["consumer_pipeline"] =
      Json{{"K", pipeline_json(config, true)}, {"V", pipeline_json(config, false)}};
  json["TMAConsumerPipeline"] = json["consumer_pipeline"];
  json["SM100MHA2Q"] = mha_2q_json(config);
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
  add_launch(json, config, config.switch_1q_config(), query);
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
  const MlaConfig config(mla_args(spec, options));
  Json json;
  add_head(json, ConfigKind::kMla, mla_reason(spec, options, config));
  add_fa4(json, config.fa4_config);
  json["rope_depth"] = config.rope_depth;
  json["nope_depth"] = config.nope_depth;
  json["cache_depth"] = config.cache_depth;
  json["rope_gmem_dtype"] = std::string(to_string(config.args.rope_gmem_dtype));
  json["rope_mma_dtype"] = std::string(to_string(config.args.rope_mma_dtype));
  json["rope_gmem_dtype_size"] = config.rope_gmem_dtype_size();
  json["rope_mma_dtype_size"] = config.rope_mma_dtype_size();
  json["qkv_swizzle_mode"] = config.qkv_swizzle_mode;
  json["rope_mma_swizzle_mode"] = config.rope_mma_swizzle_mode;
  json["rope_gmem_swizzle_mode"] = config.rope_gmem_swizzle_mode;
  json["output_swizzle_mode"] = config.output_swizzle_mode;
  add_launch(json, config, config.switch_1q_config().fa4_config, query);
  Json inner;
  add_fa4(inner, config.fa4_config);
  inner["supported"] = config.fa4_config.supported();
  json["fa4_config"] = std::move(inner);
  return json;
}

Json depth512_json(const AttentionSpec& spec, const PlanOptions& options) {
  const Depth512Config config(depth512_args(spec, options));
  Json json;
  add_head(json, ConfigKind::kDepth512,
           spec.mla != Mla::kNone ? "depth512 is not for mla" : config.unsupported_reason());
  json["qkv_dtype"] = std::string(to_string(config.args.qkv_dtype));
  json["num_q_heads"] = config.num_q_heads;
  json["num_kv_heads"] = config.num_kv_heads;
  json["group"] = config.group;
  json["qk_depth"] = config.qk_depth;
  json["ov_depth"] = config.ov_depth;
  json["page_size"] = config.args.page_size;
  json["swizzle_mode"] = config.swizzle_mode;
  json["swizzle_bytes"] = config.swizzle_mode;
  json["pair_cta"] = true;
  json["cta_group"] = Depth512Config::cta_group;
  json["split_o"] = config.split_o;
  add_tile(json, config);
  json["num_kv_stages"] = config.num_kv_stages;
  json["num_qk_stages"] = config.num_qk_stages;
  json["v_cols_per_cta"] = config.v_cols_per_cta;
  json["k_rows_per_cta"] = config.k_rows_per_cta();
  json["TMEM_O"] = Depth512Config::TMEM_O;
  json["TMEM_O_hi"] = config.TMEM_O_hi;
  json["TMEM_S_even"] = config.TMEM_S_even;
  json["TMEM_S_odd"] = config.TMEM_S_odd;
  json["tmem_used"] = config.tmem_used;
  json["sm100_tmem_cols"] = Depth512Config::sm100_tmem_cols;
  json["q_bytes"] = config.q_bytes;
  json["p_buffer_bytes"] = config.p_buffer_bytes;
  json["kv_stage_bytes"] = config.kv_stage_bytes;
  json["smem_used"] = config.smem_used;
  json["sm100_smem_carveout"] = Depth512Config::sm100_smem_carveout;
  json["num_mbarriers"] = config.num_mbarriers();
  json["mbar_size"] = Depth512Config::mbar_size;
  json["num_threads"] = Depth512Config::num_threads;
  json["qkv_dtype_size"] = config.qkv_dtype_size();
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
