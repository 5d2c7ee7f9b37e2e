// SPDX-License-Identifier: Apache-2.0
// How the kernels of absorbed MLA, and of head_dim above 256, cut rows and keys, and what follows
// for their constants and parameters: the same in every generation (templates/mla).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/plan.h"
#include "plan/kernel/constants.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Work tiles of 64 rows per CTA, against tiles of 64 keys.
struct MlaTiles {
  static constexpr int kRows = 64;          ///< of a CTA
  static constexpr int kKeys = 64;          ///< of a KV tile
  static constexpr int kBlockColumns = 64;  ///< of 128 bytes: a TMA box, and the swizzle's row
  static constexpr int kWorkBytes = 48;     ///< of a published work tile, stored 16 at a time
  static constexpr int kListedBytes = 16;   ///< that say which keys of a tile a list shows
  static constexpr int kCursorBytes = 16;   ///< where a warp's scheduler stands
  static constexpr int kCursorsBytes = 4 * kCursorBytes;  ///< those of four
  static constexpr int kStashBytes = 8 * kWorkBytes;      ///< what eight keep while they multiply

  const SpecFacts* spec = nullptr;  ///< that they are of: the KernelPlan's
  int cluster = 1;                  ///< CTAs that share a work tile, and load K for each other
  bool loads_apart = false;         ///< then K and V are loaded by warps of their own
  int stage_loaders = 1;            ///< warps that load; of two each has every second stage
  bool two_readers = false;  ///< two warpgroups make S by turns, each of every second tile of K
  int box_keys = 0;          ///< keys per TMA box of K: all of one page; 0 with row_copies
  bool row_copies = false;   ///< K is copied row by row: pages hold no whole TMA boxes, or topk
  int upcast_blocks = 0;     ///< of a row of K, from its first on: e4m3 that become 16-bit
  bool stream_k =
      false;  ///< those that choose how deal out stream-K ranges of KV tiles to teams of CTAs
  bool cluster_reduces = false;  ///< launches may give two CTAs half of each part to reduce
  bool clusters_for_l2 = false;  ///< CTAs of the same keys form clusters of two, for L2 alone
  bool pair_tiles = false;  ///< later rows see more keys: a CTA takes long and short tiles in pairs
  int l2_bytes = 256;       ///< that L2 fetches for a copy of K, at least
  int num_stages = 0;       ///< K tiles in shared memory, and as many V tiles of their own

  int rows() const { return kRows * cluster; }
  /// V is a tensor of its own.
  bool separate_v() const { return spec->head_dim_above_256; }
  /// KV tiles of each partition; 0: the launch says how many there are.
  int partition_tiles() const { return spec->partition_keys / kKeys; }
  /// Warps that load keep the cursors of their tile schedulers in shared memory.
  bool stashes_cursors() const {
    return stream_k || (two_readers && upcast_blocks > 0 && spec->lengths_differ);
  }
  /// Stages that have barriers: where there is memory for one, those of two readers take turns with
  /// it.
  int barrier_stages() const { return two_readers && num_stages == 1 ? 2 : num_stages; }
};

/// What follows from the spec: a CTA by itself, and no stages yet.
MlaTiles mla_tiles(const ResolvedSpec& resolved);

/// Bytes of 64 rows of Q, or of a tile of K, in shared memory.
std::int64_t mla_tile_bytes(const SpecFacts& spec);
/// Bytes of a tile of V that is a tensor of its own, in shared memory; 0: it is K's latent part.
std::int64_t mla_own_v_bytes(const SpecFacts& spec);
/// Bytes of a tile of K and V in memory.
std::int64_t mla_loaded_bytes(const SpecFacts& spec);

/// A row is position << shift | head. Rows whose head would be past the last are nobody's. Where
/// each position has a list of its own (topk), a tile's rows are of one. 0: its rows are of one
/// head, as those of head_dim above 256 may be.
int mla_head_shift(const SpecFacts& spec);
/// The query heads in a tile's rows: a group's, or one.
int mla_packed_heads(const SpecFacts& spec);

/// Blocks of 64 columns in a row of K, and those of its latent part, which is V.
int mla_blocks(const SpecFacts& spec);
int mla_latent_blocks(const SpecFacts& spec);

/// Why no kernel of absorbed MLA, or of head_dim above 256, serves a spec; empty: it does.
std::string mla_unsupported_reason(const ResolvedSpec& spec);

/// Adds what templates/mla and the tile schedulers need of Config, offsets apart.
void add_mla_constants(const MlaTiles& tiles, Constants& constants);

/// The kernel's parameters. @pre plan.workspaces is filled.
std::vector<KernelParameter> mla_parameters(const KernelPlan& plan, const MlaTiles& tiles);

}  // namespace attnjit
