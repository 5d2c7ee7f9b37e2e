// SPDX-License-Identifier: Apache-2.0
// Writes the specs of a model's layers as the lines of a manifest.
#include "models/specs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "spec/kinds.h"

namespace attnjit::models {
namespace {

std::string json_text(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The width of the part with positions that a spec's `mla` has.
constexpr int kRopeDepth = 64;
/// The latent part that a cache of the format dsv32 has.
constexpr int kDsv32Latent = 512;

/// Rows of the decodes: one, and one with drafts.
constexpr int kDecodeRows[] = {1, 4};

std::string mask_of(const LayerKind& layer) {
  if (layer.window > 0) {
    const std::string right =
        layer.both_ways ? fmt::format(R"(, "window_right": {})", layer.right) : "";
    return fmt::format(R"({{"kind": "sliding_window", "window": {}{}{}}})", layer.window, right,
                       layer.window <= spec::kSmallWindow ? R"(, "constant": true)" : "");
  }
  if (layer.both_ways || layer.cross) return R"("null")";
  if (layer.chunk > 0) {
    return fmt::format(
        R"({{"kind": "and", "of": [{{"kind": "causal"}}, {{"kind": "chunked", "chunk": {}}}]}})",
        layer.chunk);
  }
  return R"("causal")";
}

/// What a layer has beside its mask.
std::string more_of(const LayerKind& layer) {
  std::string tail;
  if (layer.softcap > 0) {
    tail += fmt::format(R"(, "score_mod": {{"kind": "softcap", "cap": {:.1f}}})", layer.softcap);
  }
  if (layer.given_slopes) {
    tail += R"(, "score_mod": {"kind": "alibi", "slopes": true})";
  } else if (layer.alibi) {
    tail += R"(, "score_mod": "alibi")";
  }
  if (layer.sink) tail += R"(, "sink": true)";
  return tail;
}

/// What follows the shape in each line of a layer.
std::string tail_of(const LayerKind& layer) {
  return fmt::format(R"(, "mask": {})", mask_of(layer)) + more_of(layer);
}

class Lines {
 public:
  Lines(const ServingOptions& options, Dtype dtype)
      : page_sizes_(options.page_sizes),
        dtype_(dtype),
        kv_dtype_(options.kv_dtype.value_or(dtype)) {}

  void add_layer(const LayerKind& layer) {
    if (layer.latent > 0) {
      add_latent(layer);
      return;
    }
    const std::string head = shape(layer.q_heads, layer.kv_heads, layer.qk_depth, layer.ov_depth);
    const std::string tail = tail_of(layer);
    add_prompts(head, tail);
    if (layer.both_ways) return;
    add_few_rows(layer, head, tail);
    add_paged(head, cache_type(), tail);
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  static std::string shape(int q_heads, int kv_heads, int qk_depth, int ov_depth) {
    std::string text = fmt::format(R"("num_q_heads": {})", q_heads);
    if (q_heads != kv_heads) text += fmt::format(R"(, "group": {})", q_heads / kv_heads);
    text += fmt::format(R"(, "qk_depth": {})", qk_depth);
    if (ov_depth != qk_depth) text += fmt::format(R"(, "ov_depth": {})", ov_depth);
    return text;
  }

  void add_prompts(const std::string& head, const std::string& tail) {
    const std::string type = type_of("qkv_dtype", dtype_);
    add(head, type, tail);
    add(head, type + R"(, "ragged": true)", tail);
  }

  /// What attention() asks for beside prompts, where keys and values are not paged: parts of the
  /// keys, for rows that are few beside them, and decodes.
  void add_few_rows(const LayerKind& layer, const std::string& head, const std::string& tail) {
    const std::string type = type_of("qkv_dtype", dtype_) + R"(, "num_partitions": 0)";
    if (layer.window == 0 && layer.chunk == 0) add(head, type, tail);
    add(head, type + R"(, "max_q_len": 1)", tail);
  }

  /// A field of a type; none for what a spec has by default.
  static std::string type_of(std::string_view field, Dtype dtype) {
    if (dtype == Dtype::kBf16) return {};
    return fmt::format(R"(, "{}": "{}")", field, to_string(dtype));
  }
  /// The fields of the cache's type. Beside a cache of e4m3 Q stays as the model has it.
  std::string cache_type() const {
    if (kv_dtype_ != Dtype::kE4m3) return type_of("qkv_dtype", kv_dtype_);
    return type_of("qkv_dtype", dtype_) + type_of("kv_dtype", kv_dtype_);
  }

  void add_paged(const std::string& head, const std::string& dtype, const std::string& tail) {
    for (const int page : page_sizes_) {
      add(head,
          fmt::format(R"({}, "page_size": {}, "ragged": true, "return_lse": true)", dtype, page),
          tail);
    }
    for (const int page : page_sizes_) {
      for (const int rows : kDecodeRows) {
        add(head,
            fmt::format(R"({}, "page_size": {}, "num_partitions": 0, "max_q_len": {})", dtype, page,
                        rows),
            tail);
      }
    }
  }

  /// MLA: prompts multiply K and V out, decodes keep the latent, which all heads share. A latent
  /// that is K and V as it is has no other form.
  void add_latent(const LayerKind& layer) {
    const std::string tail = tail_of(layer);
    std::string absorbed = shape(layer.q_heads, 1, layer.latent + layer.rope, layer.latent);
    if (layer.rope == 0) absorbed += fmt::format(R"(, "ov_depth": {})", layer.latent);
    if (layer.rope == 0 || layer.rope == kRopeDepth) absorbed += R"(, "mla": "decode")";
    std::string head = shape(layer.q_heads, layer.kv_heads, layer.qk_depth, layer.ov_depth);
    if (layer.qk_depth == 192 && layer.ov_depth == 128) head += R"(, "mla": "prefill")";
    add_prompts(layer.kv_heads == 1 ? absorbed : head, tail);
    add_paged(absorbed, cache_type(), tail);
    if (layer.topk > 0) add_listed(layer, absorbed);
  }

  /// Rows that see the keys of their lists, and no mask beside them: over a cache of the type that
  /// is asked for, and of the format dsv32 where a row of it is one.
  void add_listed(const LayerKind& layer, const std::string& head) {
    std::vector<std::string> caches{cache_type()};
    if (layer.latent == kDsv32Latent && layer.rope == kRopeDepth && dtype_ == Dtype::kBf16) {
      caches.emplace_back(R"(, "cache_format": "dsv32")");
    }
    for (const std::string& cache : caches) {
      add_paged(head, cache, fmt::format(R"(, "topk": {})", layer.topk) + more_of(layer));
    }
  }

  void add(const std::string& head, const std::string& middle, const std::string& tail) {
    std::string line = "{" + head + middle + tail + "}";
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) {
      lines_.push_back(std::move(line));
    }
  }

  const std::vector<int>& page_sizes_;
  Dtype dtype_;
  Dtype kv_dtype_;
  std::vector<std::string> lines_;
};

}  // namespace

Result<std::string> write_manifest(const ModelAttention& model, const std::string& name,
                                   const std::string& source, const ServingOptions& options) {
  Lines lines(options, model.dtype);
  for (const int gpus : options.tensor_parallel) {
    for (const LayerKind& layer : model.kinds) {
      Result<LayerKind> part = shard(layer, gpus);
      if (!part) return std::move(part).error();
      lines.add_layer(*part);
    }
  }
  std::string origin = source;
  for (const std::string& note : model.notes) origin += "; " + note;
  return fmt::format("{{\n  \"name\": {},\n  \"source\": {},\n  \"specs\": [\n    {}\n  ]\n}}\n",
                     json_text(name), json_text(origin), fmt::join(lines.lines(), ",\n    "));
}

}  // namespace attnjit::models
