// SPDX-License-Identifier: Apache-2.0
// Loads and stores, and the cache hints that have no effect on values.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/operands.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

/// A load or a store of the registers in Op::list.
struct Access {
  Address address;
  Type type = Type::kNone;
  u8 element = 0;   ///< bytes
  u8 elements = 1;  ///< registers
  bool strong = false;
  bool orders = false;  ///< a load acquires, a store releases
  u32 keep = ~u32{0};   ///< load: the bits that fit the registers

  u32 bytes() const { return u32{element} * elements; }
  bool is_signed() const { return type >= Type::kS8 && type <= Type::kS64; }
};

std::string unit_name(Space space, bool store) {
  return fmt::format("{}.{}", store ? "st" : "ld",
                     to_string(space == Space::kSharedCluster ? Space::kShared : space));
}

/// Extra wavefronts of a shared access: lanes that want different words of one bank.
u64 conflicts(const u32* addresses, u32 mask, u32 bytes) {
  // Wide accesses go in parts of 128 bytes: 4-byte lanes all at once, 8-byte in halves, 16 in
  // quarters.
  const u32 per_pass = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  u64 extra = 0;
  for (u32 first = 0; first < 32; first += per_pass) {
    u32 words[32][4];
    u32 counts[32] = {};
    u32 worst = 0;
    for (u32 lane = first; lane < first + per_pass; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      for (u32 b = 0; b < std::max(bytes, 4u); b += 4) {
        const u32 word = (addresses[lane] + b) / 4;
        const u32 bank = word % 32;
        bool known = false;
        for (u32 i = 0; i < std::min(counts[bank], 4u); ++i)
          known = known || words[bank][i] == word;
        if (known) continue;
        if (counts[bank] < 4) words[bank][counts[bank]] = word;
        ++counts[bank];
        worst = std::max(worst, counts[bank]);
      }
    }
    if (worst > 1) extra += worst - 1;
  }
  return extra;
}

void count_access(Warp& warp, const Op& op, const Access& access, u32 mask, Space space,
                  bool store) {
  Cluster& cluster = *warp.cluster;
  cluster.stats.unit_bytes[unit_name(space, store)] += u64{count_lanes(mask)} * access.bytes();
  if (space != Space::kShared && space != Space::kSharedCluster) return;
  const LaneAddresses addresses(warp, op, access.address);
  u32 offsets[32];
  for (u32 lane = 0; lane < 32; ++lane)
    offsets[lane] = SharedAddress(static_cast<u32>(addresses[lane])).offset();
  cluster.stats.bank_conflicts += conflicts(offsets, mask, access.bytes());
}

/// Consecutive lanes at consecutive addresses of one memory, or lanes at one address, recorded as
/// one access.
struct Run {
  Place place;
  AccessLanes lanes;
  u32 last = 0;  ///< lane
  u32 bytes = 0;
  bool same = false;  ///< a write of what was there
  void flush(Warp& warp, const Op& op, bool write, bool atomic) {
    if (bytes != 0) warp.cluster->record(warp, op, lanes, place, bytes, write, atomic, same);
    bytes = 0;
  }
  void add(Warp& warp, const Op& op, u32 lane, const Place& p, u32 n, bool write, bool atomic,
           bool same_value = false) {
    if (p.shadow == nullptr) return;
    const u32 bit = u32{1} << lane;
    if (bytes != 0 && p.shadow == place.shadow && same == same_value) {
      if (lane == last + 1 && p.offset == place.offset + bytes &&
          (lanes.bytes_each == n || (bytes == n && lane == lowest_lane(lanes.mask) + 1))) {
        lanes.mask |= bit;
        lanes.bytes_each = n;
        lanes.origin = place.offset;
        last = lane;
        bytes += n;
        return;
      }
      if (lanes.bytes_each == 0 && p.offset == place.offset && bytes == n) {
        lanes.mask |= bit;
        last = lane;
        return;
      }
    }
    flush(warp, op, write, atomic);
    place = p;
    lanes = {bit};
    last = lane;
    bytes = n;
    same = same_value;
  }
};

/// Lanes that read global memory apart, and read again what they had read.
u32 repeated_reads(const Warp& warp, const Place* places, u32 lanes, u32 bytes) {
  const u32 others = lanes & (lanes - 1);
  if (others == 0) return 0;
  const Place& first = places[lowest_lane(lanes)];
  const u64 step = places[lowest_lane(others)].offset - first.offset;
  if (first.space != Space::kGlobal || step == 0 || step == bytes) return 0;
  u64 offsets[32];
  for (const u32 lane : lanes_of(lanes)) {
    if (places[lane].shadow != first.shadow) return 0;
    offsets[lane] = places[lane].offset;
  }
  return warp.cluster->histories.repeated_reads(*first.shadow, offsets, lanes, bytes, warp.agent,
                                                warp.clocks.epoch);
}

/// Notes for a clock how much of global memory the lanes touch.
void note_traffic(Warp& warp, const u64* addresses, u32 lanes, u32 bytes, bool store) {
  if (lanes == 0) return;
  u64 sectors[64];
  u32 count = 0;
  for (const u32 lane : lanes_of(lanes)) {
    for (u64 s = addresses[lane] / 32; s <= (addresses[lane] + bytes - 1) / 32; ++s) {
      if (std::find(sectors, sectors + count, s) == sectors + count) sectors[count++] = s;
    }
  }
  warp.machine->traffic = {count, static_cast<u32>(addresses[lowest_lane(lanes)] >> kBufferShift),
                           store};
}

/// What each lane of `mask` finds, as a T, `at` bytes into its place; 0 where there is none.
template <class T, class To>
void fetch(const Place* places, u32 at, u32 mask, u32 resolved, u32 keep, To* lanes) {
  for (const u32 lane : lanes_of(mask)) {
    T value{};
    if ((resolved >> lane & 1) != 0) std::memcpy(&value, places[lane].data + at, sizeof value);
    lanes[lane] = static_cast<To>(value);
    if constexpr (sizeof(To) == 4) lanes[lane] &= keep;
  }
}

template <class To>
void fetch(const Access& access, const Place* places, u32 at, u32 mask, u32 resolved, To* lanes) {
  const auto as = [&](auto type) {
    fetch<decltype(type)>(places, at, mask, resolved, access.keep, lanes);
  };
  const bool is_signed = access.is_signed();
  switch (access.element) {
    case 1:
      return is_signed ? as(s8{}) : as(u8{});
    case 2:
      return is_signed ? as(s16{}) : as(u16{});
    case 4:
      return is_signed ? as(s32{}) : as(u32{});
    default:
      return as(u64{});
  }
}

/// The lanes of each register that find poison.
void find_poison(Warp& warp, const Op& op, const Access& access, const Place* places, u32 lanes,
                 u32* poisoned) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  for (const u32 lane : lanes_of(lanes)) {
    const Place& place = places[lane];
    if (place.poison == nullptr) continue;
    for (u32 v = 0; v < access.elements; ++v) {
      const u8* begin = place.poison + v * access.element;
      if (list[v] == kNoRef ||
          std::all_of(begin, begin + access.element, [](u8 poison) { return poison == 0; }))
        continue;
      poisoned[v] |= u32{1} << lane;
      if (place.space == Space::kLocal)
        warp.local.fresh[op.site] = warp.local.offset_of(place.data);
    }
  }
}

Step execute_load(Warp& warp, const Op& op, const Access& access, u32 mask) {
  const bool checks = warp.machine->checks;
  if (checks && op.s[0] != kNoRef) warp.require_defined(op.s[0], mask, op, "the address");
  const u32 element = access.element;
  const u32 bytes = access.bytes();
  const Ref* list = warp.machine->program.lists.data() + op.list;
  Space space = access.address.space;
  const LaneAddresses lane_addresses(warp, op, access.address);
  u64 addresses[32];
  Place places[32];
  u32 resolved = 0;
  for (const u32 lane : lanes_of(mask)) {
    // NOTE: the load may write the register that has the address.
    addresses[lane] = lane_addresses[lane];
    if (warp.cluster->resolve(warp, op, lane, access.address.space, addresses[lane], bytes,
                              &places[lane]))
      resolved |= u32{1} << lane;
    space = places[lane].space;
  }
  for (u32 v = 0; v < access.elements; ++v) {
    const Ref d = list[v];
    if (d == kNoRef) continue;
    Row* row = warp.row(d);
    const u32 at = v * element;
    if (op.d_rows == 1) {
      fetch(access, places, at, mask, resolved, row->lane);
    } else {
      fetch(access, places, at, mask, resolved, reinterpret_cast<u64*>(row));
    }
    if (element == 16)
      fetch(access, places, at + 8, mask, resolved, reinterpret_cast<u64*>(row + 2));
  }
  if (checks) {
    u32 poisoned[8] = {};
    find_poison(warp, op, access, places, resolved, poisoned);
    Run run;
    const bool strong = access.strong;
    if (!strong) resolved &= ~repeated_reads(warp, places, resolved, bytes);
    for (const u32 lane : lanes_of(resolved)) {
      run.add(warp, op, lane, places[lane], bytes, false, strong);
      if (strong) warp.cluster->strong_load(warp, addresses[lane], access.orders);
    }
    run.flush(warp, op, false, strong);
    for (u32 v = 0; v < access.elements; ++v) warp.set_poison(list[v], poisoned[v], mask, op.site);
  }
  if (op.has(kOpPolls)) ++warp.cluster->polls;
  if (warp.machine->timed && space == Space::kGlobal)
    note_traffic(warp, addresses, resolved, bytes, false);
  if (warp.machine->options.stats) count_access(warp, op, access, mask, space, false);
  return Step::kNext;
}

/// Kernel parameters at a fixed offset: the same for every lane.
Step execute_load_parameter(Warp& warp, const Op& op, const Access& access, u32 mask) {
  const u32 element = access.element;
  const u32 bytes = access.bytes();
  const std::vector<u8>& block = warp.machine->parameters;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const bool is_signed = access.is_signed();
  for (u32 v = 0; v < access.elements; ++v) {
    const Ref d = list[v];
    if (d == kNoRef) continue;
    u64 value = 0;
    if (access.address.offset + bytes <= block.size())
      std::memcpy(&value, block.data() + access.address.offset + v * element,
                  std::min(element, 8u));
    if (is_signed && element < 8) {
      const int shift = 64 - static_cast<int>(element) * 8;
      value = static_cast<u64>(static_cast<s64>(value << shift) >> shift);
    }
    if (op.d_rows == 1) {
      u32 lanes[32];
      for (u32& lane : lanes) lane = static_cast<u32>(value) & access.keep;
      warp.blend(d, lanes, 1, mask);
    } else {
      u64 lanes[32];
      for (u64& lane : lanes) lane = value;
      warp.blend(d, lanes, 2, mask);
    }
    if (warp.machine->checks) warp.set_poison(d, 0, mask, 0);
  }
  return Step::kNext;
}

/// Whether the value stored to local memory is undefined only because it was made of the very
/// bytes that it replaces: an unoptimised kernel's bit fields are written so, one after another.
bool completes_bit_field(const Warp& warp, Ref value, const Place& place, u32 bytes) {
  constexpr u32 kWidest = 16;
  const auto read = warp.local.fresh.find(warp.site_of(value));
  if (read == warp.local.fresh.end()) return false;
  const u32 to = warp.local.offset_of(place.data);
  return to < read->second + kWidest && read->second < to + bytes;
}

Step execute_store(Warp& warp, const Op& op, const Access& access, u32 mask) {
  const bool checks = warp.machine->checks;
  if (checks && op.s[0] != kNoRef) warp.require_defined(op.s[0], mask, op, "the address");
  const u32 element = access.element;
  const u32 bytes = access.bytes();
  const Ref* list = warp.machine->program.lists.data() + op.list;
  u32 poisoned[8] = {};
  bool any_poison = false;
  if (checks) {
    for (u32 v = 0; v < access.elements; ++v) {
      poisoned[v] = warp.poison_of(list[v]) & mask;
      any_poison = any_poison || poisoned[v] != 0;
    }
  }
  Run run;
  const bool strong = access.strong;
  bool changed = false;
  Space space = access.address.space;
  const LaneAddresses lane_addresses(warp, op, access.address);
  u64 addresses[32];
  u32 stored = 0;
  for (const u32 lane : lanes_of(mask)) {
    const u64 address = lane_addresses[lane];
    Place place;
    if (!warp.cluster->resolve(warp, op, lane, access.address.space, address, bytes, &place))
      continue;
    space = place.space;
    if (place.space == Space::kParam || place.space == Space::kConst) {
      warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                           fmt::format("a store to the {} space", to_string(place.space)));
      continue;
    }
    addresses[lane] = address;
    stored |= u32{1} << lane;
    u8 before[64];
    std::memcpy(before, place.data, bytes);
    for (u32 v = 0; v < access.elements; ++v) {
      if (element == 16) {
        const auto* row = static_cast<const Row*>(warp.source(list[v]));
        std::memcpy(place.data + v * 16, reinterpret_cast<const u64*>(row) + lane, 8);
        std::memcpy(place.data + v * 16 + 8, reinterpret_cast<const u64*>(row + 2) + lane, 8);
      } else if (element == 8) {
        const u64 value = warp.lane64(list[v], lane);
        std::memcpy(place.data + v * 8, &value, 8);
      } else {
        const u32 value = warp.lane32(list[v], lane);
        std::memcpy(place.data + v * element, &value, element);
      }
    }
    const bool same = std::memcmp(before, place.data, bytes) == 0;
    changed = changed || !same;
    if (!checks) continue;
    if (place.poison != nullptr) {
      std::memset(place.poison, 0, bytes);
      if (any_poison) {
        for (u32 v = 0; v < access.elements; ++v) {
          if ((poisoned[v] >> lane & 1) == 0) continue;
          if (place.space == Space::kLocal && completes_bit_field(warp, list[v], place, bytes))
            continue;
          std::memset(place.poison + v * element, 1, element);
        }
      }
    }
    if (any_poison && place.space == Space::kGlobal) {
      for (u32 v = 0; v < access.elements; ++v) {
        if ((poisoned[v] >> lane & 1) == 0) continue;
        warp.cluster->report(
            FindingKind::kUninitialised, &warp, static_cast<int>(lane), op.site,
            fmt::format("a value that depends on uninitialised data{} is stored to global memory",
                        warp.site_of(list[v]) != 0
                            ? " (from " + warp.cluster->describe_site(warp.site_of(list[v])) + ")"
                            : std::string()));
        break;
      }
    }
    run.add(warp, op, lane, place, bytes, true, strong, same);
    if (strong) {
      run.flush(warp, op, true, strong);
      warp.cluster->strong_store(warp, lane, address, access.orders);
    }
  }
  if (checks) run.flush(warp, op, true, strong);
  if (changed && space != Space::kLocal) warp.cluster->note_progress();
  if (warp.machine->timed && space == Space::kGlobal)
    note_traffic(warp, addresses, stored, bytes, true);
  if (warp.machine->options.stats) count_access(warp, op, access, mask, space, true);
  return Step::kNext;
}

/// What follows the space of ld and st.
struct AccessHead {
  u8 vector = 1;
  Type type = Type::kNone;
  int bits = 0;
};

bool take_access(Decoding& d, Space space, const char* what, AccessHead* head) {
  const bool policy = d.take("L2::cache_hint");
  d.take_cache_hints();
  head->vector = take_vector(d);
  head->type = d.take_type();
  head->bits = bits_of(head->type);
  if (head->type == Type::kNone || head->bits < 8) return d.invalid("a type is needed");
  if (!d.expect(policy ? 3 : 2, policy ? 3 : 2) || !d.done()) return false;
  const int all = head->bits * head->vector;
  if (all > 256) return d.invalid(fmt::format("a {} is of at most 32 bytes", what));
  if (all > 128 && space != Space::kGlobal && space != Space::kGeneric)
    return d.unsupported("more than 16 bytes at once are of the global space");
  if (policy) d.source(2, 64);
  return true;
}

bool decode_load(Decoding& d) {
  const Decoding::Semantics semantics = d.take_semantics();
  Space space = d.take_space(Space::kGeneric);
  d.take("nc");
  d.take("unified");
  AccessHead head;
  if (!take_access(d, space, "load", &head)) return false;
  const u8 vector = head.vector;
  const Type type = head.type;
  const int bits = head.bits;

  std::vector<Ref> refs;
  int rows = 0;
  u32 keep = ~u32{0};
  const auto add = [&](const Operand& operand) {
    const Ref ref = d.destination(operand, bits, true);
    if (ref != kNoRef) {
      const int have = d.width(operand);
      const int r = have <= 32 ? 1 : have == 64 ? 2 : 4;
      if (rows != 0 && rows != r) d.unsupported("destinations of different widths");
      if (bits == 128 && r != 4) d.invalid("a .b128 register is needed");
      if (bits != 128 && r == 4) d.unsupported("a narrow load into a .b128 register");
      rows = r;
      if (have == 16) keep = 0xFFFF;
      if (have == 8) keep = 0xFF;
    }
    refs.push_back(ref);
  };
  if (d.is(0, Operand::Kind::kVector)) {
    if (d.in.operands[0].parts.size() != vector)
      return d.invalid("the vector has another size than the modifier");
    for (const Operand& part : d.in.operands[0].parts) add(part);
  } else {
    if (vector != 1) return d.invalid("a vector in braces is needed");
    add(d.in.operands[0]);
  }
  Access access;
  Ref base = kNoRef;
  if (!d.address(d.in.operands[1], space, &access.address, &base)) return false;
  const u32 list = d.list(refs);
  if (d.failed()) return false;
  access.type = type;
  access.element = static_cast<u8>(bits / 8);
  access.elements = vector;
  access.strong = semantics.strong;
  access.orders = semantics.acquire;
  access.keep = keep;
  const bool parameter = access.address.space == Space::kParam && base == kNoRef && bits != 128;
  Op& op = parameter ? d.emit<execute_load_parameter>(access) : d.emit<execute_load>(access);
  op.s[0] = base;
  op.list = list;
  op.list_count = vector;
  op.d_rows = static_cast<u8>(rows == 0 ? 1 : rows);
  if (parameter && access.address.offset + access.bytes() > d.f.builder.program->parameter_bytes)
    return d.invalid("the parameter has fewer bytes");
  const bool global =
      access.address.space == Space::kGlobal || access.address.space == Space::kGeneric;
  if (semantics.strong) op.set(kOpPolls);
  if (semantics.strong && global) d.f.builder.program->communicates = true;
  return true;
}

bool decode_store(Decoding& d) {
  const Decoding::Semantics semantics = d.take_semantics();
  Space space = d.take_space(Space::kGeneric);
  AccessHead head;
  if (!take_access(d, space, "store", &head)) return false;
  const u8 vector = head.vector;
  const Type type = head.type;
  const int bits = head.bits;
  std::vector<Ref> refs;
  if (!take_stored(d, d.in.operands[1], vector, bits, type, &refs)) return false;
  Access access;
  Ref base = kNoRef;
  if (!d.address(d.in.operands[0], space, &access.address, &base)) return false;
  if (access.address.space == Space::kParam || access.address.space == Space::kConst)
    return d.invalid(fmt::format("the {} space is not written", to_string(access.address.space)));
  const u32 list = d.list(refs);
  if (d.failed()) return false;
  access.type = type;
  access.element = static_cast<u8>(bits / 8);
  access.elements = vector;
  access.strong = semantics.strong;
  access.orders = semantics.release;
  Op& op = d.emit<execute_store>(access);
  op.s[0] = base;
  op.list = list;
  op.list_count = vector;
  const bool global =
      access.address.space == Space::kGlobal || access.address.space == Space::kGeneric;
  if (semantics.release && global) d.f.builder.program->communicates = true;
  return true;
}

// Prefetches and policies have no effect on values; their operands are still decoded.
bool decode_hint(Decoding& d) {
  d.take_space(Space::kGeneric);
  for (const std::string_view name :
       {"L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap", "uniform", "bulk", "async",
        "tensor", "1d", "2d", "3d", "4d", "5d", "tile", "L2::cache_hint"})
    d.take(name);
  if (!d.expect(1, 3) || !d.done()) return false;
  bool wide = false;
  Ref address = kNoRef;
  if (d.is(0, Operand::Kind::kAddress)) address = d.address_value(d.in.operands[0], &wide);
  if (d.failed()) return false;
  d.emit<execute_nothing>().s[0] = address;
  return true;
}

bool decode_createpolicy(Decoding& d) {
  d.take_any({"fractional", "range"});
  if (d.take("cvt")) d.take("L2");
  while (!d.take_prefix("L2::").empty()) {
  }
  d.take("global");
  d.take_type();
  if (!d.expect(1, 4) || !d.done()) return false;
  const Ref to = d.destination(0, 64);
  if (d.failed()) return false;
  // The word's meaning is the cache's; CUTLASS's constant for "normal" stands for all.
  LaneRequest r;
  r.op = LaneOp::kMov;
  r.type = Type::kB64;
  d.alu(select_lane(r), to, 64, {d.constant(0x1000000000000000ull, 64)});
  return !d.failed();
}

}  // namespace

void add_memory(InstructionTable& t) {
  t.add({"ld", "", "memory",
         "all spaces, types and vectors to 32 bytes; .weak .relaxed .acquire .volatile .nc; cache "
         "hints have no effect",
         "9.7.9.8, 9.7.9.9", decode_load});
  t.add({"ldu", "", "memory", "as ld", "9.7.9.10", decode_load});
  t.add({"st", "", "memory",
         "all spaces, types and vectors to 32 bytes; .weak .relaxed .release .volatile", "9.7.9.11",
         decode_store});
  t.add({"prefetch", "", "memory", "no effect", "9.7.9.15", decode_hint});
  t.add({"prefetchu", "", "memory", "no effect", "9.7.9.15", decode_hint});
  t.add({"applypriority", "", "memory", "no effect", "9.7.9.16", decode_hint});
  t.add({"discard", "", "memory", "no effect", "9.7.9.17", decode_hint});
  t.add({"createpolicy", "", "memory", "a policy that has no effect", "9.7.9.18",
         decode_createpolicy});
}

}  // namespace attnjit::emulator
