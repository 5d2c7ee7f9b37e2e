// SPDX-License-Identifier: Apache-2.0
// Lays out shared memory and the barriers of the sm_90a forward kernel.
#include "plan/sm90/sm90_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/launch/row_tiles.h"
#include "plan/mla/mla_tiles.h"
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

/// Of the cursors of tile schedulers, of each warp that has one
/// (templates/common/scheduler_cursor.cuh).
std::int64_t cursors_bytes(const Sm90Plan& plan) {
  if (plan.head_stream_k()) return MlaTiles::kCursorsBytes;
  // kCutBytes of templates/common/cuts.cuh, and what a warp publishes to others
  // (sm90/published_list.cuh).
  constexpr std::int64_t kPublishBytes = 48;
  const bool publishes = plan.spec->copies_rows && sm90_copy_warps(plan) > 1;
  if (plan.cuts) return 2 * MlaTiles::kCursorBytes + (publishes ? 2 * kPublishBytes : 0);
  return plan.stashes_cursor ? MlaTiles::kCursorBytes : 0;
}

/// Of what consumers stash.
std::int64_t stash_bytes(const Sm90Plan& plan) {
  return plan.stashes_work ? std::int64_t{kSm90StashBytes} * 4 * plan.num_consumers : 0;
}

/// Of all descriptors. Barriers follow, of 8 bytes each.
int descriptors_bytes(const Sm90Plan& plan) {
  return plan.block_sparse ? round_up(plan.descriptor_bytes() * plan.num_stages, 8) : 0;
}

/// Raw tiles, of K and of V.
int raw_tiles(const Sm90Plan& plan) {
  return (plan.spec->upcasts_kv ? 2 : 1) * plan.num_raw_stages;
}

/// Of the words that the producer publishes of each of them.
int raw_words_bytes(const Sm90Plan& plan) { return round_up(4 * raw_tiles(plan), 8); }

void add_barriers(const Sm90Plan& plan, BarrierList& barriers) {
  // One thread publishes what TMA will bring, and each thread what it copies by itself; one lane of
  // each warp that read it releases it.
  constexpr int kProducer = 1;
  constexpr int kConsumerWarps = 4;
  const int copying_threads = sm90_copy_warps(plan) * 32;
  const int all_warps = kConsumerWarps * plan.num_consumers;
  const int kv_arrivals = plan.spec->copies_rows ? copying_threads : kProducer;
  const bool rewrites = plan.num_raw_stages > 0;
  // Who copies rows publishes the tile by itself, and of rows how many keys there are.
  const int described = plan.spec->copies_rows && plan.block_sparse ? 1 : 0;
  const int raw_arrivals = plan.spec->copies_rows ? copying_threads + 1 : kProducer;
  const auto add_q = [&](const char* constant, const char* state, int arrivals) {
    barriers.start(constant);
    for (int i = 0; i < plan.num_q_stages * plan.num_consumers; ++i) {
      const int stage = i / plan.num_consumers;
      barriers.add(fmt::format("Q {} of {} {}", stage, i % plan.num_consumers, state), arrivals);
    }
  };
  add_q("kBarQFull", "full", kProducer);
  add_q("kBarQEmpty", "empty", kConsumerWarps);
  barriers.add_group("kBarKFull", "K {} full",
                     plan.spec->upcasts_kv ? kSm90KRewriters : kv_arrivals + described,
                     plan.num_stages);
  barriers.add_group("kBarKEmpty", "K {} empty", all_warps, plan.num_stages);
  barriers.add_group("kBarVFull", "V {} full", rewrites ? kSm90VRewriters : kv_arrivals,
                     plan.num_v_stages);
  barriers.add_group("kBarVEmpty", "V {} empty", all_warps, plan.num_v_stages);
  if (rewrites) {
    const int stages = plan.num_raw_stages;
    barriers.add_group("kBarRawVFull", "raw V {} full", raw_arrivals, stages);
    barriers.add_group("kBarRawVEmpty", "raw V {} empty", kSm90VRewriters, stages);
    if (plan.spec->upcasts_kv) {
      barriers.add_group("kBarRawKFull", "raw K {} full", raw_arrivals, stages);
      barriers.add_group("kBarRawKEmpty", "raw K {} empty", kSm90KRewriters, stages);
    }
    if (plan.spec->key_scales) {
      barriers.add_group("kBarKeyScalesFull", "scales of keys {} full", kSm90VRewriters,
                         plan.num_v_stages + 1);
    }
  } else if (plan.spec->lengths_differ && !plan.spec->copies_rows) {
    barriers.add_group("kBarVTail", "V tail {} full", kProducer);
  }
}

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
  constexpr int kNumbers = 3, kPublishedBytes = 16;
  return std::int64_t{4} * kNumbers * BN * (v_stages + 1) +
         std::int64_t{kPublishedBytes} * raw_stages;
}

void sm90_size_tiles(Sm90Plan& plan) {
  const SpecFacts& spec = *plan.spec;
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
      std::int64_t{plan.work_bytes()} * 2 * 3 + descriptors_bytes(plan) + raw_words_bytes(plan) +
      ones_bytes(plan) + key_scales_bytes(plan) + cursors_bytes(plan) + stash_bytes(plan);
  const std::int64_t room = sm90_smem_room(plan);
  const std::int64_t stages_bytes =
      plan.num_stages * plan.k_bytes + plan.num_v_stages * plan.v_bytes +
      plan.num_raw_stages * (plan.v_raw_stage_bytes + plan.k_raw_stage_bytes);
  // O is staged in Q's memory where there is another Q to go on with, otherwise in what is left.
  const std::int64_t block_bytes = std::int64_t{plan.BM} * kBoxRowBytes;
  const int blocks = output_blocks(spec);
  const bool fits_q = plan.o_from_registers() || blocks * block_bytes <= plan.q_bytes;
  const auto left = [&](int q_stages) {
    return room - q_stages * plan.q_bytes - stages_bytes - other_bytes;
  };
  if (left(2) < (fits_q ? 0 : block_bytes)) plan.num_q_stages = 1;
  plan.o_blocks = 0;
  if (!plan.o_from_registers() && (plan.num_q_stages == 1 || !fits_q)) {
    plan.o_blocks = static_cast<int>(
        std::clamp<std::int64_t>(left(plan.num_q_stages) / block_bytes, fits_q ? 0 : 1, blocks));
  }
}

void sm90_lay_out(Sm90Plan& plan) {
  using enum Region;
  add_barriers(plan, plan.barriers);
  // O is staged in Q's memory where it has none, and does not leave from registers.
  const bool o_in_q = !plan.o_from_registers() && plan.o_blocks == 0;
  MemoryLayout& smem = plan.smem;
  smem.add_stages(kQ, o_in_q ? "Q and O {}" : "Q {}", plan.num_q_stages, plan.q_bytes);
  smem.add_stages(kK, "K {}", plan.num_stages, plan.k_bytes);
  smem.add_stages(kV, "V {}", plan.num_v_stages, plan.v_bytes);
  smem.add_stages(kRawV, "raw V {}", plan.num_raw_stages, plan.v_raw_stage_bytes);
  smem.add_stages(kRawK, "raw K {}", plan.num_raw_stages, plan.k_raw_stage_bytes);
  smem.add(kO, "O", std::int64_t{plan.o_blocks} * plan.BM * kBoxRowBytes);
  smem.add(kOnes, "ones", ones_bytes(plan));
  smem.add(kKeyScales, "scales of keys", key_scales_bytes(plan));
  smem.add(kWork, "work tiles",
           std::int64_t{plan.work_bytes()} * plan.num_q_stages * plan.num_consumers);
  smem.add(kCursors, "scheduler cursors", cursors_bytes(plan));
  smem.add(kStash, "stash", stash_bytes(plan));
  smem.add(kDescriptors, "KV tiles", descriptors_bytes(plan));
  smem.add(kRawWords, plan.spec->upcasts_kv ? "keys of raw V and K" : "keys of raw V",
           raw_words_bytes(plan));
  smem.add(kBarriers, "barriers", plan.barriers.bytes());
  plan.smem_bytes = smem.end_of_last();
}

}  // namespace attnjit
