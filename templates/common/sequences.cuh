// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where sequences differ in length: found on the device, by one warp.
#pragma once

#include "common/cuts.cuh"
#include "common/dynamic_tiles.cuh"
#include "common/near_heads.cuh"
#include "common/partitions.cuh"
#include "common/scheduler_cursor.cuh"

namespace attnjit {

/// Walks a CTA's share of the grid: every gridDim.x-th tile of all the sequences', or, where the
/// launch has counters for that (Arguments::tile_counters), those that it takes. Sequences come in
/// their order, of each its heads (or those of packed heads), of a head its tiles from the last
/// rows to the first, and of a tile the parts of its keys; or of each the parts, and of a part the
/// heads: tiles that run together share K and V in L2. A converged warp; 32 sequences at a time.
///
/// Where later rows see more keys, tiles of one rank come together, of as many heads as share L2: a
/// CTA might get the long tiles of each head otherwise. From the longest to the shortest, they are
/// dealt in snake order. NOTE: not where the rows of a sequence are few beside its keys: its tiles
/// are as long as one another, and what they share of L2 counts.
///
/// In a ragged batch the second half of the CTAs begin with the last of their tiles. Prompts, which
/// compute, and decodes, which load, stand together in a batch, and so they run together. Where
/// tiles are dynamic, as many CTAs begin at an end as let both end together: long tiles that come
/// last are what a launch's other CTAs wait for.
///
/// Tiling: how an architecture cuts the rows of a sequence into tiles. It has
///   kKvLens             whether sequences differ in kv_len
///   kPairTiles          whether later rows see more keys
///   kPartsOutside       whether a part's tiles follow one another, and not a tile's parts
///   kHeadsInside        whether tiles of one rank follow one another, of all heads
///   heads(arguments)    heads, or groups of heads that share tiles
///   tiles(q_len, arguments)    of a head
///   few_rows(q_len)     where tiles are dynamic: whether a tile waits for K and V
template <class Config, class Mask, class Tiling, class Arguments, class Params>
struct SequenceList : SequenceLengths<Config, Tiling::kKvLens, Arguments> {
  static constexpr u32 kAll = 0xffffffffu;
  using Base = SequenceLengths<Config, Tiling::kKvLens, Arguments>;
  using Base::arguments;

  static constexpr bool kDynamic = dynamic_tiles<Arguments>();
  static_assert(!kDynamic || Config::kCluster == 1, "a CTA takes tiles for itself alone");
  /// Whether some sequences' tiles may be cut, which are then none of the list.
  static constexpr bool kCuts = cuts_tiles<Config>();
  static_assert(takes_whole<Config>() <= kDynamic);

  const Params& params;
  int lane;
  int first = -32;            ///< of the sequences at hand, a lane each; at first there are none
  int begin = 0;              ///< tiles of those before
  int sum = 0;                ///< tiles of the sequences at hand up to the lane's
  int index;                  ///< of the tile that the list is at; negative: of none
  DynamicTiles dynamic = {};  ///< where kDynamic and not kCuts
  CutWords cuts = {};         ///< where kCuts
  // NOTE: unsigned, as the grid is: half of a signed number takes more instructions.
  bool backward =
      Config::kRagged && blockIdx.x / Config::kCluster >= gridDim.x / Config::kCluster / 2;

  ATTNJIT_DEVICE SequenceList(const Arguments& launch, const Params& user, int lane_of_warp)
      : Base{launch}, params(user), lane(lane_of_warp), index(worker<Config>()) {
    begin_walk();
    find();
  }
  /// Without a first tile: begin_walk() and find() find it.
  ATTNJIT_DEVICE SequenceList(const Arguments& launch, const Params& user, int lane_of_warp,
                              CutWords words)
      : Base{launch}, params(user), lane(lane_of_warp), index(worker<Config>()), cuts(words) {}

  ATTNJIT_DEVICE void begin_walk() {
    if (is_dynamic()) {
      if constexpr (kDynamic) begin_dynamic();
    } else if (backward) {
      const int left = all_tiles() - 1 - index;
      if (left > 0) index += quotient(left, step()) * step();
    }
  }

  ATTNJIT_DEVICE SchedulerCursor cursor() const { return {{first, begin, index, 0}}; }
  /// @pre advance() follows.
  ATTNJIT_DEVICE void resume(const SchedulerCursor& at) {
    first = at.words[0] - 32;  // those from there on are to be counted
    begin = at.words[1];
    index = at.words[2];
    sum = 0;
  }

  ATTNJIT_DEVICE bool done() const { return first >= arguments.batch || index < 0; }
  ATTNJIT_DEVICE void advance() {
    go_on();
    find();
  }
  ATTNJIT_DEVICE void go_on() {
    if (is_dynamic()) {
      fetch_next();
    } else {
      index += backward ? -step() : step();
    }
  }
  /// After the last tile.
  ATTNJIT_DEVICE void end() const {
    if constexpr (kDynamic) {
      if (is_dynamic() && takes_any()) DynamicTiles::end(arguments.tile_counters, lane, step());
    }
  }

  ATTNJIT_DEVICE SequenceTile tile() const {
    const int place = index - begin;
    const int winner = __ffs(static_cast<int>(__ballot_sync(kAll, place < sum))) - 1;
    const int before = winner == 0 ? 0 : __shfl_sync(kAll, sum, winner - 1);
    SequenceTile work = this->tile_of(first + winner, 0, 0);
    int tile = place - before;  // of the sequence's
    if constexpr (kCuts) {
      work.partition = kWhole;
    } else if constexpr (Config::kSplit) {
      const PartRange parts = parts_of<Config, Mask>(work.lengths, arguments, params);
      const int part_tiles = Tiling::tiles(work.lengths.q, arguments) * Tiling::heads(arguments);
      const int inner = Tiling::kPartsOutside ? part_tiles : parts.count();
      const int outer_place = quotient(tile, inner);
      const int inner_place = tile - outer_place * inner;
      tile = Tiling::kPartsOutside ? inner_place : outer_place;
      work.partition = parts.begin + (Tiling::kPartsOutside ? outer_place : inner_place);
    }
    const int tiles = Tiling::tiles(work.lengths.q, arguments);
    bool by_rank = false;
    if constexpr (Tiling::kPairTiles) by_rank = work.lengths.kv < kFewRows * work.lengths.q;
    if constexpr (Tiling::kHeadsInside) {
      const int heads = Tiling::heads(arguments);
      work.rank = quotient(tile, heads);
      work.head = tile - work.rank * heads;
    } else if (by_rank) {
      if constexpr (Tiling::kPairTiles) place_by_rank(work, tile, tiles);
    } else {
      work.head = quotient(tile, tiles);
      work.rank = tile - work.head * tiles;
    }
    return work;
  }

  /// Goes to the sequences among which the tile is. NOTE: tiles are counted in one place, for
  /// compile time: the mask may be asked how far a row sees.
  ATTNJIT_DEVICE void find() {
    [[maybe_unused]] const int longest = this->longest();
    while (!done() && (index < begin || index - begin >= at_hand())) {
      const bool back = index < begin;
      if (!back) begin += at_hand();
      first += back ? -32 : 32;
      const int sequence = first + lane;
      sum = warp_sum_through(sequence < arguments.batch ? tiles_of(sequence, longest) : 0, lane);
      if (back) begin -= at_hand();
    }
  }

 private:
  ATTNJIT_DEVICE static int step() { return workers<Config>(); }

  /// The CTAs that take tiles from the list's begin on: those without ranges of cut tiles. And
  /// which of them this one is; negative: it has a range before.
  ATTNJIT_DEVICE int free_ctas() const {
    if constexpr (kCuts) return step() - cuts.ranges();
    return step();
  }
  ATTNJIT_DEVICE int free_cta() const {
    if constexpr (kCuts) return worker<Config>() - cuts.ranges();
    return worker<Config>();
  }
  ATTNJIT_DEVICE int longest() const {
    if constexpr (kCuts) return cuts.longest();
    return 0;
  }

  /// Keys for each row from which on a sequence has few rows.
  static constexpr i64 kFewRows = 4;

  /// The head and rank of a sequence's tile, of `tiles` of each head, sorted by rank.
  ATTNJIT_DEVICE void place_by_rank(SequenceTile& work, int tile, int tiles) const {
    NearHeads near = NearHeads::of<Config>(tile, tiles, Tiling::heads(arguments), work.lengths.kv);
    const int round = quotient(near.place, step());
    if (!is_dynamic() && (round & 1) != 0 && (round + 1) * step() <= near.count * tiles) {
      near.place = (2 * round + 1) * step() - 1 - near.place;
    }
    work.rank = near.rank();
    work.head = near.head(work.rank);
  }

  /// Whether tiles are dynamic: where the launch has counters for that.
  ATTNJIT_DEVICE bool is_dynamic() const {
    if constexpr (kDynamic) return arguments.tile_counters != nullptr;
    return false;
  }
  /// NOTE: where tiles are cut, from shared memory: the producer has no register to keep them.
  ATTNJIT_DEVICE DynamicTiles read_dynamic() const {
    if constexpr (kCuts) return DynamicTiles::of(all_tiles(), ctas_at_front(), lane);
    return dynamic;
  }
  /// Whether there are tiles beside those that CTAs begin with.
  ATTNJIT_DEVICE bool takes_any() const { return read_dynamic().tiles() > free_ctas(); }
  ATTNJIT_DEVICE void fetch_next() {
    if constexpr (kDynamic) {
      index = -1;
      if (takes_any()) {
        index = read_dynamic().next(arguments.tile_counters, lane, free_cta(), free_ctas());
      }
    }
  }

  ATTNJIT_DEVICE void begin_dynamic() {
    if constexpr (!kCuts) dynamic = DynamicTiles::of(all_tiles(), ctas_at_front(), lane);
    if (kCuts && free_cta() < 0) {
      fetch_next();
    } else {
      index = read_dynamic().first(free_cta());
    }
  }

  /// Tiles of the sequences at hand.
  ATTNJIT_DEVICE int at_hand() const { return __shfl_sync(kAll, sum, 31); }

  /// Those of a sequence.
  ATTNJIT_DEVICE int tiles_of(int sequence, int longest) const {
    Lengths lengths{this->rows(sequence), 0};
    if constexpr (kCuts || Config::kSplit) lengths.kv = this->keys(sequence, lengths.q);
    if constexpr (kCuts) {
      if (is_cut<Config, Mask, Tiling>(lengths, longest, params)) return 0;
    }
    int tiles = Tiling::tiles(lengths.q, arguments) * Tiling::heads(arguments);
    if constexpr (Config::kSplit && !kCuts) {
      tiles *= parts_of<Config, Mask>(lengths, arguments, params).count();
    }
    return tiles;
  }
  ATTNJIT_DEVICE int ctas_at_front() const {
    if constexpr (kCuts) return cuts.front();
    TileKinds<Tiling> kinds;
#pragma unroll 1
    for (int sequence = lane; sequence < arguments.batch; sequence += 32) {
      kinds.template add<Mask>(sequence, this->lengths(sequence), arguments, params);
    }
    kinds.add_lanes();
    return kinds.ctas_at_front(*this, step());
  }
  ATTNJIT_DEVICE int all_tiles() const {
    if constexpr (kCuts) return cuts.tiles();
    int tiles = 0;
#pragma unroll 1
    for (int sequence = lane; sequence < arguments.batch; sequence += 32) {
      tiles += tiles_of(sequence, 0);
    }
    return __reduce_add_sync(kAll, tiles);
  }
};

}  // namespace attnjit
