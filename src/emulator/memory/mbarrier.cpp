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
  return &it->second;
}

void Cluster::check_phase(Mbarrier& b) {
  b.last_change = steps;
  note_progress();
  if (b.pending != 0 || b.tx != 0) return;
  ++b.phase;
  b.pending = b.expected;
  b.completed.acquire(b.arriving);
  b.arriving = {};
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
                              SharedAddress address) {
  if (count > b.pending) {
    report(FindingKind::kBarrier, warp, -1, site,
           fmt::format("{} arrivals at the mbarrier 0x{:x} where {} of {} are pending in phase {}",
                       count, address.offset(), b.pending, b.expected, b.phase));
    count = b.pending;
  }
  trace_arrival(b, address, warp, site);
  b.arriving.acquire(knowledge);
  b.pending -= count;
  if (b.arrivers.size() < 8) b.arrivers.push_back(site);
  check_phase(b);
}

void Cluster::mbarrier_complete(SharedAddress address, s64 bytes, const View& knowledge, u32 site,
                                Warp* warp) {
  Mbarrier* b = mbarrier(warp, site, address, "complete_tx");
  if (b == nullptr) return;
  if (!b->fenced) {
    b->fenced = true;  // told once
    // NOTE: on silicon a barrier after the init is enough (CUTLASS's tutorials and Triton rely on
    // it, with cluster barriers too).
    const bool ordered = (warp != nullptr && warp->agent == b->init_agent) ||
                         at(knowledge.generic, b->init_agent) >= b->init_epoch;
    report(FindingKind::kBarrier, warp, -1, site,
           fmt::format("the mbarrier at 0x{:x} is used by an asynchronous operation but no "
                       "fence.mbarrier_init followed its init",
                       address.offset()),
           machine.options.model == EmulatorModel::kSilicon && ordered);
  }
  trace_arrival(*b, address, warp, site);
  b->arriving.acquire(knowledge);
  b->tx -= bytes;
  if (b->tx < -kMaxTx)
    report(FindingKind::kBarrier, warp, -1, site,
           fmt::format("the mbarrier's transaction count reaches {}", b->tx));
  check_phase(*b);
}

}  // namespace attnjit::emulator
