// SPDX-License-Identifier: Apache-2.0
// AttentionSpec: what a model's attention needs, independent of any GPU kernel.
//
// Field names are the JSON names. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/types.h"

namespace attnjit {

/// Multi-head latent attention: how K and V are stored.
enum class Mla : std::uint8_t {
  kNone,
  kPrefill,  ///< qk_depth 192 = 128 + rope 64, ov_depth 128
  kDecode,   ///< absorbed: qk_depth 576 = 512 + rope 64, ov_depth 512
};

/// Who has a scale of its own, by which its e4m3 elements are multiplied.
enum class Scales : std::uint8_t {
  kNone,    ///< nobody: elements are as they are stored
  kTensor,  ///< each of q, k and v
  kHead,    ///< each head of a sequence
  kToken,   ///< each row of a head
};

/// How absorbed MLA's K lies in memory.
enum class CacheFormat : std::uint8_t {
  kPlain,  ///< rows of qk_depth elements
  kDsv32,  ///< 656 bytes: 512 e4m3, 4 f32 that 128 of them each are multiplied with, 64 bf16
};

/// How V lies in memory. Every kernel takes rows; one that needs V transposed does that itself.
enum class VLayout : std::uint8_t {
  kRow,         ///< rows of ov_depth elements
  kTransposed,  ///< a row for each element of ov_depth, of kv_len elements
};

/// A parameter that custom code names as p.<name>; its value is given at launch.
struct ParamSpec {
  /// A matrix has two indices, a cube three. bf16 elements are read as f32.
  enum class Type : std::uint8_t {
    kI32,
    kF32,
    kI32Array,
    kF32Array,
    kI32Matrix,
    kU32,
    kU32Array,
    kU32Matrix,
    kF32Matrix,
    kBf16Array,
    kBf16Matrix,
    kI32Cube,
    kU32Cube,
    kF32Cube,
  };
  std::string name;  ///< a C identifier of at most 64 characters
  Type type = Type::kI32;

  bool operator==(const ParamSpec&) const = default;
};

/// User code of a mask or a score modification.
struct CustomCode {
  std::string name;  ///< [a-z0-9_]{1,64}; appears in messages and in the generated source
  std::string code;  ///< an expression, or, trusted, a function body
  bool trusted = false;
  std::vector<ParamSpec> params;

  bool operator==(const CustomCode&) const = default;
};

/// Which keys a query sees. A tree: `and` and `or` hold others.
struct MaskSpec {
  enum class Kind : std::uint8_t {
    kNull,
    kCausal,         ///< kv_idx <= q_idx
    kSlidingWindow,  ///< q_idx - window < kv_idx <= q_idx + window_right
    kChunked,        ///< floor(q_idx / chunk) == floor(kv_idx / chunk)
    kAnd,            ///< intersection of what is visible
    kOr,             ///< union of what is visible
    kMaterialized,   ///< [batch or 1, heads or 1, q_len or 1, kv_len]: boolean, or added to scores
    kCustom,
  };
  Kind kind = Kind::kNull;
  std::int64_t window = 0;        ///< sliding_window; 0: given at launch; -1: no bound
  std::int64_t window_right = 0;  ///< sliding_window: keys behind the query; -1: no bound
  std::int64_t chunk = 0;         ///< chunked; 0: given at launch
  bool constant = false;          ///< window or chunk is compiled in and part of the key
  Dtype dtype = Dtype::kF32;      ///< materialized: kU8, kBits; added: kF32, kBf16, kFp16
  std::vector<MaskSpec> of;       ///< and, or: at least two
  CustomCode custom;

  bool operator==(const MaskSpec&) const = default;
};

/// How a score is changed after scaling and before masking.
struct ScoreModSpec {
  enum class Kind : std::uint8_t {
    kIdentity,
    kAlibi,    ///< score - slope[h] * |q_idx - kv_idx|, with the usual slopes or given ones
    kSoftcap,  ///< cap * tanh(score / cap)
    kCustom,
  };
  Kind kind = Kind::kIdentity;
  double cap = 0;         ///< softcap; 0: given at launch
  bool slopes = false;    ///< alibi: an f32 [num_q_heads] at launch, instead of the usual slopes
  bool constant = false;  ///< cap is compiled in and part of the key
  CustomCode custom;

  bool operator==(const ScoreModSpec&) const = default;
};

/// The attention that a model needs. Required: num_q_heads and qk_depth.
struct AttentionSpec {
  Arch arch = Arch::kSm100a;
  int num_q_heads = 0;
  int group = 1;                   ///< query heads per key-value head
  int qk_depth = 0;                ///< elements per row of Q and K
  int ov_depth = 0;                ///< elements per row of V and O; 0: qk_depth
  Dtype qkv_dtype = Dtype::kBf16;  ///< bf16, fp16, e4m3
  /// Of K and V, default: qkv_dtype. e4m3 beside bf16 or fp16: they are upcast to that.
  std::optional<Dtype> kv_dtype;
  std::optional<Dtype> output_dtype;  ///< default: qkv_dtype, bf16 for e4m3
  /// What the MMA sees of the rope part, the last 64 elements of MLA's Q and K. Where that is not
  /// qkv_dtype it lies in tensors of its own.
  std::optional<Dtype> rope_dtype;
  std::optional<Dtype> rope_gmem_dtype;  ///< how the rope part lies in memory
  Scales scales = Scales::kNone;         ///< of e4m3 q, k and v
  std::optional<Dtype> scale_dtype;      ///< per-token scales
  Mla mla = Mla::kNone;
  CacheFormat cache_format = CacheFormat::kPlain;
  VLayout v_layout = VLayout::kRow;
  int page_size = 0;  ///< rows of K and V per page; 0: not paged
  bool ragged = false;
  bool ragged_kv = false;  ///< k and v lie one behind another, by kv_offsets
  /// kv_lens leave out the rows of this call: a sequence's kv_len is its entry and its q_len.
  bool kv_lens_exclude_new = false;
  bool sink = false;
  bool return_lse = false;
  bool lse_includes_sink = true;
  /// The kernel merges pairs of o and lse that attentions of this spec wrote, over different keys.
  bool merge = false;
  /// o and lse hold a partial attention over other keys before the launch; afterwards they hold the
  /// merge of that and of this one.
  bool accumulate = false;
  /// Parts that kv_len is split into; 0: chosen at launch, in a ragged batch by the device. By
  /// default that is chosen in a ragged batch, and there is one part elsewhere.
  static constexpr int kDefaultPartitions = -1;
  int num_partitions = kDefaultPartitions;
  /// n: each partition holds n keys, the first those from 0 on; 0: num_partitions says how many
  int partition_keys = 0;
  /// n: each row of Q sees the n keys that its list in topk_indices names, and no others; 0: all
  int topk = 0;
  int max_q_len = 0;    ///< rows of a sequence in a launch, at most; 0: any number
  int max_seq_len = 0;  ///< 0: dynamic
  MaskSpec mask;
  ScoreModSpec score_mod;
  /// The kernel interprets the custom code, which each launch gives it: one kernel for all of the
  /// same shape (fallback_spec).
  bool interpreted = false;

  int num_kv_heads() const { return group > 0 ? num_q_heads / group : 0; }
  /// The element type of K and V.
  Dtype type_of_kv() const { return kv_dtype.value_or(qkv_dtype); }
  bool operator==(const AttentionSpec&) const = default;
};

/// Choices about the kernel rather than the attention; unset: chosen by the planner.
struct PlanOptions {
  std::optional<int> swizzle_bytes;  ///< 32, 64, 128
  std::optional<int> num_qo;         ///< 1 or 2 query tiles per CTA
  std::optional<bool> pair_cta;      ///< two CTAs share one MMA
  std::optional<bool> debug_waits;   ///< waits end in time and tell which did not; unset: off
  /// The kernel walks a map of its mask though the mask needs none, so that launches can share what
  /// is computed of each score, or be given lists of blocks. Unset: where it has to.
  std::optional<bool> mask_map;

  bool operator==(const PlanOptions&) const = default;
};

/// A spec and its plan options, as they travel in one flat JSON object.
struct SpecDocument {
  AttentionSpec spec;
  PlanOptions options;

  bool operator==(const SpecDocument&) const = default;
};

struct SpecFacts;

/// A spec that was looked at once: validated, its defaults filled in, its custom code parsed. What
/// planning, generation and the Service work with, so that none of them does it again. Constant and
/// cheap to copy; any thread.
class ATTNJIT_EXPORT ResolvedSpec {
 public:
  /// Errors: kInvalid with every problem of the spec, the first carrying the others.
  static Result<ResolvedSpec> make(const AttentionSpec& spec, const PlanOptions& options = {});
  /// From JSON text, as spec_from_json reads it.
  static Result<ResolvedSpec> from_json(std::string_view json);
  /// Holds a default AttentionSpec, which is not valid: something to assign to.
  ResolvedSpec();

  /// The spec with its defaults.
  const AttentionSpec& operator*() const;
  const AttentionSpec* operator->() const { return &**this; }
  operator const AttentionSpec&() const { return **this; }
  /// The same with what planning asks of it; private to the library.
  operator const SpecFacts&() const;
  /// The spec as its author wrote it.
  const AttentionSpec& given() const;
  const PlanOptions& options() const;

  struct State;  // private to the library
  explicit ResolvedSpec(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// Every problem of a spec: field, value and what is allowed. Empty: valid. Custom code is parsed.
ATTNJIT_EXPORT std::vector<Error> validate(const AttentionSpec& spec,
                                           const PlanOptions& options = {});

/// Fills every default (ov_depth, output_dtype, rope_dtype where qk_depth > ov_depth), and leaves
/// out a kv_dtype that is qkv_dtype. Pure.
/// @pre validate(spec) is empty.
ATTNJIT_EXPORT AttentionSpec resolve(const AttentionSpec& spec);

/// The spec of a kernel that computes the same for any custom code and any numbers of the same
/// shape: custom code is interpreted, and numbers are given at launch. Nothing where that is the
/// spec itself. A launch gives it what it gives the spec's own kernel.
ATTNJIT_EXPORT std::optional<SpecDocument> fallback_spec(const ResolvedSpec& spec);

/// Reads a spec from JSON text. Unknown fields are refused by name; every problem is reported at
/// once (the first in the Error, the rest in Error::others). The result is valid, not yet resolved.
ATTNJIT_EXPORT Result<SpecDocument> spec_from_json(std::string_view json);

/// The canonical JSON of a spec: fixed field order, defaults left out, options flat beside fields.
ATTNJIT_EXPORT std::string spec_to_json(const AttentionSpec& spec, const PlanOptions& options = {});

}  // namespace attnjit
