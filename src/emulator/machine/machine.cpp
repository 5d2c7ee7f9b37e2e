// SPDX-License-Identifier: Apache-2.0
// Sets a launch up and runs its grid: clusters in parallel on the host's cores, or, where CTAs may
// talk through global memory, all together on one thread so that a seed means one run.
#include "emulator/machine/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>

#include "emulator/decode/instruction_table.h"
#include "emulator/model/tensor_map.h"

namespace attnjit::emulator {
namespace {

/// CTAs that are resident at once where they may wait for each other: an sm_100's SMs.
constexpr u64 kResident = 148;
/// Shared memory is allocated in units of so many bytes (PTX ISA 10.30).
constexpr u32 kSharedUnit = 128;

}  // namespace

Machine::Machine(const Program& p, const LaunchRecipe& r, const EmulatorOptions& o, u64 s)
    : program(p),
      recipe(r),
      options(o),
      checks(o.checks),
      seed(s),
      step_share(1 + std::min<u64>(o.max_steps >> 16, 1023)),
      steps_left_(o.max_steps) {
  threads_per_cta = recipe.block[0] * recipe.block[1] * recipe.block[2];
  warps_per_cta = (threads_per_cta + 31) / 32;
  cluster_shape = recipe.cluster;
  for (int i = 0; i < 3; ++i) cluster_grid_[i] = recipe.grid[i] / cluster_shape[i];
  grid_clusters_ = static_cast<u64>(cluster_grid_[0]) * cluster_grid_[1] * cluster_grid_[2];
  const_data = program.const_image;
}

std::array<u32, 3> Machine::cluster_origin(u64 index) const {
  const auto x = static_cast<u32>(index % cluster_grid_[0]);
  const auto y = static_cast<u32>(index / cluster_grid_[0] % cluster_grid_[1]);
  const auto z = static_cast<u32>(index / cluster_grid_[0] / cluster_grid_[1]);
  return {x * cluster_shape[0], y * cluster_shape[1], z * cluster_shape[2]};
}

void Machine::add_finding(Finding finding) {
  const std::lock_guard lock(mutex_);
  for (Finding& other : findings) {
    if (other.kind == finding.kind && other.ptx_line == finding.ptx_line &&
        other.warning == finding.warning) {
      ++other.count;
      return;
    }
  }
  // Warnings neither stop a run nor crowd its findings out.
  u32& told = finding.warning ? warnings_told_ : findings_told_;
  if (told >= options.max_findings) return;
  ++told;
  if (!finding.warning && told >= options.max_findings) stop = true;
  findings.push_back(std::move(finding));
}

const Finding* Machine::failure() const {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return !finding.warning; });
  return found == findings.end() ? nullptr : &*found;
}

void Machine::out_of_memory() {
  Finding finding;
  finding.kind = FindingKind::kSteps;
  finding.seed = seed;
  finding.text = "the host has not enough memory for this launch";
  add_finding(std::move(finding));
  stop = true;
}

Finding Machine::finding_at(FindingKind kind, u32 index, std::string text) const {
  Finding finding;
  finding.kind = kind;
  finding.seed = seed;
  if (index >= program.sites.size()) {
    finding.text = std::move(text);
    return finding;
  }
  const Site& site = program.sites[index];
  finding.ptx_line = site.line;
  finding.source_line = static_cast<int>(site.source.line);
  const auto& files = program.module->files;
  if (site.source.file < files.size()) finding.source_file = files[site.source.file];
  finding.text = fmt::format("{}: {}", site.text.substr(0, 80), text);
  return finding;
}

void Machine::check_clusters() {
  for (const ClusterRaces::Race& race : cluster_races_.find()) {
    add_finding(finding_at(
        FindingKind::kRace, race.later.site,
        fmt::format("this {} of offset {} of a global buffer, in cluster {}, is not ordered with "
                    "the {} in cluster {} at line {}: nothing orders clusters",
                    race.later.written ? "write" : "read", race.offset, race.later.cluster,
                    race.earlier.written ? "write" : "read", race.earlier.cluster,
                    program.sites[race.earlier.site].line)));
  }
}

void Machine::merge(Cluster& cluster, u64 index) {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < cluster.uses.size(); ++i) {
      buffers[i].uses.read |= cluster.uses[i].read;
      buffers[i].uses.written |= cluster.uses[i].written;
    }
  }
  // NOTE: clusters that communicate may order their accesses, which is not followed.
  if (checks && !program.communicates) {
    for (u32 buffer = 0; buffer < cluster.global_shadows.size(); ++buffer) {
      const AccessShadow& shadow = cluster.global_shadows[buffer];
      std::vector<ClusterRaces::Access> accesses;
      cluster.histories.for_each_touched(shadow, [&](const Histories::Touched& t) {
        ClusterRaces::append(accesses, {t.begin, t.end, index, t.site, t.written, t.atomic});
      });
      const std::lock_guard lock(mutex_);
      cluster_races_.add(buffer, std::move(accesses));
    }
  }
  if (cluster.steps > cluster.steps_taken()) {
    take_steps(cluster.steps - cluster.steps_taken());
  } else {
    steps_left_ += cluster.steps_taken() - cluster.steps;
  }
  total_steps += cluster.steps;
  total_thread_steps += cluster.thread_steps;
  if (cluster.trace.on) {
    const std::lock_guard lock(mutex_);
    trace.insert(trace.end(), cluster.trace.events.begin(), cluster.trace.events.end());
  }
  if (!options.stats) return;
  const std::lock_guard lock(mutex_);
  const auto& rows = InstructionTable::instance().rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (cluster.op_counts[i] == 0) continue;
    const std::string name = std::string(rows[i].root) + std::string(rows[i].selector);
    stats.warp_instructions[name] += cluster.op_counts[i];
    stats.thread_instructions[name] += cluster.op_threads[i];
  }
  for (const auto& [name, bytes] : cluster.stats.unit_bytes) stats.unit_bytes[name] += bytes;
  for (const auto& [name, waited] : cluster.stats.barrier_wait_steps)
    stats.barrier_wait_steps[name] += waited;
  stats.mma_operations += cluster.stats.mma_operations;
  stats.bank_conflicts += cluster.stats.bank_conflicts;
  stats.warp_steps.resize(warps_per_cta);
  for (const auto& cta : cluster.ctas) {
    for (const Warp& warp : cta->warps) stats.warp_steps[warp.index] += warp.steps;
  }
}

u64 Machine::take_steps(u64 wanted) {
  u64 left = steps_left_.load();
  u64 taken = 0;
  do {
    taken = std::min(left, wanted);
  } while (!steps_left_.compare_exchange_weak(left, left - taken));
  return taken;
}

bool Machine::take_cluster(std::array<u32, 3>* first_cta) {
  if (next_cluster_ >= grid_clusters_) return false;
  *first_cta = cluster_origin(next_cluster_);
  next_cluster_ += cluster_stride_;
  return true;
}

void Machine::run() {
  if (grid_clusters_ == 0) return;
  if (program.communicates) {
    try {
      run_together();
    } catch (const std::bad_alloc&) {
      out_of_memory();
    }
  } else {
    run_parallel();
    check_clusters();
  }
}

void Machine::run_parallel() {
  std::atomic<u64> next{0};
  const auto work = [&] {
    try {
      for (;;) {
        const u64 index = next.fetch_add(1);
        if (index >= grid_clusters_ || stop) return;
        Cluster cluster(*this, cluster_origin(index), seed * 0x9E3779B97F4A7C15ull + index);
        while (!cluster.run(~u64{0} >> 1)) {
        }
        merge(cluster, index);
        if (cluster.failed) stop = true;
      }
    } catch (const std::bad_alloc&) {
      out_of_memory();
    }
  };
  unsigned threads =
      options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  threads = static_cast<unsigned>(std::min<u64>(threads, grid_clusters_));
  std::vector<std::thread> pool;
  try {
    for (unsigned i = 1; i < threads; ++i) pool.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads do the same.
  }
  work();
  for (std::thread& t : pool) t.join();
}

void Machine::run_together() {
  Random random(seed ^ 0x5DEECE66Dull);
  std::vector<std::unique_ptr<Cluster>> resident;
  u64& next = next_cluster_;
  // Fewer than fit, where a kernel may steal the others' work.
  const u64 limit = program.steals
                        ? 1 + random.below(static_cast<u32>(std::min(kResident, grid_clusters_)))
                        : kResident;
  while (!stop) {
    while (resident.size() < limit && next < grid_clusters_) {
      resident.push_back(std::make_unique<Cluster>(*this, cluster_origin(next),
                                                   seed * 0x9E3779B97F4A7C15ull + next));
      ++next;
    }
    if (resident.empty()) return;
    const auto i = static_cast<std::size_t>(random.below(static_cast<u32>(resident.size())));
    Cluster& cluster = *resident[i];
    u64 others = 0;
    for (const auto& other : resident) others += other->progress;
    others += next << 32;
    if (others != cluster.seen_progress_) cluster.polls = 0;
    const bool finished = cluster.run(1 + random.below(4000));
    u64 now = next << 32;
    for (const auto& other : resident) now += other->progress;
    cluster.seen_progress_ = now;
    if (!finished) continue;
    if (cluster.failed) stop = true;
    merge(cluster, 0);
    resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (const auto& cluster : resident) merge(*cluster, 0);
}

// ---------------------------------------------------------------------------------------------

Cluster::Cluster(Machine& m, std::array<u32, 3> first, u64 cluster_seed)
    : machine(m),
      random(cluster_seed),
      grid_before(m.warps_per_cta * m.cluster_shape[0] * m.cluster_shape[1] * m.cluster_shape[2]),
      agents(grid_before + 1) {
  policy_ = machine.options.policy.value_or(static_cast<Policy>(machine.seed % 4));
  if (machine.checks) {
    global_shadows.resize(machine.buffers.size());
    uses.resize(machine.buffers.size());
  }
  constexpr std::array<u32, 4> kQuanta = {64, 8, 256, 2};
  quantum_ = kQuanta[(machine.seed / 4) % 4];
  trace.on = !machine.options.trace_file.empty();
  const auto& shape = machine.cluster_shape;
  const u32 size = shape[0] * shape[1] * shape[2];
  const Program& program = machine.program;
  const FunctionCode& entry = program.functions[0];
  u64 end = program.static_smem_end;
  if (program.uses_dynamic_smem || machine.recipe.dynamic_smem != 0) {
    end = (end + program.dynamic_smem_align - 1) / program.dynamic_smem_align *
              program.dynamic_smem_align +
          machine.recipe.dynamic_smem;
  }
  if (machine.options.stats) {
    op_counts.assign(InstructionTable::instance().rows().size(), 0);
    op_threads = op_counts;
  }
  for (u32 rank = 0; rank < size; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->cluster = this;
    cta->rank = rank;
    cta->id = {first[0] + rank % shape[0], first[1] + rank / shape[0] % shape[1],
               first[2] + rank / shape[0] / shape[1]};
    cta->shared_end = static_cast<u32>(end);
    cta->shared.assign(end + 16, 0xAB);
    if (machine.checks) {
      cta->shared_poison.assign(end + 16, 1);
      cta->shadow.resize(end + 16);
    }
    cta->live_threads = machine.threads_per_cta;
    cta->warps.resize(machine.warps_per_cta);
    ctas.push_back(std::move(cta));
  }
  for (auto& cta : ctas) {
    for (u32 w = 0; w < machine.warps_per_cta; ++w) {
      Warp& warp = cta->warps[w];
      warp.cta = cta.get();
      warp.cluster = this;
      warp.machine = &machine;
      warp.index = w;
      warp.agent = cta->rank * machine.warps_per_cta + w;
      const u32 threads = std::min<u32>(32, machine.threads_per_cta - w * 32);
      warp.live = threads == 32 ? ~u32{0} : (u32{1} << threads) - 1;
      // The compiler's count at entry is not in the PTX: as many as the block allows.
      warp.allotment.registers =
          program.maxnreg != 0 ? program.maxnreg
                               : std::min<u32>(255, 65536 / (machine.warps_per_cta * 32) / 8 * 8);
      cta->registers += (warp.allotment.registers + 7) / 8 * 8 * 32;  // allocated in eights
      warp.local.lane_bytes = (program.local_stack + 15) & ~15u;
      // NOTE: groups must not move while an operation adds one: a warp has at most 32, and as many
      // that just became empty.
      warp.groups.reserve(80);
      Group group;
      group.mask = warp.live;
      group.function = &entry;
      warp.groups.push_back(group);
      warp.group = &warp.groups.front();
      warp.enter_frame(entry, 0, 0, ~u32{0});
      warps_.push_back(&warp);
    }
  }
  favourite_ = random.below(static_cast<u32>(warps_.size()));
}

u32 Cluster::linear_index(const Cta& cta) const {
  const auto& grid = machine.recipe.grid;
  return cta.id[0] + grid[0] * (cta.id[1] + grid[1] * cta.id[2]);
}

void Warp::enter_frame(const FunctionCode& code, u32 row_base, u32 predicate_base, u32 mask) {
  if (registers.rows.size() < row_base + code.rows) {
    registers.rows.resize(row_base + code.rows);
    registers.poison.resize(registers.rows.size());
    registers.poison_site.resize(registers.rows.size());
    registers.in_flight.resize(registers.rows.size());
    registers.written_at.resize(registers.rows.size());
  }
  if (registers.predicates.size() < predicate_base + code.predicates) {
    registers.predicates.resize(predicate_base + code.predicates);
    registers.predicate_poison.resize(registers.predicates.size());
  }
  if (machine->checks) {
    for (u32 i = 0; i < code.rows; ++i) registers.poison[row_base + i] |= mask;
    for (u32 i = 1; i < code.predicates; ++i)
      registers.predicate_poison[predicate_base + i] |= mask;
  }
  registers.predicates[predicate_base] &= ~mask;
  registers.predicate_poison[predicate_base] &= ~mask;
  const auto& block = machine->recipe.block;
  const auto& grid = machine->recipe.grid;
  const auto& shape = machine->cluster_shape;
  const u32 cluster_size = shape[0] * shape[1] * shape[2];
  for (const FunctionCode::SpecialRow& s : code.specials) {
    const auto value = [&](u32 lane) -> u64 {
      const u32 thread = index * 32 + lane;
      const u32 smem = cta->shared_end - kSharedBegin;
      switch (s.special) {
        case SpecialRegister::kTidX:
          return thread % block[0];
        case SpecialRegister::kTidY:
          return thread / block[0] % block[1];
        case SpecialRegister::kTidZ:
          return thread / block[0] / block[1];
        case SpecialRegister::kNtidX:
          return block[0];
        case SpecialRegister::kNtidY:
          return block[1];
        case SpecialRegister::kNtidZ:
          return block[2];
        case SpecialRegister::kCtaidX:
          return cta->id[0];
        case SpecialRegister::kCtaidY:
          return cta->id[1];
        case SpecialRegister::kCtaidZ:
          return cta->id[2];
        case SpecialRegister::kNctaidX:
          return grid[0];
        case SpecialRegister::kNctaidY:
          return grid[1];
        case SpecialRegister::kNctaidZ:
          return grid[2];
        case SpecialRegister::kLaneid:
          return lane;
        case SpecialRegister::kWarpid:
          return index;
        case SpecialRegister::kNwarpid:
          return 64;
        case SpecialRegister::kSmid:
          return (cta->id[0] + static_cast<u64>(grid[0]) *
                                   (cta->id[1] + static_cast<u64>(grid[1]) * cta->id[2])) %
                 148;
        case SpecialRegister::kNsmid:
          return 148;
        case SpecialRegister::kGridid:
          return 1;
        case SpecialRegister::kClusteridX:
          return cta->id[0] / shape[0];
        case SpecialRegister::kClusteridY:
          return cta->id[1] / shape[1];
        case SpecialRegister::kClusteridZ:
          return cta->id[2] / shape[2];
        case SpecialRegister::kNclusteridX:
          return grid[0] / shape[0];
        case SpecialRegister::kNclusteridY:
          return grid[1] / shape[1];
        case SpecialRegister::kNclusteridZ:
          return grid[2] / shape[2];
        case SpecialRegister::kClusterCtaidX:
          return cta->id[0] % shape[0];
        case SpecialRegister::kClusterCtaidY:
          return cta->id[1] % shape[1];
        case SpecialRegister::kClusterCtaidZ:
          return cta->id[2] % shape[2];
        case SpecialRegister::kClusterNctaidX:
          return shape[0];
        case SpecialRegister::kClusterNctaidY:
          return shape[1];
        case SpecialRegister::kClusterNctaidZ:
          return shape[2];
        case SpecialRegister::kClusterCtarank:
          return cta->rank;
        case SpecialRegister::kClusterNctarank:
          return cluster_size;
        case SpecialRegister::kIsExplicitCluster:
          return cluster_size > 1 ? 1 : 0;
        case SpecialRegister::kLanemaskEq:
          return u64{1} << lane;
        case SpecialRegister::kLanemaskLe:
          return (u64{2} << lane) - 1;
        case SpecialRegister::kLanemaskLt:
          return (u64{1} << lane) - 1;
        case SpecialRegister::kLanemaskGe:
          return 0xFFFFFFFFull & ~((u64{1} << lane) - 1);
        case SpecialRegister::kLanemaskGt:
          return 0xFFFFFFFFull & ~((u64{2} << lane) - 1);
        case SpecialRegister::kTotalSmemSize:
          return (smem + kSharedUnit - 1) / kSharedUnit * kSharedUnit;
        case SpecialRegister::kAggrSmemSize:
          return (smem + kSharedUnit - 1) / kSharedUnit * kSharedUnit + kSharedBegin;
        case SpecialRegister::kDynamicSmemSize:
          return machine->recipe.dynamic_smem;
        case SpecialRegister::kReservedSmemOffsetEnd:
        case SpecialRegister::kReservedSmemOffsetCap:
          return kSharedBegin;
        default:
          return 0;
      }
    };
    if (is_predicate(s.row)) {
      u32& p = registers.predicates[predicate_base + index_of(s.row)];
      p = (p & ~mask) | (value(0) != 0 ? mask : 0);
      registers.predicate_poison[predicate_base + index_of(s.row)] &= ~mask;
      continue;
    }
    registers.poison[row_base + index_of(s.row)] &= ~mask;
    Row* r = registers.rows.data() + row_base + index_of(s.row);
    const bool wide = bits_of(s.special) == 64;
    for (const u32 lane : lanes_of(mask)) {
      const u64 v = value(lane);
      if (wide) {
        std::memcpy(reinterpret_cast<u8*>(r) + lane * 8, &v, 8);
      } else {
        r->lane[lane] = static_cast<u32>(v);
      }
    }
  }
}

}  // namespace attnjit::emulator
