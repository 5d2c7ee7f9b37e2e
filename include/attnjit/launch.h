// SPDX-License-Identifier: Apache-2.0
// LaunchRecipe: the one description of a kernel launch; a LaunchSequence holds those of a plan. The
// driver encodes them, the emulator executes them, `attnjit generate -o` writes LAUNCH.json.
//
// plan_launch is pure. Thread rules: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/plan.h"
#include "attnjit/result.h"

namespace attnjit {

/// In TensorStrides: a stride of 0, as what a framework expanded has. (ATTNJIT_STRIDE_ZERO)
inline constexpr std::int64_t kStrideZero = std::numeric_limits<std::int64_t>::min();

/// Strides of one tensor in elements; a row's elements are contiguous. That of a dimension of one
/// element is not looked at. Zeros for all that count mean packed; a 0 beside others is refused.
struct TensorStrides {
  std::int64_t batch = 0;
  std::int64_t row = 0;  ///< from one token to the next (within a page for paged K and V)
  std::int64_t head = 0;
  bool operator==(const TensorStrides&) const = default;
};

/// What a launch does with a map of the mask in memory of the caller's.
enum class MaskMapUse : std::uint8_t {
  kNone,   ///< there is none: a plan that walks a map makes it in the workspace
  kWrite,  ///< the launch makes it, and walks it
  kRead,   ///< it is there: as another launch wrote it, or as FlexAttention's BlockMask has it
};

/// A map of the mask: which blocks of 128 queries and 128 keys are seen. It is four i32 arrays with
/// the meaning that FlexAttention's BlockMask gives them: kv_num_blocks [batch, heads, q_blocks],
/// the blocks of which a part is seen in kv_indices [batch, heads, q_blocks, kv_blocks], and those
/// that are seen whole in full_kv_num_blocks and full_kv_indices. Queries are rows of the call.
/// Extents of 0 stand for mask_map_shape()'s. Beside it a map may have bits: which scores are
/// visible of blocks that are seen in part, so that the mask is asked once and not by each head and
/// layer. kv_bits has the shape of kv_indices, and block_bits is u32 [bit_blocks, 128, 4]
/// (docs/masks.md).
struct MaskMapShape {
  MaskMapUse use = MaskMapUse::kNone;
  std::int32_t batch = 0;       ///< 1, or the launch's
  std::int32_t heads = 0;       ///< 1, or a number of maps that as many query heads each share
  std::int32_t q_blocks = 0;    ///< at least those of q_len
  std::int32_t kv_blocks = 0;   ///< places of a row in the indices
  bool no_full = false;         ///< kRead: there is no list of blocks that are seen whole
  std::int32_t bit_blocks = 0;  ///< blocks that block_bits has room for; 0: the map has no bits
  bool operator==(const MaskMapShape&) const = default;
};

/// The run-time shape of a call; packed tensors have the layouts of docs/spec.md.
struct LaunchShapes {
  std::int32_t batch = 1;
  std::int32_t q_len = 0;      ///< of a sequence; ragged: the longest
  std::int32_t kv_len = 0;     ///< of a sequence; paged or ragged: the longest
  std::int32_t total_q = 0;    ///< ragged: rows of q
  std::int32_t num_pages = 0;  ///< in k and v
  std::int32_t max_pages = 0;  ///< columns of page_table
  std::int32_t total_kv = 0;   ///< ragged_kv: rows of k
  std::int32_t num_pairs = 0;  ///< merge: pairs in pairs_o and pairs_lse
  TensorStrides q, k, v, o;
  TensorStrides q_rope, k_rope;  ///< where the rope part has a type of its own
  TensorStrides kv_scales;       ///< of pages: k_scale and v_scale of tokens, which are alike
  MaskMapShape mask_map;
  /// Materialized: how many the mask has, one for all or one each; 0: one each.
  std::int32_t mask_batch = 0, mask_heads = 0, mask_rows = 0;
  TensorStrides mask;  ///< in elements, of bits in bytes
  bool operator==(const LaunchShapes&) const = default;
};

/// What of a device decides a launch. Never read from a GPU by plan_launch itself.
struct DeviceShape {
  int sm_count = 132;
  std::int64_t max_smem_bytes = 232448;  ///< opt-in, per CTA
};

/// The run-time numbers of the softmax, the masks and the score modification.
struct LaunchScalars {
  float scale = 0;  ///< 0: 1 / sqrt(qk_depth); otherwise positive
  /// By index in launch_scalar_names(). A 0, and a number past the end, stands for the value of the
  /// plan's spec; what the spec makes constant is not looked at.
  std::vector<double> values;
  bool operator==(const LaunchScalars&) const = default;
};

/// The numbers that a spec's masks and score modification have: those of the mask tree in preorder,
/// then those of the score modification. A name that comes again gets a suffix: "window",
/// "window_1", "chunk", "cap".
ATTNJIT_EXPORT std::vector<std::string> launch_scalar_names(const AttentionSpec& spec);

/// The values that a spec gives, for a launch with a kernel that was perhaps planned for another
/// spec with the same key: these numbers are not part of it unless they are constant.
ATTNJIT_EXPORT LaunchScalars launch_scalars(const AttentionSpec& spec);

/// What planning a launch needs of one user parameter (p.<name>): a number's value, or an array's
/// extent.
struct UserParamShape {
  std::string name;
  std::variant<std::int32_t, float, std::uint32_t> scalar = std::int32_t{0};
  /// Arrays: elements; matrices: rows, columns; cubes: planes, rows, columns.
  std::array<std::int32_t, 3> extent{0, 0, 0};
  bool operator==(const UserParamShape&) const = default;
};

/// A tensor map, plain: what cuTensorMapEncodeTiled is given.
struct TensorMapDescription {
  enum class OutOfBounds : std::uint8_t { kZero, kNan };
  std::string name;
  std::string buffer;       ///< the name of the buffer that it views
  std::int64_t offset = 0;  ///< bytes from the buffer's begin
  Dtype dtype = Dtype::kBf16;
  std::vector<std::uint64_t> dims;             ///< elements, innermost first; rank 1 to 5
  std::vector<std::uint64_t> strides;          ///< bytes, from the second dimension on
  std::vector<std::uint32_t> box;              ///< elements
  std::vector<std::uint32_t> element_strides;  ///< 1 unless said otherwise
  int swizzle = 0;                             ///< 0, 32, 64, 128
  int l2_bytes = 256;                          ///< that L2 fetches at least: 0, 64, 128, 256
  OutOfBounds oob = OutOfBounds::kZero;
  BufferId id = {};  ///< of the buffer, where plan_launch made the description
  bool operator==(const TensorMapDescription&) const = default;
};

/// One kernel argument.
struct KernelArgument {
  struct Pointer {
    std::string buffer;  ///< empty: a null pointer
    std::int64_t offset = 0;
    BufferId id = {};  ///< of the buffer, where plan_launch made the argument
    bool operator==(const Pointer&) const = default;
  };
  struct TensorMap {
    std::string name;
    std::uint32_t index = 0;  ///< into LaunchRecipe::tensor_maps, where plan_launch made it
    bool operator==(const TensorMap&) const = default;
  };
  struct Bytes {
    std::vector<std::uint8_t> data;
    bool operator==(const Bytes&) const = default;
  };
  std::variant<Pointer, std::int32_t, std::int64_t, float, TensorMap, Bytes> value;
  bool operator==(const KernelArgument&) const = default;
};

/// Device memory that kernels need beside the tensors: the caller provides it.
struct Workspace {
  std::string name;
  std::int64_t bytes = 0;
  bool zeroed = false;  ///< must be zero before the first launch; the kernels leave it zero
  bool operator==(const Workspace&) const = default;
};

/// The launch of one kernel, whole. Buffers are names: q, k, v, o, lse, sink, page_table, kv_lens,
/// q_offsets, kv_offsets, pairs_o, pairs_lse, q_scale, k_scale, v_scale, output_scale, mask,
/// kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, kv_bits, block_bits, slopes,
/// topk_indices, q_rope, k_rope,
/// param_<name>, and the workspaces' names.
struct LaunchRecipe {
  std::string entry;
  std::uint32_t kernel = 0;  ///< into KernelPlan::kernels, where plan_launch made the recipe
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  std::uint32_t dynamic_smem = 0;
  std::vector<TensorMapDescription> tensor_maps;
  std::vector<KernelArgument> args;  ///< in the order of PlannedKernel::parameters
  bool operator==(const LaunchRecipe&) const = default;
};

/// The launches of a plan's kernels, one after another on one stream, over shared buffers and
/// workspaces.
struct LaunchSequence {
  std::vector<LaunchRecipe> launches;  ///< empty: there is nothing to launch
  std::vector<Workspace> workspaces;   ///< in the order of KernelPlan::workspaces
  bool operator==(const LaunchSequence&) const = default;
};

/// The extents of the map that a launch of these shapes makes, with the use that `shapes` names:
/// they follow from batch, q_len and kv_len, a launch's bounds. Errors: kUnsupported for a plan
/// without a map; kInvalid for lengths, or a map of more rows, than a launch can have.
ATTNJIT_EXPORT Result<MaskMapShape> mask_map_shape(const KernelPlan& plan,
                                                   const LaunchShapes& shapes);

/// The parts that a launch splits the keys into, from what of its shapes decides that: batch, q_len
/// and kv_len (ragged: total_q). 1: it does not, nor does a plan that is not supported.
ATTNJIT_EXPORT std::int32_t launch_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                              const DeviceShape& device = {});

/// Plans the launches of a call. Errors: kInvalid for shapes that the plan cannot take (each with
/// its name and what is allowed), a missing user parameter among them; kUnsupported. An empty
/// problem (batch, q_len or total_q of 0) gives a sequence without launches.
ATTNJIT_EXPORT Result<LaunchSequence> plan_launch(const KernelPlan& plan,
                                                  const LaunchShapes& shapes,
                                                  const LaunchScalars& scalars,
                                                  const std::vector<UserParamShape>& params,
                                                  const DeviceShape& device = {});

}  // namespace attnjit
