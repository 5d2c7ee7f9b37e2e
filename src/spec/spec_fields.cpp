// SPDX-License-Identifier: Apache-2.0
// The one table of a spec's fields: the JSON reader and writer, the validator and the command
// line's flags all read it, so a field is described once.
#include "spec/spec_fields.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/architectures.h"
#include "spec/kinds.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

// NOTE: the bounds of integers are of sense, not of support: what no kernel serves is the planner's
// `supported: false`. Heads times depth stays below 2^31 so that planning cannot overflow an int.
constexpr int kMaxHeads = 16384;
constexpr int kMaxDepth = 16384;

constexpr Dtype kMmaDtypes[] = {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3};
constexpr Dtype kOutputDtypes[] = {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3, Dtype::kF32};
constexpr Dtype kScaleDtypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kFp16};
constexpr int kSwizzles[] = {32, 64, 128};
constexpr int kQueryTiles[] = {1, 2};

using A = AttentionSpec;
using O = PlanOptions;

const std::array kFields{
    SpecField{.name = "arch",
              .member = &A::arch,
              .help = "the exact GPU architecture to generate for; native, or left out: that of "
                      "the GPU at hand"},
    SpecField{.name = "num_q_heads",
              .member = &A::num_q_heads,
              .help = "query heads",
              .required = true,
              .min = 1,
              .max = kMaxHeads},
    SpecField{.name = "group",
              .member = &A::group,
              .help = "query heads per key-value head (num_kv_heads = num_q_heads / group)",
              .min = 1,
              .max = kMaxHeads},
    SpecField{.name = "qk_depth",
              .member = &A::qk_depth,
              .help = "elements per row of Q and K",
              .required = true,
              .min = 1,
              .max = kMaxDepth},
    SpecField{.name = "ov_depth",
              .member = &A::ov_depth,
              .help = "elements per row of V and O (default: qk_depth; mla: less the rope's 64)",
              .min = 1,
              .max = kMaxDepth,
              .unset = 0},
    SpecField{.name = "qkv_dtype",
              .member = &A::qkv_dtype,
              .help = "element type of Q, K and V",
              .dtypes = kMmaDtypes},
    SpecField{.name = "kv_dtype",
              .member = &A::kv_dtype,
              .help = "element type of K and V (default: qkv_dtype; e4m3 beside bf16 and fp16)",
              .dtypes = kMmaDtypes},
    SpecField{.name = "output_dtype",
              .member = &A::output_dtype,
              .help = "element type of O (default: qkv_dtype; bf16 for e4m3)",
              .dtypes = kOutputDtypes},
    SpecField{.name = "rope_dtype",
              .member = &A::rope_dtype,
              .help = "element type of the rope part (default: qkv_dtype where "
                      "qk_depth > ov_depth; bf16 and fp16 beside e4m3 with mla prefill)",
              .dtypes = kMmaDtypes},
    SpecField{.name = "rope_gmem_dtype",
              .member = &A::rope_gmem_dtype,
              .help = "how the rope part lies in memory (default: rope_dtype)",
              .dtypes = kMmaDtypes},
    SpecField{.name = "scales",
              .member = &A::scales,
              .help = "who has a scale of its own, of q, k and v that are e4m3"},
    SpecField{.name = "scale_dtype",
              .member = &A::scale_dtype,
              .help = "element type of the per-token scales",
              .dtypes = kScaleDtypes},
    SpecField{.name = "mla",
              .member = &A::mla,
              .help = "multi-head latent attention: prefill (192/128), decode (absorbed 576/512)"},
    SpecField{.name = "cache_format",
              .member = &A::cache_format,
              .help = "how absorbed MLA's K lies in memory: plain, or dsv32's 656 bytes per row"},
    SpecField{.name = "v_layout",
              .member = &A::v_layout,
              .help = "how V lies in memory: in rows; no kernel takes it transposed"},
    SpecField{.name = "page_size",
              .member = &A::page_size,
              .help = "rows of K and V per page; 0: not paged",
              .min = 0,
              .max = 1 << 20},
    SpecField{.name = "ragged", .member = &A::ragged, .help = "sequences packed by q_offsets"},
    SpecField{.name = "ragged_kv",
              .member = &A::ragged_kv,
              .help = "keys and values of the sequences packed by kv_offsets"},
    SpecField{.name = "kv_lens_exclude_new",
              .member = &A::kv_lens_exclude_new,
              .help = "kv_lens leave out the rows of this call, which the cache holds already"},
    SpecField{.name = "sink", .member = &A::sink, .help = "one extra logit per head in the sum"},
    SpecField{.name = "return_lse",
              .member = &A::return_lse,
              .help = "also write the log-sum-exp of each row"},
    SpecField{.name = "lse_includes_sink",
              .member = &A::lse_includes_sink,
              .help = "the LSE counts the sink (default true)"},
    SpecField{.name = "merge",
              .member = &A::merge,
              .help = "a kernel that merges pairs of o and lse over different keys"},
    SpecField{.name = "accumulate",
              .member = &A::accumulate,
              .help = "merge into the o and lse that the call is given"},
    SpecField{.name = "num_partitions",
              .member = &A::num_partitions,
              .help =
                  "parts that kv_len is split into; 0: chosen at launch (default: 0 in a ragged "
                  "batch, otherwise 1)",
              .min = 0,
              .max = 65535,
              .unset = A::kDefaultPartitions},
    SpecField{.name = "partition_keys",
              .member = &A::partition_keys,
              .help = "keys of each partition, whatever else is in the batch; 0: not fixed",
              .min = 0,
              .max = 1 << 30},
    SpecField{
        .name = "topk",
        .member = &A::topk,
        .help = "keys that a row's list (topk_indices) names, which alone it sees; 0: no lists",
        .min = 0,
        .max = 1 << 20},
    SpecField{.name = "max_q_len",
              .member = &A::max_q_len,
              .help = "bound on q_len that the kernel may rely on; 0: none",
              .min = 0},
    SpecField{.name = "max_seq_len",
              .member = &A::max_seq_len,
              .help = "bound on kv_len that the kernel may rely on; 0: none",
              .min = 0},
    SpecField{.name = "mask", .member = &A::mask, .help = "which keys a query sees"},
    SpecField{.name = "score_mod",
              .member = &A::score_mod,
              .help = "how a score is changed before masking"},
    SpecField{.name = "interpreted",
              .member = &A::interpreted,
              .help = "the kernel interprets the custom code, and serves any that fits its shape"},
    SpecField{.name = "swizzle_bytes",
              .member = &O::swizzle_bytes,
              .help = "shared-memory swizzle of Q, K and V tiles (default: chosen)",
              .values = kSwizzles},
    SpecField{.name = "num_qo",
              .member = &O::num_qo,
              .help = "query tiles per CTA (default: chosen)",
              .values = kQueryTiles},
    SpecField{.name = "pair_cta",
              .member = &O::pair_cta,
              .help = "two CTAs share one MMA (default: chosen)"},
    SpecField{.name = "debug_waits",
              .member = &O::debug_waits,
              .help = "bound each wait in time, and record one that does not end (default: off)"},
    SpecField{.name = "mask_map",
              .member = &O::mask_map,
              .help = "walk a map of the mask also where it needs none, for lists of blocks, too "
                      "(default: off)"},
};

constexpr std::string_view kMlaNames[] = {"none", "prefill", "decode"};
constexpr std::string_view kCacheFormatNames[] = {"plain", "dsv32"};
constexpr std::string_view kVLayoutNames[] = {"row", "transposed"};
constexpr std::string_view kScalesNames[] = {"none", "tensor", "head", "token"};
constexpr std::string_view kParamTypes[] = {
    "i32",     "f32",     "i32[]",  "f32[]",    "i32[][]",   "u32",       "u32[]",
    "u32[][]", "f32[][]", "bf16[]", "bf16[][]", "i32[][][]", "u32[][][]", "f32[][][]"};
static_assert(std::size(kParamTypes) == static_cast<std::size_t>(ParamSpec::Type::kF32Cube) + 1);

struct AllowedText {
  const SpecField& field;

  std::string integer() const {
    if (!field.values.empty()) return fmt::format("{}", fmt::join(field.values, ", "));
    if (field.max == INT_MAX) return fmt::format("an integer, {} or more", field.min);
    return fmt::format("an integer, {} to {}", field.min, field.max);
  }
  std::string dtype() const { return join(dtype_names(field.dtypes)); }

  std::string operator()(int A::*) const { return integer(); }
  std::string operator()(std::optional<int> O::*) const { return integer(); }
  std::string operator()(bool A::*) const { return "true, false"; }
  std::string operator()(std::optional<bool> O::*) const { return "true, false"; }
  std::string operator()(Arch A::*) const { return architecture_names(); }
  template <NamedEnum Enum>
  std::string operator()(Enum A::*) const {
    return join(names_of(Enum{}));
  }
  std::string operator()(Dtype A::*) const { return dtype(); }
  std::string operator()(std::optional<Dtype> A::*) const { return dtype(); }
  std::string operator()(MaskSpec A::*) const {
    return "a name or an object with `kind`: " + join(kind_names<MaskSpec>());
  }
  std::string operator()(ScoreModSpec A::*) const {
    return "a name or an object with `kind`: " + join(kind_names<ScoreModSpec>());
  }
};

}  // namespace

std::span<const SpecField> spec_fields() { return kFields; }

const SpecField* find_field(std::string_view name) {
  for (const SpecField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

std::string allowed(const SpecField& field) { return std::visit(AllowedText{field}, field.member); }

int default_partitions(const AttentionSpec& spec) {
  const bool chosen = spec.ragged && !spec.merge && !spec.accumulate && spec.partition_keys == 0 &&
                      spec.mla != Mla::kDecode;
  return chosen ? 0 : 1;
}

std::string partitions_beside_keys(int num_partitions) {
  return fmt::format("is {}; allowed with partition_keys: no num_partitions of its own",
                     num_partitions);
}

std::span<const std::string_view> names_of(Mla) { return kMlaNames; }
std::span<const std::string_view> names_of(CacheFormat) { return kCacheFormatNames; }
std::span<const std::string_view> names_of(VLayout) { return kVLayoutNames; }
std::span<const std::string_view> names_of(Scales) { return kScalesNames; }

std::vector<std::string_view> dtype_names(std::span<const Dtype> dtypes) {
  std::vector<std::string_view> names;
  for (const Dtype dtype : dtypes) names.push_back(attnjit::to_string(dtype));
  return names;
}

ParamShape shape_of(ParamSpec::Type type) {
  // NOTE: the names are read once: each launch with parameters asks what these are.
  static const auto shapes = [] {
    std::array<ParamShape, std::size(kParamTypes)> made;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::string_view name = kParamTypes[i];
      const std::string_view element = name.substr(0, name.find('['));
      made[i] = {*dtype_from_string(element), static_cast<int>((name.size() - element.size()) / 2)};
    }
    return made;
  }();
  return shapes[static_cast<std::size_t>(type)];
}

std::string_view to_string(ParamSpec::Type type) {
  return kParamTypes[static_cast<std::size_t>(type)];
}

std::optional<ParamSpec::Type> param_type_from_string(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kParamTypes); ++i) {
    if (kParamTypes[i] == name) return static_cast<ParamSpec::Type>(i);
  }
  return std::nullopt;
}

std::span<const std::string_view> param_type_names() { return kParamTypes; }

}  // namespace attnjit::spec
