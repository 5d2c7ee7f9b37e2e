// SPDX-License-Identifier: Apache-2.0
// Addresses to memory: the spaces, their windows, bounds and alignment.
#include <fmt/format.h>

#include "emulator/instructions/executors.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {

namespace {

/// An offset in a CTA's shared memory.
void place_in_shared(Cta* cta, u32 offset, bool checks, Place* place) {
  place->offset = offset;
  place->data = cta->shared.data() + offset;
  place->poison = cta->shared_poison.empty() ? nullptr : cta->shared_poison.data() + offset;
  place->shadow = checks ? &cta->shadow : nullptr;
  place->cta = cta;
}

}  // namespace

void ensure_local(Warp& warp) {
  if (!warp.local.bytes.empty() || warp.local.lane_bytes == 0) return;
  warp.local.bytes.assign(static_cast<std::size_t>(warp.local.lane_bytes) * 32, 0xCD);
  if (warp.machine->checks) warp.local.poison.assign(warp.local.bytes.size(), 1);
}

bool Cluster::resolve_async(const AsyncOp& op, u64 address, u64 bytes, Place* place) {
  *place = {};
  if (resolve_global(address, bytes, place)) return true;
  const u64 slot = (address >> kBufferShift) - 1;
  std::string near;
  if (address >= buffer_base(0) && slot < machine.buffers.size()) {
    near = fmt::format(": offset {} of buffer {}, which has {} bytes",
                       static_cast<s64>(address - buffer_base(slot)), machine.buffers[slot].name,
                       machine.buffers[slot].bytes);
  }
  report(FindingKind::kBounds, op.issuer, -1, op.site,
         fmt::format("{} bytes at global address 0x{:x}{}", bytes, address, near));
  return false;
}

bool Cluster::resolve_async(const AsyncOp& op, SharedAddress address, u64 bytes, Place* place) {
  *place = {};
  Cta* cta = cta_of(address);
  const u32 offset = address.offset();
  if (cta == nullptr) {
    report(FindingKind::kSpace, op.issuer, -1, op.site,
           fmt::format("shared address 0x{:x} names CTA {} of a cluster of {}", address.bits(),
                       address.rank(), ctas.size()));
    return false;
  }
  if (offset < kSharedBegin || offset + bytes > cta->shared_end) {
    report(FindingKind::kBounds, op.issuer, -1, op.site,
           fmt::format(
               "{} bytes at shared address 0x{:x}; the CTA's shared memory is 0x{:x} to 0x{:x}",
               bytes, offset, kSharedBegin, cta->shared_end));
    return false;
  }
  if (cta->live_threads == 0) {
    report(FindingKind::kSpace, op.issuer, -1, op.site,
           fmt::format("shared memory of CTA {}, which has exited", cta->rank));
    return false;
  }
  place->space = Space::kShared;
  place_in_shared(cta, offset, machine.checks, place);
  return true;
}

bool Cluster::resolve_shared(const Op& op, Warp& warp, u32 lane, SharedAddress address, u32 bytes,
                             bool same_cta, Place* place) {
  Cta* cta = cta_of(address);
  const u32 offset = address.offset();
  if (cta == nullptr || (same_cta && cta != warp.cta)) {
    report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
           cta == nullptr ? fmt::format("shared address 0x{:x} names CTA {} of a cluster of {}",
                                        address.bits(), address.rank(), ctas.size())
                          : fmt::format("address 0x{:x} lies in the shared memory of CTA {}, not "
                                        "of this one ({}): .shared::cluster is needed",
                                        address.bits(), cta->rank, warp.cta->rank));
    return false;
  }
  if (offset < kSharedBegin || bytes > cta->shared_end || offset > cta->shared_end - bytes) {
    report(FindingKind::kBounds, &warp, static_cast<int>(lane), op.site,
           fmt::format(
               "{} bytes at shared address 0x{:x}; the CTA's shared memory is 0x{:x} to 0x{:x}",
               bytes, offset, kSharedBegin, cta->shared_end));
    return false;
  }
  if (cta != warp.cta && cta->live_threads == 0) {
    report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
           fmt::format("shared memory of CTA {}, which has exited", cta->rank));
    return false;
  }
  place_in_shared(cta, offset, machine.checks, place);
  return true;
}

bool Cluster::resolve_any(Warp& warp, const Op& op, u32 lane, Space space, u64 address, u32 bytes,
                          Place* place) {
  if ((address & (bytes - 1)) != 0) {
    report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
           fmt::format("address 0x{:x} is not a multiple of {}", address, bytes));
    return false;
  }
  bool same_cta = space == Space::kShared;
  if (space == Space::kGeneric) {
    const u64 window = address & kWindowMask;
    if (window == kSharedWindow) {
      space = Space::kSharedCluster;
    } else if (window == kLocalWindow) {
      space = Space::kLocal;
    } else if (window == kParamWindow) {
      space = Space::kParam;
    } else if (window == kConstWindow) {
      space = Space::kConst;
    } else {
      space = Space::kGlobal;
    }
    if (space != Space::kGlobal) address &= ~kWindowMask;
    same_cta = false;
  }
  *place = {};
  place->space = space;
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster:
      if (address >> 32 != 0) {
        report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
               fmt::format("0x{:x} is not a shared address{}", address,
                           (address & kWindowMask) == kSharedWindow ? " but a generic one" : ""));
        return false;
      }
      return resolve_shared(op, warp, lane, SharedAddress(static_cast<u32>(address)), bytes,
                            same_cta, place);
    case Space::kGlobal:
    case Space::kGeneric:
      if (resolve_global(address, bytes, place)) return true;
      {
        const u64 slot = (address >> kBufferShift) - 1;
        std::string near;
        if (address >= buffer_base(0) && slot < machine.buffers.size()) {
          near = fmt::format(": offset {} of buffer {}, which has {} bytes",
                             static_cast<s64>(address - buffer_base(slot)),
                             machine.buffers[slot].name.empty() ? "(module variables)"
                                                                : machine.buffers[slot].name,
                             machine.buffers[slot].bytes);
        } else if ((address & kWindowMask) >= kSharedWindow) {
          report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                 fmt::format("0x{:x} is not a global address", address));
          return false;
        } else if (address < 65536) {
          near = " (a null pointer?)";
        }
        report(FindingKind::kBounds, &warp, static_cast<int>(lane), op.site,
               fmt::format("{} bytes at global address 0x{:x}{}", bytes, address, near));
      }
      return false;
    case Space::kLocal: {
      if (address + bytes > warp.local.lane_bytes || address + bytes < address) {
        report(FindingKind::kBounds, &warp, static_cast<int>(lane), op.site,
               fmt::format("{} bytes at local address 0x{:x} of {} bytes", bytes, address,
                           warp.local.lane_bytes));
        return false;
      }
      ensure_local(warp);
      const std::size_t at = static_cast<std::size_t>(lane) * warp.local.lane_bytes + address;
      place->data = warp.local.bytes.data() + at;
      place->poison = warp.local.poison.empty() ? nullptr : warp.local.poison.data() + at;
      place->offset = address;
      return true;
    }
    case Space::kParam:
    case Space::kConst: {
      const bool param = space == Space::kParam;
      auto& bank = param ? machine.parameters : machine.const_data;
      if (address + bytes > bank.size() || address + bytes < address) {
        report(FindingKind::kBounds, &warp, static_cast<int>(lane), op.site,
               fmt::format("{} bytes at offset {} of {} bytes of {}", bytes, address, bank.size(),
                           param ? "parameters" : "constants"));
        return false;
      }
      place->data = bank.data() + address;
      place->offset = address;
      return true;
    }
  }
  return false;
}

void Cluster::record(Warp& warp, const Op& op, const AccessLanes& lanes, const Place& place,
                     u32 bytes, bool write, bool atomic, bool same) {
  if (place.shadow == nullptr) return;
  const int lane = __builtin_ctz(lanes.mask);
  if (place.cta != nullptr && !place.cta->mbarriers.empty() && !atomic) {
    // Plain accesses to a live mbarrier object.
    for (u64 at = place.offset & ~u64{7}; at < place.offset + bytes; at += 8) {
      const auto it = place.cta->mbarriers.find(static_cast<u32>(at));
      if (it == place.cta->mbarriers.end() || !it->second.valid) continue;
      report(FindingKind::kBarrier, &warp, lane, op.site,
             fmt::format("plain {} of the mbarrier at 0x{:x}, which is in use",
                         write ? "write" : "read", at));
      return;
    }
  }
  if (place.cta != nullptr && place.cta != warp.cta)
    place.cta->visit(warp.agent, warp.clocks.epoch, lanes.mask, op.site, true);
  note_use(warp.clocks.view, &warp, lane, op.site, place, write);
  Conflict conflict;
  if (histories.access(*place.shadow, place.offset, bytes, write, warp.accessor(op, lanes, atomic),
                       &conflict)) {
    report_conflict(conflict, &warp, lane, op.site, write, place, same);
  }
}

void Cluster::note_use(const View& view, const Warp* warp, int lane, u32 site, const Place& place,
                       bool write) {
  if (place.cta != nullptr) return;
  const auto slot = static_cast<std::size_t>(place.shadow - global_shadows.data());
  if (slot >= uses.size()) return;
  (write ? uses[slot].written : uses[slot].read) = true;
  const GlobalBuffer& buffer = machine.buffers[slot];
  if (!buffer.before.written && !(write && buffer.before.read)) return;
  if (view.knows(grid_before, 1, ~u32{0})) return;
  report(FindingKind::kRace, warp, lane, site,
         fmt::format("this {} of buffer {} is not ordered after what the launch before does with "
                     "it: that one executes griddepcontrol.launch_dependents and may still run, "
                     "and no griddepcontrol.wait lies before",
                     write ? "write" : "read", buffer.name));
}

void Cluster::record(const AsyncOp& op, const Place& place, u32 bytes, bool write, bool same) {
  if (place.shadow == nullptr) return;
  note_use(op.view, op.issuer, -1, op.site, place, write);
  if (place.cta != nullptr && op.proxy != Proxy::kGeneric)
    place.cta->visit(op.lease.agent, write ? op.lease.write_epoch : op.lease.read_epoch, ~u32{0},
                     op.site, op.issuer->cta != place.cta);
  Conflict conflict;
  if (histories.access(*place.shadow, place.offset, bytes, write, write ? op.writer() : op.reader(),
                       &conflict)) {
    report_conflict(conflict, op.issuer, -1, op.site, write, place, same);
  }
}

void Cluster::check_map(Warp& warp, const Op& op, u32 lane, u64 address, const Place& place) {
  if (place.shadow == nullptr) return;
  bool told = false;
  histories.for_each_write(*place.shadow, place.offset, 128, [&](u32 agent, u32 epoch, u32 site) {
    if (told) return;
    const std::string written =
        fmt::format("the tensor map at 0x{:x} was written by {} at {}", address,
                    describe_agent(agent, site), describe_site(site));
    const auto it = warp.clocks.maps_acquired.find(address);
    if (agent != warp.agent && !warp.clocks.view.knows(agent, epoch, ~u32{0})) {
      told = true;
      report(FindingKind::kRace, &warp, static_cast<int>(lane), op.site,
             written + ", and nothing orders its use after that");
    } else if (it == warp.clocks.maps_acquired.end() || at(it->second, agent) < epoch) {
      told = true;
      report(FindingKind::kProxy, &warp, static_cast<int>(lane), op.site,
             written + ", and no fence.proxy.tensormap::generic.acquire of it lies between");
    } else if (agent < warps_.size() && warps_[agent]->clocks.maps_released < epoch) {
      told = true;
      report(FindingKind::kProxy, &warp, static_cast<int>(lane), op.site,
             written + ", and no fence.proxy.tensormap::generic.release follows that");
    }
  });
}

void Cluster::strong_load(Warp& warp, u64 address, bool acquire) {
  const auto it = strong.find(address);
  if (it == strong.end()) return;
  if (acquire) {
    warp.clocks.view.acquire(it->second);
  } else {
    warp.clocks.pending_acquire.acquire(it->second);
  }
}

void Cluster::strong_store(Warp& warp, u32 lane, u64 address, bool release) {
  if (release) {
    warp.release_into(strong[address], u32{1} << lane);
  } else if (!warp.clocks.fence_view.generic.empty()) {
    strong[address].acquire(warp.clocks.fence_view);
  }
}

}  // namespace attnjit::emulator
