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

// By what a field takes beside its type: the integers from one to another, of which `unset` says
// "left out"; nothing but these integers or element types; nothing more.
constexpr SpecField field(std::string_view name, SpecField::Member member, std::string_view help,
                          int min, int max = INT_MAX, std::optional<int> unset = {}) {
  return {.name = name, .member = member, .help = help, .min = min, .max = max, .unset = unset};
}
constexpr SpecField field(std::string_view name, SpecField::Member member, std::string_view help,
                          std::span<const int> values) {
  return {.name = name, .member = member, .help = help, .values = values};
}
constexpr SpecField field(std::string_view name, SpecField::Member member, std::string_view help,
                          std::span<const Dtype> dtypes) {
  return {.name = name, .member = member, .help = help, .dtypes = dtypes};
}
constexpr SpecField field(std::string_view name, SpecField::Member member, std::string_view help) {
  return {.name = name, .member = member, .help = help};
}
constexpr SpecField required(SpecField field) {
  field.required = true;
  return field;
}

const std::array kFields{
    field(
        "arch", &A::arch,
        "the exact GPU architecture to generate for; native, or left out: that of the GPU at hand"),
    required(field("num_q_heads", &A::num_q_heads, "query heads", 1, kMaxHeads)),
    field("group", &A::group, "query heads per key-value head (num_kv_heads = num_q_heads / group)",
          1, kMaxHeads),
    required(field("qk_depth", &A::qk_depth, "elements per row of Q and K", 1, kMaxDepth)),
    field("ov_depth", &A::ov_depth,
          "elements per row of V and O (default: qk_depth; mla: less the rope's 64)", 1, kMaxDepth,
          0),
    field("qkv_dtype", &A::qkv_dtype, "element type of Q, K and V", kMmaDtypes),
    field("kv_dtype", &A::kv_dtype,
          "element type of K and V (default: qkv_dtype; e4m3 beside bf16 and fp16)", kMmaDtypes),
    field("output_dtype", &A::output_dtype, "element type of O (default: qkv_dtype; bf16 for e4m3)",
          kOutputDtypes),
    field("rope_dtype", &A::rope_dtype,
          "element type of the rope part (default: qkv_dtype where qk_depth > ov_depth; bf16 and "
          "fp16 beside e4m3 with mla prefill)",
          kMmaDtypes),
    field("rope_gmem_dtype", &A::rope_gmem_dtype,
          "how the rope part lies in memory (default: rope_dtype)", kMmaDtypes),
    field("scales", &A::scales, "who has a scale of its own, of q, k and v that are e4m3"),
    field("scale_dtype", &A::scale_dtype, "element type of the per-token scales", kScaleDtypes),
    field("mla", &A::mla,
          "multi-head latent attention: prefill (192/128), decode (absorbed 576/512)"),
    field("cache_format", &A::cache_format,
          "how absorbed MLA's K lies in memory: plain, or dsv32's 656 bytes per row"),
    field("v_layout", &A::v_layout, "how V lies in memory: in rows; no kernel takes it transposed"),
    field("page_size", &A::page_size, "rows of K and V per page; 0: not paged", 0, 1 << 20),
    field("ragged", &A::ragged, "sequences packed by q_offsets"),
    field("ragged_kv", &A::ragged_kv, "keys and values of the sequences packed by kv_offsets"),
    field("kv_lens_exclude_new", &A::kv_lens_exclude_new,
          "kv_lens leave out the rows of this call, which the cache holds already"),
    field("sink", &A::sink, "one extra logit per head in the sum"),
    field("return_lse", &A::return_lse, "also write the log-sum-exp of each row"),
    field("lse_includes_sink", &A::lse_includes_sink, "the LSE counts the sink (default true)"),
    field("merge", &A::merge, "a kernel that merges pairs of o and lse over different keys"),
    field("accumulate", &A::accumulate, "merge into the o and lse that the call is given"),
    field("num_partitions", &A::num_partitions,
          "parts that kv_len is split into; 0: chosen at launch (default: 0 in a ragged batch, "
          "otherwise 1)",
          0, 65535, A::kDefaultPartitions),
    field("partition_keys", &A::partition_keys,
          "keys of each partition, whatever else is in the batch; 0: not fixed", 0, 1 << 30),
    field("topk", &A::topk,
          "keys that a row's list (topk_indices) names, which alone it sees; 0: no lists", 0,
          1 << 20),
    field("max_q_len", &A::max_q_len, "bound on q_len that the kernel may rely on; 0: none", 0),
    field("max_seq_len", &A::max_seq_len, "bound on kv_len that the kernel may rely on; 0: none",
          0),
    field("mask", &A::mask, "which keys a query sees"),
    field("score_mod", &A::score_mod, "how a score is changed before masking"),
    field("interpreted", &A::interpreted,
          "the kernel interprets the custom code, and serves any that fits its shape"),
    field("swizzle_bytes", &O::swizzle_bytes,
          "shared-memory swizzle of Q, K and V tiles (default: chosen)", kSwizzles),
    field("num_qo", &O::num_qo, "query tiles per CTA (default: chosen)", kQueryTiles),
    field("pair_cta", &O::pair_cta, "two CTAs share one MMA (default: chosen)"),
    field("debug_waits", &O::debug_waits,
          "bound each wait in time, and record one that does not end (default: off)"),
    field("mask_map", &O::mask_map,
          "walk a map of the mask also where it needs none, for lists of blocks, too (default: "
          "off)")};

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

  std::string operator()(int) const {
    if (!field.values.empty()) return fmt::format("{}", fmt::join(field.values, ", "));
    if (field.max == INT_MAX) return fmt::format("an integer, {} or more", field.min);
    return fmt::format("an integer, {} to {}", field.min, field.max);
  }
  std::string operator()(bool) const { return "true, false"; }
  std::string operator()(Arch) const { return architecture_names(); }
  std::string operator()(Dtype) const { return join(dtype_names(field.dtypes)); }
  template <NamedEnum Enum>
  std::string operator()(Enum value) const {
    return join(names_of(value));
  }
  template <class T>
  std::string operator()(const std::optional<T>&) const {
    return (*this)(T{});
  }
  template <Masking Node>
  std::string operator()(const Node&) const {
    return "a name or an object with `kind`: " + join(kind_names<Node>());
  }
};

}  // namespace

std::span<const SpecField> spec_fields() { return kFields; }

const SpecField* find_field(std::string_view name) {
  const auto* const found = std::ranges::find(kFields, name, &SpecField::name);
  return found == kFields.end() ? nullptr : found;
}

std::string allowed(const SpecField& field) {
  return visit_field(field, SpecDocument{}, AllowedText{field});
}

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
std::span<const std::string_view> names_of(ParamSpec::Type) { return kParamTypes; }

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

}  // namespace attnjit::spec
