// SPDX-License-Identifier: Apache-2.0
// KernelPlan: everything that is known about a kernel at compile time, derived once from the spec.
//
// Planning is pure: no files, no environment, no GPU. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"

namespace attnjit {

struct Sm90Plan;
struct Sm90MlaPlan;
struct Sm100Plan;
struct Sm100MlaPlan;
struct Tuning;     // tuning.h
struct TuningRow;  // tuning.h

/// Where the kernel's plan leaves the reference configuration, and why.
struct Deviation {
  std::string name;  ///< the field, under the reference's name
  std::string reference;
  std::string actual;
  std::string reason;
};

/// An order that the kernel relies on and the PTX ISA does not promise: what the emulator's isa
/// model must be told to grant (docs/emulator.md, "Two models").
struct Waiver {
  std::string name;    ///< as `attnjit emulate --waive` takes it: "in-order-mma"
  std::string reason;  ///< where the kernel relies on it, and what it would cost not to
};

/// One member of the generated `struct Config`: `static constexpr TYPE NAME = VALUE;`.
struct ConfigConstant {
  std::string type;   ///< "int", "bool", "float", "unsigned"
  std::string name;   ///< kCamelCase
  std::string value;  ///< a C++ literal
};

/// A buffer of a launch: one of the caller's tensors, an array of custom code, or a workspace.
struct BufferId {
  enum class Kind : std::uint8_t {
    kNone,  ///< a name of a launch file's own
    kQ,
    kK,
    kV,
    kO,
    kLse,
    kSink,
    kPageTable,
    kKvLens,
    kQOffsets,
    kKvOffsets,
    kPairsO,
    kPairsLse,
    kQScale,
    kKScale,
    kVScale,
    kOutputScale,
    kMask,
    kKvNumBlocks,  ///< of a map of the mask: MaskMapShape
    kKvIndices,
    kFullKvNumBlocks,
    kFullKvIndices,
    kKvBits,
    kBlockBits,
    kSlopes,
    kTopkIndices,
    kQRope,  ///< the rope parts of Q and K, where they have a type of their own
    kKRope,
    kParam,      ///< `index` counts the parameters that the spec's custom code declares
    kWorkspace,  ///< `index` counts the plan's workspaces
  };
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;
  bool operator==(const BufferId&) const = default;
};

/// The tensor maps of the attention kernels. Their names are "q_map", "k_map", ..
enum class TensorMapId : std::uint8_t { kQ, kK, kV, kO, kQRope, kKRope };

/// Numbers that a launch computes from its shapes.
enum class LaunchNumber : std::uint8_t {
  kBatch,
  kNumQHeads,
  kQLen,
  kKvLen,
  kTotalQ,
  kTotalKv,
  kNumPages,
  kMaxPages,
  kMTiles,          ///< query tiles of the longest sequence
  kTotalTiles,      ///< work tiles of the launch
  kPairedUnits,     ///< sm_90: pairs of query tiles before the tail
  kTileGroups,      ///< sm_90: of 64 rows, in a query tile of the first kind
  kFirstTiles,      ///< sm_90: a head's query tiles of the first kind
  kSecondTiles,     ///< sm_90: those of the first and second kind
  kTileGrowth,      ///< sm_90: groups that a kind has more than the one before
  kSmallTile,       ///< sm_90: 1 for the small-tile variant
  kUniformSplits,   ///< absorbed MLA: of each sequence, where they are about as long as one another
  kClusterReduced,  ///< absorbed MLA: 1 where two CTAs reduce their halves of a uniform split
  kTotalHeads,      ///< sm_100: heads, or groups of them, of the whole batch
  kSectionHeads,    ///< sm_100: how many of them share the L2 cache
  kOneQuery,        ///< sm_100: 1 for the body with one query tile per CTA
  kOBatchBytes,     ///< strides of O
  kORowBytes,
  kOHeadBytes,
  kKPageBytes,  ///< sm_90: strides of K and V in pages
  kKRowBytes,
  kKHeadBytes,
  kVPageBytes,
  kVRowBytes,
  kVHeadBytes,
  kScalePageStride,  ///< of the scales of a page's tokens, K's and V's, in elements
  kScaleRowStride,
  kScaleHeadStride,
  kPartitions,   ///< parts that the keys are split into
  kScale,        ///< of the scores before the softmax
  kRows,         ///< rows of O in the whole batch, heads included
  kRowsPerHead,  ///< merge: of them, how many one head of one batch has
  kMapBatches,   ///< extents of a map of the mask: MaskMapShape
  kMapHeads,
  kMapQBlocks,
  kMapKvBlocks,
  kMapRows,      ///< rows of blocks in all of it
  kHeadsPerMap,  ///< query heads that share a map
  kListRows,     ///< sm_100: lists of KV tiles that are made of a map
  kListsPerMap,
  kRowsPerList,  ///< rows of blocks that a work tile has
  kListPlaces,
  kHeadsAsked,      ///< of those that share a map, to make it
  kBitBlocks,       ///< blocks that a map has bits of, at most
  kMaskBatchBytes,  ///< strides of a materialized mask; 0: one for all
  kMaskHeadBytes,
  kMaskRowBytes,
  kCount,  ///< no number: how many there are
};

/// A number of a mask or a score modification, by its index among the spec's.
struct ScalarSource {
  std::uint32_t index = 0;
  bool operator==(const ScalarSource&) const = default;
};

/// One kernel argument of a parameter that custom code declares.
struct ParamSource {
  enum class Part : std::uint8_t {
    kValue,    ///< the number, or the array's address
    kExtent0,  ///< elements of an array, rows of a matrix, planes of a cube
    kExtent1,  ///< columns of a matrix, rows of a cube
    kExtent2,  ///< columns of a cube
  };
  std::uint32_t index = 0;  ///< among the parameters that the spec declares
  Part part = Part::kValue;
  bool operator==(const ParamSource&) const = default;
};

/// Of a kernel that interprets custom code: the code, or one of the arrays that it reads.
struct StackSource {
  std::int32_t array = -1;  ///< its number in the code; -1: the code
  bool operator==(const StackSource&) const = default;
};

/// What a launch fills a kernel parameter with.
using ParameterSource =
    std::variant<LaunchNumber, TensorMapId, BufferId, ScalarSource, ParamSource, StackSource>;

/// One parameter of a kernel's entry, in order. It is made once, by the planner: the renderer
/// prints it by its group, plan_launch fills it by its source, the driver packs it by its kind.
struct KernelParameter {
  enum class Kind : std::uint8_t { kTensorMap, kPointer, kI32, kI64, kF32, kStruct };
  std::string name;  ///< unique within the entry
  Kind kind = Kind::kI32;
  /// kPointer: the pointee's CUDA spelling, e.g. "const float"; kStruct: the struct's.
  std::string cuda_type;
  ParameterSource source = {};
};

/// A range of shared or tensor memory with its purpose, for the maps that `attnjit plan` draws.
struct MemoryRange {
  std::string name;
  std::int64_t begin = 0;  ///< bytes of shared memory, or tensor-memory columns
  std::int64_t size = 0;
};

/// An mbarrier, by name, with its arrival count.
struct BarrierPlan {
  std::string name;
  int arrivals = 1;
};

/// Device memory that the kernels of a plan need beside the tensors, by what it holds. Its size
/// follows from a launch's shapes (launch.h, Workspace).
enum class WorkspaceId : std::uint8_t {
  kTileCounters,  ///< from which a launch's CTAs take tiles; first in every plan that has any
  kPartialO,  ///< of each partition of the keys, or of what is merged into the caller's O and LSE
  kPartialLse,
  kMapKvNumBlocks,  ///< a map of the mask, where the caller brings none: MaskMapShape
  kMapKvIndices,
  kMapFullKvNumBlocks,
  kMapFullKvIndices,
  kMapKvBits,
  kMapBlockBits,
  kListCounts,  ///< of the map, each work tile's list: how many KV tiles it has
  kList,
  kListDescriptors,  ///< what the map knows of the blocks of the lists that are seen in part
  kWaitRecords,      ///< what bounded waits leave (PlanOptions::debug_waits)
  kCount,            ///< no workspace: how many there are
};

/// What a kernel of a plan computes.
enum class KernelId : std::uint8_t {
  kAttention,
  kMerge,     ///< of partial attentions
  kMap,       ///< which blocks of the mask are seen
  kMapLists,  ///< of such a map, the lists of work tiles
};

/// One kernel of a plan: an entry of the plan's module.
struct PlannedKernel {
  /// Warps of a CTA that do one job.
  struct Role {
    std::string name;
    int first_warp = 0;
    int num_warps = 0;
  };

  KernelId id = KernelId::kAttention;  ///< no two kernels of a plan have the same

  std::string entry;            ///< the entry symbol
  std::string kernel_header;    ///< under templates/, what defines its body: "sm90/forward.cuh"
  int threads = 0;              ///< per CTA
  int cluster = 1;              ///< CTAs per cluster
  std::int64_t smem_bytes = 0;  ///< dynamic shared memory of a launch
  /// It may begin before the kernel before it has ended (programmatic dependent launch), and waits
  /// for its end itself. The first kernel of a launch does so where the launch asks for it.
  bool overlaps = false;
  int ctas_per_sm = 1;       ///< that are to be resident at once
  int launch_registers = 0;  ///< per thread at launch: what setmaxnreg budgets start from

  std::vector<ConfigConstant> constants;
  /// Those of the small-tile variant, Config::SmallTile, which a launch may choose; empty: none.
  std::vector<ConfigConstant> small_tile_constants;
  std::vector<KernelParameter> parameters;
  std::vector<MemoryRange> smem_map;
  std::vector<MemoryRange> tmem_map;
  std::vector<BarrierPlan> barriers;
  std::vector<Role> roles;  ///< empty: every warp does the same
};

/// The map of the mask that a plan's launches walk: which blocks of 128 queries and 128 keys are
/// seen in part, and which whole.
struct PlannedMap {
  bool by_batch = false;  ///< each sequence has its own
  int heads = 1;          ///< maps of a sequence; as many query heads share each
  bool by_head = false;   ///< the mask tells apart heads that share one: it holds what any sees
  int packed_heads = 1;   ///< query heads that share tiles, and so a map
  /// A tensor is part of the mask: each sequence or head has its own where it has its own mask,
  /// too, which the launch says.
  bool by_tensor = false;
  bool bits = false;  ///< of blocks that are seen in part it says which scores are visible
};

/// What launches that choose how may deal out as stream-K ranges of KV tiles: as many to each CTA,
/// so that one begins and ends within a work tile.
enum class StreamK : std::uint8_t {
  kNone,
  kSequences,  ///< sequences whose heads share keys, as of absorbed MLA: the device finds whether
  kHeads,      ///< .. or whose heads have keys of their own (templates/common/sequence_ranges.cuh)
};

/// How the attention kernel of a plan that splits the keys leaves partial results to its merge.
struct PartialLayout {
  StreamK stream_k = StreamK::kNone;
  /// Launches cut work tiles of so many rows, whose parts lie by CTAs; 0: they do not
  /// (templates/common/cut_table.cuh).
  int cut_rows = 0;
  /// A row lies in the order in which quads of lanes have it (templates/common/quad_columns.cuh).
  bool quad_order = false;

  bool over_sequences() const {
    return stream_k == StreamK::kSequences || stream_k == StreamK::kHeads;
  }
};

/// The compiled side of one attention: a sequence of one or more kernels, which are the entries of
/// one module. `supported` false: `reason` says what no template can do yet.
struct KernelPlan {
  ResolvedSpec spec;
  bool supported = false;
  std::string reason;

  /// The main one first, then those of which a launch may leave some out; never empty.
  std::vector<PlannedKernel> kernels = std::vector<PlannedKernel>(1);
  std::vector<WorkspaceId> workspaces;
  std::optional<PlannedMap> map;  ///< set where a kernel makes one, or a launch may be given one
  PartialLayout partials;
  std::vector<Deviation> deviations;
  std::vector<Waiver> waivers;
  std::shared_ptr<const TuningRow> tuned_by;  ///< the row whose choices it has; null: none

  // At most one is set.
  std::shared_ptr<const Sm90Plan> sm90;           ///< for sm_90a
  std::shared_ptr<const Sm90MlaPlan> sm90_mla;    ///< for absorbed MLA and head_dim above 256 there
  std::shared_ptr<const Sm100Plan> sm100;         ///< for sm_100a and sm_103a
  std::shared_ptr<const Sm100MlaPlan> sm100_mla;  ///< for absorbed MLA and head_dim above 256 there

  /// The kernel that computes the attention: the first.
  PlannedKernel& main() { return kernels.front(); }
  const PlannedKernel& main() const { return kernels.front(); }
};

/// Plans the kernel of a spec. `tuning` may be null; its matching row overrides choices. Errors:
/// kInvalid for a tuned name or value that the kernel cannot take. A spec that no template serves
/// yet gives a plan with supported false, not an error.
ATTNJIT_EXPORT Result<KernelPlan> plan(const ResolvedSpec& spec, const Tuning* tuning = nullptr);

/// The same of a spec that is resolved here. Errors: also kInvalid with every problem of the spec.
ATTNJIT_EXPORT Result<KernelPlan> plan(const AttentionSpec& spec, const PlanOptions& options = {},
                                       const Tuning* tuning = nullptr);

}  // namespace attnjit
