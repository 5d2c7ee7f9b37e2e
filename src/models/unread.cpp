// SPDX-License-Identifier: Apache-2.0
// Tells fields that concern attention from others, and those that decide no kernel from those that
// may.
#include "models/unread.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "spec/text.h"

namespace attnjit::models {
namespace {

using spec::JsonMember;
using spec::JsonValue;

/// Parts of names that concern attention.
constexpr std::string_view kConcerns[] = {
    "alibi",      "attention", "attn",          "bidirection",  "block_len",   "block_size",
    "causal",     "chunk",     "compress_r",    "dilat",        "global_",     "head",
    "index",      "kv",        "layer_types",   "layers_block", "local_",      "logit_cap",
    "lora_rank",  "mask",      "mla",           "multi_query",  "new_decoder", "no_rope_layer",
    "nope",       "pattern",   "position_bias", "prefix_lm",    "qk_",         "query_pre",
    "rel_extent", "relative_", "score_",        "sink",         "sliding",     "soft_cap",
    "softcap",    "softmax",   "sparse_",       "swa",          "window"};

/// Parts of names that do not, whatever else is in them: other layers, what is done to Q, K, V or O
/// outside of the kernel, and how the model is run.
constexpr std::string_view kOthers[] = {"_gate",        "attn_implementation",
                                        "audio",        "conv_",
                                        "dropout",      "dtype",
                                        "expert",       "flash_att",
                                        "fp32",         "gate_",
                                        "gating",       "hc_sinkhorn",
                                        "image",        "initializer",
                                        "kv_cache",     "layer_norm",
                                        "layernorm",    "linear_",
                                        "lm_head",      "mamba_",
                                        "mem_eff_att",  "mlp",
                                        "moe_",         "mtp_",
                                        "norm_eps",     "pdrop",
                                        "rms_norm",     "rope_interleave",
                                        "rope_local",   "rope_param",
                                        "rope_scaling", "rope_theta",
                                        "router",       "score_func",
                                        "ssm_",         "token_id",
                                        "token_index",  "vision"};

/// Ends of such names.
constexpr std::string_view kOtherEnds[] = {"_id", "_norm"};

/// Names that decide no kernel, of any architecture.
constexpr std::string_view kHarmless[] = {"activation_sparsity_pattern",
                                          "add_cross_attention",
                                          "attention_k_eq_v",
                                          "attention_value_scale",
                                          "attn_scale",
                                          "attn_temperature_tuning",
                                          "chunk_size_feed_forward",
                                          "clip_qkv",
                                          "cross_attention_hidden_size",
                                          "decoder_sparse_step",
                                          "final_logit_softcapping",
                                          "index_head_dim",
                                          "index_n_heads",
                                          "index_skip_topk_offset",
                                          "index_topk_freq",
                                          "index_topk_pattern",
                                          "indexer_types",
                                          "kv_source_layers",
                                          "layer_types",
                                          "layers_block_type",
                                          "masked_softmax_fusion",
                                          "mla_use_nope",
                                          "multi_token_heads",
                                          "num_kv_shared_layers",
                                          "num_ln_in_parallel_attn",
                                          "o_lora_rank",
                                          "output_attentions",
                                          "parallel_attn",
                                          "pruned_heads",
                                          "q_lora_rank",
                                          "qk_head_dim",
                                          "qk_l2_clip_threshold",
                                          "qk_scale_factor",
                                          "scale_attn_weights",
                                          "use_cla"};

struct Known {
  std::string_view model_type, name;
  std::string_view value = {};  ///< the one spelling that says nothing; empty: any
};

/// The same, of one architecture.
constexpr Known kKnown[] = {
    {"bailing_moe", "max_window_layers"},
    {"bailing_moe", "norm_head"},
    {"bailing_moe", "norm_softmax", "false"},
    {"bailing_moe_v2", "max_window_layers"},
    {"bailing_moe_v2", "norm_head"},
    {"bloom", "offset_alibi"},
    {"bloom", "skip_bias_add_qkv"},
    {"bamba", "attn_rotary_emb"},
    {"chatglm", "kv_channels"},
    {"chatglm", "multi_query_attention", "true"},
    {"cohere2_moe", "prefix_dense_sliding_window_pattern"},
    {"deepseek_v2", "rm_head"},
    {"deepseek_v2", "use_mla", "true"},
    {"deepseek_v4", "compress_rates"},
    {"deepseek_v4", "compress_ratios"},
    {"deepseek_v4", "compress_rate_csa"},
    {"deepseek_v4", "compress_rate_hca"},
    {"deepseek_v4", "index_topk"},
    {"deepseek_v4", "qk_rope_head_dim"},
    {"dots3_note_text", "swa_q_lora_rank"},
    {"falcon_h1", "attention_in_multiplier"},
    {"falcon_h1", "attention_out_multiplier"},
    {"gemma3n_text", "query_pre_attn_scalar"},
    {"glm5_next_text", "index_kpool"},
    {"glm5_next_text", "index_kpool_always_select_tail"},
    {"glm5_next_text", "index_topk"},
    {"gpt_bigcode", "num_key_value_heads"},  // which follows from multi_query
    {"gte", "logn_attention_clip1", "false"},
    {"gte", "logn_attention_scale", "false"},
    {"gte", "pack_qkv"},
    {"gte", "use_memory_efficient_attention"},
    {"inkling2_text", "rel_extent"},
    {"inkling_text", "mtp_local_layer_ids"},
    {"inkling_text", "rel_extent"},
    {"inkling_text", "shared_expert_sink"},
    {"kimi_audio", "kimia_mimo_transformer_from_layer_index"},
    {"laguna", "sliding_window"},  // of the layers that layer_types lists, which have read it
    {"lfm2", "num_heads"},
    {"longcat_flash", "attention_method", "the string \"MLA\""},
    {"longcat_flash", "mla_scale_kv_lora"},
    {"longcat_flash", "mla_scale_q_lora"},
    {"longcat_flash", "num_layers"},
    {"mellum", "sliding_window"},
    {"mimo_v2_flash", "attention_chunk_size"},
    {"minimax_m2", "qk_norm_type"},
    {"minimax_m3_vl_text", "index_block_size"},
    {"minimax_m3_vl_text", "index_local_blocks"},
    {"minimax_m3_vl_text", "index_topk_blocks"},
    {"modernbert", "global_attn_every_n_layers", "3"},
    {"modernbert", "local_attention"},
    {"modernbert", "sparse_prediction"},
    {"modernbert", "sparse_pred_ignore_index"},
    {"nemotron_h", "chunk_size"},
    {"nemotron_h", "mtp_hybrid_override_pattern"},
    {"nemotron_h", "sliding_window"},
    {"new", "logn_attention_clip1", "false"},
    {"new", "logn_attention_scale", "false"},
    {"new", "pack_qkv"},
    {"new", "use_memory_efficient_attention"},
    {"nomic_bert", "causal", "false"},
    {"nomic_bert", "reorder_and_upcast_attn", "false"},
    {"nomic_bert", "scale_attn_by_inverse_layer_idx", "false"},
    {"paddleocr_vl_text", "ignored_index"},
    {"phi3", "full_attn_mod", "1"},
    {"phi4mm", "full_attn_mod", "1"},
    {"qwen4_exp_text", "heads_per_ngram"},
    {"qwen4_exp_text", "indexer_budget"},
    {"qwen4_exp_text", "indexer_compress_ratio"},
    {"qwen4_exp_text", "indexer_head_dim"},
    {"qwen4_exp_text", "indexer_kv_heads"},
    {"qwen4_exp_text", "indexer_n_heads"},
    {"qwen3_omni_moe_text", "sliding_window"},
    {"step3p5", "sink", "false"},
    {"telechat", "offset_alibi"},
    {"zamba2", "attention_hidden_size"},  // heads of attention_head_dim
    {"zamba2", "kv_channels"},
    {"zamba2", "use_shared_attention_adapter"},
    {"step3p5", "sliding_window"},
};

bool any_in(std::span<const std::string_view> parts, std::string_view name) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

/// null, an empty list or object, and a use of something that is off.
bool says_nothing(std::string_view name, const JsonValue& value) {
  switch (value.type) {
    case JsonValue::Type::kNull:
      return true;
    case JsonValue::Type::kArray:
      return value.items.empty();
    case JsonValue::Type::kObject:
      return value.members.empty();
    case JsonValue::Type::kBool:
      return !value.boolean && name.find("causal") == std::string_view::npos &&
             (name.starts_with("use_") || name.starts_with("add_") || name.starts_with("enable_"));
    default:
      return false;
  }
}

bool same(const JsonValue& one, const JsonValue& other) {
  return one.type == other.type && one.boolean == other.boolean && one.text == other.text &&
         one.items.empty() && one.members.empty();
}

/// Biases of projections are flags. Those of scores are numbers, or named for what they follow.
bool is_bias_of_projection(const JsonMember& member) {
  constexpr std::string_view kOfScores[] = {"alibi", "position", "relative"};
  return member.value.type == JsonValue::Type::kBool && member.name.ends_with("bias") &&
         !any_in(kOfScores, member.name);
}

bool concerns_attention(const JsonMember& member) {
  const std::string_view name = member.name;
  return !name.starts_with('_') && any_in(kConcerns, name) && !any_in(kOthers, name) &&
         !is_bias_of_projection(member) &&
         std::none_of(std::begin(kOtherEnds), std::end(kOtherEnds),
                      [&](std::string_view end) { return name.ends_with(end); });
}

bool is_known(std::string_view model_type, const JsonMember& member) {
  if (std::find(std::begin(kHarmless), std::end(kHarmless), member.name) != std::end(kHarmless)) {
    return true;
  }
  return std::any_of(std::begin(kKnown), std::end(kKnown), [&](const Known& known) {
    return known.model_type == model_type && known.name == member.name &&
           (known.value.empty() || known.value == describe(member.value));
  });
}

}  // namespace

Status refuse_unread(const JsonValue& object, std::string_view model_type, const Fields& fields,
                     std::string_view place) {
  const JsonValue* const defaults = fields.defaults().fields;
  for (const JsonMember& member : object.members) {
    const std::string_view name = member.name;
    if (!concerns_attention(member) || fields.read().contains(name) ||
        says_nothing(name, member.value) || is_known(model_type, member)) {
      continue;
    }
    const JsonValue* const usual = defaults == nullptr ? nullptr : defaults->find(name);
    if (usual != nullptr && same(*usual, member.value)) continue;
    Error error = make_error(
        ErrorCode::kInvalid,
        fmt::format("is {}, which may change the attention of {} in a way that attnjit does not "
                    "know",
                    describe(member.value), spec::printable(model_type)),
        std::string(place) + spec::printable(name),
        "take the field out of the configuration if it changes no scores and no masks, or write "
        "the manifest by hand, as those in cache/");
    error.line = member.line;
    error.column = member.column;
    return error;
  }
  return {};
}

}  // namespace attnjit::models
