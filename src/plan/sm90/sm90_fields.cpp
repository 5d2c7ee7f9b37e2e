// SPDX-License-Identifier: Apache-2.0
// The fields of an Sm90Plan, as JSON shows them, as a tuning row chooses them and as the kernel
// reads them.
#include "plan/sm90/sm90_fields.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/forward_support.h"
#include "plan/kernel/json_fields.h"
#include "plan/kernel/partials.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_tiling.h"

namespace attnjit {
namespace {

#define FIELD(name) ATTNJIT_MEMBER(Sm90Plan, name)

void add_body(const Sm90Plan& plan, nlohmann::ordered_json& json) {
  add_members(plan, json, FIELD(BM), FIELD(BN), FIELD(box_keys), FIELD(num_consumers),
              FIELD(ctas_per_sm), FIELD(num_stages), FIELD(num_v_stages), FIELD(num_q_stages),
              FIELD(num_raw_stages), FIELD(o_blocks), FIELD(ping_pong), FIELD(pair_tiles),
              std::pair{"kv_lens", plan.spec->lengths_differ}, FIELD(dynamic_schedule),
              std::pair{"row_copies", plan.spec->copies_rows}, FIELD(overlaps), FIELD(listed),
              FIELD(mapped), FIELD(map_bits), FIELD(split), FIELD(stream_k), FIELD(partition_tiles),
              std::pair{"rescale_by_row", plan.spec->partition_keys > 0}, FIELD(pack_gqa),
              FIELD(l2_bytes), FIELD(producer_registers), FIELD(consumer_registers),
              FIELD(padded_qk_depth), FIELD(padded_ov_depth), FIELD(q_bytes), FIELD(k_bytes),
              FIELD(v_bytes), FIELD(v_raw_stage_bytes), FIELD(k_raw_stage_bytes),
              std::pair{"upcasts_kv", plan.spec->upcasts_kv},
              std::pair{"kv_row_bytes", sm90_kv_row_bytes(*plan.spec)}, FIELD(exp2_fma_pairs),
              FIELD(sums_by_product), FIELD(held_q_steps), FIELD(p_bias), FIELD(rescale_threshold));
}

#undef FIELD

}  // namespace

void add_sm90(const SpecFacts& /*spec*/, const Sm90Plan& plan, nlohmann::ordered_json& json) {
  add_body(plan, json);
  if (plan.low != nullptr) add_body(*plan.low, json["small_tile_variant"]);
}

std::vector<Knob<Sm90Plan>> sm90_forward_knobs(const Sm90Plan& plan) {
  const bool transposes = plan.num_raw_stages > 0 && !plan.spec->upcasts_kv;  // e4m3
  // A lane of the four warps that copy finds a row.
  std::vector<std::int64_t> keys{64, 80, 96, 112, 128};
  if (!plan.spec->copies_rows) keys.insert(keys.end(), {144, 160, 176, 192});
  // A step of P is 32 keys.
  if (transposes) keys = {64, 96, 128, 160, 192, 224};
  // A lane upcasts a key.
  if (plan.spec->upcasts_kv) keys = {64, 96, 128, 160, 192};
  // A block of a map is whole tiles.
  if (plan.mapped) std::erase_if(keys, [](std::int64_t one) { return kMapBlock % one != 0; });
  std::vector<Knob<Sm90Plan>> all{
      {"BN", &Sm90Plan::BN, std::move(keys)},
      {"num_stages", &Sm90Plan::num_stages, {2, 3, 4, 5, kSm90MaxStages}},
      {"num_q_stages", &Sm90Plan::num_q_stages, {1, 2}},
  };
  if (plan.num_consumers > 1) {
    if (!plan.mapped && !plan.spec->upcasts_kv) {
      all.push_back({"num_consumers", &Sm90Plan::num_consumers, {2, 3}});
    }
    all.push_back({"ping_pong", &Sm90Plan::ping_pong, {0, 1}});
  }
  if (plan.num_raw_stages > 0) {
    all.push_back({"num_raw_stages",
                   &Sm90Plan::num_raw_stages,
                   {1, 2, 3, kSm90MaxRawStages},
                   "num_row_stages"});
  }
  if (transposes) {
    all.push_back({"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs, {0, 1, 2, 3, 4}});
  }
  all.push_back({"pair_tiles", &Sm90Plan::pair_tiles, {0, 1}});
  if (plan.dynamic_schedule)
    all.push_back({"dynamic_schedule", &Sm90Plan::dynamic_schedule, {0, 1}, "claims_work"});
  return all;
}

std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan) {
  return chosen_knobs(sm90_forward_knobs(plan), plan);
}

std::vector<ConfigConstant> sm90_constants(const ResolvedSpec& resolved, const Sm90Plan& sm90,
                                           int body) {
  const SpecFacts& spec = resolved;
  Constants constants;
  constants.add_bool("kBf16", spec.qkv_dtype == Dtype::kBf16);
  constants.add_bool("kE4m3", spec.is_e4m3);
  constants.add_bool("kWidensKv", sm90.spec->upcasts_kv);
  constants.add("kKvRowBytes", sm90_kv_row_bytes(spec));
  constants.add("kScales", static_cast<int>(spec.scales));
  constants.add_bool("kOutputBf16", spec.o_dtype == Dtype::kBf16);
  constants.add("kOutputBytes", size_of(spec.o_dtype));
  constants.add("kQkDepth", spec.qk_depth);
  constants.add("kOvDepth", spec.ov_depth);
  constants.add("kGroup", spec.group);
  constants.add_bool("kSink", spec.sink);
  constants.add_bool("kReturnLse", spec.return_lse);
  constants.add_bool("kLseIncludesSink", spec.lse_includes_sink);
  constants.add("kConsumers", sm90.num_consumers);
  constants.add("kThreads", sm90.threads());
  constants.add("kCtasPerSm", sm90.ctas_per_sm);
  constants.add("kCluster", 1);
  constants.add("kTileM", sm90.BM);
  constants.add("kTileN", sm90.BN);
  constants.add("kPageSize", spec.page_size);
  constants.add("kBoxKeys", sm90.box_keys);
  constants.add_bool("kRowCopies", sm90.spec->copies_rows);
  constants.add_bool("kRagged", spec.ragged);
  constants.add_bool("kRaggedKv", spec.ragged_kv);
  constants.add_bool("kKvLensExcludeNew", spec.kv_lens_exclude_new);
  constants.add_bool("kOverlaps", sm90.overlaps);
  constants.add_bool("kListed", sm90.listed);
  constants.add_bool("kMapped", sm90.mapped);
  constants.add_bool("kMapBits", sm90.map_bits);
  constants.add_bool("kSplit", sm90.split);
  // Of those alone: templates/common/run_marks.cuh.
  if (sm90.head_stream_k()) constants.add_bool("kRuns", true);
  if (sm90.head_stream_k()) constants.add_bool("kHeadRuns", true);
  if (sm90.has_slots()) constants.add_bool("kCuts", true);
  if (sm90.head_stream_k() || sm90.stashes_list || sm90.cuts) {
    constants.add("kListsOffset", sm90.smem.begin_of(Sm90Region::kLists));
  }
  if (sm90.rematerializes) constants.add_bool("kFewRegisters", true);
  if (sm90.rematerializes_rows) constants.add_bool("kPlacesRowsAnew", true);
  if (sm90.stashes_work) {
    constants.add("kParkedOffset", sm90.smem.begin_of(Sm90Region::kStash));
    constants.add("kParkedBytes", kSm90StashBytes);
  }
  if (sm90.sums_by_product) {
    constants.add("kOnesOffset", sm90.smem.begin_of(Sm90Region::kOnes));
  }
  if (sm90.spec->key_scales) {
    constants.add("kKeyScalesOffset", sm90.smem.begin_of(Sm90Region::kKeyScales));
  }
  constants.add("kPartitionTiles", sm90.partition_tiles);
  constants.add_bool("kMergeOnePart", merges_one_part(spec));
  constants.add_bool("kRescaleByRow", spec.partition_keys > 0);
  constants.add("kStages", sm90.num_stages);
  constants.add("kVStages", sm90.num_v_stages);
  constants.add("kRowStages", sm90.num_raw_stages);
  constants.add("kQStages", sm90.num_q_stages);
  if (sm90.num_raw_stages > 0) {
    constants.add("kFirstVRewriter", kSm90FirstVRewriter);
    constants.add("kVRewriters", kSm90VRewriters);
  }
  if (sm90.spec->upcasts_kv) constants.add("kKRewriters", kSm90KRewriters);
  constants.add_bool("kPingPong", sm90.ping_pong);
  constants.add_bool("kPairTiles", sm90.pair_tiles);
  const int packed_heads = sm90_packed_heads(sm90, spec);
  if (kSm90ConsumerRows % packed_heads == 0) {
    constants.add("kGqaShift", rows_shift(packed_heads));
  } else {
    constants.add("kGqaShift", 0);
    constants.add("kUnitPositions", kSm90ConsumerRows / packed_heads);
  }
  constants.add_bool("kDebugWaits", resolved.options().debug_waits.value_or(false));
  constants.add("kHeldQSteps", sm90.held_q_steps);
  constants.add_float("kRescaleThreshold", sm90.rescale_threshold);
  constants.add_float("kPBias", sm90.p_bias);
  constants.add("kExp2FmaPairs", sm90.exp2_fma_pairs);
  constants.add("kProducerRegisters", sm90.producer_registers);
  constants.add("kConsumerRegisters", sm90.consumer_registers);
  constants.add("kBody", body);
  constants.add("kQOffset", sm90.smem.begin_of(Sm90Region::kQ));
  constants.add("kKOffset", sm90.smem.begin_of(Sm90Region::kK));
  constants.add("kVOffset", sm90.smem.begin_of(Sm90Region::kV));
  constants.add("kRowsOffset", sm90.smem.begin_of(Sm90Region::kRawV));
  constants.add("kRowWordsOffset", sm90.smem.begin_of(Sm90Region::kRowWords));
  constants.add("kWorkBytes", sm90_work_bytes(sm90));
  constants.add("kWorkOffset", sm90.smem.begin_of(Sm90Region::kWork));
  constants.add("kNotesOffset", sm90.smem.begin_of(Sm90Region::kNotes));
  constants.add("kNoteBytes", sm90_note_bytes(sm90));
  constants.add("kBarrierOffset", sm90.smem.begin_of(Sm90Region::kBarriers));
  int first_barrier = 0;
  for (const Sm90BarrierGroup& group : sm90_barrier_groups(sm90)) {
    constants.add(group.constant, first_barrier);
    first_barrier += group.count;
  }
  constants.add_barriers(sm90.barriers);
  constants.add("kOBlocks", sm90.o_blocks);
  constants.add("kOOffset", sm90.smem.begin_of(Sm90Region::kO));
  constants.add("kSmemBytes", sm90.smem_bytes);
  constants.add_users(spec);
  return std::move(constants).take();
}

}  // namespace attnjit
