// SPDX-License-Identifier: Apache-2.0
// Problem: one attention call with its inputs on the host, in the layouts of docs/spec.md.
//
// Thread rules: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "verify/tensor.h"

namespace attnjit::verify {

/// How q, k and v are made. A kernel that walks the keys forwards rescales its outputs at every
/// tile of rising inputs, one that walks them backwards at every tile of falling ones, and either
/// where raised keys come after the others.
enum class InputKind : std::uint8_t {
  kNormal,   ///< N(0, 1); memory that belongs to no row is NaN (elsewhere it is large)
  kLarge,    ///< scores with standard deviation 8
  kRising,   ///< a row's scores grow with kv_idx
  kFalling,  ///< they fall with kv_idx
  kSpike,    ///< a few keys whose scores are 20 to 40 above the others', and large values there
  kRaised,   ///< small scores but for a few keys in one half, which just make FA4 rescale
  kSmall,    ///< scales of 2^-7 and less, as real ones; without scales small values
  kZero,     ///< some scales are 0, and without scales some rows
  kFar,      ///< a row's scores are far from 0, of either sign, and far from each other and a sink
  kStray,    ///< tables, lengths and offsets lie outside their bounds, of some sequences
};
/// Every proof uses all of them.
inline constexpr std::array<InputKind, 10> kInputKinds{
    InputKind::kNormal, InputKind::kLarge,  InputKind::kRising, InputKind::kFalling,
    InputKind::kSpike,  InputKind::kRaised, InputKind::kSmall,  InputKind::kZero,
    InputKind::kFar,    InputKind::kStray};
std::string_view to_string(InputKind kind);
/// "normal, large, ..": for messages.
std::string input_kind_names();
std::optional<InputKind> input_kind_from_string(std::string_view name);

/// A value given by the caller for one user parameter.
struct ParamArgument {
  std::string name;
  Tensor value;  ///< i32 or f32; rank 0, 1 or 2
};

/// A map that launches are given (mask_map.h).
enum class GivenMapKind : std::uint8_t {
  kNone,
  kOfMask,  ///< of the mask, made on the host
  kRandom,  ///< of any blocks
};

/// What to make a Problem of, beside the spec.
struct ProblemRequest {
  std::optional<std::int64_t> batch;  ///< unset: as many as the longer list, else 1
  std::vector<std::int64_t> q_lens;   ///< one, or one per sequence; none: 256 within max_q_len
  std::vector<std::int64_t> kv_lens;  ///< one, or one per sequence; none: 512 within max_seq_len
  std::uint64_t seed = 0;
  InputKind input = InputKind::kNormal;
  std::optional<float> scale;  ///< unset: 1 / sqrt(qk_depth)
  std::int64_t pairs = 2;      ///< merge: how many
  GivenMapKind given_map = GivenMapKind::kNone;
  /// By name ("window"): the numbers of masks and score modification that the spec leaves to the
  /// launch; unset: ScalarTraits::sample, or with `all_scalars` an error.
  std::map<std::string, double, std::less<>> scalars;
  bool all_scalars = false;
  std::vector<ParamArgument> params;  ///< the others are made from the seed
  std::int64_t max_bytes = 0;         ///< of all tensors; 0: half of MachineLimits'
  int threads = 0;                    ///< 0: one a core
};

/// Inputs, by buffer name: q, k, v; and where the spec has them sink, page_table, kv_lens,
/// q_offsets, kv_offsets, q_scale, k_scale, v_scale, output_scale, mask, slopes, topk_indices,
/// q_rope, k_rope, param_<name>;
/// kv_num_blocks, kv_indices, full_kv_num_blocks and full_kv_indices where a map is given, and
/// kv_bits and block_bits where it has bits. Of a merge pairs_o, pairs_lse, and where it is ragged
/// q_offsets.
struct Problem {
  AttentionSpec spec;  ///< resolved; the numbers of its masks and score mod are this launch's
  int batch = 1;
  std::vector<int> q_lens, kv_lens;  ///< one a sequence
  int max_q_len = 0, max_kv_len = 0;
  std::int64_t total_q = 0;   ///< rows of q over all sequences
  std::int64_t total_kv = 0;  ///< keys of all sequences
  int num_pages = 0, max_pages = 0;
  int num_pairs = 0;           ///< merge
  MaskMapShape mask_map = {};  ///< that a launch is given (mask_map.h)
  float scale = 1;
  std::uint64_t seed = 0;  ///< of the inputs
  std::map<std::string, Tensor> tensors;
  /// Of stray inputs: what page_table, q_offsets and kv_offsets would hold, were they right; by
  /// these the inputs are laid out.
  std::map<std::string, Tensor> right_tables;
  /// Of stray inputs, by sequence: whether its entries are wrong, so that its rows of o and lse may
  /// be anything; empty: none.
  std::vector<bool> stray;

  bool is_stray(int b) const { return !stray.empty() && stray[static_cast<std::size_t>(b)]; }
  const Tensor& table(const std::string& name) const {
    const auto right = right_tables.find(name);
    return right != right_tables.end() ? right->second : at(name);
  }
  const Tensor& at(const std::string& name) const { return tensors.find(name)->second; }
  bool has(const std::string& name) const { return tensors.count(name) != 0; }

  /// Row of sequence b's first query in q and o, flattened over [batch, q_len] or [total_q].
  std::int64_t first_q_row(int b) const;
  /// Row of a key in k and v, flattened over [batch, kv_len], [num_pages, page_size] or [total_kv].
  std::int64_t kv_row(int b, int kv_idx) const;
  /// Row in k and v of what a place of a row's list names; -1 where the place hides a key: with
  /// topk.
  std::int64_t listed_row(int b, int row, int place) const;
  /// Index of a query's LSE in [batch, heads, q_len] or [heads, total_q].
  std::int64_t lse_index(int b, int h, int row) const;

  /// Row of a pair's o in pairs_o, heads counted as rows.
  std::int64_t pair_row(int pair, int b, int h, int row) const;

  /// By what the elements of a sequence's row of a head are to be multiplied: the entry of
  /// "q_scale", "k_scale" or "v_scale", or 1 where the spec has no scales.
  double scale_of(const char* name, int b, int head, int row) const;
  /// What a result is divided by where o is e4m3; 1 elsewhere.
  double output_scale() const;

  std::vector<std::int64_t> o_shape() const;
  std::vector<std::int64_t> lse_shape() const;
  Dtype o_dtype() const;
  /// The lse that a launch which accumulates is given: of a pair that saw no key, whose o is NaN.
  /// The merge with it is the attention itself.
  Tensor lse_before() const;
  /// True where the sequences' kv_len differ, so that a kernel must be given kv_lens.
  bool kv_lens_differ() const;

  LaunchShapes launch_shapes() const;
  LaunchScalars launch_scalars() const;
  std::vector<UserParamShape> param_values() const;
};

/// The extents of an array parameter that is made from the seed: the longest length in each
/// dimension, but of a cube at most 16 planes.
std::vector<std::int64_t> param_extents(ParamSpec::Type type, std::int64_t longest);

/// A problem of no shape yet: the spec with its launch's numbers, checked, and the scale. Errors:
/// as shape_problem of what is no length.
Result<Problem> shapeless_problem(const AttentionSpec& spec, const ProblemRequest& request);

/// A problem without its tensors: shapes and scalars, checked. Errors: kInvalid with the field
/// (batch, q_len, kv_len, param...) and what is allowed; kUnsupported for storage that the
/// verification does not know (rope parts of another dtype outside of MLA's prefill).
Result<Problem> shape_problem(const AttentionSpec& spec, const ProblemRequest& request);

/// Makes the tensors of a problem, and the map that its launches are given. Errors: kUnsupported as
/// make_mask_map (mask_map.h).
Status fill_problem(const ProblemRequest& request, Problem& problem);

/// shape_problem and fill_problem.
Result<Problem> make_problem(const AttentionSpec& spec, const ProblemRequest& request);

}  // namespace attnjit::verify
