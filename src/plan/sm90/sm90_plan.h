// SPDX-License-Identifier: Apache-2.0
// Sm90Plan: tiles, pipelines and register budgets of the sm_90a forward kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/kernel/fields.h"
#include "plan/kernel/forward_support.h"
#include "plan/kernel/knobs.h"
#include "plan/kernel/memory_layout.h"
#include "plan/launch/family_launch.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// What the sm_90a template uses. Tiles per depth follow FlashAttention-3 (Shah et al., 2024).
struct Sm90Plan {
  const SpecFacts* spec = nullptr;  ///< that it is of: the KernelPlan's
  std::uint64_t spec_traits = 0;    ///< of it (sm90_traits.h)
  int BM = 0;                       ///< query rows per work tile: 64 per consumer warpgroup
  int BN = 0;                       ///< keys per KV tile
  int box_keys = 0;         ///< keys per TMA box of K and V: all of one page; 0 with row_copies
  int num_consumers = 0;    ///< consumer warpgroups
  int idle_warpgroups = 0;  ///< whose registers the others have
  int ctas_per_sm = 1;      ///< that run at once
  int num_stages = 0;       ///< K tiles in shared memory
  int num_v_stages = 0;     ///< V tiles: as many, but of e4m3, where they are the transposed ones
  int num_q_stages = 0;     ///< Q tiles in shared memory; o_blocks says where O is staged
  /// Raw tiles, before warps rewrite them: of e4m3 V, which is transposed; where
  /// they are upcast as many of K and of V.
  int num_raw_stages = 0;
  int o_blocks = 0;  ///< 128-byte columns of O with memory of their own; 0: O is staged in Q's
  bool ping_pong = false;         ///< consumers take turns at issuing products
  bool pair_tiles = false;        ///< later rows see more keys: a CTA takes long and short tiles
  bool dynamic_schedule = false;  ///< CTAs take tiles from counters; else each takes every n-th
  bool overlaps = false;  ///< waits for the end of the launch before it: PlannedKernel::overlaps
  bool block_sparse = false;     ///< KV tiles are listed by what the mask says of each
  bool block_mask = false;       ///< they are those of a block mask (templates/maps)
  bool block_mask_bits = false;  ///< which says of blocks seen in part which scores are visible
  bool split = false;            ///< launches may split the keys into partitions
  /// Those that choose how deal out stream-K ranges of KV tiles, as many to each CTA; of sequences
  /// that differ in length (kv_lens) the device finds whether it does.
  bool stream_k = false;
  /// Those that choose cut long work tiles of sequences that differ in length, where the device
  /// finds it best (templates/common/cuts.cuh). Partitions are then the parts that there is room
  /// for.
  bool cuts = false;
  int partition_tiles = 0;  ///< KV tiles of each partition; 0: the launch says how many there are
  bool pack_gqa = false;    ///< a tile's rows are of all the query heads that share a KV head
  int l2_bytes = 256;       ///< that L2 fetches for a copy of K or V, at least
  /// The producer's warpgroup has so few registers that it computes again with each tile what it
  /// would keep elsewhere.
  bool rematerializes = false;
  /// Who deals out work tiles has few registers, and keeps its place in shared memory.
  bool stashes_cursor = false;
  /// Consumers beside scales of keys find again where their rows are, and keep no more than they
  /// must.
  bool rematerializes_rows = false;
  /// Consumers keep what they know of a work tile in shared memory while its keys are multiplied.
  bool stashes_work = false;
  int producer_registers = 0;
  int consumer_registers = 0;
  int padded_qk_depth = 0;  ///< elements per row of Q and K in shared memory: whole 128-byte blocks
  int padded_ov_depth = 0;
  std::int64_t q_bytes = 0;            ///< per stage
  std::int64_t k_bytes = 0;            ///< per stage
  std::int64_t v_bytes = 0;            ///< per stage
  std::int64_t v_raw_stage_bytes = 0;  ///< per stage of raw tiles
  std::int64_t k_raw_stage_bytes = 0;
  MemoryLayout smem;  ///< without gaps; a stage of Q, K or V has a range each
  /// A full and an empty one for each stage of K and of V, and of Q for each consumer; and where
  /// TMA brings the V tile that ends a sequence, one for that.
  BarrierList barriers;
  std::int64_t smem_bytes = 0;
  double rescale_threshold = 8;  ///< log2: O is rescaled when the maximum grows by more
  int q_register_steps = 0;      ///< of Q K^T, whose Q consumers have in registers: it is read once
  bool sums_by_product = false;  ///< the tensor cores sum P's rows, as a product with ones
  int exp2_fma_pairs = 0;        ///< of a row's pairs in a thread, whose 2^x the FMA pipe computes
  double p_bias = 0;             ///< log2: P is scaled by 2^this: its type keeps small ones

  /// The small-tile variant of the kernel, for launches that have low query tiles; null: there is
  /// none. It has fewer consumers, with more registers and longer KV tiles.
  std::shared_ptr<const Sm90Plan> small_tile;

  /// Whether its stream-K ranges are over sequences, whose heads have keys of their own
  /// (templates/common/sequence_ranges.cuh).
  bool head_stream_k() const { return stream_k && spec->lengths_differ; }
  /// Whether parts of tiles that launches cut lie in slots of the CTAs
  /// (templates/common/cut_table.cuh). Partitions are then those CTAs.
  bool has_slots() const { return cuts || (stream_k && !spec->lengths_differ); }
  /// Warps rewrite raw tiles: V of e4m3, which they transpose, or K and V, which they upcast.
  bool rewrites_kv() const { return num_raw_stages > 0; }
  bool transposes_v() const { return rewrites_kv() && !spec->upcasts_kv; }
  bool has_consumers() const { return num_consumers > 1; }
  bool may_have_three() const { return has_consumers() && !block_mask && !spec->upcasts_kv; }
  /// O is f32, is staged nowhere, and leaves from registers.
  bool o_from_registers() const { return spec->o_dtype == Dtype::kF32; }
  /// Before the consumers: one loads, and rewrites V; where K is upcast, another one does that.
  int producer_warpgroups() const { return spec->upcasts_kv ? 2 : 1; }
  int threads() const { return 128 * (producer_warpgroups() + num_consumers + idle_warpgroups); }
  int launch_registers() const { return attnjit::launch_registers(threads() * ctas_per_sm); }
  /// The query heads in a tile's rows: a group's, or one.
  int packed_heads() const { return pack_gqa ? spec->group : 1; }
  bool rescales_by_row() const { return spec->partition_keys > 0; }
  /// Bytes of a published work tile (templates/common/work_tiles.cuh), which is stored 16 at a
  /// time.
  int work_bytes() const { return split ? 48 : 32; }
  /// Bytes of a descriptor that the producer publishes with the K of a stage, where tiles are
  /// listed: a word, and one more where a map has bits.
  int descriptor_bytes() const { return block_mask_bits ? 8 : 4; }
};

/// Bytes of a row in a TMA box of K and V. Where they are upcast that is whole 128 where the
/// depths allow it, which is a line of L2.
int sm90_kv_row_bytes(const SpecFacts& spec);

#define FIELD(member, constant) ATTNJIT_FIELD(Sm90Plan, member, constant)
#define CONSTANT(member, constant) ATTNJIT_CONSTANT(Sm90Plan, member, constant)
/// The fields, in the order in which JSON shows them.
inline constexpr Field<Sm90Plan> kSm90Fields[] = {
    FIELD(BM, "kTileM"),
    FIELD(BN, "kTileN"),
    FIELD(box_keys, "kBoxKeys"),
    FIELD(num_consumers, "kConsumers"),
    FIELD(ctas_per_sm, "kCtasPerSm"),
    FIELD(num_stages, "kStages"),
    FIELD(num_v_stages, "kVStages"),
    FIELD(num_q_stages, "kQStages"),
    FIELD(num_raw_stages, "kRawStages"),
    FIELD(o_blocks, "kOBlocks"),
    FIELD(ping_pong, "kPingPong"),
    FIELD(pair_tiles, "kPairTiles"),
    {"kv_lens", nullptr, &fact_of<&SpecFacts::lengths_differ>},
    FIELD(dynamic_schedule, nullptr),
    {"row_copies", "kRowCopies", &fact_of<&SpecFacts::copies_rows>},
    FIELD(overlaps, "kOverlaps"),
    FIELD(block_sparse, "kBlockSparse"),
    FIELD(block_mask, "kBlockMask"),
    FIELD(block_mask_bits, "kBlockMaskBits"),
    FIELD(split, "kSplit"),
    FIELD(stream_k, nullptr),
    FIELD(partition_tiles, "kPartitionTiles"),
    {"rescale_by_row", nullptr, &value_of<&Sm90Plan::rescales_by_row>},
    FIELD(pack_gqa, nullptr),
    FIELD(l2_bytes, nullptr),
    FIELD(producer_registers, "kProducerRegisters"),
    FIELD(consumer_registers, "kConsumerRegisters"),
    FIELD(padded_qk_depth, nullptr),
    FIELD(padded_ov_depth, nullptr),
    FIELD(q_bytes, nullptr),
    FIELD(k_bytes, nullptr),
    FIELD(v_bytes, nullptr),
    FIELD(v_raw_stage_bytes, nullptr),
    FIELD(k_raw_stage_bytes, nullptr),
    {"upcasts_kv", nullptr, &fact_of<&SpecFacts::upcasts_kv>},
    {"kv_row_bytes", "kKvRowBytes",
     [](const Sm90Plan& plan) -> FieldValue { return sm90_kv_row_bytes(*plan.spec); }},
    FIELD(exp2_fma_pairs, "kExp2FmaPairs"),
    FIELD(sums_by_product, "kSumsByProduct"),
    FIELD(q_register_steps, "kQRegisterSteps"),
    FIELD(p_bias, "kPBias"),
    FIELD(rescale_threshold, "kRescaleThreshold"),
    CONSTANT(threads, "kThreads"),
    CONSTANT(head_stream_k, "kStreamK"),
    CONSTANT(head_stream_k, "kHeadStreamK"),
    CONSTANT(has_slots, "kCuts"),
    CONSTANT(rematerializes, "kRematerializes"),
    CONSTANT(rematerializes_rows, "kRematerializesRows"),
    CONSTANT(stashes_work, "kStashesWork"),
    CONSTANT(work_bytes, "kWorkBytes"),
    CONSTANT(descriptor_bytes, "kDescriptorBytes"),
    CONSTANT(smem_bytes, "kSmemBytes"),
};
#undef CONSTANT
#undef FIELD

/// Stages of K, and of tiles that are rewritten, at most.
inline constexpr int kSm90MaxStages = 6, kSm90MaxRawStages = 4;

/// What a tuning row may choose, and the values that it takes of a plan; none: that has no such
/// choice.
struct Sm90Knob {
  using Values = std::vector<std::int64_t>;
  std::string_view name;
  std::variant<int Sm90Plan::*, bool Sm90Plan::*> member;
  Values (*values)(const Sm90Plan&);
  std::string_view old_name = {};
};

/// Keys of a KV tile.
Sm90Knob::Values sm90_tile_keys(const Sm90Plan& plan);
/// Of plans for which `kHas` holds.
template <auto kHas, std::int64_t... kValues>
Sm90Knob::Values tries_where(const Sm90Plan& plan) {
  return std::invoke(kHas, plan) ? Sm90Knob::Values{kValues...} : Sm90Knob::Values{};
}

inline constexpr Sm90Knob kSm90Knobs[] = {
    {"BN", &Sm90Plan::BN, &sm90_tile_keys},
    {"num_stages", &Sm90Plan::num_stages, &tries<2, 3, 4, 5, kSm90MaxStages>},
    {"num_q_stages", &Sm90Plan::num_q_stages, &tries<1, 2>},
    {"num_consumers", &Sm90Plan::num_consumers, &tries_where<&Sm90Plan::may_have_three, 2, 3>},
    {"ping_pong", &Sm90Plan::ping_pong, &tries_where<&Sm90Plan::has_consumers, 0, 1>},
    {"num_raw_stages", &Sm90Plan::num_raw_stages,
     &tries_where<&Sm90Plan::rewrites_kv, 1, 2, 3, kSm90MaxRawStages>, "num_row_stages"},
    {"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs,
     &tries_where<&Sm90Plan::transposes_v, 0, 1, 2, 3, 4>},
    {"pair_tiles", &Sm90Plan::pair_tiles, &tries<0, 1>},
    {"dynamic_schedule", &Sm90Plan::dynamic_schedule,
     &tries_where<&Sm90Plan::dynamic_schedule, 0, 1>, "claims_work"},
};

/// Plans the kernel. `tuned` holds what a tuning row overrides, or is null. Errors: kInvalid for a
/// tuned name or value that this plan cannot take.
Result<Sm90Plan> make_sm90_plan(const ResolvedSpec& spec, const TuningValues* tuned);

/// Why the template does not serve a spec; empty: it does.
std::string sm90_unsupported_reason(const ResolvedSpec& spec, const Sm90Plan& plan);

// What a KernelFamily has (plan/family.h).
Status plan_sm90(const TuningValues* tuned, KernelPlan& plan);
PartitionChoice sm90_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                const DeviceShape& device);
Status plan_sm90_launch(const KernelPlan& plan, const LaunchRequest& request, LaunchRecipe& recipe);
std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan);
void add_sm90(const SpecFacts& spec, const Sm90Plan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit
