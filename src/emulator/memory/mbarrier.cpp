// SPDX-License-Identifier: Apache-2.0
// The mbarrier object: its counts, its phases and what its waiters learn.
//
// Source: PTX ISA 9.1, section 9.7.13.15.
#include <fmt/format.h>

#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

constexpr s64 kMaxTx = (1 << 20) - 1;

}  // namespace

Mbarrier* Cluster::mbarrier(Warp* warp, u32 site, SharedAddress address, const char* what) {
  Cta* cta = cta_of(address);
  if (cta == nullptr) {
    report(FindingKind::kSpace, warp, -1, site,
           fmt::format("{} at 0x{:x}, which names CTA {} of a cluster of {}", what, address.bits(),
                       address.rank(), ctas.size()));
    return nullptr;
  }
  const u32 offset = address.offset();
  if (offset % 8 != 0) {
    report(FindingKind::kAlign, warp, -1, site,
           fmt::format("{} at 0x{:x}: an mbarrier is aligned to 8 bytes", what, offset));
    return nullptr;
  }
  if (offset < kSharedBegin || offset + 8 > cta->shared_end) {
    report(FindingKind::kBounds, warp, -1, site,
           fmt::format("{} at shared address 0x{:x}; the CTA's shared memory is 0x{:x} to 0x{:x}",
                       what, offset, kSharedBegin, cta->shared_end));
    return nullptr;
  }
  const auto it = cta->mbarriers.find(offset);
  if (it == cta->mbarriers.end() || !it->second.valid) {
    report(FindingKind::kBarrier, warp, -1, site,
           fmt::format(
               "{} at 0x{:x} of CTA {}, where there is no mbarrier{}", what, offset, cta->rank,
               it == cta->mbarriers.end() ? ": it was never initialised" : ": it was invalidated"));
    return nullptr;
  }
  if (cta->live_threads == 0) {
    // NOTE: a commit may outlive its own CTA on silicon where nobody waits for it (CUTLASS's
    // kernels of one CTA do not drain their pipelines).
    const bool own = running != nullptr && running->issuer->cta == cta;
    report(FindingKind::kBounds, warp, -1, site,
           fmt::format("{} at 0x{:x} of CTA {}, which has exited", what, offset, cta->rank),
           own && machine.options.model == EmulatorModel::kSilicon);
    return nullptr;
  }
  if (machine.checks) check_init(it->second, *cta, offset, warp, site);
  return &it->second;
}

void Cluster::check_init(Mbarrier& b, Cta& cta, u32 offset, const Warp* warp, u32 site) {
  if (running != nullptr) {
    cta.visit(running->lease.agent, running->lease.write_epoch, ~u32{0}, site,
              running->issuer->cta != &cta);
    // An asynchronous operation's use: a strong access like any other.
    Accessor accessor = running->writer();
    accessor.atomic = true;
    Conflict conflict;
    Place place;
    place.cta = &cta;
    place.offset = offset;
    if (histories.access(cta.shadow, offset, 8, true, accessor, &conflict) &&
        !conflict.proxy_only && !conflict.fence_only && !b.told) {
      b.told = true;
      report_conflict(conflict, warp, -1, site, true, place);
    }
  }
  if (b.ordered || b.told) return;
  const View& view = running != nullptr ? running->view : warp->clocks.view;
  const bool own = running == nullptr && warp->agent == b.init_agent;
  if (!own && !view.knows(b.init_agent, b.init_epoch, b.init_lanes)) {
    b.told = true;
    report(FindingKind::kRace, warp, -1, site,
           fmt::format(
               "the mbarrier at 0x{:x} of CTA {} is used by {}, but its init is not ordered "
               "before",
               offset, cta.rank, running != nullptr ? "an asynchronous operation" : "this thread"));
    return;
  }
  if (running == nullptr) return;
  if (b.fence_epoch != 0 && view.knows(b.init_agent, b.fence_epoch, b.init_lanes)) return;
  if (view.fenced(b.init_agent, b.init_epoch, b.init_lanes, false)) return;
  b.told = true;
  // NOTE: on silicon a barrier after the init is enough (CUTLASS's tutorials and Triton rely on it,
  // with cluster barriers too).
  report(FindingKind::kBarrier, warp, -1, site,
         fmt::format("the mbarrier at 0x{:x} is used by an asynchronous operation but no "
                     "fence.mbarrier_init between its init and the synchronisation that orders "
                     "them",
                     offset),
         machine.options.model == EmulatorModel::kSilicon);
}

void Cluster::mbarrier_acquire(const Mbarrier& b, View& into, bool cluster_scope) const {
  into.acquire(b.completed);
  if (cluster_scope) into.acquire(b.completed_remote);
}

void Cluster::check_phase(Mbarrier& b) {
  b.last_change = steps;
  note_progress();
  if (b.pending != 0 || b.tx != 0) return;
  ++b.phase;
  b.pending = b.expected;
  b.completed.acquire(b.arriving);
  b.arriving = {};
  b.completed_remote.acquire(b.arriving_remote);
  b.arriving_remote = {};
  b.arrivers.clear();
}

void Cluster::mbarrier_expect(Mbarrier& b, s64 bytes, u32 site) {
  b.tx += bytes;
  b.last_change = steps;
  if (b.tx > kMaxTx || b.tx < -kMaxTx) {
    report(FindingKind::kBarrier, nullptr, -1, site,
           fmt::format("the mbarrier's transaction count reaches {}, beyond {}", b.tx, kMaxTx));
  }
  note_progress();
}

void Cluster::trace_arrival(const Mbarrier& b, SharedAddress address, const Warp* warp, u32 site) {
  const Cta* cta = cta_of(address);
  if (!trace.on || cta == nullptr) return;
  TraceEvent event;
  event.kind = TraceEvent::Kind::kArrival;
  event.begin = steps;
  event.issued = running != nullptr ? running->issued_at : steps;
  event.cta = linear_index(*cta);
  event.warp = running == nullptr && warp != nullptr ? static_cast<s32>(warp->index) : -1;
  event.unit = running != nullptr ? running->unit() : "arrivals";
  event.site = site;
  event.barrier = address.offset();
  event.phase = static_cast<s64>(b.phase);
  trace.add(event);
}

void Cluster::mbarrier_arrive(Mbarrier& b, u32 count, const View& knowledge, u32 site, Warp* warp,
                              SharedAddress address, bool remote) {
  if (count > b.pending) {
    report(FindingKind::kBarrier, warp, -1, site,
           fmt::format("{} arrivals at the mbarrier 0x{:x} where {} of {} are pending in phase {}",
                       count, address.offset(), b.pending, b.expected, b.phase));
    count = b.pending;
  }
  trace_arrival(b, address, warp, site);
  (remote ? b.arriving_remote : b.arriving).acquire(knowledge);
  b.pending -= count;
  if (b.arrivers.size() < 8) b.arrivers.push_back(site);
  check_phase(b);
}

void Cluster::mbarrier_complete(SharedAddress address, s64 bytes, const View& knowledge, u32 site,
                                Warp* warp) {
  Mbarrier* b = mbarrier(warp, site, address, "complete_tx");
  if (b == nullptr) return;
  trace_arrival(*b, address, warp, site);
  b->arriving.acquire(knowledge);
  b->tx -= bytes;
  if (b->tx < -kMaxTx)
    report(FindingKind::kBarrier, warp, -1, site,
           fmt::format("the mbarrier's transaction count reaches {}", b->tx));
  check_phase(*b);
}

}  // namespace attnjit::emulator
