// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where sequences differ in kv_len and a launch may deal out ranges of their
// keys: as much to each team of CTAs, wherever that cuts a sequence.
#pragma once

#include "common/sequence_tiles.cuh"

namespace attnjit {

/// What a work tile takes beside its KV tiles, in those: to fill and to empty the ring of K, and to
/// write O. FlashMLA's schedule counts five blocks of as many keys. NOTE: with 2, 4 and 6 launches
/// of batches whose lengths rise evenly took 0.968, 0.966 and 0.974 of the time without
/// (docs/performance-mla.md).
constexpr int kWorkTileUnits = 4;
/// The same of a decode's heads: another CTA of the SM loads meanwhile.
constexpr int kHeadTileUnits = 2;

template <class Config>
constexpr int work_tile_units() {
  return deals_head_ranges<Config>() ? kHeadTileUnits : kWorkTileUnits;
}

/// Sequences of q_len rows each, whose heads share tiles; or of a tile for each of several heads
/// (deals_head_ranges), where a ragged batch may have sequences without rows, which are no work.
/// Work is dealt out in one of two ways:
///
/// - Uniform splits. Each sequence has as many parts, and a CTA takes every gridDim.x-th query tile
///   of a part; or two take half of its keys each (reduces_cluster()). That serves launches of so
///   little work that the device is not asked, and, with one part, sequences about as long as one
///   another.
/// - Ranges. CTAs form teams, of as many as a sequence has query tiles: one each. A team takes a
/// range
///   of units. A unit is a KV tile that some row of a sequence reaches, or a sequence that has
///   none. They come sequence by sequence, and from a sequence's last KV tile to its first.
///   Between two sequences are some that are nobody's (work_tile_units). Ranges are as long as one
///   another; what they cut lies in two slots of each CTA (common/cut_table.cuh).
///
/// Either way the query tiles of a part are with CTAs that follow one another, which walk the same
/// keys side by side, and share them in L2; or keys that lie beside one another, of heads.
template <class Config, class Mask, class Arguments, class Params>
struct SequenceRanges : SequenceLengths<Config, true, Arguments> {
  static_assert(deals_ranges<Config>() && Config::kSplit && Config::kPartitionTiles == 0);
  static_assert(!Config::kRagged || deals_head_ranges<Config>(),
                "sequences have as many query tiles as one another");
  using Base = SequenceLengths<Config, true, Arguments>;
  using Base::arguments;

  static constexpr bool kHeads = deals_head_ranges<Config>();
  static constexpr int kBetween = work_tile_units<Config>();

  const Params& params;

  /// Query tiles of a sequence.
  ATTNJIT_DEVICE int tiles() const {
    if constexpr (kHeads) return SequenceTiling<Config>::heads(arguments);
    return SequenceTiling<Config>::tiles(arguments.q_len, arguments);
  }
  ATTNJIT_DEVICE int teams() const { return quotient(workers<Config>(), tiles()); }
  ATTNJIT_DEVICE int team() const { return quotient(worker<Config>(), tiles()); }

  /// The KV tiles that some row of a sequence reaches.
  ATTNJIT_DEVICE KvTiles reached(int sequence) const {
    const Lengths its = this->lengths(sequence);
    const KvTiles reached = tiles_of_keys<Config::kTileN>(
        reach_of<Config, Mask>(its.first_q_idx(), its.kv - 1, its.kv, params));
    if constexpr (skips_hidden_tiles<Config>()) {
      const TileCoord rows = rows_of<Config>(sequence, 0, 0, its.q - 1, its);
      return seen_tiles<Config::kTileN, Mask>(rows, reached, params);
    } else {
      return reached;
    }
  }
  ATTNJIT_DEVICE static int units_of(KvTiles reached) { return max(reached.count(), 1); }
  /// Of a sequence without rows there are none.
  ATTNJIT_DEVICE int units_of(int sequence) const {
    if constexpr (Config::kRagged) {
      if (this->rows(sequence) == 0) return 0;
    }
    return units_of(reached(sequence));
  }
  /// What the n-th query tile is where each sequence has `parts` uniform splits.
  struct UniformTile {
    int sequence, part, rank;
  };
  ATTNJIT_DEVICE UniformTile uniform_tile(int n, int parts) const {
    const int tiles = this->tiles();
    const int all_parts = quotient(n, tiles);  // before this one
    const int sequence = quotient(all_parts, parts);
    return {sequence, all_parts - sequence * parts, n - all_parts * tiles};
  }
  /// The query tiles of all uniform splits.
  ATTNJIT_DEVICE int uniform_tiles(int parts) const {
    return arguments.batch * parts * this->tiles() * (reduces_cluster<Config>(arguments) ? 2 : 1);
  }
  ATTNJIT_DEVICE WorkTile work_tile(int sequence, int rank) const {
    return tile_of_sequence<Config, Mask>(
        this->tile_of(sequence, kHeads ? rank : 0, kHeads ? 0 : rank), *this, params);
  }
};

/// Finds where a CTA's tile list begins. A converged warp. NOTE: by a warp that has its
/// registers still: the producer's are few, and would spill.
template <class Config, class Mask, class Arguments, class Params>
struct RangeFinder : SequenceRanges<Config, Mask, Arguments, Params> {
  static constexpr u32 kAll = 0xffffffffu;
  using Base = SequenceRanges<Config, Mask, Arguments, Params>;
  using Base::arguments;
  using Base::kBetween;
  using Base::kHeads;

  int lane;

  ATTNJIT_DEVICE SchedulerCursor find() const {
    // Likely: what follows is long, and would stand in the way of those who pass it by.
    if (__builtin_expect(!asks_lengths(arguments), 1)) return uniform();
    int all = 0, longest = 0;
    [[maybe_unused]] int count = 0;  // those that have rows
#pragma unroll 4
    for (int sequence = lane; sequence < arguments.batch; sequence += 32) {
      const int units = this->units_of(sequence);
      if constexpr (Config::kRagged) {
        if (units == 0) continue;
        ++count;
      }
      all += units + kBetween;
      longest = max(longest, units);
    }
    all = __reduce_add_sync(kAll, all) - kBetween;
    longest = __reduce_max_sync(kAll, longest);
    int sequences = arguments.batch;
    if constexpr (Config::kRagged) sequences = __reduce_add_sync(kAll, count);
    const int teams = this->teams();
    if (teams < 2 || (Config::kRagged && sequences == 0)) return uniform();
    const int length = quotient(all - 1, teams) + 1;
    // Whole sequences, or half of each where two CTAs reduce them.
    const int halves = reduces_cluster<Config>(arguments) ? 2 : 1;
    const int rounds = ceil_quotient(sequences * halves * this->tiles(), workers<Config>());
    const int units = ceil_quotient(longest, halves) + kBetween;
    const int most =
        kHeads ? units + (rounds - 1) * quotient(all, sequences * halves) : rounds * units;
    bool even = are_even(most, length);
    if constexpr (kHeads) {
      if constexpr (Config::kCtasPerSm > 1) even = share_memory(most, length);
    }
    return even ? uniform() : begin_of_range(length);
  }

 private:
  ATTNJIT_DEVICE static int ceil_quotient(int a, int b) { return quotient(a + b - 1, b); }
  ATTNJIT_DEVICE SchedulerCursor uniform() const {
    return {{worker<Config>(), 0, arguments.uniform_splits, 0}};
  }

  /// Whether uniform splits, by which a CTA has `even` units, serve as well as ranges of `length`.
  /// A range begins with a piece of another sequence, which takes time to begin and to merge. And
  /// on an H200 ranges that were 3 % shorter took as long (docs/performance-mla.md).
  ATTNJIT_DEVICE static bool are_even(int even, int length) {
    return even <= length + (length >> 4) + kBetween;
  }
  /// are_even() of decodes with two CTAs an SM, which wait for memory: a CTA that ends early leaves
  /// the other its share of that, and a CTA by itself loads 1 / 0.6 times as fast as one of all.
  /// Ranges take 2.5 units more, for the merge and a second work tile. Estimates, from launches on
  /// an H200 (docs/sm90.md).
  ATTNJIT_DEVICE static bool share_memory(int even, int length) {
    return 0.6f * static_cast<float>(even) <= static_cast<float>(length) + 2.5f;
  }

  /// Where the team's range begins: if that is before a sequence, with its first unit.
  ATTNJIT_DEVICE SchedulerCursor begin_of_range(int length) const {
    const int target = this->team() * length;
    SchedulerCursor cursor{{0, arguments.batch, length, length}};
    const auto units_of = [&](int sequence) { return this->units_of(sequence); };
    this->walk_line(kBetween, lane, units_of, [&](int sequence, int begin, int units) {
      const bool within = target >= begin - kBetween && target < begin + units;
      const u32 here = __ballot_sync(kAll, units > 0 && within);
      if (here == 0) return false;
      const int finder = __ffs(static_cast<int>(here)) - 1;
      cursor.words[0] = __shfl_sync(kAll, begin, finder);
      cursor.words[1] = __shfl_sync(kAll, sequence, finder);
      cursor.words[2] = length - max(cursor.words[0] - target, 0);
      return true;
    });
    return cursor;
  }
};

/// Walks a CTA's work, from where RangeFinder says that it begins.
template <class Config, class Mask, class Arguments, class Params>
struct SequenceRangeList : SequenceRanges<Config, Mask, Arguments, Params> {
  using Base = SequenceRanges<Config, Mask, Arguments, Params>;
  using Base::arguments;
  using Base::kBetween;
  using Base::kHeads;

  int begin;     ///< the first unit of the sequence; or, of uniform splits, a query tile of a part
  int sequence;  ///< the next one; nothing where parts are even
  int left;  ///< units of the range, of which the last ranges may have fewer, and a range that ends
             ///< before a sequence's first none; or uniform splits
  int length;  ///< of each range; 0: parts are even

  ATTNJIT_DEVICE SequenceRangeList(const Arguments& launch, const Params& user,
                                   const SchedulerCursor& at)
      : Base{{launch}, user} {
    resume(at);
    if (length == 0) pass_over();
  }

  ATTNJIT_DEVICE bool done() const {
    if (length == 0) return begin >= this->uniform_tiles(left);
    return left <= 0 || sequence >= arguments.batch;
  }
  /// The work; the list then stands at what follows. NOTE: both at once, so that a warp keeps few
  /// words while it loads keys (cursor).
  ATTNJIT_DEVICE WorkTile tile() { return length == 0 ? tile_of_even_part() : tile_of_range(); }
  ATTNJIT_DEVICE void advance() const {}

  ATTNJIT_DEVICE SchedulerCursor cursor() const { return {{begin, sequence, left, length}}; }
  ATTNJIT_DEVICE void resume(const SchedulerCursor& at) {
    begin = at.words[0];
    sequence = at.words[1];
    left = at.words[2];
    length = at.words[3];
  }

 private:
  ATTNJIT_DEVICE WorkTile tile_of_even_part() {
    const int parts = left;
    const bool cluster_reduced = reduces_cluster<Config>(arguments);
    const auto [of, part, rank] = this->uniform_tile(cluster_reduced ? begin >> 1 : begin, parts);
    WorkTile work = this->work_tile(of, rank);
    const KvTiles reached = reached_by(work);
    const int units = this->units_of(reached);
    int each = quotient(units + parts - 1, parts);
    work.partition = parts > 1 ? part : kWhole;
    int cut = part * each;
    if (cluster_reduced) {
      each = max(min(each, units - cut), 0);
      const int half = (each + 1) >> 1;
      work.partition += kClusterReduced;
      cut += (begin & 1) * half;
      each = (begin & 1) == 0 ? half : each - half;
    }
    take(work, reached, cut, each);
    begin += workers<Config>();
    pass_over();
    return work;
  }

  ATTNJIT_DEVICE WorkTile tile_of_range() {
    const int team = this->team();
    WorkTile work = this->work_tile(sequence, worker<Config>() - team * this->tiles());
    const KvTiles reached = reached_by(work);
    const int units = this->units_of(reached);
    const int cut = (team + 1) * length - left - begin;  // units that the ranges before have
    const int taken = min(units - cut, left);
    work.partition = kWhole;
    if (taken < units) {
      take(work, reached, cut, taken);
      const int parts = quotient(begin + units - 1, length) - team + 1;
      work.partition = cut > 0 ? kLaterPart : first_of_parts(parts);
    }
    begin += units + kBetween;
    left -= taken + kBetween;
    go_on();
    return work;
  }

  /// The KV tiles that some row of the sequence reaches whose tile `work` is, uncut. Of heads it
  /// has all the rows.
  ATTNJIT_DEVICE KvTiles reached_by(const WorkTile& work) const {
    if constexpr (kHeads) return {work.tile_begin, work.tile_end};
    return this->reached(work.batch);
  }

  /// Passes over uniform splits of sequences that have no rows.
  ATTNJIT_DEVICE void pass_over() {
    if constexpr (Config::kRagged) {
      const int sequence_units = left * this->tiles();
      while (!done() && this->rows(quotient(begin, sequence_units)) == 0)
        begin += workers<Config>();
    }
  }

  /// To the next sequence; in a ragged batch to the next one that has rows: a converged warp.
  ATTNJIT_DEVICE void go_on() {
    ++sequence;
    if constexpr (Config::kRagged) {
      const int lane = static_cast<int>(threadIdx.x & 31u);
      while (left > 0 && sequence < arguments.batch) {
        const int own = sequence + lane;
        const bool some = own<arguments.batch&& this->rows(own)> 0;
        const u32 found = __ballot_sync(0xffffffffu, some);
        if (found != 0) {
          sequence += __ffs(static_cast<int>(found)) - 1;
          break;
        }
        sequence += 32;
      }
    }
  }

  /// Leaves `work` so many of the KV tiles that its sequence reaches, behind those that are `cut`.
  ATTNJIT_DEVICE static void take(WorkTile& work, KvTiles reached, int cut, int units) {
    work.tile_end = min(work.tile_end, reached.end - cut);
    work.tile_begin = max(work.tile_begin, reached.end - cut - units);
  }
};

/// Whether find_sequence_range() reads how long the sequences are.
template <class Config, class Arguments>
ATTNJIT_DEVICE bool finds_by_lengths(const Arguments& arguments) {
  if constexpr (deals_ranges<Config>()) return asks_lengths(arguments);
  return false;
}

/// Where the launch may deal out ranges over sequences: one warp finds the CTA's, and stashes that
/// for those that load. Before the CTA's threads meet.
template <class Config, class Mask, class Memory, class Arguments, class Params>
ATTNJIT_DEVICE void find_sequence_range(const Memory& smem, const Arguments& arguments,
                                        const Params& params) {
  if constexpr (deals_ranges<Config>()) {
    constexpr int kFinder = 4;  // others make the CTA's barriers, or allocate tensor memory
    if (warp_uniform(static_cast<int>(threadIdx.x >> 5)) != kFinder) return;
    const int lane = static_cast<int>(threadIdx.x & 31u);
    const SchedulerCursor cursor =
        RangeFinder<Config, Mask, Arguments, Params>{{{arguments}, params}, lane}.find();
    if (lane < kRowCopyWarps) stash_cursor(smem.cursor(lane), cursor);
    if (asks_lengths(arguments)) clear_table<Config>(arguments, lane);
  }
}

}  // namespace attnjit
