// SPDX-License-Identifier: Apache-2.0
// Reads a configuration: its language model's part, the reach and the heads of each layer, and what
// the rest says.
#include "models/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "models/architectures.h"
#include "models/class_defaults.h"
#include "models/fields.h"
#include "models/heads.h"
#include "models/reaches.h"
#include "models/unread.h"
#include "spec/json_value.h"
#include "spec/text.h"

namespace attnjit::models {
namespace {

using spec::JsonValue;

/// Parts of a configuration that hold the language model's.
constexpr std::array<std::string_view, 4> kTextParts = {"text_config", "llm_config",
                                                        "language_config", "thinker_config"};

/// neomme's default_long_sliding_window.
constexpr int kLongWindow = 1024;

constexpr std::string_view kPromptNote =
    "rows of a prompt see all of it: add an `or` with a custom mask";

Error problem(const JsonValue& at, std::string field, std::string message, std::string hint = {}) {
  Error error =
      make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint));
  error.line = at.line;
  error.column = at.column;
  return error;
}

/// What the configuration of each layer says instead of the whole, by the layer's number.
class Overrides {
 public:
  explicit Overrides(Fields& fields) : map_(fields.inside("per_layer_config")) {
    if (map_ == nullptr) return;
    for (const spec::JsonMember& member : map_->members) {
      std::size_t layer = 0;
      const char* const end = member.name.data() + member.name.size();
      const auto [stop, status] = std::from_chars(member.name.data(), end, layer);
      if (status != std::errc{} || stop != end || member.value.type != JsonValue::Type::kObject) {
        fields.fail_at(member.value, "per_layer_config",
                       fmt::format("has {} of `{}`; allowed: objects, by the numbers of layers",
                                   describe(member.value), spec::printable(member.name)));
        return;
      }
      layers_.emplace_back(layer, &member.value);
    }
  }
  const JsonValue* of(std::size_t layer) const {
    for (const auto& [number, object] : layers_) {
      if (number == layer) return object;
    }
    return nullptr;
  }
  const std::vector<std::pair<std::size_t, const JsonValue*>>& layers() const { return layers_; }

 private:
  const JsonValue* map_;
  std::vector<std::pair<std::size_t, const JsonValue*>> layers_;
};

/// True where a layer's `skip` names its attention.
bool skips_attention(Fields& fields) {
  const std::vector<std::string> skipped = fields.names("skip");
  return std::any_of(skipped.begin(), skipped.end(), [](const std::string& name) {
    return name.find("attn") != std::string::npos || name.find("attention") != std::string::npos;
  });
}

/// Whether use_bidirectional_attention asks for keys on both sides.
bool is_asked_for(const Architecture& architecture, Fields& fields) {
  if (!architecture.has(Architecture::kBothWays)) return false;
  const JsonValue* const asked = fields.value("use_bidirectional_attention");
  if (asked == nullptr || asked->type == JsonValue::Type::kBool) {
    return asked != nullptr && asked->boolean;
  }
  if (asked->type != JsonValue::Type::kString ||
      (asked->text != "all" && asked->text != "vision")) {
    fields.fail("use_bidirectional_attention",
                "is " + describe(*asked) + "; allowed: true, false, \"all\", \"vision\"");
  }
  return asked->text == "all";
}

/// Whether rows see keys on both sides.
bool sees_both_ways(const Architecture& architecture, Fields& fields, Reach reach) {
  const bool causal = fields.flag("is_causal", true);
  if (architecture.has(Architecture::kEncoder) || is_asked_for(architecture, fields)) return true;
  if (causal) return false;
  if (reach != Reach::kAll) {
    fields.fail(
        "is_causal",
        "is false, and layers do not see all keys: which they see on both sides is not known",
        "write the manifest by hand, with `window` and `window_right`");
  }
  return true;
}

/// The keys that a row of a layer with a window sees, as a causal mask and as one of both sides.
void set_window(const Architecture& architecture, Fields& fields, bool is_long, LayerKind& layer) {
  int window = 0;
  // The configuration that is published with MiMo-V2-Flash counts the keys before the row.
  if (architecture.heads == Heads::kMimo && fields.has("sliding_window_size")) {
    window = fields.number("sliding_window_size") + 1;
    fields.has("sliding_window");
  } else if (architecture.heads == Heads::kDots) {
    window = fields.number("sliding_window", fields.number("sliding_window_size", 512));
  } else if (architecture.model_type == "modernbert") {  // a width of both sides
    window = fields.number("local_attention", 128) / 2;
  } else {
    window = fields.number("sliding_window");
    const int again = fields.number("sliding_window_size", window);
    if (again != window) {
      fields.fail("sliding_window_size",
                  fmt::format("is {}, and sliding_window is {}", again, window));
    }
  }
  if (is_long && !fields.has("per_layer_config")) window = kLongWindow;
  if (!layer.both_ways) {
    layer.window = window;
  } else if (architecture.has(Architecture::kWholeWindow)) {
    layer.window = window + 1;
    layer.right = window;
  } else {  // abs(q - k) < window / 2 + 1
    layer.window = window / 2 + 1;
    layer.right = window / 2;
  }
}

bool has_sinks(const Architecture& architecture, Fields& fields, Reach reach) {
  if (!architecture.has(Architecture::kWindowSinks)) return architecture.has(Architecture::kSinks);
  const bool in_windows = fields.flag("add_swa_attention_sink_bias", true);
  const bool elsewhere = fields.flag("add_full_attention_sink_bias", false);
  return reach == Reach::kWindow ? in_windows : elsewhere;
}

LayerKind layer_of(const Architecture& architecture, Fields& fields, Reach reach, std::size_t index,
                   bool is_long) {
  LayerKind layer = heads_of(architecture, fields, reach, index);
  layer.both_ways = sees_both_ways(architecture, fields, reach);
  if (architecture.has(Architecture::kLists) && reach == Reach::kIndexed) {
    layer.topk = fields.number("index_topk");
  }
  if (architecture.has(Architecture::kSoftcap))
    layer.softcap = fields.real("attn_logit_softcapping");
  layer.sink = has_sinks(architecture, fields, reach);
  layer.alibi = layer.alibi || architecture.has(Architecture::kUsualAlibi);
  if (architecture.has(Architecture::kAlibi)) {
    layer.alibi = layer.given_slopes = fields.flag("alibi", false);
  }
  if (reach == Reach::kWindow) set_window(architecture, fields, is_long, layer);
  if (reach == Reach::kChunk) layer.chunk = fields.number("attention_chunk_size");
  if (fields.has("attention_head_dim") && fields.number("attention_head_dim") != layer.qk_depth) {
    fields.fail("attention_head_dim",
                fmt::format("is not the depth that other fields say, {}", layer.qk_depth));
  }
  return layer;
}

/// The kinds of the layers, each once, and which layers are of each.
void read_kinds(const Architecture& architecture, Fields& fields, const Overrides& overrides,
                ModelAttention& model) {
  std::vector<LayerKind>& kinds = model.kinds;
  const std::vector<Reach> reaches = reaches_of(architecture, fields);
  for (const auto& [number, object] : overrides.layers()) {
    if (number < reaches.size()) continue;
    fields.fail("per_layer_config", fmt::format("has layer {}; allowed: the numbers of {} layers",
                                                number, reaches.size()));
  }
  // Layers of one reach, with the same overrides and in one list, are of one kind.
  using Key = std::tuple<Reach, const JsonValue*, std::size_t>;
  std::vector<std::pair<Key, std::optional<LayerKind>>> seen;
  std::vector<std::optional<LayerKind>> layers;
  std::size_t windows = 0;
  const bool each_layer = architecture.heads == Heads::kLaguna ||
                          architecture.heads == Heads::kBlocks ||
                          architecture.has(Architecture::kRopeless);
  for (std::size_t i = 0; i < reaches.size() && !fields.error(); ++i) {
    const JsonValue* const object = overrides.of(i);
    const bool window = reaches[i] == Reach::kWindow;
    const bool is_long = window && architecture.has(Architecture::kLongWindows) && windows % 2 == 1;
    windows += window ? 1 : 0;
    const Key key{reaches[i], object, each_layer ? i : static_cast<std::size_t>(is_long)};
    auto like = std::find_if(seen.begin(), seen.end(),
                             [&key](const auto& one) { return one.first == key; });
    if (like == seen.end()) {
      like = seen.insert(seen.end(), {key, std::nullopt});
      fields.set_layer(object);
      if (reaches[i] != Reach::kNoAttention && !skips_attention(fields)) {
        like->second = layer_of(architecture, fields, reaches[i], i, is_long);
      }
      fields.set_layer(nullptr);
    }
    layers.push_back(like->second);
    if (!layers.back()) continue;
    if (std::find(kinds.begin(), kinds.end(), *layers.back()) == kinds.end()) {
      kinds.push_back(*layers.back());
    }
  }
  if (kinds.empty() && !fields.error()) {
    fields.fail("layer_types", "has no layer with attention");
  }
  // Layers that see all keys stand first in a manifest.
  std::stable_sort(kinds.begin(), kinds.end(), [](const LayerKind& one, const LayerKind& other) {
    return one.window + one.chunk == 0 && other.window + other.chunk > 0;
  });
  for (const LayerKind& kind : kinds) {
    std::vector<int>& numbers = model.numbers.emplace_back();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i] == kind) numbers.push_back(static_cast<int>(i));
    }
  }
  if (architecture.has(Architecture::kCross) && !kinds.empty()) {
    kinds.push_back(kinds.front());
    kinds.back().cross = true;
    model.numbers.push_back(model.numbers.front());
  }
}

/// The element type that the model was saved with.
Result<Dtype> dtype_of(const JsonValue& root, const JsonValue& object, ModelAttention& model) {
  for (const JsonValue* const part : {&object, &root}) {
    for (const std::string_view name : {"dtype", "torch_dtype"}) {
      const JsonValue* const value = part->find(name);
      if (value == nullptr || value->type == JsonValue::Type::kNull) continue;
      std::string_view text = value->text;
      if (text.starts_with("torch.")) text.remove_prefix(6);
      if (value->type == JsonValue::Type::kString && text == "bfloat16") return Dtype::kBf16;
      if (value->type == JsonValue::Type::kString && text == "float16") return Dtype::kFp16;
      if (value->type == JsonValue::Type::kString && text == "float32") {
        model.notes.emplace_back("the model was saved as float32: the specs are of bf16");
        model.float32 = true;
        return Dtype::kBf16;
      }
      return problem(*value, std::string(name),
                     "is " + describe(*value) + "; allowed: bfloat16, float16, float32",
                     "take the field out for specs of bf16");
    }
  }
  return Dtype::kBf16;
}

/// Whether the name of the class that runs the model says that rows see keys on both sides.
bool is_named_bidirectional(const JsonValue& root) {
  const JsonValue* const names = root.find("architectures");
  return names != nullptr &&
         std::any_of(names->items.begin(), names->items.end(), [](const JsonValue& name) {
           return name.text.find("Bidirectional") != std::string::npos;
         });
}

/// How rows of an image see one another.
std::string images_of(const Architecture& architecture, Fields& fields, bool sees_images) {
  if (architecture.heads == Heads::kGemma4) {
    const JsonValue* const asked = fields.value("use_bidirectional_attention");
    return asked != nullptr && asked->text == "vision" ? "window" : "";
  }
  return sees_images ? "free" : "";
}

/// The factor of yarn by which MLA's scale is multiplied.
std::optional<double> yarn_factor(Fields& fields) {
  const JsonValue* ropes[] = {fields.given("rope_parameters"), fields.given("rope_scaling")};
  if (ropes[0] == nullptr && ropes[1] == nullptr) ropes[0] = fields.value("rope_parameters");
  for (const JsonValue* const rope : ropes) {
    if (rope == nullptr || rope->type != JsonValue::Type::kObject) continue;
    const JsonValue* const mscale = rope->find("mscale_all_dim");
    const JsonValue* const factor = rope->find("factor");
    if (mscale == nullptr || factor == nullptr || !(mscale->real > 0) || !(factor->real > 1)) {
      continue;
    }
    const double scale = 0.1 * mscale->real * std::log(factor->real) + 1;
    return scale * scale;
  }
  return std::nullopt;
}

/// What a launch must know beyond the spec: its scale, above all.
void add_notes(const Architecture& architecture, Fields& fields, ModelAttention& model) {
  const LayerKind& first = model.kinds.front();
  const auto add = [&model](std::string note) { model.notes.push_back(std::move(note)); };
  const JsonValue* const asked = architecture.has(Architecture::kBothWays)
                                     ? fields.value("use_bidirectional_attention")
                                     : nullptr;
  const bool text_only = architecture.heads == Heads::kGemma4 && asked == nullptr;
  if (!architecture.note.empty() && !first.both_ways && !text_only) {
    add(std::string(architecture.note));
  }
  if (architecture.has(Architecture::kScalar)) {
    if (const double scalar = fields.real("query_pre_attn_scalar");
        scalar > 0 && scalar != first.qk_depth) {
      add(fmt::format("launch with the scale 1 / sqrt({})", scalar));
    }
  }
  if (architecture.has(Architecture::kMultiplier)) {
    const double scale = fields.real("attention_multiplier");
    if (scale > 0) add(fmt::format("launch with the scale {}", scale));
  }
  if (architecture.has(Architecture::kScaleOne)) add("launch with the scale 1");
  if (architecture.has(Architecture::kScaleInverse)) {
    add(fmt::format("launch with the scale 1 / {}", first.qk_depth));
  }
  if (first.latent > 0) {
    if (const std::optional<double> factor = yarn_factor(fields)) {
      add(fmt::format("launch with the scale {:.6f} / sqrt({})", *factor, first.qk_depth));
    }
  }
  if (first.given_slopes) {
    add(fmt::format("ALiBi is added before the scale: give the usual slopes / sqrt({})",
                    first.qk_depth));
  }
}

Error unknown(const JsonValue& at, const std::string& model_type) {
  std::vector<std::string_view> known;
  for (const Architecture& one : architectures()) known.push_back(one.model_type);
  const std::string_view best = spec::closest(model_type, known);
  return problem(at, "model_type",
                 fmt::format("`{}` is no architecture that is known; known: {}",
                             spec::printable(model_type), spec::join(known)),
                 best.empty() ? "write the manifest by hand, as those in cache/"
                              : fmt::format("did you mean `{}`?", best));
}

/// The object that holds the language model's fields, and the name of its architecture.
struct TextPart {
  const JsonValue* object = nullptr;
  std::string model_type;
  bool prompt_both_ways = false;
  bool sees_images = false;  ///< rows of an image see all of it
};

Result<TextPart> text_part(const JsonValue& root) {
  TextPart part{&root, {}};
  std::string_view whole;  // the architecture around this part
  for (bool more = true; more;) {
    const JsonValue* const name = part.object->find("model_type");
    if (name != nullptr && name->type != JsonValue::Type::kString &&
        name->type != JsonValue::Type::kNull) {
      return problem(*name, "model_type",
                     fmt::format("is {}; allowed: the name of an architecture", describe(*name)));
    }
    if (name != nullptr && name->type == JsonValue::Type::kString) {
      part.model_type = name->text;
    } else {
      part.model_type = std::string(language_part(whole));
    }
    part.prompt_both_ways |= part.model_type == "paligemma";
    part.sees_images |= part.model_type == "paligemma" || part.model_type == "gemma3";
    whole = name == nullptr ? std::string_view() : std::string_view(name->text);
    more = false;
    for (const std::string_view field : kTextParts) {
      const JsonValue* const inner = part.object->find(field);
      if (inner == nullptr || inner->type != JsonValue::Type::kObject) continue;
      part.object = inner;
      more = true;
      break;
    }
  }
  if (part.model_type.empty()) {
    return problem(*part.object, "model_type", "is missing; allowed: the name of an architecture",
                   "give the config.json that lies beside the model's weights");
  }
  // One that lays its language model's fields beside the others, or leaves them to the class.
  if (const std::string_view inner = language_part(part.model_type); !inner.empty()) {
    part.model_type = std::string(inner);
  }
  return part;
}

}  // namespace

Result<ModelAttention> read_hf_config(std::string_view json) {
  Result<JsonValue> root = spec::parse_json(json, {.bare_numbers = true});
  if (!root) return std::move(root).error();
  if (root->type != JsonValue::Type::kObject) {
    return problem(*root, "", "the configuration is " + describe(*root) + "; allowed: an object");
  }
  const Result<TextPart> part = text_part(*root);
  if (!part) return part.error();
  const JsonValue& object = *part->object;
  const std::span<const Architecture> known = architectures();
  const auto architecture = std::find_if(known.begin(), known.end(), [&](const Architecture& one) {
    return one.model_type == part->model_type;
  });
  if (architecture == known.end()) {
    const JsonValue* const name = object.find("model_type");
    return unknown(name == nullptr ? object : *name, part->model_type);
  }

  ModelAttention model;
  model.architecture = part->model_type;
  const Result<Dtype> dtype = dtype_of(*root, object, model);
  if (!dtype) return dtype.error();
  model.dtype = *dtype;
  Fields fields(object, class_defaults(architecture->defaults.empty() ? architecture->model_type
                                                                      : architecture->defaults));
  if (part->prompt_both_ways) {
    fields.has("use_bidirectional_attention");
    model.notes.emplace_back(kPromptNote);
  }
  const Overrides overrides(fields);
  read_kinds(*architecture, fields, overrides, model);
  if (fields.error()) return *fields.error();
  for (const LayerKind& layer : model.kinds) {
    if (layer.kv_heads > 0 && layer.q_heads % layer.kv_heads == 0) continue;
    fields.fail("num_key_value_heads", fmt::format("is {}, which does not divide {} query heads",
                                                   layer.kv_heads, layer.q_heads));
  }
  for (LayerKind& layer : model.kinds) {
    if (!is_named_bidirectional(*root)) break;
    if (layer.window + layer.chunk + layer.latent > 0) {
      return problem(*root->find("architectures"), "architectures",
                     "says that rows see keys on both sides, of which they do not see all here",
                     "write the manifest by hand, as those in cache/");
    }
    layer.both_ways = true;
  }
  add_notes(*architecture, fields, model);
  model.encoder = architecture->has(Architecture::kEncoder) || is_named_bidirectional(*root);
  model.beyond_specs = architecture->has(Architecture::kBeyondSpecs);
  model.images = images_of(*architecture, fields, part->sees_images);
  if (fields.error()) return *fields.error();
  if (Status unread = refuse_unread(object, architecture->model_type, fields); !unread) {
    return unread.error();
  }
  for (const auto& [number, layer] : overrides.layers()) {
    const std::string place = fmt::format("per_layer_config.{}.", number);
    if (Status unread = refuse_unread(*layer, architecture->model_type, fields, place); !unread) {
      return unread.error();
    }
  }
  return model;
}

}  // namespace attnjit::models
