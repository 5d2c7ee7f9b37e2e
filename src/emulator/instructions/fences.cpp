// SPDX-License-Identifier: Apache-2.0
// Fences of memory and of proxies, and instructions that only pass time.
#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

enum class FenceKind : u8 { kMemory, kProxyAsync, kMbarrierInit, kMapRelease, kMapAcquire, kNone };
struct Fence {
  FenceKind kind = FenceKind::kMemory;
  u8 spaces = kAllSpaces;  ///< of kProxyAsync
};

// s = {the tensor map of kMapAcquire}
Step execute_fence(Warp& warp, const Op& op, const Fence& fence, u32 mask) {
  switch (fence.kind) {
    case FenceKind::kMemory:
    case FenceKind::kMapRelease:
    case FenceKind::kMapAcquire:
      warp.clocks.view.acquire(warp.clocks.pending_acquire);
      warp.clocks.pending_acquire = {};
      warp.clocks.fence_view = {};
      if (fence.kind == FenceKind::kMapRelease) warp.clocks.maps_released = warp.clocks.epoch;
      warp.release_into(warp.clocks.fence_view, mask);
      if (fence.kind != FenceKind::kMapAcquire || op.s[0] == kNoRef) break;
      for (const u32 lane : lanes_of(mask)) {
        Clock& known = warp.clocks.maps_acquired[warp.lane64(op.s[0], lane)];
        known = warp.clocks.view.generic;
        View::raise(known, warp.agent, warp.clocks.epoch);
      }
      break;
    case FenceKind::kProxyAsync:
      warp.fence_proxy(fence.spaces, mask);
      break;
    case FenceKind::kMbarrierInit:
      for (auto& cta : warp.cluster->ctas) {
        for (auto& [address, b] : cta->mbarriers) {
          if (b.init_agent == warp.agent && (b.init_lanes & mask) != 0 && b.fence_epoch == 0)
            b.fence_epoch = warp.clocks.epoch + 1;
        }
      }
      ++warp.clocks.epoch;
      warp.clocks.touch(mask, warp.agent);
      break;
    case FenceKind::kNone:
      break;
  }
  return Step::kNext;
}

bool decode_fence(Decoding& d) {
  Fence fence;
  if (d.take("mbarrier_init")) {
    fence.kind = FenceKind::kMbarrierInit;
    d.take("release");
    d.take("cluster");
  } else if (d.take("proxy")) {
    if (d.take("async")) {
      fence.kind = FenceKind::kProxyAsync;
      const int space = d.take_any({"global", "shared::cta", "shared::cluster"});
      if (space >= 0) fence.spaces = space == 0 ? kGlobalSpace : kSharedSpace;
    } else if (d.take("async::generic")) {
      fence.kind = FenceKind::kProxyAsync;
      d.take_any({"acquire", "release"});
      if (d.take_any({"sync_restrict::shared::cluster", "sync_restrict::shared::cta"}) >= 0)
        fence.spaces = kSharedSpace;
      d.take("cluster");
    } else if (d.take("alias")) {
      fence.kind = FenceKind::kNone;
    } else if (d.take("tensormap::generic")) {
      fence.kind = d.take_semantics().acquire ? FenceKind::kMapAcquire : FenceKind::kMapRelease;
    } else {
      return d.unsupported("this proxy fence is not modelled");
    }
  } else {
    d.take_any({"sc", "acq_rel", "acquire", "release"});
    d.take_any({"sync_restrict::shared::cluster", "sync_restrict::shared::cta"});
    d.take_any({"cta", "cluster", "gpu", "sys"});
  }
  if (!d.expect(0, 2) || !d.done()) return false;
  Ref address = kNoRef;
  if (d.count() != 0) {
    bool wide = false;
    address = d.address_value(d.in.operands[0], &wide);
    if (!d.failed() && !wide) return d.invalid("a tensor map's address has 64 bits");
  }
  if (d.failed()) return false;
  d.emit<execute_fence>(fence).s[0] = address;
  return true;
}

bool decode_membar(Decoding& d) {
  if (d.has("proxy")) return decode_fence(d);
  d.take_any({"cta", "gl", "sys"});
  if (!d.expect(0, 0) || !d.done()) return false;
  d.emit<execute_fence>({FenceKind::kMemory});
  return true;
}

Step execute_sleep(Warp& warp, const Op&, u32) {
  ++warp.cluster->polls;
  Group& group = *warp.group;
  ++group.pc;
  group.converged = false;
  return Step::kSwitch;  // let others go
}

bool decode_sleep(Decoding& d) {
  d.take_type();
  if (!d.expect(1, 1) || !d.done()) return false;
  const Ref n = d.source(0, 32);
  if (d.failed()) return false;
  d.emit<execute_sleep>().s[0] = n;
  return true;
}

}  // namespace

void add_fences(InstructionTable& t) {
  t.add({"fence", "", "fence",
         ".sc .acq_rel .acquire .release; .proxy.async .proxy.async::generic .proxy.alias "
         ".proxy.tensormap::generic; .mbarrier_init",
         "9.7.13.4", decode_fence});
  t.add({"membar", "", "fence", ".cta .gl .sys .proxy.alias", "9.7.13.4", decode_membar});
}

void add_miscellaneous(InstructionTable& t) {
  t.add({"nanosleep", "", "miscellaneous", "lets others run", "9.7.20.2", decode_sleep});
}

}  // namespace attnjit::emulator
