// SPDX-License-Identifier: Apache-2.0
// Atomic operations and reductions on memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/atomic_operation.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/operands.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {

namespace {

/// Host threads run different clusters; an atomic of the emulated GPU is one for all of them.
std::mutex& atomic_mutex() {
  static std::mutex mutex;
  return mutex;
}

float f32(u64 v) { return std::bit_cast<float>(static_cast<u32>(v)); }

u64 add_small(const FloatFormat& format, u64 a, u64 b) {
  return encode(format, decode(format, static_cast<u32>(a)) + decode(format, static_cast<u32>(b)));
}

u64 extreme_small(const FloatFormat& format, u64 a, u64 b, bool max) {
  const double x = decode(format, static_cast<u32>(a)), y = decode(format, static_cast<u32>(b));
  if (std::isnan(x)) return std::isnan(y) ? 0x7FFF : b;
  if (std::isnan(y)) return a;
  if (x == y) return max ? (a & b) : (a | b);
  return (x < y) == max ? b : a;
}

}  // namespace

u64 apply_atomic(AtomicOperation operation, Type type, u64 a, u64 b, u64 c) {
  const int bits = bits_of(type);
  const u64 mask = bits >= 64 ? ~u64{0} : (u64{1} << bits) - 1;
  const bool is_signed = type == Type::kS32 || type == Type::kS64;
  const auto sign = [&](u64 v) {
    return bits == 64 ? static_cast<s64>(v) : static_cast<s64>(static_cast<s32>(v));
  };
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    const Type half = type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
    return apply_atomic(operation, half, a & 0xFFFF, b & 0xFFFF, 0) |
           (apply_atomic(operation, half, a >> 16 & 0xFFFF, b >> 16 & 0xFFFF, 0) << 16);
  }
  if (type == Type::kF16 || type == Type::kBf16) {
    const FloatFormat& format = type == Type::kF16 ? kFormatF16 : kFormatBf16;
    if (operation == AtomicOperation::kAdd) return add_small(format, a, b);
    return extreme_small(format, a, b, operation == AtomicOperation::kMax);
  }
  switch (operation) {
    case AtomicOperation::kAdd:
      if (type == Type::kF32) {
        const float sum = f32(a) + f32(b);
        return std::isnan(sum) ? 0x7FFFFFFFu : std::bit_cast<u32>(sum);
      }
      if (type == Type::kF64)
        return std::bit_cast<u64>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
      return (a + b) & mask;
    case AtomicOperation::kMin:
      if (is_signed) return sign(b) < sign(a) ? b : a;
      return std::min(a, b);
    case AtomicOperation::kMax:
      if (is_signed) return sign(b) > sign(a) ? b : a;
      return std::max(a, b);
    case AtomicOperation::kInc:
      return a >= b ? 0 : a + 1;
    case AtomicOperation::kDec:
      return a == 0 || a > b ? b : a - 1;
    case AtomicOperation::kAnd:
      return a & b;
    case AtomicOperation::kOr:
      return a | b;
    case AtomicOperation::kXor:
      return a ^ b;
    case AtomicOperation::kExchange:
      return b;
    case AtomicOperation::kCompareExchange:
      return a == b ? c : a;
  }
  return a;
}

void AtomicLock::lock() { atomic_mutex().lock(); }
void AtomicLock::unlock() { atomic_mutex().unlock(); }

bool take_atomic_operation(Decoding& d, AtomicOperation* operation) {
  const int i = d.take_any({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  if (i < 0) return d.invalid("an operation is needed");
  *operation = static_cast<AtomicOperation>(i);
  if (d.in.root != "atom" &&
      (*operation == AtomicOperation::kExchange || *operation == AtomicOperation::kCompareExchange))
    return d.unsupported("only atom exchanges");
  return true;
}

bool check_atomic_type(Decoding& d, AtomicOperation operation, Type type) {
  const bool is_float = type == Type::kF32 || type == Type::kF64;
  const bool is_small =
      type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
  const bool is_integer = type == Type::kU32 || type == Type::kS32 || type == Type::kU64 ||
                          type == Type::kS64 || type == Type::kB32 || type == Type::kB64;
  bool ok = false;
  switch (operation) {
    case AtomicOperation::kAdd:
      ok = is_float || is_small || is_integer;
      break;
    case AtomicOperation::kMin:
    case AtomicOperation::kMax:
      ok = is_small || is_integer;
      break;
    case AtomicOperation::kInc:
    case AtomicOperation::kDec:
      ok = type == Type::kU32;
      break;
    case AtomicOperation::kExchange:
    case AtomicOperation::kCompareExchange:
      ok = is_integer || is_float || type == Type::kB16 || type == Type::kB128;
      break;
    default:
      ok = is_integer;
  }
  return ok || d.unsupported(fmt::format("this operation on .{} is not modelled", to_string(type)));
}

namespace {

/// Op::list: an operand for each element, then what cas stores, then, where it returns, the
/// results.
struct Atomic {
  Address address;
  AtomicOperation operation = AtomicOperation::kAdd;
  Type type = Type::kNone;
  u8 element = 0;  ///< bytes
  u8 elements = 1;
  bool acquires = false, releases = false;
  bool returns = false;

  bool swaps() const { return operation == AtomicOperation::kCompareExchange; }
};

/// Where a lane's operation takes place; false where that was reported.
bool resolve_atomic(Warp& warp, const Op& op, Space space, u32 lane, u64 address, u32 bytes,
                    Place* place) {
  Cluster& cluster = *warp.cluster;
  if (!cluster.resolve(warp, op, lane, space, address, bytes, place)) return false;
  if (place->space == Space::kGlobal || place->cta != nullptr) return true;
  cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                 fmt::format("an atomic operation on the {} space", to_string(place->space)));
  return false;
}

/// Counts a warp's operation; one that changed nothing may be a poll.
Step finish_atomic(Warp& warp, u32 mask, u32 bytes, bool changed) {
  Cluster& cluster = *warp.cluster;
  if (changed) {
    cluster.note_progress();
  } else {
    ++cluster.polls;
  }
  if (warp.machine->options.stats)
    cluster.stats.unit_bytes["atomics"] += u64{count_lanes(mask)} * bytes;
  return Step::kNext;
}

/// Calls f(lane, address, place) for the lanes whose address holds `bytes` bytes. They go in an
/// order that the seed decides: no kernel may rely on one.
template <class F>
void for_each_place(Warp& warp, const Op& op, const Atomic& atomic, u32 bytes, u32 mask, F&& f) {
  if (warp.machine->checks && op.s[0] != kNoRef)
    warp.require_defined(op.s[0], mask, op, "the address");
  const u32 first = warp.cluster->random.below(32);
  for (u32 i = 0; i < 32; ++i) {
    const u32 lane = (first + i) % 32;
    if ((mask >> lane & 1) == 0) continue;
    const u64 address = lane_address(warp, op, atomic.address, lane);
    Place place;
    if (resolve_atomic(warp, op, atomic.address.space, lane, address, bytes, &place))
      f(lane, address, place);
  }
}

Step execute_atomic(Warp& warp, const Op& op, const Atomic& atomic, u32 mask) {
  const bool checks = warp.machine->checks;
  Cluster& cluster = *warp.cluster;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const u32 element = atomic.element, elements = atomic.elements, bytes = element * elements;
  const bool cas = atomic.swaps();
  bool changed = false;
  for_each_place(warp, op, atomic, bytes, mask, [&](u32 lane, u64 address, const Place& place) {
    bool poisoned = false;
    const bool takes_tile = warp.machine->timed && place.space == Space::kGlobal &&
                            atomic.returns && atomic.operation == AtomicOperation::kAdd;
    {
      AtomicLock guard;
      guard.lock();
      for (u32 v = 0; v < elements; ++v) {
        u64 old = 0;
        std::memcpy(&old, place.data + v * element, element);
        const u64 b = warp.value(list[v], lane, element == 8);
        const u64 c = cas ? warp.value(list[elements + v], lane, element == 8) : 0;
        const u64 element_mask = element == 8 ? ~u64{0} : (u64{1} << (element * 8)) - 1;
        u64 now =
            apply_atomic(atomic.operation, atomic.type, old, b & element_mask, c & element_mask);
        changed = changed || now != old;
        if (takes_tile) {
          cluster.machine.counters.try_emplace(place.data + v * element,
                                               Machine::Counter{old, element});
          now = old + b * cluster.machine.takers;
        }
        std::memcpy(place.data + v * element, &now, element);
        if (atomic.returns) {
          const Ref d = list[elements * 2 + v];
          if (d != kNoRef) {
            if (element == 8) {
              reinterpret_cast<u64*>(warp.row(d))[lane] = old;
            } else {
              warp.row(d)->lane[lane] = static_cast<u32>(old);
            }
          }
        }
      }
      guard.unlock();
    }
    if (!checks) return;
    if (place.poison != nullptr) {
      for (u32 b = 0; b < bytes; ++b) poisoned = poisoned || place.poison[b] != 0;
      if (atomic.operation == AtomicOperation::kExchange) std::memset(place.poison, 0, bytes);
    }
    for (u32 v = 0; v < elements; ++v) {
      if (atomic.returns && list[elements * 2 + v] != kNoRef)
        warp.set_poison(list[elements * 2 + v], poisoned ? ~u32{0} : 0, u32{1} << lane, op.site);
      if ((warp.poison_of(list[v]) >> lane & 1) != 0 && place.space == Space::kGlobal)
        warp.require_defined(list[v], u32{1} << lane, op, "the atomic operation's operand");
    }
    cluster.record(warp, op, {u32{1} << lane}, place, bytes, true, true);
    if (atomic.acquires || atomic.returns) cluster.strong_load(warp, address, atomic.acquires);
    cluster.strong_store(warp, lane, address, atomic.releases);
  });
  return finish_atomic(warp, mask, bytes, changed);
}

/// exch and cas of 128 bits.
Step execute_atomic_wide(Warp& warp, const Op& op, const Atomic& atomic, u32 mask) {
  const bool checks = warp.machine->checks;
  Cluster& cluster = *warp.cluster;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const bool cas = atomic.swaps();
  const auto halves = [&](Ref ref, u32 lane) {
    const auto* row = static_cast<const Row*>(warp.source(ref));
    return std::array{reinterpret_cast<const u64*>(row)[lane],
                      reinterpret_cast<const u64*>(row + 2)[lane]};
  };
  bool changed = false;
  for_each_place(warp, op, atomic, 16, mask, [&](u32 lane, u64 address, const Place& place) {
    const std::array<u64, 2> operand = halves(list[0], lane);
    const std::array<u64, 2> now = cas ? halves(list[1], lane) : operand;
    std::array<u64, 2> old{};
    {
      AtomicLock guard;
      guard.lock();
      std::memcpy(old.data(), place.data, 16);
      if (!cas || old == operand) {
        changed = changed || old != now;
        std::memcpy(place.data, now.data(), 16);
      }
      guard.unlock();
    }
    if (list[2] != kNoRef) {
      reinterpret_cast<u64*>(warp.row(list[2]))[lane] = old[0];
      reinterpret_cast<u64*>(warp.row(list[2]) + 2)[lane] = old[1];
    }
    if (!checks) return;
    bool poisoned = false;
    if (place.poison != nullptr) {
      for (u32 b = 0; b < 16; ++b) poisoned = poisoned || place.poison[b] != 0;
      if (!cas) std::memset(place.poison, 0, 16);
    }
    if (list[2] != kNoRef)
      warp.set_poison(list[2], poisoned ? ~u32{0} : 0, u32{1} << lane, op.site);
    for (const Ref ref : {list[0], list[1]}) {
      if (ref != kNoRef && place.space == Space::kGlobal)
        warp.require_defined(ref, u32{1} << lane, op, "the atomic operation's operand");
    }
    cluster.record(warp, op, {u32{1} << lane}, place, 16, true, true);
    cluster.strong_load(warp, address, atomic.acquires);
    cluster.strong_store(warp, lane, address, atomic.releases);
  });
  return finish_atomic(warp, mask, 16, changed);
}

bool decode_atomic(Decoding& d, bool returns) {
  const Decoding::Semantics semantics = d.take_semantics();
  const Space space = d.take_space(Space::kGeneric);
  AtomicOperation operation{};
  if (!take_atomic_operation(d, &operation)) return false;
  d.take("noftz");
  const bool policy = d.take("L2::cache_hint");
  d.take_cache_hints();
  const u8 vector = take_vector(d);
  const Type type = d.take_type();
  if (!check_atomic_type(d, operation, type)) return false;
  const int bits = bits_of(type);
  const bool cas = operation == AtomicOperation::kCompareExchange;
  const std::size_t at = returns ? 1 : 0;
  const std::size_t operands = at + 2 + (cas ? 1 : 0) + (policy ? 1 : 0);
  if (!d.expect(operands, operands) || !d.done()) return false;
  if (bits * vector > 256) return d.invalid("at most 32 bytes");
  std::vector<Ref> refs;
  const auto add = [&](const Operand& operand) {
    if (operand.kind == Operand::Kind::kVector) {
      if (operand.parts.size() != vector)
        d.invalid("the vector has another size than the modifier");
      for (const Operand& part : operand.parts) refs.push_back(d.source(part, bits, type));
    } else {
      if (vector != 1) d.invalid("a vector in braces is needed");
      refs.push_back(d.source(operand, bits, type));
    }
  };
  add(d.in.operands[at + 1]);
  if (d.failed()) return false;
  if (cas) {
    add(d.in.operands[at + 2]);
  } else {
    refs.resize(static_cast<std::size_t>(vector) * 2, kNoRef);
  }
  if (returns) {
    const Operand& to = d.in.operands[0];
    if (to.kind == Operand::Kind::kVector) {
      if (to.parts.size() != vector)
        return d.invalid("the vector has another size than the modifier");
      for (const Operand& part : to.parts) refs.push_back(d.destination(part, bits));
    } else {
      refs.push_back(d.destination(to, bits));
    }
  }
  Atomic atomic;
  Ref base = kNoRef;
  if (!d.address(d.in.operands[at], space, &atomic.address, &base)) return false;
  const u32 list = d.list(refs);
  if (d.failed()) return false;
  atomic.operation = operation;
  atomic.type = type;
  atomic.element = static_cast<u8>(bits / 8);
  atomic.elements = vector;
  atomic.acquires = semantics.acquire;
  atomic.releases = semantics.release;
  atomic.returns = returns;
  Op& op = bits == 128 ? d.emit<execute_atomic_wide>(atomic) : d.emit<execute_atomic>(atomic);
  op.s[0] = base;
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.set(kOpPolls);
  if (atomic.address.space == Space::kGlobal || atomic.address.space == Space::kGeneric)
    d.f.builder.program->communicates = true;
  return true;
}

}  // namespace

void add_atomics(InstructionTable& t) {
  t.add({"atom", "", "atomic",
         "add min max inc dec and or xor exch cas; u/s/b32, 64, f32, f64, f16(x2), bf16(x2); "
         "vectors; exch and cas of b16 and b128; .relaxed .acquire .release .acq_rel",
         "9.7.13.5", [](Decoding& d) { return decode_atomic(d, true); }});
  t.add({"red", "", "atomic", "as atom", "9.7.13.6",
         [](Decoding& d) { return decode_atomic(d, false); }});
}

}  // namespace attnjit::emulator
