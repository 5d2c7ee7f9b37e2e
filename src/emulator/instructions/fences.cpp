// SPDX-License-Identifier: Apache-2.0
// Fences of memory and of proxies, and instructions that only pass time.
#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

enum class FenceKind : u8 { kMemory, kProxyAsync, kMbarrierInit, kNone };
struct Fence {
  FenceKind kind = FenceKind::kMemory;
};

Step execute_fence(Warp& warp, const Op&, const Fence& fence, u32) {
  switch (fence.kind) {
    case FenceKind::kMemory:
      warp.clocks.view.acquire(warp.clocks.pending_acquire);
      warp.clocks.pending_acquire = {};
      warp.clocks.fence_view = {};
      warp.release_into(warp.clocks.fence_view);
      break;
    case FenceKind::kProxyAsync:
      warp.clocks.view.set(warp.agent, warp.clocks.epoch);
      warp.clocks.view.fence_proxy();
      // What comes after the fence is not covered by it.
      ++warp.clocks.epoch;
      break;
    case FenceKind::kMbarrierInit:
      for (auto& cta : warp.cluster->ctas) {
        for (auto& [address, b] : cta->mbarriers) {
          if (b.init_agent == warp.agent) b.fenced = true;
        }
      }
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
      d.take_any({"global", "shared::cta", "shared::cluster"});
    } else if (d.take("async::generic")) {
      fence.kind = FenceKind::kProxyAsync;
      d.take_any({"acquire", "release"});
      d.take_any({"sync_restrict::shared::cluster", "sync_restrict::shared::cta"});
      d.take("cluster");
    } else if (d.take("alias")) {
      fence.kind = FenceKind::kNone;
    } else if (d.take("tensormap::generic")) {
      // The map's bytes are read when the copy is issued, in order.
      d.take_semantics();
    } else {
      return d.unsupported("this proxy fence is not modelled");
    }
  } else {
    d.take_any({"sc", "acq_rel", "acquire", "release"});
    d.take_any({"sync_restrict::shared::cluster", "sync_restrict::shared::cta"});
    d.take_any({"cta", "cluster", "gpu", "sys"});
  }
  if (!d.expect(0, 2) || !d.done()) return false;
  if (d.count() != 0) {
    bool wide = false;
    d.address_value(d.in.operands[0], &wide);
  }
  if (d.failed()) return false;
  d.emit<execute_fence>(fence);
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
