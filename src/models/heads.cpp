// SPDX-License-Identifier: Apache-2.0
// Reads heads and depths, by the ways in which architectures write them down.
#include "models/heads.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace attnjit::models {
namespace {

using spec::JsonValue;

/// Query heads, each with its own key-value head, and the width over the heads as the depth.
LayerKind plain_heads(Fields& fields) {
  LayerKind layer;
  layer.q_heads = layer.kv_heads = fields.number("num_attention_heads");
  if (layer.q_heads > 0) {
    const int width = fields.number("hidden_size");
    layer.qk_depth = width / layer.q_heads;
    const JsonValue* const divides = fields.defaults().divides;
    if (width % layer.q_heads != 0 && divides != nullptr && divides->boolean) {
      fields.fail("hidden_size",
                  fmt::format("is {}, which {} heads do not divide", width, layer.q_heads),
                  "give head_dim");
    }
  }
  layer.ov_depth = layer.qk_depth;
  return layer;
}

/// Fewer key-value heads, and the width over the heads as the depth.
LayerKind plain_grouped_heads(Fields& fields) {
  LayerKind layer = plain_heads(fields);
  layer.kv_heads = fields.number("num_key_value_heads", layer.q_heads);
  return layer;
}

/// What most have: fewer key-value heads, and a depth that may be given.
LayerKind usual_heads(Fields& fields) {
  if (!fields.has("head_dim")) return plain_grouped_heads(fields);
  LayerKind layer;
  layer.q_heads = fields.number("num_attention_heads");
  layer.kv_heads = fields.number("num_key_value_heads", layer.q_heads);
  layer.qk_depth = layer.ov_depth = fields.number("head_dim");
  return layer;
}

/// Whether layer `index` has no rope: 0 in no_rope_layers, or each fourth.
bool is_ropeless(Fields& fields, std::size_t index) {
  const std::vector<int> ropes = fields.numbers("no_rope_layers");
  const int every = fields.number("no_rope_layer_interval", 4);
  if (index < ropes.size()) return ropes[index] == 0;
  return ropes.empty() && every > 0 && (index + 1) % static_cast<std::size_t>(every) == 0;
}

/// MLA; but where both parts of its keys are given as 0 there is none.
LayerKind latent_heads(Fields& fields) {
  const auto is_zero = [&fields](std::string_view name) {
    const JsonValue* const value = fields.given(name);
    return value != nullptr && value->type == JsonValue::Type::kInteger && value->integer == 0;
  };
  if (is_zero("qk_nope_head_dim") && is_zero("qk_rope_head_dim")) {
    for (const char* const name : {"kv_lora_rank", "v_head_dim", "use_mla"}) fields.given(name);
    return plain_grouped_heads(fields);
  }
  LayerKind layer;
  layer.q_heads = layer.kv_heads = fields.number("num_attention_heads");
  layer.latent = fields.number("kv_lora_rank");
  layer.rope = fields.count("qk_rope_head_dim");
  layer.qk_depth = fields.number("qk_nope_head_dim") + layer.rope;
  const int width = fields.number("hidden_size", 0);
  const bool derived = !fields.has("v_head_dim") && layer.q_heads > 0 && width > 0;
  layer.ov_depth = derived ? width / layer.q_heads : fields.number("v_head_dim");
  for (const char* const harmless :
       {"num_key_value_heads", "head_dim", "q_head_dim", "qk_head_dim"}) {
    fields.has(harmless);
  }
  return layer;
}

LayerKind falcon_heads(Fields& fields) {
  LayerKind layer = plain_heads(fields);
  const int kv_heads = fields.number("num_kv_heads", layer.q_heads);
  const bool is_new = fields.flag("new_decoder_architecture", false);
  layer.kv_heads = !is_new && fields.flag("multi_query", true) ? 1 : kv_heads;
  return layer;
}

LayerKind mpt_heads(Fields& fields) {
  LayerKind layer = plain_heads(fields);
  layer.alibi = true;  // the default of its attn_config
  if (const JsonValue* const config = fields.inside("attn_config")) {
    Fields inner(*config, {});
    layer.alibi = inner.flag("alibi", true);
    for (const char* const name : {"prefix_lm", "attn_uses_sequence_id"}) {
      if (inner.flag(name, false)) inner.fail(name, "is true, which no spec has");
    }
    const std::string kind = inner.word("attn_type");
    if (!kind.empty() && kind != "multihead_attention") {
      inner.fail("attn_type", fmt::format("is \"{}\"; allowed: multihead_attention", kind));
    }
    if (layer.alibi && inner.number("alibi_bias_max", 8) != 8) {
      inner.fail("alibi_bias_max", "is not 8, as which ALiBi's usual slopes are",
                 "write the manifest by hand, with given slopes");
    }
    fields.take_error(inner, "attn_config");
  }
  return layer;
}

LayerKind dbrx_heads(Fields& fields) {
  LayerKind layer = plain_heads(fields);
  layer.kv_heads = fields.number("num_key_value_heads", 1);
  if (const JsonValue* const config = fields.inside("attn_config")) {
    Fields inner(*config, {});
    layer.kv_heads = inner.number("kv_n_heads", layer.kv_heads);
    fields.take_error(inner, "attn_config");
  }
  return layer;
}

/// Layer `index` of block_configs says how many query heads share a key-value head.
LayerKind block_heads(Fields& fields, std::size_t index) {
  LayerKind layer = usual_heads(fields);
  const JsonValue* const blocks = fields.value("block_configs");
  const JsonValue* const attention = blocks->items[index].find("attention");
  Fields inner(*attention, {});
  const int group = inner.number("n_heads_in_group");
  for (const char* const name : {"num_sink_tokens", "sparsify", "window_length"}) {
    if (inner.has(name)) inner.fail(name, "is not null, which no spec has");
  }
  fields.take_error(inner, "block_configs.attention");
  if (group > 0) layer.kv_heads = layer.q_heads / group;
  return layer;
}

LayerKind decoder_heads(Fields& fields) {
  LayerKind layer;
  layer.q_heads = layer.kv_heads = fields.number("decoder_attention_heads");
  if (layer.q_heads > 0) layer.qk_depth = fields.number("d_model") / layer.q_heads;
  layer.ov_depth = layer.qk_depth;
  fields.has("encoder_attention_heads");
  return layer;
}

/// Layers that see all keys have other heads: overridden for each layer as transformers saves
/// them, or by fields of their own.
LayerKind gemma4_heads(const Architecture& architecture, Fields& fields, Reach reach) {
  LayerKind layer = usual_heads(fields);
  const int depth = fields.number("global_head_dim", 512);
  const bool ungated = !architecture.has(Architecture::kGatedHeads);
  const bool encoder = architecture.has(Architecture::kEncoder);
  const bool counts = fields.flag("attention_k_eq_v", false) || ungated;
  const int kv_heads = fields.number("num_global_key_value_heads", encoder ? 1 : layer.kv_heads);
  if (reach != Reach::kAll || fields.has("per_layer_config")) return layer;
  layer.qk_depth = layer.ov_depth = depth;
  if (counts) layer.kv_heads = kv_heads;
  return layer;
}

LayerKind mimo_heads(Fields& fields, Reach reach) {
  LayerKind layer = usual_heads(fields);
  layer.ov_depth = fields.number("v_head_dim", layer.qk_depth);
  const LayerKind other = {.q_heads = fields.number("swa_num_attention_heads", layer.q_heads),
                           .kv_heads = fields.number("swa_num_key_value_heads", layer.kv_heads * 2),
                           .qk_depth = fields.number("swa_head_dim", layer.qk_depth),
                           .ov_depth = fields.number("swa_v_head_dim", layer.ov_depth)};
  return reach == Reach::kWindow ? other : layer;
}

LayerKind inkling_heads(Fields& fields, Reach reach) {
  LayerKind layer = usual_heads(fields);
  const LayerKind other = {.q_heads = fields.number("swa_num_attention_heads"),
                           .kv_heads = fields.number("swa_num_key_value_heads"),
                           .qk_depth = fields.number("swa_head_dim")};
  if (reach != Reach::kWindow) return layer;
  layer = other;
  layer.ov_depth = layer.qk_depth;
  return layer;
}

LayerKind laguna_heads(Fields& fields, std::size_t index) {
  LayerKind layer = usual_heads(fields);
  const std::string_view name = "num_attention_heads_per_layer";
  const std::vector<int> heads = fields.numbers(name);
  if (heads.empty()) return layer;
  if (index >= heads.size() || heads[index] == 0) {
    fields.fail(name, fmt::format("says no heads of layer {}", index));
  } else {
    layer.q_heads = heads[index];
  }
  return layer;
}

/// Layers with a window have other query heads: of each layer as transformers saves them, in a
/// field, or in an object.
LayerKind step_heads(Fields& fields, Reach reach) {
  LayerKind layer = usual_heads(fields);
  LayerKind other = layer;
  other.q_heads = fields.number("num_sliding_attention_heads", layer.q_heads);
  if (const JsonValue* const setting = fields.inside("attention_other_setting")) {
    Fields inner(*setting, {});
    other.q_heads = inner.number("num_attention_heads", other.q_heads);
    other.kv_heads = inner.number("num_attention_groups", other.kv_heads);
    other.qk_depth = other.ov_depth = inner.number("head_dim", other.qk_depth);
    fields.take_error(inner, "attention_other_setting");
  }
  return reach == Reach::kWindow && !fields.has("per_layer_config") ? other : layer;
}

/// A depth that is not the width over the heads where it is missing. Some published
/// configurations have it under another name.
LayerKind given_depth(Fields& fields) {
  LayerKind layer;
  layer.q_heads = fields.number("num_attention_heads");
  layer.kv_heads = fields.number("num_key_value_heads", layer.q_heads);
  const bool other = !fields.has("head_dim") && fields.has("attention_head_dim");
  layer.qk_depth = layer.ov_depth = fields.number(other ? "attention_head_dim" : "head_dim");
  return layer;
}

/// MLA, with other heads and another latent in layers with a window.
LayerKind dots_heads(Fields& fields, Reach reach) {
  const LayerKind layer = latent_heads(fields);
  LayerKind other;
  other.q_heads = other.kv_heads = fields.number("swa_num_attention_heads", 64);
  other.latent = fields.number("swa_kv_lora_rank", 1024);
  const int nope = fields.number("swa_qk_nope_head_dim", 192);
  const int depth = fields.number("swa_head_dim", 256);
  other.rope = fields.count("swa_qk_rope_head_dim", depth > nope ? depth - nope : 0);
  other.qk_depth = nope + other.rope;
  other.ov_depth = fields.number("swa_v_head_dim", 128);
  fields.number("swa_num_key_value_heads", 64);
  return reach == Reach::kWindow && !fields.has("per_layer_config") ? other : layer;
}

/// One head, whose rows are K and V.
LayerKind one_row(Fields& fields) {
  LayerKind layer = usual_heads(fields);
  if (layer.kv_heads != 1) fields.fail("num_key_value_heads", "is not 1, as here it must be");
  layer.latent = layer.qk_depth;
  return layer;
}

}  // namespace

LayerKind heads_of(const Architecture& architecture, Fields& fields, Reach reach,
                   std::size_t index) {
  switch (architecture.heads) {
    case Heads::kUsual:
      return usual_heads(fields);
    case Heads::kLatent: {
      LayerKind layer = latent_heads(fields);
      if (architecture.has(Architecture::kRopeless) && is_ropeless(fields, index)) layer.rope = 0;
      return layer;
    }
    case Heads::kFalcon:
      return falcon_heads(fields);
    case Heads::kMpt:
      return mpt_heads(fields);
    case Heads::kGemma4:
      return gemma4_heads(architecture, fields, reach);
    case Heads::kMimo:
      return mimo_heads(fields, reach);
    case Heads::kInkling:
      return inkling_heads(fields, reach);
    case Heads::kLaguna:
      return laguna_heads(fields, index);
    case Heads::kStep:
      return step_heads(fields, reach);
    case Heads::kDots:
      return dots_heads(fields, reach);
    case Heads::kOneRow:
      return one_row(fields);
    case Heads::kGivenDepth:
      return given_depth(fields);
    case Heads::kDoubleDepth: {
      const int depths = fields.has("head_dim") ? 1 : 2;
      LayerKind layer = usual_heads(fields);
      layer.qk_depth = layer.ov_depth = depths * layer.qk_depth;
      return layer;
    }
    case Heads::kDbrx:
      return dbrx_heads(fields);
    case Heads::kBlocks:
      return block_heads(fields, index);
    case Heads::kDecoder:
      return decoder_heads(fields);
    case Heads::kNoHeadDim:
      return plain_grouped_heads(fields);
  }
  return {};
}

}  // namespace attnjit::models
