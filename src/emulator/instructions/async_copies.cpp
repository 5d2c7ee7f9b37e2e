// SPDX-License-Identifier: Apache-2.0
// cp.async, bulk copies and reductions, asynchronous stores, and the groups they are waited for in.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/async_copies.h"
#include "emulator/instructions/atomic_operation.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/operands.h"

namespace attnjit::emulator {

std::shared_ptr<PendingCopies> open_group(std::vector<std::shared_ptr<PendingCopies>>& groups,
                                          u32 mask) {
  if (groups.empty() || groups.back()->committed)
    groups.push_back(std::make_shared<PendingCopies>());
  groups.back()->mask |= mask;
  return groups.back();
}

void commit_group(std::vector<std::shared_ptr<PendingCopies>>& groups, u32 mask) {
  open_group(groups, mask)->committed = true;
}

Step wait_group(Warp& warp, std::vector<std::shared_ptr<PendingCopies>>& groups, Wait::Kind kind,
                u32 mask, u64 allowed, bool open_too, bool reads_only) {
  u64 newer = 0;
  for (std::size_t i = groups.size(); i-- > 0;) {
    const PendingCopies& g = *groups[i];
    if ((g.mask & mask) == 0 || (!g.committed && !open_too)) continue;
    if (g.committed) ++newer;
    const u32 left = reads_only ? g.unread : g.unwritten;
    if ((newer > allowed || !g.committed) && left != 0) {
      Group& group = *warp.group;
      group.state = Group::State::kBlocked;
      group.wait = {};
      group.wait.kind = kind;
      group.wait.value = allowed;
      group.wait.value2 = open_too ? 1 : 0;
      group.wait.by_parity = reads_only;
      group.wait.since = warp.cluster->steps;
      return Step::kWait;
    }
  }
  newer = 0;
  for (std::size_t i = groups.size(); i-- > 0;) {
    PendingCopies& g = *groups[i];
    if ((g.mask & mask) == 0 || (!g.committed && !open_too)) continue;
    if (g.committed) ++newer;
    if (newer <= allowed && g.committed) continue;
    const View& done = reads_only ? g.read_done : g.write_done;
    if (kind == Wait::Kind::kBulkGroup) {
      warp.clocks.drain(done, mask, warp.live);
    } else {
      warp.clocks.view.acquire(done);
    }
    // Its own copies need no tcgen05.fence before its tensor operations.
    if (!reads_only) join(warp.clocks.tensor_fenced, g.write_done.generic);
    if (!reads_only) g.mask &= ~mask;
  }
  std::erase_if(groups, [&](const auto& g) {
    const bool done = g->mask == 0 && g->unwritten == 0;
    if (done && kind == Wait::Kind::kAsyncGroup) warp.clocks.copied.acquire(g->write_done);
    return done;
  });
  return Step::kNext;
}

bool shared_operand(Warp& warp, const Op& op, u32 lane, u64 value, bool generic,
                    SharedAddress* address) {
  if (generic || (value >> 32) != 0) {
    if ((value & kWindowMask) != kSharedWindow) {
      warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                           fmt::format("0x{:x} is not an address of shared memory", value));
      return false;
    }
    value &= ~kWindowMask;
  }
  *address = SharedAddress(static_cast<u32>(value));
  return true;
}

void Payload::take(const Place& place, std::size_t at, std::size_t bytes) {
  std::memcpy(data.data() + at, place.data, bytes);
  if (place.poison == nullptr) {
    if (!poison.empty()) std::memset(poison.data() + at, 0, bytes);
    return;
  }
  if (poison.empty() && std::memchr(place.poison, 1, bytes) == nullptr) return;
  poison.resize(data.size());
  std::memcpy(poison.data() + at, place.poison, bytes);
}

void Payload::put(const Place& place, std::size_t at, std::size_t bytes) const {
  std::memcpy(place.data, data.data() + at, bytes);
  if (place.poison == nullptr) return;
  if (poison.empty()) {
    std::memset(place.poison, 0, bytes);
  } else {
    std::memcpy(place.poison, poison.data() + at, bytes);
  }
}

bool Payload::matches(const Place& place, std::size_t at, std::size_t bytes) const {
  return std::memcmp(place.data, data.data() + at, bytes) == 0;
}

bool Payload::poisoned(std::size_t at, std::size_t bytes) const {
  return !poison.empty() && std::memchr(poison.data() + at, 1, bytes) != nullptr;
}

namespace {

// -------------------------------------------------------------------------------------- cp.async

struct LaneCopy {
  u32 lane;
  SharedAddress to;
  u64 from;
  u32 bytes, source_bytes;
};

/// One cp.async of a warp; generic proxy, but at a time of its own.
class ThreadCopies : public AsyncOp {
 public:
  std::vector<LaneCopy> copies;
  std::shared_ptr<PendingCopies> group;
  ThreadCopies() { proxy = Proxy::kGeneric; }
  const char* unit() const override { return "copy engine (cp.async)"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kThreadCopy;
    for (const LaneCopy& c : copies) {
      w.bytes += c.source_bytes;
      if (c.source_bytes != 0) w.address = c.from;
    }
    return w;
  }
  bool step(Cluster& cluster) override {
    for (const LaneCopy& c : copies) {
      Payload payload;
      payload.data.assign(c.bytes, 0);
      if (c.source_bytes != 0) {
        Place from;
        if (!cluster.resolve_async(*this, c.from, c.source_bytes, &from)) continue;
        cluster.record(*this, from, c.source_bytes, false);
        payload.take(from, 0, c.source_bytes);
      }
      Place to;
      if (!cluster.resolve_async(*this, c.to, c.bytes, &to)) continue;
      cluster.record(*this, to, c.bytes, true);
      payload.put(to, 0, c.bytes);
      cluster.stats.unit_bytes["cp.async"] += c.bytes;
    }
    --group->unread;
    --group->unwritten;
    group->read_done.acquire(reads_done());
    group->write_done.acquire(all_done());
    return true;
  }
};

struct CopyBytes {
  u32 bytes = 0;
  bool to_wide = false;  ///< the destination's address has 64 bits
};

// s = {to, from, source bytes or ignore-src predicate}
Step execute_cp_async(Warp& warp, const Op& op, const CopyBytes& what, u32 mask) {
  if (warp.machine->checks) {
    warp.require_defined(op.s[0], mask, op, "the destination's address");
    warp.require_defined(op.s[1], mask, op, "the source's address");
  }
  auto copies = std::make_unique<ThreadCopies>();
  const u32 bytes = what.bytes;
  for (const u32 lane : lanes_of(mask)) {
    LaneCopy c{lane, {}, warp.lane64(op.s[1], lane), bytes, bytes};
    if (!shared_operand(warp, op, lane, warp.value(op.s[0], lane, what.to_wide), false, &c.to))
      continue;
    c.from &= (c.from & kWindowMask) == 0 ? ~u64{0} : ~kWindowMask;
    if (op.s[2] != kNoRef)
      c.source_bytes = is_predicate(op.s[2])
                           ? ((warp.predicate(op.s[2]) >> lane & 1) != 0 ? 0 : bytes)
                           : std::min(bytes, warp.lane32(op.s[2], lane));
    if (c.to.bits() % bytes != 0 || (c.source_bytes != 0 && c.from % bytes != 0)) {
      warp.cluster->report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
                           fmt::format("addresses 0x{:x} and 0x{:x} are not multiples of {}",
                                       c.to.bits(), c.from, bytes));
      continue;
    }
    copies->copies.push_back(c);
  }
  copies->group = open_group(warp.copies.async, mask);
  ++copies->group->unread;
  ++copies->group->unwritten;
  warp.cluster->start(std::move(copies), warp, op, mask);
  return Step::kNext;
}

struct GroupCommit {
  bool bulk = false;  ///< of cp.async.bulk, or of cp.async
};

Step execute_commit(Warp& warp, const Op&, const GroupCommit& what, u32 mask) {
  commit_group(what.bulk ? warp.copies.bulk : warp.copies.async, mask);
  return Step::kNext;
}

struct GroupWait {
  bool bulk = false;
  bool reads_only = false;  ///< .read
  bool open_too = false;    ///< wait_all
  u64 allowed = 0;          ///< groups that may be pending
};

Step execute_wait_group(Warp& warp, const Op&, const GroupWait& what, u32 mask) {
  return wait_group(warp, what.bulk ? warp.copies.bulk : warp.copies.async,
                    what.bulk ? Wait::Kind::kBulkGroup : Wait::Kind::kAsyncGroup, mask,
                    what.allowed, what.open_too, what.reads_only);
}

/// cp.async.mbarrier.arrive: arrives when the copies issued before are done.
class ArriveOnCopies : public AsyncOp {
 public:
  std::vector<std::shared_ptr<PendingCopies>> groups;
  View earlier;  ///< copies that were waited for
  SharedAddress address;
  u32 count = 1;
  ArriveOnCopies() { proxy = Proxy::kGeneric; }
  const char* unit() const override { return "copy engine (cp.async.mbarrier.arrive)"; }
  UnitWork work() const override {
    UnitWork w;
    w.done_when_asked = true;
    return w;
  }
  bool ready(Cluster&) override {
    return std::all_of(groups.begin(), groups.end(),
                       [](const auto& g) { return g->unwritten == 0; });
  }
  bool step(Cluster& cluster) override {
    // Of its thread's other instructions the arrival says nothing: PTX ISA 8.9.1.1.
    View knowledge = all_done();
    knowledge.acquire(earlier);
    for (const auto& g : groups) knowledge.acquire(g->write_done);
    if (Mbarrier* b = cluster.mbarrier(issuer, site, address, "an arrival"))
      cluster.mbarrier_arrive(*b, count, knowledge, site, issuer, address);
    return true;
  }
};

struct CopyArrival {
  Address address;
  bool counted = false;  ///< .noinc: the barrier's count includes the arrival
};

Step execute_arrive_on_copies(Warp& warp, const Op& op, const CopyArrival& arrival, u32 mask) {
  const bool generic = arrival.address.space == Space::kGeneric;
  // Lanes that name one mbarrier arrive together.
  u32 left = mask;
  while (left != 0) {
    const u32 first = lowest_lane(left);
    SharedAddress address;
    if (!shared_operand(warp, op, first, lane_address(warp, op, arrival.address, first), generic,
                        &address))
      return Step::kNext;
    u32 same = 0;
    for (const u32 lane : lanes_of(left)) {
      SharedAddress other;
      if (shared_operand(warp, op, lane, lane_address(warp, op, arrival.address, lane), generic,
                         &other) &&
          other == address)
        same |= u32{1} << lane;
    }
    left &= ~(same | (u32{1} << first));
    auto arrive = std::make_unique<ArriveOnCopies>();
    arrive->groups = warp.copies.async;
    arrive->earlier = warp.clocks.copied;
    arrive->address = address;
    arrive->count = count_lanes(same);
    if (!arrival.counted) {
      if (Mbarrier* b = warp.cluster->mbarrier(&warp, op.site, address, "an arrival"))
        b->pending += arrive->count;
    }
    warp.cluster->start(std::move(arrive), warp, op, same);
  }
  return Step::kNext;
}

bool decode_cp_async(Decoding& d) {
  d.take("async");
  if (d.take("commit_group")) {
    if (!d.expect(0, 0) || !d.done()) return false;
    d.emit<execute_commit>();
    return true;
  }
  const bool all = d.take("wait_all");
  if (all || d.take("wait_group")) {
    u64 n = 0;
    if (!d.expect(all ? 0 : 1, all ? 0 : 1) || !d.done() || (!all && !d.immediate(0, &n)))
      return false;
    d.emit<execute_wait_group>({.open_too = all, .allowed = n});
    return true;
  }
  if (d.take("mbarrier")) {
    if (!d.take("arrive")) return d.invalid(".arrive is needed");
    CopyArrival arrival;
    arrival.counted = d.take("noinc");
    const Space space = d.take_space(Space::kGeneric);
    d.take_type();
    Ref base = kNoRef;
    if (!d.expect(1, 1) || !d.done() ||
        !d.address(d.in.operands[0], space, &arrival.address, &base))
      return false;
    d.emit<execute_arrive_on_copies>(arrival).s[0] = base;
    return true;
  }
  const int level = d.take_any({"ca", "cg"});
  if (level < 0) return d.invalid(".ca or .cg is needed");
  if (!d.take("shared") && !d.take("shared::cta")) return d.invalid("cp.async goes to .shared");
  if (!d.take("global")) return d.invalid("cp.async comes from .global");
  const bool policy = d.take("L2::cache_hint");
  d.take_cache_hints();
  u64 bytes = 0;
  if (!d.expect(3, 5) || !d.done() || !d.immediate(2, &bytes)) return false;
  if (bytes != 4 && bytes != 8 && bytes != 16) return d.invalid("cp.async copies 4, 8 or 16 bytes");
  if (level == 1 && bytes != 16) return d.invalid("cp.async.cg copies 16 bytes");
  bool to_wide = false, from_wide = false;
  const Ref to = d.address_value(d.in.operands[0], &to_wide);
  const Ref from = d.address_value(d.in.operands[1], &from_wide);
  if (!d.failed() && !from_wide) return d.invalid("a global address has 64 bits");
  Ref size = kNoRef;
  const std::size_t sizes = d.count() - 3 - (policy ? 1 : 0);
  if (sizes == 1) {
    const Operand& operand = d.in.operands[3];
    size = d.width(operand) == 1 ? d.source(operand, 1) : d.source(operand, 32);
  }
  if (d.failed()) return false;
  Op& op = d.emit<execute_cp_async>({static_cast<u32>(bytes), to_wide});
  op.s[0] = to;
  op.s[1] = from;
  op.s[2] = size;
  return true;
}

// --------------------------------------------------------------------------------------
// cp.async.bulk

/// Where a bulk copy reads or writes: an address of shared or of global memory.
struct BulkPlace {
  bool shared = false;
  u64 address = 0;
};

struct Reduction {
  bool on = false;
  AtomicOperation operation = AtomicOperation::kAdd;
  Type type = Type::kNone;
};

/// A bulk copy or reduction: reads its source, then writes in two parts, then signals.
class BulkCopy : public AsyncOp {
 public:
  Reduction reduction;
  BulkPlace from;
  std::vector<BulkPlace> to;
  std::vector<SharedAddress> barriers;  ///< one a destination, or none: bulk group
  u32 bytes = 0;
  u32 byte_mask = 0xFFFF;
  std::shared_ptr<PendingCopies> group;
  const char* unit() const override { return "bulk-copy engine"; }
  UnitWork work() const override {
    UnitWork w;
    const bool loads = !from.shared;
    w.kind = loads                               ? UnitWork::Kind::kLoad
             : !to.empty() && !to.front().shared ? UnitWork::Kind::kStore
                                                 : UnitWork::Kind::kPeerStore;
    w.bytes = bytes;
    w.address = loads ? from.address : to.empty() ? 0 : to.front().address;
    return w;
  }
  bool step(Cluster& cluster) override {
    if (phase_ == 0) {
      Place place;
      // More than any CTA has: told at once, for to carry so much takes seconds.
      const BulkPlace* room = from.shared                        ? &from
                              : !to.empty() && to.front().shared ? &to.front()
                                                                 : nullptr;
      const bool fits = room == nullptr || bytes <= kMaxSharedBytes;
      if (!fits) static_cast<void>(resolve(cluster, *room, 0, bytes, &place));
      payload_.data.assign(fits ? bytes : 0, 0);
      if (bytes != 0 && fits && resolve(cluster, from, 0, bytes, &place)) {
        cluster.record(*this, place, bytes, false);
        payload_.take(place, 0, bytes);
      }
      if (group != nullptr) {
        --group->unread;
        group->read_done.acquire(reads_done());
      }
      phase_ = 1;
      return false;
    }
    if (phase_ < 3) {
      const u32 middle = bytes / 32 * 16;
      const u32 begin = phase_ == 1 ? 0 : middle, end = phase_ == 1 ? middle : bytes;
      for (const BulkPlace& target : to) {
        Place place;
        if (begin == end || payload_.data.empty() ||
            !resolve(cluster, target, begin, end - begin, &place)) {
          continue;
        }
        const bool same = !reduction.on && payload_.matches(place, begin, end - begin);
        cluster.record(*this, place, end - begin, true, same);
        write(cluster, place, begin, end - begin);
      }
      ++phase_;
      return false;
    }
    cluster.stats.unit_bytes["bulk copies"] += bytes;
    if (group != nullptr) {
      --group->unwritten;
      group->write_done.acquire(all_done());
    }
    for (const SharedAddress b : barriers)
      cluster.mbarrier_complete(b, bytes, all_done(), site, issuer);
    return true;
  }

 private:
  bool resolve(Cluster& cluster, const BulkPlace& at, u32 begin, u32 n, Place* place) {
    if (!at.shared) return cluster.resolve_async(*this, at.address + begin, n, place);
    const SharedAddress address(static_cast<u32>(at.address));
    return cluster.resolve_async(*this, address + begin, n, place);
  }
  void write(Cluster& cluster, const Place& place, u32 begin, u32 n) {
    if (place.cta == nullptr && payload_.poisoned(begin, n)) {
      cluster.report(FindingKind::kUninitialised, issuer, -1, site,
                     "uninitialised shared memory is copied to global memory");
    }
    if (!reduction.on) {
      if (byte_mask == 0xFFFF) {
        payload_.put(place, begin, n);
        return;
      }
      for (u32 i = 0; i < n; ++i) {
        if ((byte_mask >> ((begin + i) % 16) & 1) != 0) {
          Place one = place;
          one.data += i;
          if (one.poison != nullptr) one.poison += i;
          payload_.put(one, begin + i, 1);
        }
      }
      return;
    }
    const auto element = static_cast<u32>(bits_of(reduction.type) / 8);
    AtomicLock lock;
    lock.lock();
    for (u32 i = 0; i + element <= n; i += element) {
      u64 a = 0, b = 0;
      std::memcpy(&a, place.data + i, element);
      std::memcpy(&b, payload_.data.data() + begin + i, element);
      const u64 r = apply_atomic(reduction.operation, reduction.type, a, b, 0);
      std::memcpy(place.data + i, &r, element);
    }
    lock.unlock();
  }
  int phase_ = 0;
  Payload payload_;
};

/// Op::list: the operands, as in BulkSlot. They end with a group, or else at an mbarrier.
struct Bulk {
  bool to_shared = false, from_shared = false;
  bool group = false;
  bool multicast = false;
  bool to_own = false;                                            ///< to .shared::cta
  bool to_wide = false, from_wide = false, barrier_wide = false;  ///< addresses of 64 bits
  Reduction reduction;
};
enum BulkSlot : u32 { kTo, kFrom, kSize, kBarrier, kTargets, kByteMask, kBulkSlots };

Step execute_bulk(Warp& warp, const Op& op, const Bulk& bulk, u32 mask) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  if (warp.machine->checks) {
    constexpr std::array<const char*, kBulkSlots> kRoles = {
        "the destination's address", "the source's address", "the size",
        "the mbarrier's address",    "the multicast mask",   "the byte mask"};
    for (u32 i = 0; i < kBulkSlots; ++i) warp.require_defined(list[i], mask, op, kRoles[i]);
  }
  for (const u32 lane : lanes_of(mask)) {
    auto copy = std::make_unique<BulkCopy>();
    copy->reduction = bulk.reduction;
    copy->bytes = warp.lane32(list[kSize], lane);
    BulkPlace to{bulk.to_shared, warp.value(list[kTo], lane, bulk.to_wide)};
    copy->from = {bulk.from_shared, warp.value(list[kFrom], lane, bulk.from_wide)};
    SharedAddress target, source;
    if (to.shared) {
      if (!shared_operand(warp, op, lane, to.address, false, &target)) continue;
      to.address = target.bits();
    }
    if (copy->from.shared) {
      if (!shared_operand(warp, op, lane, copy->from.address, false, &source)) continue;
      copy->from.address = source.bits();
      if (source.rank() != warp.cta->rank) {
        warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                             "the source lies in another CTA's shared memory");
        continue;
      }
    }
    if (copy->bytes % 16 != 0 || to.address % 16 != 0 || copy->from.address % 16 != 0) {
      warp.cluster->report(
          FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
          fmt::format("a bulk copy of {} bytes from 0x{:x} to 0x{:x}: all must be multiples of 16",
                      copy->bytes, copy->from.address, to.address));
      continue;
    }
    if (bulk.group) {
      copy->to = {to};
      if (list[kByteMask] != kNoRef) copy->byte_mask = warp.lane32(list[kByteMask], lane) & 0xFFFF;
      copy->group = open_group(warp.copies.bulk, u32{1} << lane);
      ++copy->group->unread;
      ++copy->group->unwritten;
    } else {
      SharedAddress barrier;
      if (!shared_operand(warp, op, lane, warp.value(list[kBarrier], lane, bulk.barrier_wide),
                          false, &barrier))
        continue;
      if (bulk.multicast) {
        for (const u32 rank : lanes_of(warp.lane32(list[kTargets], lane) & 0xFFFF)) {
          copy->to.push_back({true, target.in(rank).bits()});
          copy->barriers.push_back(barrier.in(rank));
        }
      } else {
        copy->to = {to};
        copy->barriers = {barrier};
        if (barrier.rank() != target.rank()) {
          warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                               "the mbarrier lies in another CTA than the destination");
        }
      }
      if (bulk.to_own && target.rank() != warp.cta->rank) {
        warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                             "a .shared::cta destination in another CTA");
        continue;
      }
    }
    warp.cluster->start(std::move(copy), warp, op, u32{1} << lane);
  }
  return Step::kNext;
}

bool decode_bulk(Decoding& d, bool reduces) {
  d.take("async");
  d.take("reduce");
  d.take("bulk");
  if (!reduces && d.take("commit_group")) {
    if (!d.expect(0, 0) || !d.done()) return false;
    d.emit<execute_commit>({.bulk = true});
    return true;
  }
  if (!reduces && d.take("wait_group")) {
    const bool read = d.take("read");
    u64 n = 0;
    if (!d.expect(1, 1) || !d.done() || !d.immediate(0, &n)) return false;
    d.emit<execute_wait_group>({.bulk = true, .reads_only = read, .allowed = n});
    return true;
  }
  const bool policy = d.take("L2::cache_hint");
  if (!reduces && d.take("prefetch")) {
    d.take("L2");
    d.take("global");
    if (!d.expect(2, 3) || !d.done()) return false;
    bool wide = false;
    d.address_value(d.in.operands[0], &wide);
    d.source(1, 32);
    if (d.failed()) return false;
    d.emit<execute_nothing>();
    return true;
  }
  const bool group = d.take("bulk_group");
  const bool barrier = d.take("mbarrier::complete_tx::bytes");
  if (group == barrier) return d.invalid(".bulk_group or .mbarrier::complete_tx::bytes is needed");
  const bool multicast = d.take("multicast::cluster");
  const bool masked = d.take("cp_mask");
  // The first space written is the destination's.
  const auto first_space = [&]() -> int {
    for (const std::string_view m : d.in.modifiers) {
      if (m == "shared::cluster") return 0;
      if (m == "shared::cta") return 1;
      if (m == "global") return 2;
    }
    return -1;
  };
  const int to = first_space();
  d.take("shared::cluster");
  const bool cta = d.take("shared::cta"), global = d.take("global");
  Bulk bulk;
  bulk.group = group;
  bulk.multicast = multicast;
  if (to == 2 && cta && group) {
    bulk.from_shared = true;
  } else if (to == 0 && cta && !global) {
    bulk.to_shared = bulk.from_shared = true;
  } else if ((to == 0 || to == 1) && global) {
    bulk.to_shared = true;
    bulk.to_own = to == 1;
  } else {
    return d.invalid("these state spaces are not a bulk copy's");
  }
  if (reduces) {
    Reduction& r = bulk.reduction;
    r.on = true;
    if (!take_atomic_operation(d, &r.operation)) return false;
    const bool noftz = d.take("noftz");
    r.type = d.take_type();
    if (!check_atomic_type(d, r.operation, r.type)) return false;
    if (noftz &&
        (r.operation != AtomicOperation::kAdd || (r.type != Type::kF16 && r.type != Type::kBf16)))
      return d.unsupported(".noftz is of .add.f16 and .add.bf16");
  }
  const std::size_t operands =
      3 + (barrier ? 1 : 0) + (multicast ? 1 : 0) + (policy ? 1 : 0) + (masked ? 1 : 0);
  if (!d.expect(operands, operands) || !d.done()) return false;
  std::vector<Ref> refs(kBulkSlots, kNoRef);
  refs[kTo] = d.address_value(d.in.operands[0], &bulk.to_wide);
  refs[kFrom] = d.address_value(d.in.operands[1], &bulk.from_wide);
  refs[kSize] = d.source(2, 32);
  std::size_t next = 3;
  if (barrier) refs[kBarrier] = d.address_value(d.in.operands[next++], &bulk.barrier_wide);
  if (multicast) refs[kTargets] = d.source(next++, 16);
  if (policy) d.source(next++, 64);
  if (masked) refs[kByteMask] = d.source(next++, 16);
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit<execute_bulk>(bulk);
  op.list = list;
  op.list_count = kBulkSlots;
  if (reduces && to == 2) d.f.builder.program->communicates = true;
  return true;
}

// -------------------------------------------------------------------------------------- st.async,
// red.async

class AsyncStore : public AsyncOp {
 public:
  SharedAddress to, barrier;
  u32 element = 0;
  Reduction reduction;
  Payload payload;
  const char* unit() const override { return "asynchronous store"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kPeerStore;
    w.bytes = payload.data.size();
    return w;
  }
  bool step(Cluster& cluster) override {
    const auto bytes = static_cast<u32>(payload.data.size());
    Place place;
    if (cluster.resolve_async(*this, to, bytes, &place)) {
      cluster.record(*this, place, bytes, true);
      if (reduction.on) {
        for (u32 i = 0; i < bytes; i += element) {
          u64 a = 0, b = 0;
          std::memcpy(&a, place.data + i, element);
          std::memcpy(&b, payload.data.data() + i, element);
          const u64 r = apply_atomic(reduction.operation, reduction.type, a, b, 0);
          std::memcpy(place.data + i, &r, element);
        }
      } else {
        payload.put(place, 0, bytes);
      }
    }
    cluster.mbarrier_complete(barrier, bytes, all_done(), site, issuer);
    return true;
  }
};

/// Op::list: the address, the mbarrier's address, then the values.
struct Store {
  u32 element = 0;  ///< bytes
  u32 elements = 1;
  bool to_wide = false, barrier_wide = false;  ///< addresses of 64 bits
  Reduction reduction;

  u32 bytes() const { return element * elements; }
};

Step execute_async_store(Warp& warp, const Op& op, const Store& what, u32 mask) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  warp.require_defined(list[0], mask, op, "the address");
  warp.require_defined(list[1], mask, op, "the mbarrier's address");
  for (const u32 lane : lanes_of(mask)) {
    auto store = std::make_unique<AsyncStore>();
    if (!shared_operand(warp, op, lane, warp.value(list[0], lane, what.to_wide), false, &store->to))
      continue;
    if (!shared_operand(warp, op, lane, warp.value(list[1], lane, what.barrier_wide), false,
                        &store->barrier))
      continue;
    if (store->to.rank() != store->barrier.rank()) {
      warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                           "the mbarrier lies in another CTA than the destination");
    }
    store->element = what.element;
    store->reduction = what.reduction;
    store->payload.data.resize(what.bytes());
    for (u32 v = 0; v < what.elements; ++v) {
      const u64 value = warp.value(list[2 + v], lane, what.element == 8);
      std::memcpy(store->payload.data.data() + v * what.element, &value, what.element);
      if (warp.machine->checks && (warp.poison_of(list[2 + v]) >> lane & 1) != 0) {
        store->payload.poison.resize(store->payload.data.size());
        std::memset(store->payload.poison.data() + v * what.element, 1, what.element);
      }
    }
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a store has elements.
    if (store->to.bits() % what.bytes() != 0) {
      warp.cluster->report(
          FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
          fmt::format("address 0x{:x} is not a multiple of {}", store->to.bits(), what.bytes()));
      continue;
    }
    warp.cluster->start(std::move(store), warp, op, u32{1} << lane);
  }
  return Step::kNext;
}

bool decode_async_store(Decoding& d, bool reduces) {
  d.take("async");
  d.take_semantics();
  if (!d.take("shared::cluster")) return d.unsupported("only .shared::cluster is modelled");
  if (!d.take("mbarrier::complete_tx::bytes"))
    return d.unsupported(".mbarrier::complete_tx::bytes is needed");
  Store store;
  store.reduction.on = reduces;
  if (reduces && !take_atomic_operation(d, &store.reduction.operation)) return false;
  const int v = d.take_any({"v2", "v4"});
  const u8 vector = static_cast<u8>(v < 0 ? 1 : 2 << v);
  const Type type = d.take_type();
  const int bits = bits_of(type);
  if (bits != 32 && bits != 64) return d.unsupported("a 32- or 64-bit type is needed");
  if (reduces && !check_atomic_type(d, store.reduction.operation, type)) return false;
  if (reduces && (type == Type::kF32 || type == Type::kF64))
    return d.unsupported("red.async is of integers");
  if (bits * vector > 128) return d.unsupported("at most 16 bytes at once");
  if (!d.expect(3, 3) || !d.done()) return false;
  std::vector<Ref> refs(2, kNoRef);
  refs[0] = d.address_value(d.in.operands[0], &store.to_wide);
  refs[1] = d.address_value(d.in.operands[2], &store.barrier_wide);
  if (!take_stored(d, d.in.operands[1], vector, bits, type, &refs)) return false;
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  store.element = static_cast<u32>(bits / 8);
  store.elements = vector;
  store.reduction.type = type;
  Op& op = d.emit<execute_async_store>(store);
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  return true;
}

struct BulkZeroes {
  bool wide = false;  ///< the address has 64 bits
};

/// st.bulk: zeroes, like a copy without a source. s = {address, bytes}
Step execute_store_bulk(Warp& warp, const Op& op, const BulkZeroes& what, u32 mask) {
  for (const u32 lane : lanes_of(mask)) {
    SharedAddress address;
    if (!shared_operand(warp, op, lane, warp.value(op.s[0], lane, what.wide), false, &address))
      continue;
    const u64 bytes = warp.lane64(op.s[1], lane);
    Place place;
    if (bytes % 8 != 0 || address.offset() % 8 != 0) {
      warp.cluster->report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
                           "st.bulk: address and size are multiples of 8");
      continue;
    }
    if (!warp.cluster->resolve_shared(
            op, warp, lane, address,
            static_cast<u32>(std::min<u64>(bytes, SharedAddress::kWindowBytes)), true, &place))
      continue;
    warp.cluster->record(warp, op, {u32{1} << lane}, place, static_cast<u32>(bytes), true, false);
    std::memset(place.data, 0, bytes);
    if (place.poison != nullptr) std::memset(place.poison, 0, bytes);
  }
  warp.cluster->note_progress();
  return Step::kNext;
}

bool decode_store_bulk(Decoding& d) {
  d.take("bulk");
  d.take_semantics();
  d.take_space(Space::kGeneric);
  u64 value = 0;
  if (!d.expect(3, 3) || !d.done() || !d.immediate(2, &value)) return false;
  if (value != 0) return d.invalid("st.bulk stores zero");
  bool wide = false;
  const Ref to = d.address_value(d.in.operands[0], &wide), size = d.source(1, 64);
  if (d.failed()) return false;
  Op& op = d.emit<execute_store_bulk>({wide});
  op.s[0] = to;
  op.s[1] = size;
  return true;
}

}  // namespace

void add_async_copies(InstructionTable& t) {
  t.add({"cp", ".async", "asynchronous copy",
         ".ca .cg 4 8 16 bytes, src-size and ignore-src; commit_group wait_group wait_all; "
         "mbarrier.arrive{.noinc}",
         "9.7.9.25.3", decode_cp_async});
  t.add({"cp", ".async.bulk", "asynchronous copy",
         "global to shared (::cta, ::cluster, multicast), shared to shared::cluster, shared to "
         "global (cp_mask); commit_group wait_group{.read}; prefetch",
         "9.7.9.25.4", [](Decoding& d) { return decode_bulk(d, false); }});
  t.add({"cp", ".reduce.async.bulk", "asynchronous copy",
         "to global and to shared::cluster; add min max inc dec and or xor", "9.7.9.25.4",
         [](Decoding& d) { return decode_bulk(d, true); }});
  t.add({"st", ".async", "asynchronous copy", ".shared::cluster with mbarrier; .v2 .v4", "9.7.9.12",
         [](Decoding& d) { return decode_async_store(d, false); }});
  t.add({"red", ".async", "asynchronous copy", ".shared::cluster with mbarrier", "9.7.13.7",
         [](Decoding& d) { return decode_async_store(d, true); }});
  t.add({"st", ".bulk", "asynchronous copy", "zero to shared", "9.7.9.13", decode_store_bulk});
}

}  // namespace attnjit::emulator
