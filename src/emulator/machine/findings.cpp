// SPDX-License-Identifier: Apache-2.0
// Findings: positions, states and the deadlock report in words.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/machine.h"

namespace attnjit::emulator {

std::string Cluster::describe_site(u32 index) const {
  const Program& program = machine.program;
  if (index >= program.sites.size()) return "?";
  const Site& site = program.sites[index];
  std::string text = fmt::format("line {} ({})", site.line, site.text.substr(0, 60));
  if (site.source.line != 0) text += fmt::format(", source line {}", site.source.line);
  return text;
}

std::string Cluster::describe_agent(u32 agent, u32 site) const {
  const u32 per_cta = machine.warps_per_cta;
  if (agent < agents.first()) {
    return ctas.size() > 1
               ? fmt::format("warp {} of CTA {} of the cluster", agent % per_cta, agent / per_cta)
               : fmt::format("warp {}", agent);
  }
  for (const auto& op : pending) {
    // NOTE: an agent is lent again after its operation; the site tells whose access it was.
    if (op->lease.agent == agent && op->site == site)
      return fmt::format("an operation of the {} in flight", op->unit());
  }
  return "an asynchronous operation";
}

std::string Cluster::describe_address(const Cta* cta, u64 offset) const {
  if (cta != nullptr) return fmt::format("shared address 0x{:x} of CTA {}", offset, cta->rank);
  return fmt::format("offset {} of a global buffer", offset);
}

void Cluster::report(FindingKind kind, const Warp* warp, int lane, u32 site_index, std::string text,
                     bool warning) {
  Finding finding = machine.finding_at(kind, site_index, std::move(text));
  finding.warning = warning;
  if (warp != nullptr) {
    finding.cta = warp->cta->id;
    finding.warp = static_cast<int>(warp->index);
  } else if (!ctas.empty()) {
    finding.cta = ctas[0]->id;
  }
  finding.lane = lane;
  machine.add_finding(std::move(finding));
}

void Cluster::report_conflict(const Conflict& c, const Warp* warp, int lane, u32 site, bool write,
                              const Place& place, bool same) {
  const std::string where = describe_address(place.cta, place.offset);
  if (c.proxy_only) {
    report(FindingKind::kProxy, warp, lane, site,
           fmt::format("the async proxy {} {} that {} wrote at {}; they are ordered, but no "
                       "fence.proxy.async lies between",
                       write ? "overwrites" : "reads", where, describe_agent(c.agent, c.site),
                       describe_site(c.site)));
    return;
  }
  if (c.fence_only) {
    report(FindingKind::kRace, warp, lane, site,
           fmt::format("{} is read after {} wrote it at {}, but no "
                       "tcgen05.fence::after_thread_sync follows the synchronisation that orders "
                       "them",
                       where, describe_agent(c.agent, c.site), describe_site(c.site)),
           machine.options.model == EmulatorModel::kSilicon);
    return;
  }
  // NOTE: writes of one value to one place are undefined in PTX, harmless on silicon, and common:
  // warps that store a uniform value (Triton, CUB), a TMA store that all lanes of a warp issue
  // (FlashAttention-4).
  const bool harmless = same && c.earlier_is_write &&
                        (c.proxy == Proxy::kGeneric || c.site == site) &&
                        machine.options.model == EmulatorModel::kSilicon;
  if (c.lanes_only) {
    report(FindingKind::kRace, warp, lane, site,
           fmt::format("{} of {} is not ordered after the {} by other lanes of this warp at {}: no "
                       "bar.warp.sync lies between",
                       write ? "this write" : "this read", where,
                       c.earlier_is_write ? "write" : "read", describe_site(c.site)),
           same && c.earlier_is_write && machine.options.model == EmulatorModel::kSilicon);
    return;
  }
  report(FindingKind::kRace, warp, lane, site,
         fmt::format("{} of {} is not ordered after the {} by {} at {}{}",
                     write ? "this write" : "this read", where,
                     c.earlier_is_write ? "write" : "read", describe_agent(c.agent, c.site),
                     describe_site(c.site), harmless ? "; both wrote the same value" : ""),
         harmless);
}

void Cluster::report_deadlock() {
  // One finding at the first waiter; its text lists all.
  std::string text = "no thread can go on:";
  const Warp* first = nullptr;
  u32 site = 0;
  int lane = -1;
  int listed = 0;
  for (const Warp* warp : warps_) {
    if (warp->live == 0) continue;
    for (const Group& g : warp->groups) {
      if (g.mask == 0) continue;
      const u32 at = g.pc < g.function->ops.size() ? g.function->ops[g.pc].site : 0;
      if (first == nullptr || (g.state == Group::State::kBlocked &&
                               first->groups.front().state != Group::State::kBlocked)) {
        first = warp;
        site = at;
        lane = __builtin_ctz(g.mask);
      }
      if (++listed > 40) continue;
      text +=
          fmt::format("\n  CTA ({},{},{}) warp {} lanes 0x{:08x} at {}: ", warp->cta->id[0],
                      warp->cta->id[1], warp->cta->id[2], warp->index, g.mask, describe_site(at));
      const Wait& w = g.wait;
      if (g.state == Group::State::kReady) {
        text += "spins";
      } else if (g.state == Group::State::kSyncing) {
        text += fmt::format("waits for lanes 0x{:08x} of its warp", g.sync_mask & ~g.mask);
      } else if (g.state == Group::State::kConverging) {
        text += "waits for the other lanes of its warp to reconverge";
      } else {
        switch (w.kind) {
          case Wait::Kind::kMbarrier: {
            text +=
                fmt::format("waits for the mbarrier at 0x{:x} of CTA {}, ", w.address, w.cta->rank);
            text += w.by_parity ? fmt::format("parity {}", w.value & 1)
                                : fmt::format("phase {}", w.value);
            const auto it = w.cta->mbarriers.find(w.address);
            if (it != w.cta->mbarriers.end()) {
              const Mbarrier& b = it->second;
              text += fmt::format(" (in phase {}; {} of {} arrivals pending, {} bytes pending",
                                  b.phase, b.pending, b.expected, b.tx);
              if (!b.arrivers.empty()) {
                text += "; last arrived from";
                for (const u32 s : b.arrivers)
                  text += fmt::format(" line {}", machine.program.sites[s].line);
              } else {
                text += "; nobody has arrived";
              }
              text += ")";
            }
            break;
          }
          case Wait::Kind::kNamedBarrier: {
            const NamedBarrier& b = warp->cta->barriers[w.address];
            text += fmt::format("waits at barrier {}, where {} of {} threads have arrived",
                                w.address, b.arrived, b.expected);
            break;
          }
          case Wait::Kind::kClusterBarrier:
            text += fmt::format("waits at the cluster barrier, where {} of {} threads have arrived",
                                cluster_arrived, live_threads());
            break;
          case Wait::Kind::kTmemAlloc:
            text += "waits for tensor memory";
            break;
          case Wait::Kind::kRegisters:
            text += fmt::format(
                "waits for registers: with this increase the CTA's warps would hold {} of {}",
                w.value2, warp->cta->registers);
            break;
          default:
            text += "waits for its own asynchronous operations";
        }
      }
    }
  }
  if (listed > 40) text += fmt::format("\n  and {} more", listed - 40);
  const bool registers = first != nullptr && first->groups.front().mask != 0 &&
                         first->groups.front().wait.kind == Wait::Kind::kRegisters &&
                         first->groups.front().state == Group::State::kBlocked;
  report(registers ? FindingKind::kSetmaxnreg : FindingKind::kDeadlock, first, lane, site,
         std::move(text));
}

}  // namespace attnjit::emulator
