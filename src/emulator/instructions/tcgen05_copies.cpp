// SPDX-License-Identifier: Apache-2.0
// tcgen05.cp, shift and commit.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/expansion.h"
#include "emulator/instructions/tcgen05.h"
#include "emulator/memory/tensor_memory.h"
#include "emulator/model/matrix_descriptor.h"

namespace attnjit::emulator {
namespace {

/// How cp expands its elements.
class TensorCopy : public TensorOp {
 public:
  CopyShape shape = CopyShape::k128x256b;
  Expansion expansion = Expansion::kNone;
  MatrixDescriptor from;
  u32 address = 0;
  const char* unit() const override { return "tensor core (tcgen05.cp)"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kTensorCopy;
    const CopyGeometry g = copy_geometry(shape);
    w.bytes = static_cast<u64>(g.rows * g.bytes_per_row);
    return w;
  }

  bool step(Cluster& cluster) override {
    begin();
    copy(cluster, *issuer->cta);
    if (event->peer != nullptr) copy(cluster, *event->peer);
    finish();
    return true;
  }

 private:
  void copy(Cluster& cluster, Cta& cta) {
    const CopyGeometry g = copy_geometry(shape);
    TensorMemory& memory = tensor_memory(cta);
    const u32 column = tmem_column(address), lane0 = tmem_lane(address);
    const auto columns = static_cast<u32>(g.bytes_per_row / 4);
    const u32 lanes = shape == CopyShape::k4x256b ? 4 : kTmemLanes;
    if (!memory.access(cluster, {lane0, lanes, column, columns}, true, tensor_writer(), issuer,
                       site))
      return;
    const u32 used = expansion == Expansion::kFrom6 ? 12 : expansion == Expansion::kFrom4 ? 8 : 16;
    for (int row = 0; row < g.rows; ++row) {
      for (int c = 0; c < g.bytes_per_row / 16; ++c) {
        const u32 offset =
            k_major_chunk(from, static_cast<u32>(row), static_cast<u32>(c)) & 0x3FFFF;
        if (offset < kSharedBegin || offset + 16 > cta.shared_end) {
          cluster.report(
              FindingKind::kBounds, issuer, -1, site,
              fmt::format("16 bytes at shared address 0x{:x} of CTA {}, whose shared memory is "
                          "0x{:x} to 0x{:x}",
                          offset, cta.rank, kSharedBegin, cta.shared_end));
          return;
        }
        Place place;
        place.space = Space::kShared;
        place.offset = offset;
        place.data = cta.shared.data() + offset;
        place.poison = cta.shared_poison.empty() ? nullptr : cta.shared_poison.data() + offset;
        place.shadow = cluster.machine.checks ? &cta.shadow : nullptr;
        place.cta = &cta;
        cluster.record(*this, place, used, false);
        u8 bytes[16];
        std::memcpy(bytes, place.data, 16);
        if (expansion != Expansion::kNone) expand(expansion, place.data, bytes);
        for (u32 word = 0; word < 4; ++word) {
          u32 value = 0;
          std::memcpy(&value, bytes + 4 * word, 4);
          const u8 bad = place.poison == nullptr ? u8{0}
                         : expansion == Expansion::kNone
                             ? u8{std::memchr(place.poison + 4 * word, 1, 4) != nullptr}
                             : u8{std::memchr(place.poison, 1, used) != nullptr};
          for (int i = 0; i < g.copies; ++i) {
            const u32 lane = lane0 + static_cast<u32>(copy_lane(shape, row, i));
            memory.cell(lane, column + static_cast<u32>(c) * 4 + word) = value;
            memory.poison(lane, column + static_cast<u32>(c) * 4 + word) = bad;
          }
        }
      }
    }
    cluster.stats.unit_bytes["tcgen05.cp"] += static_cast<u64>(g.rows * g.bytes_per_row);
  }
};

class TensorShift : public TensorOp {
 public:
  u32 address = 0;
  const char* unit() const override { return "tensor core (tcgen05.shift)"; }
  bool step(Cluster& cluster) override {
    begin();
    shift(cluster, *issuer->cta);
    if (event->peer != nullptr) shift(cluster, *event->peer);
    finish();
    return true;
  }

 private:
  void shift(Cluster& cluster, Cta& cta) {
    constexpr u32 kColumns = 8;  // 32 bytes
    TensorMemory& memory = tensor_memory(cta);
    const u32 first = tmem_lane(address), column = tmem_column(address);
    if (!memory.access(cluster, {first, kTmemLanes - first, column, kColumns}, true,
                       tensor_writer(), issuer, site))
      return;
    for (u32 lane = kTmemLanes - 1; lane > first; --lane) {
      for (u32 c = 0; c < kColumns; ++c) {
        memory.cell(lane, column + c) = memory.cell(lane - 1, column + c);
        memory.poison(lane, column + c) = memory.poison(lane - 1, column + c);
      }
    }
  }
};

struct Copy {
  int cta_group = 1;
  CopyShape shape = CopyShape::k128x256b;
  Expansion expansion = Expansion::kNone;
};

// s = {address, descriptor}
Step execute_copy(Warp& warp, const Op& op, const Copy& what, u32 mask) {
  const bool defined = warp.require_defined(op.s[0], mask, op, "the tensor-memory address") &&
                       warp.require_defined(op.s[1], mask, op, "the matrix descriptor");
  if (!check_cta_group(warp, op, what.cta_group) || !defined) return Step::kNext;
  for (const u32 lane : lanes_of(mask)) {
    auto copy = std::make_unique<TensorCopy>();
    copy->shape = what.shape;
    copy->expansion = what.expansion;
    copy->address = warp.lane32(op.s[0], lane);
    const u64 bits = warp.lane64(op.s[1], lane);
    if (const char* problem = decode_tcgen05_descriptor(bits, &copy->from)) {
      warp.cluster->report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                           fmt::format("the matrix descriptor 0x{:016x}: {}", bits, problem));
      continue;
    }
    if (tmem_lane(copy->address) != 0) {
      warp.cluster->report(
          FindingKind::kTmem, &warp, static_cast<int>(lane), op.site,
          fmt::format("the address 0x{:08x} does not begin at lane 0", copy->address));
      continue;
    }
    auto event = std::make_shared<TensorEvent>();
    event->kind = copy->shape == CopyShape::k4x256b ? TensorEvent::Kind::kCopy4x256b
                                                    : TensorEvent::Kind::kCopy;
    event->cta_group = what.cta_group;
    tensor_order(*warp.cluster).issue(std::move(copy), warp, lane, op, std::move(event));
  }
  return Step::kNext;
}

struct Shift {
  int cta_group = 1;
};

Step execute_shift(Warp& warp, const Op& op, const Shift& what, u32 mask) {
  const bool defined = warp.require_defined(op.s[0], mask, op, "the tensor-memory address");
  if (!check_cta_group(warp, op, what.cta_group) || !defined) return Step::kNext;
  for (const u32 lane : lanes_of(mask)) {
    auto shift = std::make_unique<TensorShift>();
    shift->address = warp.lane32(op.s[0], lane);
    if (tmem_lane(shift->address) % 32 != 0 || tmem_lane(shift->address) >= kTmemLanes) {
      warp.cluster->report(
          FindingKind::kTmem, &warp, static_cast<int>(lane), op.site,
          fmt::format("lane {} is not a multiple of 32 below 128", tmem_lane(shift->address)));
      continue;
    }
    auto event = std::make_shared<TensorEvent>();
    event->kind = TensorEvent::Kind::kShift;
    event->cta_group = what.cta_group;
    tensor_order(*warp.cluster).issue(std::move(shift), warp, lane, op, std::move(event));
  }
  return Step::kNext;
}

bool decode_copy(Decoding& d) {
  d.take("cp");
  const int group = take_cta_group(d);
  int shape = d.take_any({"128x256b", "128x128b", "64x128b", "32x128b", "4x256b"});
  CopyShape s{};
  switch (shape) {
    case 0:
      s = CopyShape::k128x256b;
      break;
    case 1:
      s = CopyShape::k128x128b;
      break;
    case 2: {
      const int pairs = d.take_any({"warpx2::02_13", "warpx2::01_23"});
      if (pairs < 0) return d.invalid(".64x128b needs .warpx2::02_13 or .warpx2::01_23");
      s = pairs == 0 ? CopyShape::k64x128bWarpx2_02_13 : CopyShape::k64x128bWarpx2_01_23;
      break;
    }
    case 3:
      if (!d.take("warpx4")) return d.invalid(".32x128b needs .warpx4");
      s = CopyShape::k32x128bWarpx4;
      break;
    case 4:
      s = CopyShape::k4x256b;
      break;
    default:
      return d.invalid("a shape is needed");
  }
  Expansion expansion = Expansion::kNone;
  if (d.take("b8x16")) {
    const int from = d.take_any({"b6x16_p32", "b4x16_p64"});
    if (from < 0) return d.invalid(".b6x16_p32 or .b4x16_p64 is needed");
    expansion = from == 0 ? Expansion::kFrom6 : Expansion::kFrom4;
  }
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref to = tensor_address(d, d.in.operands[0]), from = d.source(1, 64);
  if (d.failed()) return false;
  Op& op = d.emit<execute_copy>({group, s, expansion});
  op.s[0] = to;
  op.s[1] = from;
  return true;
}

bool decode_shift(Decoding& d) {
  d.take("shift");
  const int group = take_cta_group(d);
  if (!d.take("down")) return d.invalid(".down is needed");
  if (!d.expect(1, 1) || !d.done()) return false;
  const Ref at = tensor_address(d, d.in.operands[0]);
  if (d.failed()) return false;
  d.emit<execute_shift>({group}).s[0] = at;
  return true;
}

// -------------------------------------------------------------------------------------- commit

class TensorCommit : public AsyncOp {
 public:
  TensorOrder::Tracked tracked;
  std::vector<SharedAddress> barriers;
  const char* unit() const override { return "tensor core (tcgen05.commit)"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kTensorCommit;
    w.done_when_asked = true;
    return w;
  }
  bool ready(Cluster&) override {
    return std::all_of(tracked.pending.begin(), tracked.pending.end(),
                       [](const auto& e) { return e->done; });
  }
  bool step(Cluster& cluster) override {
    // The products that it tracks, and the operations that these came after: of its thread's other
    // instructions, and of what that acquired, it says nothing (PTX ISA 9.7.16.12.1).
    View knowledge = tracked.done;
    for (const auto& e : tracked.pending) knowledge.acquire(e->done_view);
    knowledge.keep_operations(cluster.agents.first());
    join(knowledge.tensor, view.tensor);
    knowledge.set(lease.agent, lease.write_epoch);
    for (const SharedAddress address : barriers) {
      if (Mbarrier* b = cluster.mbarrier(issuer, site, address, "tcgen05.commit"))
        cluster.mbarrier_arrive(*b, 1, knowledge, site, issuer, address);
    }
    return true;
  }
};

struct Commit {
  Address address;
  int cta_group = 1;
};

// s = {the mbarrier's address, the mask of CTAs}
Step execute_commit(Warp& warp, const Op& op, const Commit& what, u32 mask) {
  Cluster& cluster = *warp.cluster;
  const bool defined = warp.require_defined(op.s[0], mask, op, "the mbarrier's address") &&
                       warp.require_defined(op.s[1], mask, op, "the mask of CTAs");
  if (!check_cta_group(warp, op, what.cta_group) || !defined) return Step::kNext;
  for (const u32 lane : lanes_of(mask)) {
    u64 address = lane_address(warp, op, what.address, lane);
    if (what.address.space == Space::kGeneric) {
      if ((address & kWindowMask) != kSharedWindow) {
        // NOTE: silicon takes the low 32 bits, which are the shared address either way; compilers
        // are known to rely on it.
        const bool shared = address >> 32 == 0;
        cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                       fmt::format("0x{:x} is not a generic address of shared memory: is "
                                   ".shared::cluster missing?",
                                   address),
                       shared && cluster.machine.options.model == EmulatorModel::kSilicon);
        if (!shared) continue;
      }
      address &= ~kWindowMask;
    }
    auto commit = std::make_unique<TensorCommit>();
    const SharedAddress shared(static_cast<u32>(address));
    if (op.s[1] == kNoRef) {
      commit->barriers = {shared};
    } else {
      for (const u32 rank : lanes_of(warp.lane32(op.s[1], lane) & 0xFFFF))
        commit->barriers.push_back(shared.in(rank));
    }
    commit->tracked = tensor_order(cluster).tracked(warp, lane, what.cta_group);
    // commit implies fence::before_thread_sync.
    warp.clocks.fence_tensor_before(u32{1} << lane);
    cluster.start(std::move(commit), warp, op, u32{1} << lane);
  }
  return Step::kNext;
}

bool decode_commit(Decoding& d) {
  d.take("commit");
  const int group = take_cta_group(d);
  if (!d.take("mbarrier::arrive::one")) return d.invalid(".mbarrier::arrive::one is needed");
  Commit commit;
  commit.cta_group = group;
  const Space space = d.take("shared::cluster") ? Space::kSharedCluster : Space::kGeneric;
  const bool multicast = d.take("multicast::cluster");
  if (d.take_type() != Type::kB64) return d.invalid(".b64 is needed");
  const std::size_t operands = multicast ? 2 : 1;
  Ref base = kNoRef;
  if (!d.expect(operands, operands) || !d.done() ||
      !d.address(d.in.operands[0], space, &commit.address, &base))
    return false;
  const Ref targets = multicast ? d.source(1, 16) : kNoRef;
  if (d.failed()) return false;
  Op& op = d.emit<execute_commit>(commit);
  op.s[0] = base;
  op.s[1] = targets;
  return true;
}

}  // namespace

void add_tcgen05_copies(InstructionTable& t) {
  t.add({"tcgen05", ".cp", "tensor core",
         "128x256b 128x128b 64x128b.warpx2 32x128b.warpx4 4x256b; .b8x16 from .b6x16_p32 and "
         ".b4x16_p64; cta_group::2 copies in each CTA from its own shared memory",
         "9.7.16.9.2", decode_copy});
  t.add({"tcgen05", ".shift", "tensor core", ".down, from the address's lane to lane 127",
         "9.7.16.9.3", decode_shift});
  t.add({"tcgen05", ".commit", "tensor core", ".mbarrier::arrive::one, .multicast::cluster",
         "9.7.16.12.1", decode_commit});
}

void add_tcgen05(InstructionTable& t) {
  add_tcgen05_memory(t);
  add_tcgen05_mma(t);
  add_tcgen05_copies(t);
}

}  // namespace attnjit::emulator
