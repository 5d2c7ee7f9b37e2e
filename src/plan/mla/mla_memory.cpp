// SPDX-License-Identifier: Apache-2.0
// Lays out what the kernels of absorbed MLA and deep heads have in shared memory.
#include "plan/mla/mla_memory.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace attnjit {
namespace {

constexpr int kCopyThreads = 128;  // where threads copy K
constexpr int kCopyWarps = 4;
constexpr std::int64_t kBarrierBytes = 8;

// By MlaRegion: what a range is called, and the Config member that holds where it begins. Those of
// ranges that only some generations have are of these alone; others are 0 where a kernel has none.
struct RegionRow {
  const char* name;
  const char* constant;
  bool always = true;
};
constexpr std::array<RegionRow, 10> kRegions{{{"", "kQOffset"},
                                              {"K {}", "kKvOffset"},
                                              {"V {}", nullptr},
                                              {"P", "kRecordOffset", false},
                                              {"listed keys", "kListedOffset"},
                                              {"lists of work", "kListsOffset"},
                                              {"stash", "kStashOffset", false},
                                              {"", "kWorkOffset"},
                                              {"tmem address", "kTmemAddressOffset", false},
                                              {"barriers", "kBarrierOffset"}}};

}  // namespace

std::vector<MlaBarrierGroup> mla_barrier_groups(const SpecFacts& spec, const MlaTiles& tiles,
                                                const MlaReaders& readers) {
  // One thread publishes what TMA will bring, where threads copy each does.
  constexpr int kProducer = 1;
  const int of_k = !tiles.row_copies ? kProducer : kCopyThreads / (tiles.loads_apart ? 2 : 1);
  const int blocks = mla_blocks(spec);
  const int latent = mla_latent_blocks(spec);
  // Which keys of a tile are listed is said with the block that comes first, by a lane of each warp
  // that copies.
  const int first = latent < blocks ? latent : 0;
  std::vector<BarrierPlan> q_full, k_full, k_empty;
  for (int block = 0; block < blocks; ++block) {
    q_full.push_back({fmt::format("Q block {} full", block), kProducer});
  }
  const int first_of_v = tiles.own_v ? blocks : 0;
  for (int stage = 0; stage < tiles.barrier_stages(); ++stage) {
    for (int block = 0; block < (tiles.own_v ? blocks + latent : blocks); ++block) {
      // Its columns in V; of K that is not V they are none.
      const int of_v = block - first_of_v;
      const bool is_v = of_v >= 0 && of_v < latent;
      // Of an odd number of blocks both halves of O have the one in the middle.
      const bool middle = latent % 2 != 0 && of_v == latent / 2;
      const std::string name = is_v && tiles.own_v ? fmt::format("V {} block {}", stage, of_v)
                                                   : fmt::format("K {} block {}", stage, block);
      const bool listed = spec.topk > 0 && block == first;
      const int of_block = !is_v ? readers.rope : middle ? readers.middle_block : readers.latent;
      // What a warp has upcast it stores, and says so once; the rope's part is copied.
      const int copied = block < tiles.upcast_blocks ? kCopyWarps : of_k;
      k_full.push_back({name + " full", listed ? copied + kCopyWarps : copied});
      k_empty.push_back({name + " empty", listed ? of_block + readers.listed : of_block});
    }
  }
  std::vector<MlaBarrierGroup> groups{
      {"kBarWorkFull", {{"work full", kProducer}}},
      {"kBarWorkEmpty", {{"work empty", readers.work}}},
      {"kBarQFull", std::move(q_full)},
      {"kBarQEmpty", {{"Q empty", readers.q}}},
      {"kBarKvFull", std::move(k_full)},
      {"kBarKvEmpty", std::move(k_empty)},
  };
  if (tiles.kv_lens && !tiles.row_copies) {
    std::vector<BarrierPlan> tails;
    for (int loader = 0; loader < tiles.stage_loaders; ++loader) {
      const std::string of = tiles.stage_loaders > 1 ? fmt::format(" {}", loader) : "";
      tails.push_back({fmt::format("{}{} tail full", tiles.own_v ? "V" : "K", of), kProducer});
    }
    groups.push_back({"kBarTail", std::move(tails)});
  }
  return groups;
}

std::vector<BarrierPlan> mla_barriers(const std::vector<MlaBarrierGroup>& groups) {
  std::vector<BarrierPlan> all;
  for (const MlaBarrierGroup& group : groups) {
    all.insert(all.end(), group.barriers.begin(), group.barriers.end());
  }
  return all;
}

MemoryLayout<MlaRegion> mla_smem(const SpecFacts& spec, const MlaTiles& tiles,
                                 const MlaOwnBytes& own, std::size_t num_barriers) {
  using enum MlaRegion;
  MemoryLayout<MlaRegion> smem;
  smem.add(kQ, mla_tile_bytes(spec));
  for (int i = 0; i < tiles.num_stages; ++i) {
    smem.add(kK, mla_tile_bytes(spec), 1, i);
    smem.add(kV, mla_own_v_bytes(spec), 1, i);
  }
  smem.add(kP, own.p);
  smem.add(kListed, spec.topk > 0 ? std::int64_t{MlaTiles::kListedBytes} * tiles.num_stages : 0);
  smem.add(kLists, tiles.stashes_lists() ? MlaTiles::kListsBytes : 0);
  smem.add(kStash, own.stash);
  smem.add(kWork, MlaTiles::kWorkBytes);
  smem.add(kTmemAddress, own.tmem_address);
  smem.add(kBarriers, kBarrierBytes * static_cast<std::int64_t>(num_barriers));
  return smem;
}

std::vector<MemoryRange> mla_smem_map(const MemoryLayout<MlaRegion>& smem, const MlaTiles& tiles,
                                      const char* q, const char* work) {
  return smem.named([&](const PlacedRegion<MlaRegion>& range) {
    const char* name = kRegions.at(static_cast<std::size_t>(range.region)).name;
    if (range.region == MlaRegion::kQ) name = q;
    if (range.region == MlaRegion::kWork) name = work;
    if (range.region == MlaRegion::kK && !tiles.own_v) name = "K and V {}";
    return fmt::format(fmt::runtime(name), range.stage);
  });
}

void add_mla_regions(const MemoryLayout<MlaRegion>& smem, Constants& constants) {
  for (std::size_t i = 0; i < kRegions.size(); ++i) {
    if (kRegions[i].constant == nullptr) continue;
    const std::int64_t begin =
        smem.begin_of(static_cast<MlaRegion>(i), kRegions[i].always ? 0 : -1);
    if (begin >= 0) constants.add(kRegions[i].constant, begin);
  }
}

void add_mla_barriers(const std::vector<MlaBarrierGroup>& groups, Constants& constants) {
  std::size_t first = 0;
  for (const MlaBarrierGroup& group : groups) {
    constants.add(group.constant, static_cast<std::int64_t>(first));
    first += group.barriers.size();
  }
  constants.add_barriers(mla_barriers(groups));
}

}  // namespace attnjit
