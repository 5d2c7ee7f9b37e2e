// SPDX-License-Identifier: Apache-2.0
// What the kernels of absorbed MLA and head_dim above 256 have in every generation: memory,
// barriers and constants.
#include "plan/mla/mla_plan.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "plan/kernel/forward_support.h"
#include "plan/kernel/partials.h"
#include "spec/text.h"

namespace attnjit {
namespace {

constexpr int kCopyThreads = 128;  // where threads copy K
constexpr int kCopyWarps = 4;

// Where ranges begin. Those that only some generations have are of these alone; others are 0 where
// a kernel has none.
struct RegionRow {
  Region region;
  const char* constant;
  bool always = true;
};
constexpr RegionRow kRegions[] = {{Region::kQ, "kQOffset"},
                                  {Region::kK, "kKvOffset"},
                                  {Region::kP, "kRecordOffset", false},
                                  {Region::kListed, "kListedOffset"},
                                  {Region::kCursors, "kCursorsOffset"},
                                  {Region::kStash, "kStashOffset", false},
                                  {Region::kWork, "kWorkOffset"},
                                  {Region::kTmemAddress, "kTmemAddressOffset", false},
                                  {Region::kBarriers, "kBarrierOffset"}};

}  // namespace

void add_mla_barriers(const MlaReaders& readers, MlaPlan& plan) {
  const MlaTiles& tiles = plan.tiles;
  const SpecFacts& spec = *tiles.spec;
  BarrierList& barriers = plan.barriers;
  // One thread publishes what TMA will bring, where threads copy each does.
  constexpr int kProducer = 1;
  const int k_arrivals = !tiles.row_copies ? kProducer : kCopyThreads / (tiles.loads_apart ? 2 : 1);
  const int blocks = mla_blocks(spec);
  const int latent = mla_latent_blocks(spec);
  // Which keys of a tile are listed is said with the block that comes first, by a lane of each warp
  // that copies.
  const int first = latent < blocks ? latent : 0;
  const int first_of_v = tiles.separate_v() ? blocks : 0;
  barriers.add_group("kBarWorkFull", "work full", kProducer);
  barriers.add_group("kBarWorkEmpty", "work empty", readers.work);
  barriers.add_group("kBarQFull", "Q block {} full", kProducer, blocks);
  barriers.add_group("kBarQEmpty", "Q empty", readers.q);
  const auto add_tiles = [&](const char* constant, const char* state, const auto& arrivals) {
    barriers.start(constant);
    for (int stage = 0; stage < tiles.barrier_stages(); ++stage) {
      for (int block = 0; block < (tiles.separate_v() ? blocks + latent : blocks); ++block) {
        const int v_block = block - first_of_v;
        const bool separate_v = tiles.separate_v() && v_block >= 0;
        barriers.add(fmt::format("{} {} block {} {}", separate_v ? "V" : "K", stage,
                                 separate_v ? v_block : block, state),
                     arrivals(block, spec.topk > 0 && block == first));
      }
    }
  };
  add_tiles("kBarKvFull", "full", [&](int block, bool listed) {
    // What a warp has upcast it stores, and says so once; the rope's part is copied.
    const int copied = block < tiles.upcast_blocks ? kCopyWarps : k_arrivals;
    return listed ? copied + kCopyWarps : copied;
  });
  add_tiles("kBarKvEmpty", "empty", [&](int block, bool listed) {
    // Its columns in V; of K that is not V they are none.
    const int v_block = block - first_of_v;
    const bool is_v = v_block >= 0 && v_block < latent;
    // Of an odd number of blocks both halves of O have the one in the middle.
    const bool middle = latent % 2 != 0 && v_block == latent / 2;
    const int block_readers = !is_v ? readers.rope : middle ? readers.middle_block : readers.latent;
    return listed ? block_readers + readers.listed : block_readers;
  });
  if (tiles.spec->lengths_differ && !tiles.row_copies) {
    const std::string tail = tiles.separate_v() ? "V" : "K";
    barriers.add_group("kBarTail",
                       tail + (tiles.stage_loaders > 1 ? " {} tail full" : " tail full"), kProducer,
                       tiles.stage_loaders);
  }
}

void lay_out_mla_smem(const MlaOwnMemory& own, MlaPlan& plan) {
  using enum Region;
  const MlaTiles& tiles = plan.tiles;
  const SpecFacts& spec = *tiles.spec;
  MemoryLayout& smem = plan.smem;
  smem.add(kQ, own.q_name, mla_tile_bytes(spec));
  for (int i = 0; i < tiles.num_stages; ++i) {
    smem.add(kK, fmt::format("{} {}", tiles.separate_v() ? "K" : "K and V", i),
             mla_tile_bytes(spec), 1, i);
    smem.add(kV, fmt::format("V {}", i), mla_own_v_bytes(spec), 1, i);
  }
  smem.add(kP, "P", own.p_bytes);
  smem.add(kListed, "listed keys",
           spec.topk > 0 ? std::int64_t{MlaTiles::kListedBytes} * tiles.num_stages : 0);
  smem.add(kCursors, "scheduler cursors", tiles.stashes_cursors() ? MlaTiles::kCursorsBytes : 0);
  smem.add(kStash, "stash", own.stash_bytes);
  smem.add(kWork, own.work_name, MlaTiles::kWorkBytes);
  smem.add(kTmemAddress, "tmem address", own.tmem_address_bytes);
  smem.add(kBarriers, "barriers", plan.barriers.bytes());
}

Constants mla_constants(const ResolvedSpec& resolved, const MlaTiles& tiles, int threads) {
  Constants constants;
  constants.add_spec(resolved);
  add_mla_constants(tiles, constants);
  constants.add("kThreads", threads);
  constants.add("kRescaleThreshold", MlaPlan::kRescaleThreshold);
  return constants;
}

void add_mla_regions(const MemoryLayout& smem, Constants& constants) {
  for (const auto& [region, constant, always] : kRegions) {
    const std::int64_t begin = smem.begin_of(region, always ? 0 : -1);
    if (begin >= 0) constants.add(constant, begin);
  }
}

Status fill_mla_kernel(const MlaPlan& mla, const char* header, int threads, Constants constants,
                       KernelPlan& plan) {
  const MlaTiles& tiles = mla.tiles;
  const std::int64_t most = DeviceShape{}.max_smem_bytes;
  PlannedKernel& kernel = plan.main();
  kernel.smem_bytes = mla.smem.end_of_last();
  if (kernel.smem_bytes > most) {
    // Only a tuning table can ask for this; the choice above is tested to fit.
    return spec::invalid("tuning.num_stages", "{} stages need {} of a CTA's {} bytes of memory",
                         tiles.num_stages, kernel.smem_bytes, most);
  }
  kernel.entry = tiles.separate_v() ? "attnjit_deep_forward" : "attnjit_mla_decode";
  kernel.kernel_header = header;
  kernel.threads = threads;
  kernel.cluster = tiles.cluster;
  kernel.overlaps = true;
  kernel.launch_registers = launch_registers(threads);
  kernel.smem_map = mla.smem.map();
  kernel.barriers = mla.barriers.all();
  constants.add_barriers(mla.barriers);
  constants.add("kSmemBytes", kernel.smem_bytes);
  kernel.constants = std::move(constants).take();
  kernel.parameters = mla_parameters(plan, tiles);
  plan.partials = {.stream_k = tiles.stream_k ? StreamK::kSequences : StreamK::kNone,
                   .cut_rows = tiles.stream_k ? tiles.rows() : 0};
  add_split_deviation(plan);
  return {};
}

}  // namespace attnjit
