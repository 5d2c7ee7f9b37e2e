// SPDX-License-Identifier: Apache-2.0
// Sm90Plan: tiles, pipelines and register budgets of the sm_90a forward kernel.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>

#include "attnjit/export.h"

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

}  // namespace attnjit
