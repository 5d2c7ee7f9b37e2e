// SPDX-License-Identifier: Apache-2.0
// Reads the lists of layers that configurations have, and else lays the layers out by their
// architecture's rule.
#include "models/reaches.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "spec/text.h"

namespace attnjit::models {
namespace {

using spec::JsonValue;
using Kind = LayerRule::Kind;

std::optional<Reach> reach_of(std::string_view layer_type) {
  static constexpr std::pair<std::string_view, Reach> kNames[] = {
      {"full_attention", Reach::kAll},
      {"attention", Reach::kAll},
      {"hybrid", Reach::kAll},
      {"sliding_attention", Reach::kWindow},
      {"hybrid_sliding", Reach::kWindow},
      {"chunked_attention", Reach::kChunk},
      {"indexed_attention", Reach::kIndexed},
      {"deepseek_sparse_attention", Reach::kIndexed},
      {"qwen_sparse_attention", Reach::kIndexed},
      {"minimax_m3_sparse", Reach::kIndexed},
      {"compressed_sparse_attention", Reach::kWindow},
      {"heavily_compressed_attention", Reach::kWindow},
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

Reach reach_of_letter(char letter) {
  switch (letter) {
    case 'W':
      return Reach::kWindow;
    case 'C':
      return Reach::kChunk;
    case 'I':
      return Reach::kIndexed;
    case '-':
      return Reach::kNoAttention;
    default:
      return Reach::kAll;
  }
}

/// Layers by their numbers, of which some are listed.
std::vector<Reach> listed(const std::vector<int>& numbers, int first, std::size_t layers,
                          Reach inside, Reach outside, Fields& fields, std::string_view name) {
  std::vector<Reach> found(layers, outside);
  for (const int number : numbers) {
    if (number < first || static_cast<std::size_t>(number - first) >= layers) {
      fields.fail(name, fmt::format("holds {}; allowed: the numbers of {} layers from {} on",
                                    number, layers, first));
      return {};
    }
    found[static_cast<std::size_t>(number - first)] = inside;
  }
  return found;
}

/// A list that has something of each layer, as 0 and 1.
std::vector<Reach> switched(const std::vector<int>& switches, Reach off, Reach on) {
  std::vector<Reach> found;
  found.reserve(switches.size());
  for (const int value : switches) found.push_back(value == 0 ? off : on);
  return found;
}

/// Fields that say the same as layer_types, which stands before them.
constexpr std::pair<std::string_view, std::string_view> kLayerLists[] = {
    {"bamba", "attn_layer_indices"},
    {"inkling_text", "local_layer_ids"},
    {"kimi_linear", "linear_attn_config"},
    {"lfm2", "full_attn_idxs"},
    {"mimo_v2_flash", "hybrid_layer_pattern"},
    {"minimax_m2", "attn_type_list"},
    {"minimax_m3_vl_text", "sparse_attention_config"},
    {"nemotron_h", "hybrid_override_pattern"},
    {"ultrabert", "attention_windows"},
};

struct Listed {
  std::string_view name;
  std::vector<Reach> reaches;
};

/// nemotron_h: M, E, - and *, one for each layer.
std::vector<Reach> from_letters(Fields& fields, std::string_view name) {
  std::vector<Reach> found;
  for (const char letter : fields.word(name)) {
    if (std::string_view("ME-*").find(letter) == std::string_view::npos) {
      fields.fail(name, fmt::format("holds `{}`; allowed: M, E, - and *",
                                    spec::printable(std::string_view(&letter, 1))));
      return {};
    }
    found.push_back(letter == '*' ? Reach::kAll : Reach::kNoAttention);
  }
  return found;
}

/// The list of layers that a configuration has, under whatever name.
std::optional<Listed> list_of(const Architecture& architecture, Fields& fields,
                              std::size_t layers) {
  for (const std::string_view name : {"layer_types", "layers_block_type"}) {
    if (fields.given(name) == nullptr) continue;
    Listed list{name, {}};
    for (const std::string& layer : fields.names(name)) {
      const std::optional<Reach> reach = reach_of(layer);
      if (!reach) {
        fields.fail(name,
                    fmt::format("names layers `{}`, which are not known", spec::printable(layer)));
        return list;
      }
      list.reaches.push_back(*reach);
    }
    return list;
  }
  const std::string_view type = architecture.model_type;
  if (architecture.heads == Heads::kBlocks) {
    const JsonValue* const blocks = fields.value("block_configs");
    if (blocks == nullptr || blocks->items.empty()) {
      fields.fail("block_configs", "is missing; allowed: a list that says what each layer has");
      return Listed{"block_configs", {}};
    }
    std::vector<Reach> found;
    for (const JsonValue& block : blocks->items) {
      const JsonValue* const attention = block.find("attention");
      const bool is_object = attention != nullptr && attention->type == JsonValue::Type::kObject;
      const JsonValue* const skipped = is_object ? attention->find("no_op") : nullptr;
      const JsonValue* const other = is_object ? attention->find("replace_with_linear") : nullptr;
      const auto holds = [](const JsonValue* flag) { return flag != nullptr && flag->boolean; };
      if (!is_object) fields.fail_at(block, "block_configs", "has a layer without `attention`");
      found.push_back(holds(skipped) || holds(other) ? Reach::kNoAttention : Reach::kAll);
    }
    return Listed{"block_configs", found};
  }
  if (type == "nemotron_h" && fields.has("hybrid_override_pattern")) {
    return Listed{"hybrid_override_pattern", from_letters(fields, "hybrid_override_pattern")};
  }
  if (type == "mimo_v2_flash" && fields.has("hybrid_layer_pattern")) {
    const std::string_view name = "hybrid_layer_pattern";
    return Listed{name, switched(fields.numbers(name), Reach::kAll, Reach::kWindow)};
  }
  if (type == "minimax_m2" && fields.has("attn_type_list")) {
    const std::string_view name = "attn_type_list";
    return Listed{name, switched(fields.numbers(name), Reach::kNoAttention, Reach::kAll)};
  }
  if (type == "ultrabert" && fields.has("attention_windows")) {
    const std::string_view name = "attention_windows";
    return Listed{name, switched(fields.numbers(name), Reach::kAll, Reach::kWindow)};
  }
  if (type == "inkling_text" && fields.has("local_layer_ids")) {
    const std::string_view name = "local_layer_ids";
    return Listed{
        name, listed(fields.numbers(name), 0, layers, Reach::kWindow, Reach::kAll, fields, name)};
  }
  const std::string_view numbered = type == "bamba" ? "attn_layer_indices" : "full_attn_idxs";
  if ((type == "bamba" || type == "lfm2") && fields.has(numbered)) {
    const std::string_view name = numbered;
    return Listed{name, listed(fields.numbers(name), 0, layers, Reach::kAll, Reach::kNoAttention,
                               fields, name)};
  }
  if (type == "minimax_m3_vl_text") {
    if (const JsonValue* const config = fields.inside("sparse_attention_config")) {
      Fields inner(*config, {});
      const std::vector<int> found = inner.numbers("sparse_attention_freq");
      fields.take_error(inner, "sparse_attention_config");
      if (!found.empty()) {
        return Listed{"sparse_attention_config", switched(found, Reach::kAll, Reach::kIndexed)};
      }
    }
  }
  if (type == "kimi_linear") {
    if (const JsonValue* const config = fields.inside("linear_attn_config")) {
      Fields inner(*config, {});
      const std::vector<int> found = inner.numbers("full_attn_layers");
      fields.take_error(inner, "linear_attn_config");
      if (!found.empty()) {
        return Listed{"linear_attn_config",
                      listed(found, 1, layers, Reach::kAll, Reach::kNoAttention, fields,
                             "linear_attn_config")};
      }
    }
  }
  return std::nullopt;
}

std::vector<Reach> by_pattern(const LayerRule& rule, Fields& fields, std::size_t layers) {
  std::string pattern(rule.pattern);
  if (!rule.period.empty()) {
    const std::size_t period =
        static_cast<std::size_t>(fields.number(rule.period, static_cast<int>(pattern.size())));
    if (period == 0) return {};
    pattern = std::string(period - 1, pattern.front()) + pattern.back();
  }
  std::vector<Reach> found;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::size_t at =
        rule.from_end ? pattern.size() - 1 - (layers - 1 - i) % pattern.size() : i % pattern.size();
    found.push_back(reach_of_letter(i < rule.first.size() ? rule.first[i] : pattern[at]));
  }
  if (rule.last != 0 && !found.empty()) found.back() = reach_of_letter(rule.last);
  return found;
}

/// The layers that have no rope: 0 in no_rope_layers, or each no_rope_layer_interval-th.
std::vector<bool> without_rope(Fields& fields, std::size_t layers) {
  std::vector<bool> found(layers);
  const std::vector<int> ropes = fields.numbers("no_rope_layers");
  const std::size_t every = static_cast<std::size_t>(fields.number("no_rope_layer_interval", 4));
  if (!ropes.empty() && ropes.size() != layers) {
    fields.fail("no_rope_layers", fmt::format("has {} items; allowed: one for each of {} layers",
                                              ropes.size(), layers));
    return found;
  }
  for (std::size_t i = 0; i < layers && every > 0; ++i) {
    found[i] = ropes.empty() ? (i + 1) % every == 0 : ropes[i] == 0;
  }
  return found;
}

std::vector<Reach> by_rule(const Architecture& architecture, Fields& fields, std::size_t layers) {
  const LayerRule& rule = architecture.layers;
  std::vector<Reach> found(layers, Reach::kAll);
  const auto has_window = [&fields] { return fields.has("sliding_window"); };
  switch (rule.kind) {
    case Kind::kPattern:
      if (rule.pattern == "-") {
        const bool numbered = architecture.model_type == "bamba";
        fields.fail(numbered ? "attn_layer_indices" : "layer_types",
                    "is missing; allowed: a list that says which layers have attention");
      }
      return by_pattern(rule, fields, layers);
    case Kind::kWindow:
      if (has_window()) found.assign(layers, Reach::kWindow);
      return found;
    case Kind::kIfAsked:
      if (has_window() && fields.flag("use_sliding_window", false))
        found.assign(layers, Reach::kWindow);
      return found;
    case Kind::kFromLayer:
    case Kind::kEvenBelow: {
      // NOTE: dots1 has no use_sliding_window.
      const bool asked = fields.flag("use_sliding_window", architecture.model_type == "dots1");
      const std::size_t limit = static_cast<std::size_t>(fields.count("max_window_layers", 0));
      const bool window = has_window() && asked;
      for (std::size_t i = 0; i < layers && window; ++i) {
        const bool has = rule.kind == Kind::kFromLayer ? i >= limit : i < limit && i % 2 == 0;
        if (has) found[i] = Reach::kWindow;
      }
      return found;
    }
    case Kind::kOffset: {
      const std::size_t period = static_cast<std::size_t>(fields.number("attn_layer_period"));
      const std::size_t offset = static_cast<std::size_t>(fields.count("attn_layer_offset"));
      for (std::size_t i = 0; i < layers && period > 0; ++i) {
        if (i % period != offset) found[i] = Reach::kNoAttention;
      }
      return found;
    }
    case Kind::kNoRope:
    case Kind::kNoRopeAsked: {
      const std::vector<bool> bare = without_rope(fields, layers);
      const bool chunks = rule.kind == Kind::kNoRope && fields.has("attention_chunk_size");
      const bool windows = rule.kind == Kind::kNoRopeAsked && has_window() &&
                           fields.flag("use_sliding_window", false);
      for (std::size_t i = 0; i < layers; ++i) {
        if (chunks && !bare[i]) found[i] = Reach::kChunk;
        if (windows && bare[i]) found[i] = Reach::kWindow;
      }
      return found;
    }
  }
  return found;
}

/// Fields that a list of layers makes needless.
void read_rule(const Architecture& architecture, Fields& fields) {
  const LayerRule& rule = architecture.layers;
  for (const auto& [model_type, name] : kLayerLists) {
    if (model_type == architecture.model_type) fields.has(name);
  }
  if (!rule.period.empty()) fields.has(rule.period);
  if (rule.kind == Kind::kPattern) return;
  if (rule.kind == Kind::kOffset) {
    for (const char* const name : {"attn_layer_period", "attn_layer_offset"}) fields.has(name);
    return;
  }
  fields.has("sliding_window");
  if (rule.kind == Kind::kWindow) return;
  for (const char* const name : {"use_sliding_window", "max_window_layers"}) fields.has(name);
  if (rule.kind != Kind::kNoRope && rule.kind != Kind::kNoRopeAsked) return;
  for (const char* const name :
       {"no_rope_layers", "no_rope_layer_interval", "attention_chunk_size"}) {
    fields.has(name);
  }
}

}  // namespace

std::vector<Reach> reaches_of(const Architecture& architecture, Fields& fields) {
  read_rule(architecture, fields);
  // NOTE: classes without it count their layers by a list, or by another field where all are alike.
  const std::size_t layers = static_cast<std::size_t>(
      fields.number("num_hidden_layers", static_cast<int>(architecture.layers.pattern.size())));
  std::vector<Reach> found;
  if (std::optional<Listed> list = list_of(architecture, fields, layers)) {
    found = std::move(list->reaches);
    for (const char* const name :
         {"sliding_window", "use_sliding_window", "attention_chunk_size"}) {
      fields.has(name);  // the list says which layers have them
    }
    if (fields.error()) return {};
    // A list may go on with the layers that predict more tokens.
    const std::size_t more = static_cast<std::size_t>(fields.count("num_nextn_predict_layers", 0));
    const bool counted = fields.given("num_hidden_layers") != nullptr;
    if (counted && architecture.model_type != "nemotron_h" && found.size() != layers &&
        found.size() != layers + more) {
      fields.fail(list->name,
                  fmt::format("has {} layers, and num_hidden_layers is {}", found.size(), layers));
      return {};
    }
    if (counted && found.size() > layers) found.resize(layers);
  } else {
    found = by_rule(architecture, fields, layers);
  }
  if (architecture.has(Architecture::kLastIsFull) && !found.empty()) found.back() = Reach::kAll;
  if (architecture.has(Architecture::kFullWithout) && !fields.has("sliding_window")) {
    std::replace(found.begin(), found.end(), Reach::kWindow, Reach::kAll);
  }
  return fields.error() ? std::vector<Reach>() : found;
}

}  // namespace attnjit::models
