// SPDX-License-Identifier: Apache-2.0
// Lays out shared memory and the barriers of the sm_90a forward kernel.
#include "plan/sm90/sm90_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/launch/row_tiles.h"
#include "plan/mla/mla_tiles.h"
#include "plan/sm90/sm90_fields.h"
#include "plan/sm90/sm90_roles.h"

namespace attnjit {
namespace {

constexpr std::int64_t kMaxSmemBytes = 232448;  // a CTA's, opt-in, on sm_90
constexpr std::int64_t kSystemSmemBytes = 1024;

int round_up(int value, int to) { return (value + to - 1) / to * to; }

/// Elements of a row in a block of columns.
int block_elements(const SpecFacts& spec) {
  return kBoxRowBytes / static_cast<int>(size_of(spec.qkv_dtype));
}

/// Columns of V that are multiplied (templates/sm90/layout.cuh, kPvColumns).
int multiplied_columns(const SpecFacts& spec) { return round_up(spec.ov_depth, 32); }

/// Blocks of columns of O.
int output_blocks(const SpecFacts& spec) {
  const auto bytes = static_cast<int>(size_of(spec.o_dtype));
  return (spec.ov_depth * bytes + kBoxRowBytes - 1) / kBoxRowBytes;
}

/// Eight columns of 32 ones.
std::int64_t ones_bytes(const Sm90Plan& plan) { return plan.sums_by_product ? 8 * 32 : 0; }

/// Of the scales of keys.
std::int64_t key_scales_bytes(const Sm90Plan& plan) {
  return plan.spec->key_scales
             ? sm90_key_scales_bytes(plan.BN, plan.num_v_stages, plan.num_raw_stages)
             : 0;
}

/// Of the places where lists of work stand, of each warp that has one
/// (templates/common/list_place.cuh).
std::int64_t lists_bytes(const Sm90Plan& plan) {
  if (plan.head_stream_k()) return MlaTiles::kListsBytes;
  // kCutBytes of templates/common/cuts.cuh, and what a warp publishes to others
  // (sm90/published_list.cuh).
  constexpr std::int64_t kPublishBytes = 48;
  const bool publishes = plan.spec->copies_rows && sm90_copy_warps(plan) > 1;
  if (plan.cuts) return 2 * MlaTiles::kListBytes + (publishes ? 2 * kPublishBytes : 0);
  return plan.stashes_list ? MlaTiles::kListBytes : 0;
}

/// Of what consumers stash.
std::int64_t stash_bytes(const Sm90Plan& plan) {
  return plan.stashes_work ? std::int64_t{kSm90StashBytes} * 4 * plan.num_consumers : 0;
}

/// Of all notes. Barriers follow, of 8 bytes each.
int notes_bytes(const Sm90Plan& plan) {
  return plan.listed ? round_up(plan.note_bytes() * plan.num_stages, 8) : 0;
}

/// Tiles as they come, of K and of V.
int raw_tiles(const Sm90Plan& plan) {
  return (plan.spec->upcasts_kv ? 2 : 1) * plan.num_raw_stages;
}

/// Of the words that the producer tells of each of them.
int row_words_bytes(const Sm90Plan& plan) { return round_up(4 * raw_tiles(plan), 8); }

}  // namespace

std::int64_t sm90_smem_room(const Sm90Plan& plan) {
  return std::min(kMaxSmemBytes, kSm90SmSmemBytes / plan.ctas_per_sm - kSystemSmemBytes);
}

int sm90_kv_row_bytes(const SpecFacts& spec) {
  const bool halves =
      spec.upcasts_kv && (spec.qk_depth % kBoxRowBytes != 0 || spec.ov_depth % kBoxRowBytes != 0);
  return halves ? kBoxRowBytes / 2 : kBoxRowBytes;
}

Sm90KvBytes sm90_kv_bytes(const SpecFacts& spec, int BN) {
  const auto rows = [&](int depth) {
    const int blocks = (depth + block_elements(spec) - 1) / block_elements(spec);
    return std::int64_t{kBoxRowBytes} * blocks * BN;
  };
  if (spec.upcasts_kv) {
    const auto narrow = [&](int depth) {
      return std::int64_t{BN} * round_up(depth, sm90_kv_row_bytes(spec));
    };
    return {rows(spec.qk_depth), rows(spec.ov_depth), narrow(spec.qk_depth), narrow(spec.ov_depth)};
  }
  if (!spec.is_e4m3) return {rows(spec.qk_depth), rows(spec.ov_depth), 0, 0};
  return {rows(spec.qk_depth), std::int64_t{BN} * multiplied_columns(spec), 0, rows(spec.ov_depth)};
}

std::int64_t sm90_key_scales_bytes(int BN, int v_stages, int raw_stages) {
  constexpr int kNumbers = 3, kToldBytes = 16;
  return std::int64_t{4} * kNumbers * BN * (v_stages + 1) + std::int64_t{kToldBytes} * raw_stages;
}

void sm90_size_tiles(const SpecFacts& spec, Sm90Plan& plan) {
  plan.padded_qk_depth = round_up(spec.qk_depth, block_elements(spec));
  plan.padded_ov_depth = round_up(spec.ov_depth, block_elements(spec));
  const Sm90KvBytes kv = sm90_kv_bytes(spec, plan.BN);
  plan.k_bytes = kv.k;
  plan.v_bytes = kv.v;
  plan.v_raw_stage_bytes = kv.raw_v;
  plan.k_raw_stage_bytes = kv.raw_k;
  plan.q_bytes = std::int64_t{kBoxRowBytes} * plan.BM * plan.padded_qk_depth / block_elements(spec);
  // Barriers and what is published of work tiles.
  const std::int64_t other_bytes =
      8 * (4 * 3 + 4 * kSm90MaxStages + 1 + 2 * raw_tiles(plan) + kSm90MaxStages + 1) +
      std::int64_t{plan.work_bytes()} * 2 * 3 + notes_bytes(plan) + row_words_bytes(plan) +
      ones_bytes(plan) + key_scales_bytes(plan) + lists_bytes(plan) + stash_bytes(plan);
  const std::int64_t room = sm90_smem_room(plan);
  const std::int64_t stages_bytes =
      plan.num_stages * plan.k_bytes + plan.num_v_stages * plan.v_bytes +
      plan.num_raw_stages * (plan.v_raw_stage_bytes + plan.k_raw_stage_bytes);
  // O is staged in Q's memory where there is another Q to go on with, otherwise in what is left.
  const std::int64_t block_bytes = std::int64_t{plan.BM} * kBoxRowBytes;
  const int blocks = output_blocks(spec);
  const bool fits_q = plan.direct_o() || blocks * block_bytes <= plan.q_bytes;
  const auto left = [&](int q_stages) {
    return room - q_stages * plan.q_bytes - stages_bytes - other_bytes;
  };
  if (left(2) < (fits_q ? 0 : block_bytes)) plan.num_q_stages = 1;
  plan.o_blocks = 0;
  if (!plan.direct_o() && (plan.num_q_stages == 1 || !fits_q)) {
    plan.o_blocks = static_cast<int>(
        std::clamp<std::int64_t>(left(plan.num_q_stages) / block_bytes, fits_q ? 0 : 1, blocks));
  }
}

std::vector<Sm90BarrierGroup> sm90_barrier_groups(const Sm90Plan& plan) {
  // One thread publishes what TMA will bring, and each thread what it copies by itself; one lane of
  // each warp that read it hands it back.
  constexpr int kProducer = 1;
  constexpr int kConsumerWarps = 4;
  const int copying_threads = sm90_copy_warps(plan) * 32;
  const int all_warps = kConsumerWarps * plan.num_consumers;
  const int of_q = plan.num_q_stages * plan.num_consumers;
  const int of_kv = plan.spec->copies_rows ? copying_threads : kProducer;
  const bool rewrites = plan.num_raw_stages > 0;
  // Who copies rows tells of the tile by itself, and of rows how many keys there are.
  const int of_note = plan.spec->copies_rows && plan.listed ? 1 : 0;
  const int of_rows = plan.spec->copies_rows ? copying_threads + 1 : kProducer;
  std::vector<Sm90BarrierGroup> groups{
      {"kBarQFull", "Q", "full", true, of_q, kProducer},
      {"kBarQEmpty", "Q", "empty", true, of_q, kConsumerWarps},
      {"kBarKFull", "K", "full", false, plan.num_stages,
       plan.spec->upcasts_kv ? kSm90KRewriters : of_kv + of_note},
      {"kBarKEmpty", "K", "empty", false, plan.num_stages, all_warps},
      {"kBarVFull", "V", "full", false, plan.num_v_stages, rewrites ? kSm90VRewriters : of_kv},
      {"kBarVEmpty", "V", "empty", false, plan.num_v_stages, all_warps},
  };
  if (rewrites) {
    const int stages = plan.num_raw_stages;
    groups.push_back({"kBarVRowsFull", "raw V", "full", false, stages, of_rows});
    groups.push_back({"kBarVRowsEmpty", "raw V", "empty", false, stages, kSm90VRewriters});
    if (plan.spec->upcasts_kv) {
      groups.push_back({"kBarKRowsFull", "raw K", "full", false, stages, of_rows});
      groups.push_back({"kBarKRowsEmpty", "raw K", "empty", false, stages, kSm90KRewriters});
    }
    if (plan.spec->key_scales) {
      groups.push_back({"kBarKeyScalesFull", "scales of keys", "full", false, plan.num_v_stages + 1,
                        kSm90VRewriters});
    }
  } else if (plan.spec->lengths_differ && !plan.spec->copies_rows) {
    groups.push_back({"kBarVTail", "V tail", "full", false, 1, kProducer});
  }
  return groups;
}

void sm90_lay_out(Sm90Plan& plan) {
  using enum Sm90Region;
  const auto add = [&](Sm90Region region, int count, std::int64_t bytes) {
    for (int i = 0; i < count; ++i) plan.smem.add(region, bytes, 1, i);
  };
  add(kQ, plan.num_q_stages, plan.q_bytes);
  add(kK, plan.num_stages, plan.k_bytes);
  add(kV, plan.num_v_stages, plan.v_bytes);
  add(kRawV, plan.num_raw_stages, plan.v_raw_stage_bytes);
  add(kRawK, plan.num_raw_stages, plan.k_raw_stage_bytes);
  add(kO, 1, std::int64_t{plan.o_blocks} * plan.BM * kBoxRowBytes);
  add(kOnes, 1, ones_bytes(plan));
  add(kKeyScales, 1, key_scales_bytes(plan));
  add(kWork, 1, std::int64_t{plan.work_bytes()} * plan.num_q_stages * plan.num_consumers);
  add(kLists, 1, lists_bytes(plan));
  add(kStash, 1, stash_bytes(plan));
  add(kNotes, 1, notes_bytes(plan));
  add(kRowWords, 1, row_words_bytes(plan));
  for (const Sm90BarrierGroup& group : sm90_barrier_groups(plan)) {
    for (int i = 0; i < group.count; ++i) {
      const std::string which = group.of_consumers ? fmt::format("{} of {}", i / plan.num_consumers,
                                                                 i % plan.num_consumers)
                                                   : std::to_string(i);
      plan.barriers.push_back(
          {fmt::format("{} {} {}", group.tile, which, group.state), group.arrivals});
    }
  }
  add(kBarriers, 1, std::int64_t{8} * static_cast<std::int64_t>(plan.barriers.size()));
  plan.smem_bytes = plan.smem.end_of_last();
}

std::string sm90_range_name(const Sm90SmemRange& range, const Sm90Plan& plan) {
  // By Sm90Region. O is staged in Q's memory where it has none, and does not leave from registers.
  static constexpr std::array<const char*, 14> kNames{
      "Q {}",           "K {}",    "V {}",       "raw V {}", "raw K {}",      "O",
      "lists of work",  "stash",   "work tiles", "KV tiles", "keys of raw V", "ones",
      "scales of keys", "barriers"};
  const char* name = kNames.at(static_cast<std::size_t>(range.region));
  if (range.region == Sm90Region::kQ && !plan.direct_o() && plan.o_blocks == 0) name = "Q and O {}";
  if (range.region == Sm90Region::kRowWords && plan.spec->upcasts_kv) name = "keys of raw V and K";
  return fmt::format(fmt::runtime(name), range.stage);
}

}  // namespace attnjit
