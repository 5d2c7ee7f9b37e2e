// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where sequences differ in length: found on the device, by one warp.
#pragma once

#include "common/claims.cuh"
#include "common/cuts.cuh"
#include "common/list_place.cuh"
#include "common/near_heads.cuh"
#include "common/partitions.cuh"

namespace attnjit {

/// Walks a CTA's share of the grid: every gridDim.x-th tile of all the sequences', or, where the
/// launch has words for that (Arguments::claims), those that it claims. Sequences come in their
/// order, of each its heads (or those of packed heads), of a head its tiles from the last rows to
/// the first, and of a tile the parts of its keys; or of each the parts, and of a part the heads:
/// tiles that run together share K and V in L2. A whole warp; 32 sequences at a time.
///
/// Where later rows see more keys, tiles of one rank come together, of as many heads as share L2: a
/// CTA might get the long tiles of each head otherwise. From the longest to the shortest, they are
/// dealt to and fro. NOTE: not where the rows of a sequence are few beside its keys: its tiles are
/// as long as one another, and what they share of L2 counts.
///
/// In a ragged batch the second half of the CTAs begin with the last of their tiles. Prompts, which
/// compute, and decodes, which load, stand together in a batch, and so they run together. Where
/// tiles are claimed, as many CTAs begin at an end as let both end together: long tiles that come
/// last are what a launch's other CTAs wait for.
///
/// Tiling: how an architecture cuts the rows of a sequence into tiles. It has
///   kKvLens             whether sequences differ in kv_len
///   kPairTiles          whether later rows see more keys
///   kPartsOutside       whether a part's tiles follow one another, and not a tile's parts
///   kFindsLate          whether who walks the list calls find_late() before each done(): then one
///                       place counts tiles, for compile time. NOTE: not sm_90a's producer, which
///                       has no registers for that.
///   heads(arguments)    heads, or groups of heads that share tiles
///   tiles(q_len, arguments)    of a head
///   few_rows(q_len)     where tiles are claimed: whether a tile waits for K and V
template <class Config, class Mask, class Tiling, class Arguments, class Params>
struct SequenceList : SequenceLengths<Config, Tiling::kKvLens, Arguments> {
  static constexpr u32 kAll = 0xffffffffu;
  using Base = SequenceLengths<Config, Tiling::kKvLens, Arguments>;
  using Base::arguments;

  static constexpr bool kClaims = claims_tiles<Arguments>();
  static_assert(!kClaims || Config::kCluster == 1, "a CTA claims for itself alone");
  /// Whether some sequences' tiles may be cut, which are then none of the list.
  static constexpr bool kCuts = cuts_tiles<Config>();
  static_assert(!kCuts || (kClaims && !Tiling::kFindsLate));

  const Params& params;
  int lane;
  int first = 0;  ///< of the sequences at hand, a lane each
  int begin = 0;  ///< tiles of those before; before find_late() has found the last one, ~ of it
  int sum = 0;    ///< tiles of the sequences at hand up to the lane's
  int index;      ///< of the tile that the list is at; negative: of none
  Claims claims = {};  ///< where kClaims
  CutWords cuts = {};  ///< where kCuts
  // NOTE: unsigned, as the grid is: half of a signed number takes more instructions.
  bool backward =
      Config::kRagged && blockIdx.x / Config::kCluster >= gridDim.x / Config::kCluster / 2;

  ATTNJIT_DEVICE SequenceList(const Arguments& launch, const Params& user, int lane_of_warp)
      : Base{launch}, params(user), lane(lane_of_warp), index(worker<Config>()) {
    if constexpr (Tiling::kFindsLate) {
      static_assert(!kClaims);
      if (backward) begin = ~begin;
      return;
    }
    begin_walk();
  }
  /// Without a first tile: begin_walk() finds it.
  ATTNJIT_DEVICE SequenceList(const Arguments& launch, const Params& user, int lane_of_warp,
                              CutWords words)
      : Base{launch}, params(user), lane(lane_of_warp), index(-1), cuts(words) {}

  ATTNJIT_DEVICE void begin_walk() {
    count_tiles();
    if (claiming()) {
      if constexpr (kClaims) begin_claims();
    } else if (backward) {
      while (first + 32 < arguments.batch) next();
      go_to_last();
    }
    find();
  }

  ATTNJIT_DEVICE ListPlace place() const { return {{first, begin, index, 0}}; }
  ATTNJIT_DEVICE void resume(const ListPlace& at) {
    first = at.words[0];
    begin = at.words[1];
    index = at.words[2];
    count_tiles();
  }

  ATTNJIT_DEVICE bool done() const { return first >= arguments.batch || index < 0; }
  ATTNJIT_DEVICE void advance() {
    if (claiming()) {
      claim();
    } else {
      index += backward ? -step() : step();
    }
    if constexpr (!Tiling::kFindsLate) find();
  }
  /// Goes to the sequences among which the tile is; at first to the CTA's last tile, where it
  /// begins there.
  ATTNJIT_DEVICE void find_late() {
    bool came_back = false;
#pragma unroll 1
    while (!done()) {
      count_tiles();
      if (came_back) begin -= at_hand();
      if (begin < 0 && first + 32 >= arguments.batch) {
        begin = ~begin;
        go_to_last();
      }
      came_back = begin >= 0 && index < begin;
      if (came_back) {
        first -= 32;
      } else {
        if (begin >= 0 && index - begin < at_hand()) return;
        begin += begin < 0 ? -at_hand() : at_hand();
        first += 32;
      }
    }
  }
  /// After the last tile.
  ATTNJIT_DEVICE void end() const {
    if constexpr (kClaims) {
      if (claiming()) Claims::end(arguments.claims, lane, step());
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
      const int of_part = Tiling::tiles(work.lengths.q, arguments) * Tiling::heads(arguments);
      const int inner = Tiling::kPartsOutside ? of_part : parts.count();
      const int outer_place = quotient(tile, inner);
      const int inner_place = tile - outer_place * inner;
      tile = Tiling::kPartsOutside ? inner_place : outer_place;
      work.partition = parts.begin + (Tiling::kPartsOutside ? outer_place : inner_place);
    }
    const int tiles = Tiling::tiles(work.lengths.q, arguments);
    bool by_rank = false;
    if constexpr (Tiling::kPairTiles) by_rank = work.lengths.kv < kFewRows * work.lengths.q;
    if (by_rank) {
      if constexpr (Tiling::kPairTiles) place_by_rank(work, tile, tiles);
    } else {
      work.head = quotient(tile, tiles);
      work.rank = tile - work.head * tiles;
    }
    return work;
  }

 private:
  ATTNJIT_DEVICE static int step() { return workers<Config>(); }

  /// The CTAs that claim from the list's begin on: those without runs of cut tiles. And which of
  /// them this one is; negative: it has a run before.
  ATTNJIT_DEVICE int claimants() const {
    if constexpr (kCuts) return step() - cuts.runs();
    return step();
  }
  ATTNJIT_DEVICE int claimant() const {
    if constexpr (kCuts) return worker<Config>() - cuts.runs();
    return worker<Config>();
  }
  /// The rows of a sequence, and its keys where it has any, that are the list's.
  ATTNJIT_DEVICE Lengths listed(int sequence, int longest) const {
    const int rows = this->rows(sequence);
    Lengths lengths{rows, rows > 0 ? this->keys(sequence, rows) : 0};
    if constexpr (kCuts) {
      if (is_cut<Config, Mask, Tiling>(lengths, longest, params)) lengths.q = 0;
    }
    return lengths;
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
    if (!claiming() && (round & 1) != 0 && (round + 1) * step() <= near.count * tiles) {
      near.place = (2 * round + 1) * step() - 1 - near.place;
    }
    work.rank = near.rank();
    work.head = near.head(work.rank);
  }

  /// Whether tiles are claimed: where the launch has words for that.
  ATTNJIT_DEVICE bool claiming() const {
    if constexpr (kClaims) return arguments.claims != nullptr;
    return false;
  }
  ATTNJIT_DEVICE void claim() {
    if constexpr (kClaims) {
      index = claims.next(arguments.claims, lane, claimant(), claimants());
    }
  }

  /// Ends of the list are told apart by their first sequences that have rows. If one has few rows
  /// and the other has not, CTAs begin at both; otherwise all begin at the end whose tiles are
  /// longer.
  ATTNJIT_DEVICE void begin_claims() {
    const int longest = this->longest(), ctas = claimants();
    const int longer = ctas_of_longer();  // negative: those of the sequences with few rows
    int front_time = -1, back_time = 0;   // of a tile, in keys
    bool front_few = false, back_few = false;
    while (true) {
      const int sequence = first + lane;
      const Lengths own = sequence < arguments.batch ? listed(sequence, longest) : Lengths{0, 0};
      const int rows = own.q, time = rows > 0 ? own.kv : 0;
      const bool few = Tiling::few_rows(rows);
      const u32 some = __ballot_sync(kAll, rows > 0);
      const u32 few_some = __ballot_sync(kAll, rows > 0 && few);
      if (some != 0) {
        const int foremost = __ffs(static_cast<int>(some)) - 1, last = 31 - __clz(some);
        if (front_time < 0) {
          front_time = __shfl_sync(kAll, time, foremost);
          front_few = (few_some >> foremost & 1) != 0;
        }
        back_time = __shfl_sync(kAll, time, last);
        back_few = (few_some >> last & 1) != 0;
      }
      if (first + 32 >= arguments.batch) break;
      next();
    }
    int back = back_time > front_time ? ctas : 0;
    if (front_few != back_few) back = (longer < 0) == back_few ? abs(longer) : ctas - abs(longer);
    claims = Claims::of(begin + at_hand(), ctas - back, lane);
    const int own = claimant();
    if (kCuts && own < 0) {
      claim();
    } else {
      index = claims.first(own);
    }
    if (own >= claims.front()) return;
    first = 0;
    begin = 0;
    count_tiles();
  }

  /// TileKinds::ctas_of_longer() of the list's tiles.
  ATTNJIT_DEVICE int ctas_of_longer() const {
    if constexpr (kCuts) return cuts.longer();
    TileKinds<Tiling> kinds;
#pragma unroll 1
    for (int sequence = lane; sequence < arguments.batch; sequence += 32) {
      const int rows = this->rows(sequence);
      if (rows == 0) continue;
      kinds.template add<Mask>({rows, this->keys(sequence, rows)}, arguments, params);
    }
    kinds.add_lanes();
    return kinds.ctas_of_longer(Tiling::heads(arguments), step());
  }

  /// Tiles of the sequences at hand.
  ATTNJIT_DEVICE int at_hand() const { return __shfl_sync(kAll, sum, 31); }

  ATTNJIT_DEVICE void count_tiles() {
    const int sequence = first + lane;
    [[maybe_unused]] const int longest = this->longest();
    sum = 0;
    if (sequence < arguments.batch) {
      int rows = 0;
      if constexpr (kCuts) {
        rows = listed(sequence, longest).q;
      } else {
        rows = this->rows(sequence);
      }
      sum = Tiling::tiles(rows, arguments) * Tiling::heads(arguments);
      if constexpr (Config::kSplit && !kCuts) {
        sum *=
            parts_of<Config, Mask>({rows, this->keys(sequence, rows)}, arguments, params).count();
      }
    }
    sum = warp_sum_through(sum, lane);
  }

  /// To the CTA's last tile, of which no sequences are behind those at hand.
  ATTNJIT_DEVICE void go_to_last() {
    const int left = begin + at_hand() - 1 - index;
    if (left > 0) index += quotient(left, step()) * step();
  }

  /// Goes on to the next sequences.
  ATTNJIT_DEVICE void next() {
    begin += at_hand();
    first += 32;
    count_tiles();
  }

  /// Goes to the sequences among which the tile is.
  ATTNJIT_DEVICE void find() {
    while (!done()) {
      if (index < begin) {
        first -= 32;
        count_tiles();
        begin -= at_hand();
      } else if (index - begin >= at_hand()) {
        next();
      } else {
        return;
      }
    }
  }
};

}  // namespace attnjit
