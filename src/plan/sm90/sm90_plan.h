// SPDX-License-Identifier: Apache-2.0
// Sm90Plan: tiles, pipelines and register budgets of the sm_90a forward kernel.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/plan.h"
#include "attnjit/spec.h"
#include "attnjit/tuning.h"

namespace attnjit {

/// What the sm_90a template uses. Tiles per depth follow FlashAttention-3 (Shah et al., 2024).
struct Sm90Plan {
  int BM = 0;             ///< query rows a CTA: 64 a consumer warpgroup
  int BN = 0;             ///< keys a KV tile
  int num_consumers = 0;  ///< consumer warpgroups; one more produces
  int num_stages = 0;     ///< K tiles, and V tiles, in shared memory
  int num_q_stages = 0;   ///< Q tiles in shared memory; o_blocks says where O is staged
  int o_blocks = 0;       ///< 64-column blocks of O with memory of their own; 0: O is staged in Q's
  bool ping_pong = false;   ///< consumers take turns at issuing products
  bool pair_tiles = false;  ///< later rows see more keys: a CTA takes long and short tiles in pairs
  bool pack_gqa = false;    ///< a tile's rows are of all the query heads that share a KV head
  int producer_registers = 0;
  int consumer_registers = 0;
  int padded_qk_depth = 0;  ///< elements a row of Q and K in shared memory: whole 64-element blocks
  int padded_ov_depth = 0;
  std::int64_t q_bytes = 0;  ///< a stage
  std::int64_t k_bytes = 0;  ///< a stage
  std::int64_t v_bytes = 0;  ///< a stage

  bool operator==(const Sm90Plan&) const = default;
};

/// Fills the sm_90a side of a plan: constants, parameters, barriers, maps, supported and reason.
/// `tuned` holds what a tuning row overrides, or is null.
/// Errors: kInvalid for a tuned name or value that this plan cannot take.
Status make_sm90_plan(const ResolvedSpec& spec, KernelPlan& plan,
                      const TuningValues* tuned = nullptr);

/// What a tuning row may choose, with what this plan has.
std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan);

/// How a launch deals its query tiles out to CTAs (templates/sm90/work.cuh).
struct Sm90Shares {
  std::int32_t ctas = 0;
  std::int32_t paired_units = 0;  ///< pairs of tiles before the tail: whole rounds of the CTAs
};

/// The shares of `total_tiles` tiles, `m_tiles` a head, on `sm_count` SMs: one CTA an SM, which
/// loads ahead over tile borders. pair_tiles: later tiles are longer.
Sm90Shares sm90_shares(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles,
                       int sm_count);

/// How query rows are numbered: position << shift | head of the group, where a tile's rows are of
/// all the query heads that share a key-value head; otherwise 0.
int sm90_gqa_shift(const Sm90Plan& plan, const AttentionSpec& spec);

}  // namespace attnjit
