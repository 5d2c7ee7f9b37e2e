// SPDX-License-Identifier: Apache-2.0
// The KV tiles that a work tile's rows see, where an expression says of each tile what it shows:
// those that it hides at both ends, and the longest run of them between or all of a thirty-second
// of the tiles, are not walked.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"
#include "sm100/layout.cuh"

namespace attnjit::sm100 {

/// Whether more than one gap of a work tile's KV tiles may be left out: it costs each KV tile that
/// is walked a branch. The plan says so.
template <class Config>
constexpr bool kManyGaps = Config::kManyGaps;

/// The longest run of bits: from `begin` on, `count` of them.
struct BitRun {
  int begin, count;
  ATTNJIT_DEVICE static BitRun longest(u32 bits) {
    BitRun run{0, 0};
#pragma unroll 1
    while (bits != 0) {
      // Of each run the bits stay that have `count` others below them.
      run.begin = __ffs(static_cast<int>(bits)) - 1 - run.count;
      ++run.count;
      bits &= bits << 1;
    }
    return run;
  }
};

/// The place of the n-th bit that is set, from 0 on. NOTE: a loop, for compile time: two roles ask
/// about each tile.
ATTNJIT_DEVICE int nth_bit(u32 bits, int n) {
  int place = 0;
#pragma unroll 1
  for (int half = 16; half > 0; half >>= 1) {
    const int below = __popc(bits >> place & ((1u << half) - 1));
    if (n >= below) {
      n -= below;
      place += half;
    }
  }
  return place;
}

/// Takes from both query tiles' KV tiles those that the mask hides. One warp: a lane asks about a
/// run of tiles, of which 32 are all that are reached. Where that is more than one tile, the tiles
/// at the ends of what is seen are asked about next. What is hidden between is one gap whose ends
/// are asked about, too, or runs, where more of them are hidden than that gap's ends may add.
/// Where there are pages the last question is which keys of the first tile are seen. NOTE: at one
/// place for both query tiles and all ends, since what it asks is as long as the mask's expression.
template <class Config, class Mask, class Work, class Params>
ATTNJIT_DEVICE void find_shown(Work& work, const Params& params) {
  using Layout = LayoutOf<Config>;
  constexpr u32 kAll = 0xffffffffu;
  constexpr int kLanes = 32;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const KvTiles all = work.all();
  // NOTE: of many gaps they are a power of two: each KV tile that is walked is divided by it.
  const int shift = kManyGaps<Config> ? kLanes - __clz((all.count() - 1) >> 5) : 0;
  int run = ceil_div(all.count(), kLanes);
  if (kManyGaps<Config> && run > 0) run = 1 << shift;
  u32 shown = 0;         // which runs some row sees
  bool many = false;     // gaps
  KvTiles around{0, 0};  // the gap: where what is behind it begins, and what is before it ends
  int asks = all.count() > 0 ? 2 : 0;
  // Of pages, the keys of the first tile: a lane's, and where a page has fewer each of them.
  constexpr int kLaneKeys = ceil_div(Config::kTileN, kLanes);
  constexpr int kKeyAsks = !Layout::kPaged ? 0 : Config::kPageSize % kLaneKeys == 0 ? 1 : 2;
#pragma unroll 1
  for (int ask = 0; ask < asks + (asks > 0 ? kKeyAsks : 0); ++ask) {
    // Of each query tile all, of each its first and its last tiles, and of both what is behind and
    // what is before the gap.
    const bool asks_keys = kKeyAsks > 0 && ask >= asks;
    const bool whole = ask < 2;
    const bool at_end = (ask & 1) != 0;
    const int rows = asks_keys ? 2 : whole ? ask : (ask >> 1) - 1;
    const KvTiles seen = rows == 0 ? work.seen_0 : rows == 1 ? work.seen_1 : all;
    KvTiles ends = rows == 2 ? around : seen;
    const int base = whole ? all.begin : at_end ? ends.end - run : ends.begin;
    const int limit = whole ? seen.end : min(base + run, seen.end);
    const int each = whole ? run : ceil_div(run, kLanes);
    const int begin = max(base + lane * each, seen.begin);
    const int end = min(base + (lane + 1) * each, limit);
    const bool each_key = kKeyAsks > 1 && ask > asks;
    const int lane_keys = each_key ? 1 : kLaneKeys;
    const int first_key = each_key ? work.first_key : work.all().begin * Config::kTileN;
    bool sees = false;
    if (asks_keys ? lane * lane_keys < work.kv_len - first_key : begin < end) {
      const int first = work.first_position + (rows == 1 ? Layout::kTileStep : 0);
      const int last =
          min(first + (rows == 2 ? work.num_qo : 1) * Layout::kTileStep, work.q_len) - 1;
      const int first_q_idx = work.kv_len - work.q_len;  // of position 0
      const int first_kv = asks_keys ? first_key + lane * lane_keys : begin * Config::kTileN;
      const int count = asks_keys ? lane_keys : (end - begin) * Config::kTileN;
      const int keys = min(work.kv_len - first_kv, count);
      sees = Mask::tiles(TileCoord{work.batch,
                                   work.kv_head,
                                   {work.head, work.head + Layout::kFused - 1},
                                   {first + first_q_idx, last + first_q_idx},
                                   {first_kv, first_kv + keys - 1},
                                   work.q_len,
                                   work.kv_len},
                         params)
                 .hi != 0;
    }
    const u32 found = __ballot_sync(kAll, sees);
    if (asks_keys) {
      work.first_key = first_key + max(__ffs(static_cast<int>(found)) - 1, 0) * lane_keys;
      continue;
    }
    if (whole || !at_end) {
      const int first_found = base + (__ffs(static_cast<int>(found)) - 1) * each;
      ends.begin = found == 0 ? limit : max(first_found, seen.begin);
    }
    if (whole || at_end) {
      ends.end =
          found == 0 ? base : min(base + (kLanes - __clz(static_cast<int>(found))) * each, limit);
    }
    if (whole && found == 0) ends = {0, 0};
    if (rows == 0) work.seen_0 = ends;
    if (rows == 1) work.seen_1 = ends;
    if (rows == 2) around = ends;
    if (whole) shown |= found;
    if (ask == 1 && shown != 0) {
      // What lies between runs that are seen.
      const u32 between = ~shown & ~((shown & -shown) - 1) & kAll >> __clz(static_cast<int>(shown));
      const BitRun gap = BitRun::longest(between);
      if constexpr (kManyGaps<Config>) many = __popc(between) - gap.count >= min(run, 2);
      if (gap.count > 0) {
        around.end = all.begin + gap.begin * run;
        around.begin = around.end + gap.count * run;
      }
      if (run > 1) asks = gap.count > 0 && !many ? 8 : 6;
    }
  }
  work.gap_begin = many ? all.begin : around.end;
  work.gap = many ? shift : around.begin - around.end;
  if constexpr (kManyGaps<Config>) work.shown = many ? shown : 0;
  work.seen_0 = work.template without_gap<Config>(work.seen_0);
  work.seen_1 = work.template without_gap<Config>(work.seen_1);
}

}  // namespace attnjit::sm100
