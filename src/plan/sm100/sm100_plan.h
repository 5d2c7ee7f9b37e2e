// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: what the sm_100a and sm_103a kernel really uses. It takes its tiles from a reference
// configuration (Fa4Config, MlaConfig, Depth512Config), owns every size, offset, barrier and
// register budget of the kernel, and records each deviation with its reason.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/kernel/fields.h"
#include "plan/kernel/memory_layout.h"
#include "plan/reference/reference_json.h"
#include "spec/spec_facts.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names where it has one.

/// A group of warps that does one job. All roles of a warpgroup have one register budget: PTX wants
/// every warp of a warpgroup to execute the same setmaxnreg.
struct Sm100Role {
  enum class Id : std::uint8_t {
    kSoftmax,
    kSoftmax0,
    kSoftmax1,
    kCorrection,
    kMma,
    kLoad,
    kStore,
    kScheduler,
    kUpcast
  };
  Id id = Id::kScheduler;
  int first_warp = 0;
  int num_warps = 0;
  int registers = 0;  ///< per thread, after setmaxnreg
};
/// "softmax 0", "mma", ..
std::string_view to_string(Sm100Role::Id id);

/// Something that lives where other ranges lay before: bytes of shared memory or columns of tensor
/// memory.
struct Sm100Overlay {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::string when;  ///< why its place is free by then
};

/// A dimension of a tensor map.
enum class MapAxis : std::uint8_t { kDepth, kGroup, kHead, kKvHead, kRow, kPageRow, kPage, kBatch };
/// "depth", "kv_head", ..
std::string_view to_string(MapAxis axis);

/// The kind of a tensor map: everything but the run-time extents and strides.
struct Sm100TensorMap {
  TensorMapId id = TensorMapId::kQ;
  Dtype dtype = Dtype::kBf16;
  std::vector<MapAxis> axes;      ///< innermost first
  std::vector<std::int64_t> box;  ///< elements along the axes
  int swizzle = 128;              ///< bytes; 0: none
  std::int64_t copies = 1;        ///< TMA instructions per tile
};

/// One body of the kernel: with two query tiles per CTA, or one.
struct Sm100Variant {
  std::int64_t num_qo = 2;
  std::int64_t MMA_M = 0;
  std::int64_t MMA_K = 0;
  std::int64_t BM = 0;
  std::int64_t BN = 0;
  std::int64_t BM_eff = 0;
  bool fuse_gqa = false;
  std::int64_t qk_depth = 0;
  std::int64_t ov_depth = 0;
  std::int64_t padded_qk_depth = 0;
  std::int64_t padded_ov_depth = 0;
  std::int64_t qk_mma_depth = 0;  ///< what Q K^T contracts: qk_depth up to a multiple of MMA_K
  std::int64_t num_kv_stages = 0;
  std::int64_t num_qk_stages = 1;
  bool use_fused_kv = false;
  std::int64_t num_rope_buffers = 0;
  std::int64_t num_k_scale_bufs = 0;
  std::vector<std::int64_t> pv_keys;  ///< keys that each part of P V contracts
  std::int64_t k_stage_bytes = 0;     ///< fused: of the slot that K and V share, rope apart
  std::int64_t v_stage_bytes = 0;
  std::int64_t num_o_buffers = 0;  ///< of a block of columns of O; 0: O is staged in Q's memory
  MemoryLayout smem;
  std::vector<Sm100Overlay> smem_overlays;
  MemoryLayout tmem;  ///< a stage of S and of O for each softmax warpgroup
  std::vector<Sm100Overlay> tmem_overlays;
  /// `cons` barriers release memory, `prod` ones publish it.
  BarrierList barriers;

  std::int64_t cta_group() const { return MMA_M / 128; }
  std::int64_t num_mbarriers() const { return barriers.size(); }
  std::int64_t q_tile_rows() const { return BM / num_qo; }
  std::int64_t rope_depth() const { return padded_qk_depth - padded_ov_depth; }
  std::int64_t k_rows_per_cta() const { return BN / cta_group(); }
  std::int64_t v_cols_per_cta() const { return padded_ov_depth / cta_group(); }
  std::int64_t BK0() const { return padded_qk_depth / num_qk_stages; }
  std::int64_t BK1() const { return BN; }
  std::int64_t num_pv_stages() const { return static_cast<std::int64_t>(pv_keys.size()); }
  std::int64_t tmem_used() const { return tmem.end_of_last(); }  ///< columns
  std::int64_t tmem_allocated() const { return allocated_columns(tmem_used()); }
  std::int64_t smem_bytes() const { return smem.end_of_last(); }  ///< dynamic
};

#define FIELD(member, constant) ATTNJIT_FIELD(Sm100Variant, member, constant)
/// The fields of a body, in the order in which JSON shows them.
inline constexpr Field<Sm100Variant> kSm100BodyFields[] = {
    FIELD(num_qo, "kNumQo"),
    FIELD(MMA_M, nullptr),
    FIELD(MMA_K, nullptr),
    FIELD(BM, "kTileM"),
    FIELD(BN, "kTileN"),
    FIELD(BK0, nullptr),
    FIELD(BK1, nullptr),
    FIELD(BM_eff, nullptr),
    FIELD(q_tile_rows, nullptr),
    FIELD(fuse_gqa, "kFuseGqa"),
    FIELD(qk_depth, nullptr),
    FIELD(ov_depth, nullptr),
    FIELD(padded_qk_depth, nullptr),
    FIELD(padded_ov_depth, nullptr),
    FIELD(rope_depth, nullptr),
    FIELD(qk_mma_depth, nullptr),
    FIELD(k_rows_per_cta, nullptr),
    FIELD(v_cols_per_cta, nullptr),
    FIELD(use_fused_kv, "kFusedKv"),
    FIELD(num_kv_stages, "kStages"),
    FIELD(num_qk_stages, "kQkStages"),
    FIELD(num_pv_stages, "kPvParts"),
    FIELD(num_rope_buffers, "kRopeBuffers"),
    FIELD(num_o_buffers, "kOBuffers"),
    FIELD(num_k_scale_bufs, nullptr),
    FIELD(pv_keys, nullptr),
    FIELD(k_stage_bytes, "kKStageBytes"),
    FIELD(v_stage_bytes, nullptr),
    FIELD(tmem_used, nullptr),
    FIELD(tmem_allocated, "kTmemColumns"),
    FIELD(smem_bytes, nullptr),
};
#undef FIELD

struct Sm100Plan {
  const SpecFacts* spec = nullptr;          ///< that it is of: the KernelPlan's
  ConfigKind reference = ConfigKind::kFa4;  ///< where its tiles come from
  std::vector<Sm100Variant> variants;  ///< the launched one first; its 1Q sibling where it switches
  bool can_switch_to_1q = false;       ///< the 2Q body may branch to the 1Q body for short prompts
  int threads = 512;
  std::int64_t swizzle_bytes = 128;  ///< of Q, K and V: a row of a block of columns
  /// 2: each has S and O of its own. 1: all KV tiles of a query tile are one's, and O is one.
  int softmax_warpgroups = 2;
  int cluster = 1;
  std::vector<Sm100Role> roles;
  std::vector<Sm100TensorMap> tensor_maps;
  std::int64_t pv_first_quarters = 3;  ///< of a tile's P, that the first part of P V waits for
  std::int64_t exp2_pairs = 0;         ///< f32x2 exponentials of a row of a tile
  std::int64_t exp2_fma_pairs = 0;     ///< of them, computed by polynomial on the FMA pipes
  double rescale_threshold = 8;        ///< log2: O is rescaled when the maximum grows by more
  double p_bias = 0;  ///< log2: P is scaled by 2^this, so that e4m3 keeps small ones
  /// A warp finds the work tiles and publishes them to the others; a CTA has several.
  bool published = false;
  bool counted = false;            ///< of those that are published: they are counted off
  bool can_persist = false;        ///< a CTA may walk several work tiles that it counts off itself
  bool can_steal_tiles = false;    ///< .. or steal those of CTAs that have not started
  bool can_pair = false;           ///< a tuning row may choose whether CTAs multiply in pairs
  bool can_choose_num_qo = false;  ///< .. and the query tiles of a CTA
  /// 0: a CTA has one work tile; 1: a CTA per SM walks several; 2: there is a CTA for each, and one
  /// that runs steals those of CTAs that have not started (cluster launch control).
  std::int64_t persistent = 0;
  bool mapped = false;       ///< it walks lists of a map of the mask (templates/maps)
  bool skips_tiles = false;  ///< an expression says which tiles are walked (seen_tiles.cuh)
  bool many_gaps = false;    ///< .. and may hide tiles again and again
  bool split = false;        ///< launches may split the keys into partitions
  /// Launches of several partitions cut long tiles where the device finds it best
  /// (templates/common/cuts.cuh). Partitions are then the parts that there is room for.
  bool cuts = false;
  std::int64_t partition_tiles = 0;  ///< KV tiles of each; 0: the launch says how many there are
  std::vector<Deviation> deviations;

  /// K and V are copied row by row: pages do not hold whole TMA boxes.
  bool row_copies() const { return spec->copies_rows && !spec->upcasts_kv; }
  /// Of a launch: the largest of the variants.
  std::int64_t smem_bytes() const {
    return std::ranges::max_element(variants, {}, &Sm100Variant::smem_bytes)->smem_bytes();
  }
  /// A launch has a CTA for each work tile, and the kernel nothing for a second one.
  bool one_work_tile() const { return persistent == 0 && !published; }
  bool steals_tiles() const { return persistent == 2; }
};

#define FIELD(member, constant) ATTNJIT_FIELD(Sm100Plan, member, constant)
#define CONSTANT(member, constant) ATTNJIT_CONSTANT(Sm100Plan, member, constant)
/// The fields of a plan, but for those of its bodies, in the order in which JSON shows them.
inline constexpr Field<Sm100Plan> kSm100Fields[] = {
    FIELD(can_switch_to_1q, "kSwitchTo1Q"),
    FIELD(persistent, nullptr),
    FIELD(exp2_pairs, nullptr),
    FIELD(exp2_fma_pairs, "kExp2FmaPairs"),
    FIELD(rescale_threshold, "kRescaleThreshold"),
    FIELD(p_bias, "kPBias"),
    FIELD(row_copies, "kRowCopies"),
    {"upcasts_kv", nullptr, &fact_of<&SpecFacts::upcasts_kv>},
    FIELD(published, "kPublished"),
    FIELD(skips_tiles, "kSkipsTiles"),
    FIELD(many_gaps, "kManyGaps"),
    FIELD(mapped, "kMapped"),
    FIELD(split, "kSplit"),
    FIELD(cuts, "kCuts"),
    FIELD(partition_tiles, "kPartitionTiles"),
    CONSTANT(threads, "kThreads"),
    CONSTANT(softmax_warpgroups, "kSoftmaxWarpgroups"),
    CONSTANT(cluster, "kCluster"),
    CONSTANT(swizzle_bytes, "kSwizzleBytes"),
    CONSTANT(counted, "kCounted"),
    CONSTANT(one_work_tile, "kOneWorkTile"),
    CONSTANT(steals_tiles, "kLaunchControl"),
    CONSTANT(smem_bytes, "kSmemBytes"),
};
#undef CONSTANT
#undef FIELD

// NOLINTEND(readability-identifier-naming)

/// What shared memory a CTA may have on sm_100 and sm_103, and how many barriers one warp
/// initialises in two waves.
inline constexpr std::int64_t kSm100SmemBytes = DeviceShape{}.max_smem_bytes;
inline constexpr std::int64_t kSm100MaxBarriers = 64;

/// Work tiles that are published at a time, and the bytes of each, and of the only one of a CTA
/// (templates/sm100/layout.cuh).
inline constexpr std::int64_t kSm100WorkSlots = 2;
inline constexpr std::int64_t kSm100WorkBytes = 64;
/// What a CTA is answered that asks for another's work.
inline constexpr std::int64_t kSm100AnswerBytes = 16;
/// What a CTA knows of cut tiles: kCutBytes of templates/common/cuts.cuh.
inline constexpr std::int64_t kSm100CutBytes = 32;

/// A block of O, which a TMA store takes: 128 bytes of each of 128 rows. Where O has memory of its
/// own that is two of them, by turns.
inline constexpr std::int64_t kSm100OBlockBytes = 128 * 128;
inline constexpr std::int64_t kSm100OBuffers = 2;

/// Warps that upcast K and V, where they are e4m3 beside a Q of 16 bits.
inline constexpr int kSm100UpcastWarps = 4;

/// Plans the kernel. Errors: kUnsupported with the reason where no configuration serves the spec;
/// kInvalid for a tuned name or value that cannot be.
Result<Sm100Plan> make_sm100_plan(const ResolvedSpec& spec, const TuningValues* tuned);

/// Why the template does not serve a spec; empty: it does.
std::string sm100_unsupported_reason(const ResolvedSpec& spec, const Sm100Plan& sm100);

// What a KernelFamily has (plan/family.h).
Status plan_sm100(const TuningValues* tuned, KernelPlan& plan);
std::int32_t sm100_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                              const DeviceShape& device);
std::int32_t sm100_rows_per_list(const KernelPlan& plan, const LaunchShapes& shapes,
                                 const DeviceShape& device);
struct LaunchRequest;
Status plan_sm100_launch(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchRecipe& recipe);
std::vector<TuningKnob> sm100_knobs(const Sm100Plan& plan);
void add_sm100(const SpecFacts& spec, const Sm100Plan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit
