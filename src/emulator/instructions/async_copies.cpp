// SPDX-License-Identifier: Apache-2.0
// cp.async, bulk copies and reductions, asynchronous stores, and the groups they are waited for in.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/async_copies.h"
#include "emulator/instructions/atomic_operation.h"
#include "emulator/instructions/executors.h"

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
    warp.view.acquire(reads_only ? g.read_done : g.write_done);
    // Its own copies need no tcgen05.fence before its tensor operations.
    if (!reads_only) join(warp.tensor_fenced, g.write_done.generic);
    if (!reads_only) g.mask &= ~mask;
  }
  std::erase_if(groups, [](const auto& g) { return g->mask == 0 && g->unwritten == 0; });
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

// s = {to, from, source bytes or predicate}; imm2: bytes
Step execute_cp_async(Warp& warp, const Op& op, u32 mask) {
  if (warp.machine->checks) {
    warp.require_defined(op.s[0], mask, op, "the destination's address");
    warp.require_defined(op.s[1], mask, op, "the source's address");
  }
  auto copies = std::make_unique<ThreadCopies>();
  const auto bytes = static_cast<u32>(op.imm2);
  for (const u32 lane : lanes_of(mask)) {
    LaneCopy c{lane, {}, warp.lane64(op.s[1], lane), bytes, bytes};
    if (!shared_operand(warp, op, lane, warp.value(op.s[0], lane, (op.mode & 1) != 0), false,
                        &c.to))
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
  copies->group = open_group(warp.cp_groups, mask);
  ++copies->group->unread;
  ++copies->group->unwritten;
  warp.cluster->start(std::move(copies), warp, op);
  return Step::kNext;
}

Step execute_commit(Warp& warp, const Op& op, u32 mask) {
  commit_group(op.mode == 0 ? warp.cp_groups : warp.bulk_groups, mask);
  return Step::kNext;
}

// mode: 0 cp.async, 1 bulk; imm: groups allowed; imm2: 1 reads only, 2 open too
Step execute_wait_group(Warp& warp, const Op& op, u32 mask) {
  return wait_group(warp, op.mode == 0 ? warp.cp_groups : warp.bulk_groups,
                    op.mode == 0 ? Wait::Kind::kAsyncGroup : Wait::Kind::kBulkGroup, mask, op.imm,
                    (op.imm2 & 2) != 0, (op.imm2 & 1) != 0);
}

/// cp.async.mbarrier.arrive: arrives when the copies issued before are done.
class ArriveOnCopies : public AsyncOp {
 public:
  std::vector<std::shared_ptr<PendingCopies>> groups;
  SharedAddress address;
  u32 count = 1;
  ArriveOnCopies() { proxy = Proxy::kGeneric; }
  const char* unit() const override { return "copy engine (cp.async.mbarrier.arrive)"; }
  bool ready(Cluster&) override {
    return std::all_of(groups.begin(), groups.end(),
                       [](const auto& g) { return g->unwritten == 0; });
  }
  bool step(Cluster& cluster) override {
    View knowledge = view;
    for (const auto& g : groups) knowledge.acquire(g->write_done);
    if (Mbarrier* b = cluster.mbarrier(issuer, site, address, "an arrival"))
      cluster.mbarrier_arrive(*b, count, knowledge, site, issuer, address);
    return true;
  }
};

Step execute_arrive_on_copies(Warp& warp, const Op& op, u32 mask) {
  // Lanes that name one mbarrier arrive together.
  u32 left = mask;
  while (left != 0) {
    const u32 first = lowest_lane(left);
    SharedAddress address;
    if (!shared_operand(warp, op, first, lane_address(warp, op, first), op.space == Space::kGeneric,
                        &address))
      return Step::kNext;
    u32 same = 0;
    for (const u32 lane : lanes_of(left)) {
      SharedAddress other;
      if (shared_operand(warp, op, lane, lane_address(warp, op, lane), op.space == Space::kGeneric,
                         &other) &&
          other == address)
        same |= u32{1} << lane;
    }
    left &= ~(same | (u32{1} << first));
    auto arrive = std::make_unique<ArriveOnCopies>();
    arrive->groups = warp.cp_groups;
    arrive->address = address;
    arrive->count = static_cast<u32>(__builtin_popcount(same));
    if (op.imm2 == 0) {
      if (Mbarrier* b = warp.cluster->mbarrier(&warp, op.site, address, "an arrival"))
        b->pending += arrive->count;
    }
    warp.cluster->start(std::move(arrive), warp, op);
  }
  return Step::kNext;
}

bool decode_cp_async(Decoding& d) {
  d.take("async");
  if (d.take("commit_group")) {
    if (!d.expect(0, 0) || !d.done()) return false;
    d.emit(execute_commit);
    return true;
  }
  const bool all = d.take("wait_all");
  if (all || d.take("wait_group")) {
    u64 n = 0;
    if (!d.expect(all ? 0 : 1, all ? 0 : 1) || !d.done() || (!all && !d.immediate(0, &n)))
      return false;
    Op& op = d.emit(execute_wait_group);
    op.imm = n;
    op.imm2 = all ? 2 : 0;
    return true;
  }
  if (d.take("mbarrier")) {
    if (!d.take("arrive")) return d.invalid(".arrive is needed");
    const bool noinc = d.take("noinc");
    Op probe;
    probe.space = d.take_space(Space::kGeneric);
    d.take_type();
    if (!d.expect(1, 1) || !d.done() || !d.address(d.in.operands[0], probe)) return false;
    Op& op = d.emit(execute_arrive_on_copies);
    op.space = probe.space;
    op.s[0] = probe.s[0];
    op.imm = probe.imm;
    op.mode = probe.mode;
    op.imm2 = noinc ? 1 : 0;
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
  Op& op = d.emit(execute_cp_async);
  op.s[0] = to;
  op.s[1] = from;
  op.s[2] = size;
  op.imm2 = bytes;
  op.mode = to_wide ? 1 : 0;
  return true;
}

// --------------------------------------------------------------------------------------
// cp.async.bulk

/// Where a bulk copy reads or writes: an address of shared or of global memory.
struct BulkPlace {
  bool shared = false;
  u64 address = 0;
};

struct BulkPlan {
  bool reduces = false;
  AtomicOperation operation = AtomicOperation::kAdd;
  Type type = Type::kNone;
};

/// A bulk copy or reduction: reads its source, then writes in two parts, then signals.
class BulkCopy : public AsyncOp {
 public:
  BulkPlan plan;
  BulkPlace from;
  std::vector<BulkPlace> to;
  std::vector<SharedAddress> barriers;  ///< one a destination, or none: bulk group
  u32 bytes = 0;
  u32 byte_mask = 0xFFFF;
  std::shared_ptr<PendingCopies> group;
  const char* unit() const override { return "bulk-copy engine"; }
  bool step(Cluster& cluster) override {
    if (phase_ == 0) {
      payload_.data.assign(bytes, 0);
      Place place;
      if (bytes != 0 && resolve(cluster, from, 0, bytes, &place)) {
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
        if (begin == end || !resolve(cluster, target, begin, end - begin, &place)) continue;
        const bool same = !plan.reduces && payload_.matches(place, begin, end - begin);
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
    if (!plan.reduces) {
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
    const auto element = static_cast<u32>(bits_of(plan.type) / 8);
    AtomicLock lock;
    lock.lock();
    for (u32 i = 0; i + element <= n; i += element) {
      u64 a = 0, b = 0;
      std::memcpy(&a, place.data + i, element);
      std::memcpy(&b, payload_.data.data() + begin + i, element);
      const u64 r = apply_atomic(plan.operation, plan.type, a, b, 0);
      std::memcpy(place.data + i, &r, element);
    }
    lock.unlock();
  }
  int phase_ = 0;
  Payload payload_;
};

enum BulkMode : u8 {
  kToShared = 1,
  kFromShared = 2,
  kGroup = 4,
  kMulticast = 8,
  kReduces = 16,
  kToOwn = 32
};
// list: to, from, size, mbar, mask, byte mask; imm: bit i: list[i] is 64-bit; imm2: operation |
// type << 8
Step execute_bulk(Warp& warp, const Op& op, u32 mask) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  if (warp.machine->checks) {
    constexpr const char* kRoles[] = {
        "the destination's address", "the source's address", "the size",
        "the mbarrier's address",    "the multicast mask",   "the byte mask"};
    for (u32 i = 0; i < 6; ++i) warp.require_defined(list[i], mask, op, kRoles[i]);
  }
  for (const u32 lane : lanes_of(mask)) {
    auto copy = std::make_unique<BulkCopy>();
    const auto value = [&](u32 i) { return warp.value(list[i], lane, (op.imm >> i & 1) != 0); };
    copy->plan.reduces = (op.mode & kReduces) != 0;
    copy->plan.operation = static_cast<AtomicOperation>(op.imm2 & 0xFF);
    copy->plan.type = static_cast<Type>(op.imm2 >> 8 & 0xFF);
    copy->bytes = static_cast<u32>(value(2));
    BulkPlace to{(op.mode & kToShared) != 0, value(0)};
    copy->from = {(op.mode & kFromShared) != 0, value(1)};
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
    if ((op.mode & kGroup) != 0) {
      copy->to = {to};
      if (list[5] != kNoRef) copy->byte_mask = static_cast<u32>(value(5)) & 0xFFFF;
      copy->group = open_group(warp.bulk_groups, u32{1} << lane);
      ++copy->group->unread;
      ++copy->group->unwritten;
    } else {
      SharedAddress barrier;
      if (!shared_operand(warp, op, lane, value(3), false, &barrier)) continue;
      if ((op.mode & kMulticast) != 0) {
        for (const u32 rank : lanes_of(static_cast<u32>(value(4)) & 0xFFFF)) {
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
      if ((op.mode & kToOwn) != 0 && target.rank() != warp.cta->rank) {
        warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                             "a .shared::cta destination in another CTA");
        continue;
      }
    }
    warp.cluster->start(std::move(copy), warp, op);
  }
  return Step::kNext;
}

Step execute_nothing(Warp&, const Op&, u32) { return Step::kNext; }

bool decode_bulk(Decoding& d, bool reduces) {
  d.take("async");
  d.take("reduce");
  d.take("bulk");
  if (!reduces && d.take("commit_group")) {
    if (!d.expect(0, 0) || !d.done()) return false;
    d.emit(execute_commit).mode = 1;
    return true;
  }
  if (!reduces && d.take("wait_group")) {
    const bool read = d.take("read");
    u64 n = 0;
    if (!d.expect(1, 1) || !d.done() || !d.immediate(0, &n)) return false;
    Op& op = d.emit(execute_wait_group);
    op.mode = 1;
    op.imm = n;
    op.imm2 = read ? 1 : 0;
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
    d.emit(execute_nothing);
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
  const bool cluster = d.take("shared::cluster"), cta = d.take("shared::cta"),
             global = d.take("global");
  u8 mode = 0;
  if (to == 2 && cta && group) {
    mode = kFromShared | kGroup;
  } else if (to == 0 && cta && !global) {
    mode = kToShared | kFromShared;
  } else if ((to == 0 || to == 1) && global) {
    mode = static_cast<u8>(kToShared | (to == 1 ? kToOwn : 0));
  } else {
    return d.invalid("these state spaces are not a bulk copy's");
  }
  (void)cluster;
  if (multicast) mode |= kMulticast;
  u64 operation = 0;
  if (reduces) {
    AtomicOperation a{};
    if (!take_atomic_operation(d, &a)) return false;
    const bool noftz = d.take("noftz");
    const Type type = d.take_type();
    if (!check_atomic_type(d, a, type)) return false;
    if (noftz && (a != AtomicOperation::kAdd || (type != Type::kF16 && type != Type::kBf16)))
      return d.unsupported(".noftz is of .add.f16 and .add.bf16");
    operation = static_cast<u64>(a) | (static_cast<u64>(type) << 8);
    mode |= kReduces;
  }
  const std::size_t operands =
      3 + (barrier ? 1 : 0) + (multicast ? 1 : 0) + (policy ? 1 : 0) + (masked ? 1 : 0);
  if (!d.expect(operands, operands) || !d.done()) return false;
  std::vector<Ref> refs(6, kNoRef);
  u64 wide_bits = 0;
  const auto address = [&](std::size_t operand, u32 slot) {
    bool wide = false;
    refs[slot] = d.address_value(d.in.operands[operand], &wide);
    if (wide) wide_bits |= u64{1} << slot;
  };
  address(0, 0);
  address(1, 1);
  refs[2] = d.source(2, 32);
  std::size_t next = 3;
  if (barrier) address(next++, 3);
  if (multicast) refs[4] = d.source(next++, 16);
  if (policy) d.source(next++, 64);
  if (masked) refs[5] = d.source(next++, 16);
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit(execute_bulk);
  op.list = list;
  op.list_count = 6;
  op.imm = wide_bits;
  op.imm2 = operation;
  op.mode = mode;
  if (reduces && to == 2) d.f.builder.program->communicates = true;
  return true;
}

// -------------------------------------------------------------------------------------- st.async,
// red.async

class AsyncStore : public AsyncOp {
 public:
  SharedAddress to, barrier;
  u32 element = 0;
  bool reduces = false;
  AtomicOperation operation = AtomicOperation::kAdd;
  Type type = Type::kNone;
  Payload payload;
  const char* unit() const override { return "asynchronous store"; }
  bool step(Cluster& cluster) override {
    const auto bytes = static_cast<u32>(payload.data.size());
    Place place;
    if (cluster.resolve_async(*this, to, bytes, &place)) {
      cluster.record(*this, place, bytes, true);
      if (reduces) {
        for (u32 i = 0; i < bytes; i += element) {
          u64 a = 0, b = 0;
          std::memcpy(&a, place.data + i, element);
          std::memcpy(&b, payload.data.data() + i, element);
          const u64 r = apply_atomic(operation, type, a, b, 0);
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

// list: address, mbar, values...; imm: bits of width; imm2: operation
Step execute_async_store(Warp& warp, const Op& op, u32 mask) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  warp.require_defined(list[0], mask, op, "the address");
  warp.require_defined(list[1], mask, op, "the mbarrier's address");
  for (const u32 lane : lanes_of(mask)) {
    auto store = std::make_unique<AsyncStore>();
    if (!shared_operand(warp, op, lane, warp.value(list[0], lane, (op.imm & 1) != 0), false,
                        &store->to))
      continue;
    if (!shared_operand(warp, op, lane, warp.value(list[1], lane, (op.imm & 2) != 0), false,
                        &store->barrier))
      continue;
    if (store->to.rank() != store->barrier.rank()) {
      warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                           "the mbarrier lies in another CTA than the destination");
    }
    store->element = op.bytes;
    store->reduces = op.mode == 1;
    store->operation = static_cast<AtomicOperation>(op.imm2);
    store->type = op.type;
    store->payload.data.resize(static_cast<std::size_t>(op.bytes) * op.vector);
    for (u32 v = 0; v < op.vector; ++v) {
      const u64 value = warp.value(list[2 + v], lane, op.bytes == 8);
      std::memcpy(store->payload.data.data() + v * op.bytes, &value, op.bytes);
      if (warp.machine->checks && (warp.poison_of(list[2 + v]) >> lane & 1) != 0) {
        store->payload.poison.resize(store->payload.data.size());
        std::memset(store->payload.poison.data() + v * op.bytes, 1, op.bytes);
      }
    }
    if (store->to.bits() % (op.bytes * op.vector) != 0) {
      warp.cluster->report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
                           fmt::format("address 0x{:x} is not a multiple of {}", store->to.bits(),
                                       op.bytes * op.vector));
      continue;
    }
    warp.cluster->start(std::move(store), warp, op);
  }
  return Step::kNext;
}

bool decode_async_store(Decoding& d, bool reduces) {
  d.take("async");
  d.take_semantics();
  if (!d.take("shared::cluster")) return d.unsupported("only .shared::cluster is modelled");
  if (!d.take("mbarrier::complete_tx::bytes"))
    return d.unsupported(".mbarrier::complete_tx::bytes is needed");
  AtomicOperation operation{};
  if (reduces && !take_atomic_operation(d, &operation)) return false;
  const int v = d.take_any({"v2", "v4"});
  const u8 vector = static_cast<u8>(v < 0 ? 1 : 2 << v);
  const Type type = d.take_type();
  const int bits = bits_of(type);
  if (bits != 32 && bits != 64) return d.unsupported("a 32- or 64-bit type is needed");
  if (reduces && !check_atomic_type(d, operation, type)) return false;
  if (reduces && (type == Type::kF32 || type == Type::kF64))
    return d.unsupported("red.async is of integers");
  if (bits * vector > 128) return d.unsupported("at most 16 bytes at once");
  if (!d.expect(3, 3) || !d.done()) return false;
  std::vector<Ref> refs(2, kNoRef);
  bool to_wide = false, bar_wide = false;
  refs[0] = d.address_value(d.in.operands[0], &to_wide);
  refs[1] = d.address_value(d.in.operands[2], &bar_wide);
  if (d.is(1, Operand::Kind::kVector)) {
    if (d.in.operands[1].parts.size() != vector)
      return d.invalid("the vector has another size than the modifier");
    for (const Operand& part : d.in.operands[1].parts) refs.push_back(d.source(part, bits, type));
  } else {
    if (vector != 1) return d.invalid("a vector in braces is needed");
    refs.push_back(d.source(1, bits, type));
  }
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit(execute_async_store);
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.imm = (to_wide ? 1u : 0u) | (bar_wide ? 2u : 0u);
  op.imm2 = static_cast<u64>(operation);
  op.bytes = static_cast<u8>(bits / 8);
  op.vector = vector;
  op.type = type;
  op.mode = reduces ? 1 : 0;
  return true;
}

/// st.bulk: zeroes, like a copy without a source.
Step execute_store_bulk(Warp& warp, const Op& op, u32 mask) {
  for (const u32 lane : lanes_of(mask)) {
    SharedAddress address;
    if (!shared_operand(warp, op, lane, warp.value(op.s[0], lane, (op.mode & 1) != 0), false,
                        &address))
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
    warp.cluster->record(warp, op, lane, place, static_cast<u32>(bytes), true, false);
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
  Op& op = d.emit(execute_store_bulk);
  op.s[0] = to;
  op.s[1] = size;
  op.mode = wide ? 1 : 0;
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
