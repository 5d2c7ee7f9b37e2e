// SPDX-License-Identifier: Apache-2.0
// The table of architectures, and the fields that say what their layers are.
#include "models/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "spec/json_value.h"
#include "spec/text.h"

namespace attnjit::models {
namespace {

using spec::JsonValue;

/// Which layers have a window, where the configuration has no layer_types.
enum class Windows {
  kNone,     ///< none, whatever sliding_window says
  kEvery,    ///< every layer, if sliding_window is given
  kIfAsked,  ///< the layers from max_window_layers on, if use_sliding_window
  kSome,     ///< some, if sliding_window is given
};

struct Architecture {
  std::string_view model_type;
  Windows windows = Windows::kNone;
  bool sink = false;           ///< each head has a sink
  std::string_view note = {};  ///< what its kernels would need beyond a spec
  bool chunked = false;        ///< attention_chunk_size, not sliding_window
  bool lists = false;          ///< an indexer lists the keys that a row sees: index_topk of them
};

constexpr std::string_view kPrefixNote =
    "images see each other in both directions in their prompt: add an `or` with a custom mask";
constexpr std::string_view kListNote =
    "each row sees the keys that an indexer lists: specs with topk have its lists, the others are "
    "the dense form";
constexpr std::string_view kBiasNote =
    "scores have a learned bias of the distance: add it as a score modification";

constexpr Architecture kArchitectures[] = {
    {"cohere2", Windows::kSome},
    {"deepseek_v2"},
    {"deepseek_v3"},
    {"deepseek_v32", Windows::kNone, false, kListNote, false, true},
    {"ernie4_5"},
    {"ernie4_5_moe"},
    {"exaone4", Windows::kSome},
    {"falcon"},
    {"gemma"},
    {"gemma2", Windows::kSome},
    {"gemma3_text", Windows::kSome, false, kPrefixNote},
    {"gemma4_text", Windows::kSome, false, kPrefixNote},
    {"glm4"},
    {"glm4_moe"},
    {"glm4_moe_lite"},
    {"glm_moe_dsa", Windows::kNone, false, kListNote, false, true},
    {"gpt_oss", Windows::kSome, true},
    {"granite"},
    {"hunyuan_v1_dense"},
    {"hunyuan_v1_moe"},
    {"hy_v3"},
    {"inkling2_text", Windows::kSome, false, kBiasNote},
    {"inkling_text", Windows::kSome, false, kBiasNote},
    {"kimi_k2"},
    {"laguna", Windows::kSome},
    {"llama"},
    {"llama4_text", Windows::kNone, false, {}, true},
    {"mimo_v2_flash", Windows::kSome},
    {"minimax_m2"},
    {"ministral", Windows::kEvery},
    {"ministral3", Windows::kEvery},
    {"mistral", Windows::kEvery},
    {"mistral4"},
    {"mixtral", Windows::kEvery},
    {"mpt"},
    {"muse_glimmer_text", Windows::kSome},
    {"muse_spark_text", Windows::kSome},
    {"nemotron_h"},
    {"olmo2"},
    {"olmo3", Windows::kSome},
    {"phi3", Windows::kEvery},
    {"qwen2", Windows::kIfAsked},
    {"qwen2_moe", Windows::kIfAsked},
    {"qwen3", Windows::kIfAsked},
    {"qwen3_5_moe_text"},
    {"qwen3_5_text"},
    {"qwen3_moe", Windows::kIfAsked},
    {"qwen3_next"},
    {"qwen3_vl_moe_text"},
    {"qwen3_vl_text"},
    {"seed_oss"},
    {"smollm3"},
    {"solar_open"},
    {"step3p5", Windows::kSome},
};

/// Parts of a configuration that hold the language model's.
constexpr std::array<std::string_view, 3> kTextParts = {"text_config", "llm_config",
                                                        "language_config"};

Error problem(const JsonValue& at, std::string field, std::string message, std::string hint = {}) {
  Error error =
      make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint));
  error.line = at.line;
  error.column = at.column;
  return error;
}

/// Reads fields of an object. The first problem is kept; what is read after it is 0.
class Fields {
 public:
  explicit Fields(const JsonValue& object) : object_(object) {}

  bool has(std::string_view name) const { return value(name) != nullptr; }
  const JsonValue* value(std::string_view name) const {
    const JsonValue* found = object_.find(name);
    return found == nullptr || found->type == JsonValue::Type::kNull ? nullptr : found;
  }
  /// A number from 1 to 2^20, or the default where it is not given.
  int number(std::string_view name, std::optional<int> otherwise = {}) {
    const JsonValue* found = value(name);
    if (found == nullptr) {
      if (!otherwise) fail(object_, name, "is missing; allowed: a number from 1 on");
      return otherwise.value_or(0);
    }
    if (found->type != JsonValue::Type::kInteger || found->integer < 1 ||
        found->integer > (1 << 20)) {
      fail(*found, name, "is " + describe(*found) + "; allowed: 1 to 1048576");
      return 0;
    }
    return static_cast<int>(found->integer);
  }
  double real(std::string_view name) {
    const JsonValue* found = value(name);
    if (found == nullptr) return 0;
    if ((found->type != JsonValue::Type::kReal && found->type != JsonValue::Type::kInteger) ||
        !(found->real > 0)) {
      fail(*found, name, "is " + describe(*found) + "; allowed: a number above 0");
      return 0;
    }
    return found->real;
  }
  bool flag(std::string_view name, bool otherwise) {
    const JsonValue* found = value(name);
    if (found == nullptr) return otherwise;
    if (found->type != JsonValue::Type::kBool) {
      fail(*found, name, "is " + describe(*found) + "; allowed: true, false");
      return otherwise;
    }
    return found->boolean;
  }
  /// The names of a list of layers; each name once.
  std::vector<std::string> names(std::string_view name) {
    std::vector<std::string> names;
    const JsonValue* list = value(name);
    if (list == nullptr) return names;
    for (const JsonValue& item : list->items) {
      if (item.type != JsonValue::Type::kString) {
        fail(item, name, "holds " + describe(item) + "; allowed: names of kinds of layers");
        return {};
      }
      if (std::find(names.begin(), names.end(), item.text) == names.end()) {
        names.push_back(item.text);
      }
    }
    if (names.empty()) fail(*list, name, "is " + describe(*list) + "; allowed: a list of names");
    return names;
  }
  void fail(const JsonValue& at, std::string_view name, std::string message) {
    if (!error_) error_ = problem(at, std::string(name), std::move(message));
  }
  const std::optional<Error>& error() const { return error_; }
  /// The problem of an object inside this one.
  void take_error(const Fields& inner) {
    if (!error_) error_ = inner.error_;
  }

 private:
  const JsonValue& object_;
  std::optional<Error> error_;
};

/// How far the rows of a kind of layers see.
enum class Reach { kAll, kWindow, kChunk, kNoAttention };

std::optional<Reach> reach_of(std::string_view layer_type) {
  static constexpr std::pair<std::string_view, Reach> kNames[] = {
      {"full_attention", Reach::kAll},
      {"attention", Reach::kAll},
      {"hybrid", Reach::kAll},
      {"indexed_attention", Reach::kAll},
      {"sliding_attention", Reach::kWindow},
      {"hybrid_sliding", Reach::kWindow},
      {"chunked_attention", Reach::kChunk},
      {"linear_attention", Reach::kNoAttention},
      {"mamba", Reach::kNoAttention},
      {"conv", Reach::kNoAttention},
      {"moe", Reach::kNoAttention},
      {"mlp", Reach::kNoAttention},
  };
  for (const auto& [name, reach] : kNames) {
    if (name == layer_type) return reach;
  }
  return std::nullopt;
}

/// The reaches that the layers have, each once.
std::vector<Reach> reaches(const Architecture& architecture, Fields& fields) {
  std::vector<Reach> found;
  const auto add = [&found](Reach reach) {
    if (reach != Reach::kNoAttention && std::find(found.begin(), found.end(), reach) == found.end())
      found.push_back(reach);
  };
  for (const std::string_view list : {"layer_types", "layers_block_type"}) {
    for (const std::string& name : fields.names(list)) {
      if (const std::optional<Reach> reach = reach_of(name)) {
        add(*reach);
      } else {
        fields.fail(*fields.value(list), list,
                    fmt::format("names layers `{}`, which are not known", spec::printable(name)));
      }
    }
  }
  if (!found.empty()) return found;
  if (architecture.chunked) return {Reach::kAll, Reach::kChunk};
  const bool window = fields.has("sliding_window");
  switch (architecture.windows) {
    case Windows::kNone:
      return {Reach::kAll};
    case Windows::kEvery:
      return {window ? Reach::kWindow : Reach::kAll};
    case Windows::kIfAsked:
      if (!window || !fields.flag("use_sliding_window", false)) return {Reach::kAll};
      return {Reach::kAll, Reach::kWindow};
    case Windows::kSome:
      if (!window) return {Reach::kAll};
      return {Reach::kAll, Reach::kWindow};
  }
  return found;
}

/// The heads and depths of layers that see all keys, or of those with a window.
LayerKind heads(Fields& fields, bool window) {
  LayerKind layer;
  const bool falcon = fields.has("multi_query") || fields.has("new_decoder_architecture");
  layer.q_heads =
      fields.has("n_heads") ? fields.number("n_heads") : fields.number("num_attention_heads");
  int kv_heads = layer.q_heads;
  for (const std::string_view name : {"num_kv_heads", "num_attention_groups"}) {
    if (fields.has(name)) kv_heads = fields.number(name);
  }
  if (falcon && !fields.flag("new_decoder_architecture", false) &&
      fields.flag("multi_query", true)) {
    kv_heads = 1;
  }
  layer.kv_heads = fields.number("num_key_value_heads", kv_heads);
  const std::string_view width = fields.has("d_model") ? "d_model" : "hidden_size";
  layer.qk_depth = fields.has("head_dim") || layer.q_heads == 0
                       ? fields.number("head_dim", 1)
                       : fields.number(width) / layer.q_heads;
  layer.ov_depth = fields.number("v_head_dim", layer.qk_depth);
  if (window) {
    layer.q_heads = fields.number("num_sliding_attention_heads",
                                  fields.number("swa_num_attention_heads", layer.q_heads));
    layer.kv_heads = fields.number("swa_num_key_value_heads", layer.kv_heads);
    if (const JsonValue* setting = fields.value("attention_other_setting")) {  // step3p5
      Fields inner(*setting);
      layer.q_heads = inner.number("num_attention_heads", layer.q_heads);
      layer.kv_heads = inner.number("num_attention_groups", layer.kv_heads);
      fields.take_error(inner);
    }
    layer.qk_depth = fields.number("swa_head_dim", layer.qk_depth);
    layer.ov_depth = fields.number(
        "swa_v_head_dim",
        fields.has("swa_head_dim") && !fields.has("v_head_dim") ? layer.qk_depth : layer.ov_depth);
  } else if (fields.has("global_head_dim")) {  // gemma4
    layer.qk_depth = layer.ov_depth = fields.number("global_head_dim");
    layer.kv_heads = fields.number("num_global_key_value_heads", layer.kv_heads);
  }
  return layer;
}

LayerKind latent_heads(Fields& fields) {
  LayerKind layer;
  layer.q_heads = layer.kv_heads = fields.number("num_attention_heads");
  layer.latent = fields.number("kv_lora_rank");
  layer.rope = fields.number("qk_rope_head_dim");
  layer.qk_depth = fields.number("qk_nope_head_dim") + layer.rope;
  layer.ov_depth = fields.number("v_head_dim");
  return layer;
}

/// Whether layers of this reach have sinks: gpt_oss says so by its name, others by flags.
bool has_sinks(const Architecture& architecture, Fields& fields, Reach reach) {
  return fields.flag(
      reach == Reach::kWindow ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias",
      architecture.sink);
}

LayerKind layer_of(const Architecture& architecture, Fields& fields, Reach reach) {
  LayerKind layer =
      fields.has("kv_lora_rank") ? latent_heads(fields) : heads(fields, reach == Reach::kWindow);
  if (architecture.lists) layer.topk = fields.number("index_topk");
  layer.softcap = fields.real("attn_logit_softcapping");
  layer.sink = has_sinks(architecture, fields, reach);
  layer.alibi = fields.flag("alibi", false);
  if (const JsonValue* config = fields.value("attn_config")) {  // mpt
    Fields inner(*config);
    layer.alibi = inner.flag("alibi", false);
    fields.take_error(inner);
  }
  if (reach == Reach::kWindow) {
    const std::string_view name =
        fields.has("sliding_window_size") ? "sliding_window_size" : "sliding_window";
    layer.window = fields.number(name);
  }
  if (reach == Reach::kChunk) layer.chunk = fields.number("attention_chunk_size");
  return layer;
}

Error unknown(const JsonValue& at, const std::string& model_type) {
  std::array<std::string_view, std::size(kArchitectures)> known;
  std::transform(std::begin(kArchitectures), std::end(kArchitectures), known.begin(),
                 [](const Architecture& one) { return one.model_type; });
  const std::string_view best = spec::closest(model_type, known);
  return problem(at, "model_type",
                 fmt::format("`{}` is no architecture that is known; known: {}",
                             spec::printable(model_type), spec::join(known)),
                 best.empty() ? "write the manifest by hand, as those in cache/"
                              : fmt::format("did you mean `{}`?", best));
}

/// The object that holds the language model's fields.
const JsonValue& text_part(const JsonValue& root) {
  for (const std::string_view name : kTextParts) {
    const JsonValue* part = root.find(name);
    if (part != nullptr && part->type == JsonValue::Type::kObject) return text_part(*part);
  }
  return root;
}

}  // namespace

Result<ModelAttention> read_hf_config(std::string_view json) {
  Result<JsonValue> root = spec::parse_json(json);
  if (!root) return std::move(root).error();
  if (root->type != JsonValue::Type::kObject) {
    return problem(*root, "", "the configuration is " + describe(*root) + "; allowed: an object");
  }
  const JsonValue& object = text_part(*root);
  const JsonValue* model_type = object.find("model_type");
  if (model_type == nullptr || model_type->type != JsonValue::Type::kString) {
    return problem(
        model_type == nullptr ? object : *model_type, "model_type",
        fmt::format("is {}; allowed: the name of an architecture",
                    model_type == nullptr ? std::string("missing") : describe(*model_type)),
        "give the config.json that lies beside the model's weights");
  }
  const auto architecture =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& one) { return one.model_type == model_type->text; });
  if (architecture == std::end(kArchitectures)) return unknown(*model_type, model_type->text);

  ModelAttention model;
  model.architecture = model_type->text;
  Fields fields(object);
  for (const Reach reach : reaches(*architecture, fields)) {
    const LayerKind layer = layer_of(*architecture, fields, reach);
    if (std::find(model.kinds.begin(), model.kinds.end(), layer) == model.kinds.end()) {
      model.kinds.push_back(layer);
    }
  }
  if (fields.error()) return *fields.error();
  for (const LayerKind& layer : model.kinds) {
    if (layer.kv_heads > 0 && layer.q_heads % layer.kv_heads == 0) continue;
    const JsonValue* const value = fields.value("num_key_value_heads");
    return problem(
        value != nullptr ? *value : object, "num_key_value_heads",
        fmt::format("is {}, which does not divide {} query heads", layer.kv_heads, layer.q_heads));
  }
  if (!architecture->note.empty()) model.notes.emplace_back(architecture->note);
  if (const double scalar = fields.real("query_pre_attn_scalar");
      scalar > 0 && scalar != model.kinds.front().qk_depth) {
    model.notes.push_back(fmt::format("launch with the scale 1 / sqrt({})", scalar));
  }
  if (const double scale = fields.real("attention_multiplier"); scale > 0) {
    model.notes.push_back(fmt::format("launch with the scale {}", scale));
  }
  return model;
}

}  // namespace attnjit::models
