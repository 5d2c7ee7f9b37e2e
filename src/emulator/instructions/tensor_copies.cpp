// SPDX-License-Identifier: Apache-2.0
// TMA: tensor copies between global and shared memory, and tensor maps made on the device.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/async_copies.h"
#include "emulator/instructions/atomic_operation.h"
#include "emulator/instructions/executors.h"
#include "emulator/model/tensor_map.h"

namespace attnjit::emulator {
namespace {

Type element_type(TensorMapType type) {
  switch (type) {
    case TensorMapType::kU8:
      return Type::kU8;
    case TensorMapType::kU16:
      return Type::kU16;
    case TensorMapType::kU32:
      return Type::kU32;
    case TensorMapType::kI32:
      return Type::kS32;
    case TensorMapType::kU64:
      return Type::kU64;
    case TensorMapType::kI64:
      return Type::kS64;
    case TensorMapType::kF16:
      return Type::kF16;
    case TensorMapType::kBf16:
      return Type::kBf16;
    case TensorMapType::kF64:
      return Type::kF64;
    case TensorMapType::kF32:
    case TensorMapType::kF32Ftz:
    case TensorMapType::kTf32:
    case TensorMapType::kTf32Ftz:
      return Type::kF32;
    default:
      return Type::kNone;
  }
}

std::vector<BoxRow> rows_of(const TensorMap& map, const std::array<std::int32_t, 5>& coordinates,
                            bool four_rows, BoxUse use) {
  std::vector<BoxRow> rows;
  for_each_box_row(map, coordinates, four_rows, use,
                   [&](const BoxRow& row) { rows.push_back(row); });
  return rows;
}

/// Calls visit(address, bytes, offset in the row) for each contiguous piece of a row.
template <class Visit>
void for_each_piece(const TensorMap& map, SharedAddress tile, const BoxRow& row, Visit&& visit) {
  if (map.swizzle == Swizzle::kNone) {
    visit(tile + static_cast<u32>(row.shared_offset), row.bytes, 0u);
    return;
  }
  // Swizzles move whole 16-byte chunks.
  for (u32 at = 0; at < row.bytes; at += 16) {
    const SharedAddress linear = tile + static_cast<u32>(row.shared_offset) + at;
    const SharedAddress address(linear.rank(), swizzle_address(map.swizzle, linear.offset()));
    visit(address, std::min<u32>(16, row.bytes - at), at);
  }
}

// ------------------------------------------------------------------------------------------------

struct Target {
  SharedAddress tile, barrier;
};

class TensorLoad : public AsyncOp {
 public:
  TensorMap map;
  std::vector<BoxRow> rows;
  std::vector<Target> targets;
  const char* unit() const override { return "TMA load"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kLoad;
    w.targets = targets.size();
    for (const BoxRow& row : rows) w.bytes += row.valid;
    w.address = map.address;
    return w;
  }
  bool step(Cluster& cluster) override {
    const std::size_t n = rows.size();
    if (next_ < n) {
      // In up to three parts, each at a time of its own.
      const std::size_t part = 1 + cluster.random.below(static_cast<u32>(n));
      const std::size_t end = std::min(n, next_ + std::max<std::size_t>(part, (n + 2) / 3));
      for (; next_ < end; ++next_) copy(cluster, rows[next_]);
      return false;
    }
    cluster.stats.unit_bytes["TMA load"] += static_cast<u64>(map.box_bytes()) * targets.size();
    for (const Target& t : targets)
      cluster.mbarrier_complete(t.barrier, bytes_, all_done(), site, issuer);
    return true;
  }
  void set_bytes(u32 bytes) { bytes_ = bytes; }

 private:
  void copy(Cluster& cluster, const BoxRow& row) {
    Payload payload;
    payload.data.resize(row.bytes);
    if (row.valid < row.bytes && map.oob_nan) {
      for (u32 i = 0; i < row.bytes; ++i) payload.data[i] = nan_fill_byte(i);
    }
    if (row.valid != 0) {
      Place from;
      if (cluster.resolve_async(*this, map.address + static_cast<u64>(row.global_offset), row.valid,
                                &from)) {
        cluster.record(*this, from, row.valid, false);
        payload.take(from, row.first_valid, row.valid);
      }
    }
    for (const Target& t : targets) {
      for_each_piece(map, t.tile, row, [&](SharedAddress address, u32 bytes, u32 at) {
        Place to;
        if (!cluster.resolve_async(*this, address, bytes, &to)) return;
        cluster.record(*this, to, bytes, true);
        payload.put(to, at, bytes);
      });
    }
  }
  std::size_t next_ = 0;
  u32 bytes_ = 0;
};

class TensorStore : public AsyncOp {
 public:
  TensorMap map;
  std::vector<BoxRow> rows;
  SharedAddress tile;
  bool reduces = false;
  AtomicOperation operation = AtomicOperation::kAdd;
  std::shared_ptr<PendingCopies> group;
  const char* unit() const override { return "TMA store"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kStore;
    for (const BoxRow& row : rows) w.bytes += row.valid;
    w.address = map.address + (rows.empty() ? 0 : static_cast<u64>(rows[0].global_offset));
    return w;
  }
  bool step(Cluster& cluster) override {
    if (!read_) {
      payloads_.resize(rows.size());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        payloads_[i].data.resize(rows[i].bytes);
        for_each_piece(map, tile, rows[i], [&](SharedAddress address, u32 bytes, u32 at) {
          Place from;
          if (!cluster.resolve_async(*this, address, bytes, &from)) return;
          cluster.record(*this, from, bytes, false);
          payloads_[i].take(from, at, bytes);
        });
      }
      read_ = true;
      --group->unread;
      group->read_done.acquire(reads_done());
      return false;
    }
    const std::size_t n = rows.size();
    const std::size_t end = std::min(
        n,
        next_ + std::max<std::size_t>(1 + cluster.random.below(static_cast<u32>(n)), (n + 1) / 2));
    for (; next_ < end; ++next_) write(cluster, rows[next_], payloads_[next_]);
    if (next_ < n) return false;
    cluster.stats.unit_bytes[reduces ? "TMA reduce" : "TMA store"] += map.box_bytes();
    --group->unwritten;
    group->write_done.acquire(all_done());
    return true;
  }

 private:
  void write(Cluster& cluster, const BoxRow& row, const Payload& payload) {
    if (row.valid == 0) return;
    Place to;
    if (!cluster.resolve_async(*this, map.address + static_cast<u64>(row.global_offset), row.valid,
                               &to))
      return;
    cluster.record(*this, to, row.valid, true,
                   !reduces && payload.matches(to, row.first_valid, row.valid));
    if (payload.poisoned(row.first_valid, row.valid)) {
      cluster.report(FindingKind::kUninitialised, issuer, -1, site,
                     "uninitialised shared memory is stored to global memory");
    }
    if (!reduces) {
      payload.put(to, row.first_valid, row.valid);
      return;
    }
    const Type type = element_type(map.type);
    const auto element = static_cast<u32>(map.element_bytes());
    AtomicLock lock;
    lock.lock();
    for (u32 i = 0; i + element <= row.valid; i += element) {
      u64 a = 0, b = 0;
      std::memcpy(&a, to.data + i, element);
      std::memcpy(&b, payload.data.data() + row.first_valid + i, element);
      const u64 r = apply_atomic(operation, type, a, b, 0);
      std::memcpy(to.data + i, &r, element);
    }
    lock.unlock();
  }
  bool read_ = false;
  std::size_t next_ = 0;
  std::vector<Payload> payloads_;
};

/// The map at a lane's generic (or global) address, decoded; nothing after a finding.
std::optional<TensorMap> map_at(Warp& warp, const Op& op, u32 lane, u64 address) {
  Place place;
  if (address % kTensorMapAlignment != 0) {
    warp.cluster->report(
        FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
        fmt::format("the tensor map at 0x{:x} is not aligned to {}", address, kTensorMapAlignment));
    return std::nullopt;
  }
  // NOTE: in two halves, since an access is at most 64 bytes aligned to its size.
  if (!warp.cluster->resolve(warp, op, lane, Space::kGeneric, address, 64, &place))
    return std::nullopt;
  Place second;
  if (!warp.cluster->resolve(warp, op, lane, Space::kGeneric, address + 64, 64, &second))
    return std::nullopt;
  if (place.cta != nullptr) {
    warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                         "a tensor map in shared memory cannot be used: copy it to global memory");
    return std::nullopt;
  }
  warp.cluster->check_map(warp, op, lane, address, place);
  auto map = decode_tensor_map(reinterpret_cast<const std::byte*>(place.data));
  if (!map) {
    warp.cluster->report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                         fmt::format("the 128 bytes at 0x{:x} are not a tensor map", address));
    return std::nullopt;
  }
  const std::string problem = check_tensor_map(*map);
  if (!problem.empty()) {
    warp.cluster->report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                         "the tensor map is malformed: " + problem);
    return std::nullopt;
  }
  return map;
}

struct TensorTransfer {
  bool load = false;       ///< or store
  bool four_rows = false;  ///< tile::gather4, tile::scatter4
  bool multicast = false;
  bool pair = false;                             ///< cta_group::2
  bool to_own = false;                           ///< to .shared::cta
  bool tile_wide = false, barrier_wide = false;  ///< addresses of 64 bits
  bool reduces = false;
  AtomicOperation operation = AtomicOperation::kAdd;
  int dimensions = 1;
};
/// Op::list: these, then the coordinates.
enum TensorSlot : u32 { kTile, kMap, kBarrier, kTargets, kCoordinates };

Step execute_tensor(Warp& warp, const Op& op, const TensorTransfer& what, u32 mask) {
  Cluster& cluster = *warp.cluster;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const int rank = what.dimensions;
  if (warp.machine->checks) {
    warp.require_defined(list[kTile], mask, op, "the shared address");
    warp.require_defined(list[kMap], mask, op, "the tensor map's address");
    warp.require_defined(list[kBarrier], mask, op, "the mbarrier's address");
    warp.require_defined(list[kTargets], mask, op, "the multicast mask");
    for (u32 i = kCoordinates; i < op.list_count; ++i)
      warp.require_defined(list[i], mask, op, "a coordinate");
  }
  for (const u32 lane : lanes_of(mask)) {
    const auto map = map_at(warp, op, lane, warp.lane64(list[kMap], lane));
    if (!map) continue;
    const bool four = what.four_rows;
    if (map->rank != (four ? 2 : rank)) {
      cluster.report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                     fmt::format("the tensor map has {} dimensions, the instruction {}", map->rank,
                                 four ? 2 : rank));
      continue;
    }
    std::array<std::int32_t, 5> coordinates{};
    for (u32 i = kCoordinates; i < op.list_count && i < kCoordinates + 5; ++i)
      coordinates[i - kCoordinates] = static_cast<std::int32_t>(warp.lane32(list[i], lane));
    SharedAddress tile;
    if (!shared_operand(warp, op, lane, warp.value(list[kTile], lane, what.tile_wide), false,
                        &tile))
      continue;
    if (tile.offset() % 128 != 0) {
      cluster.report(
          FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
          fmt::format("the tile at shared address 0x{:x} is not aligned to 128", tile.offset()));
      continue;
    }
    const u32 pattern = map->swizzle == Swizzle::kNone ? 128 : swizzle_span(map->swizzle) * 8;
    if (tile.offset() % pattern != 0 && map->swizzle != Swizzle::kNone) {
      cluster.report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
                     fmt::format("the tile at shared address 0x{:x} begins inside the swizzle's "
                                 "pattern of {} bytes: its rows are rotated",
                                 tile.offset(), pattern),
                     true);
    }
    if (static_cast<s64>(coordinates[0]) * map->element_bytes() % kInnerStartAlignment != 0) {
      cluster.report(
          FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
          fmt::format("the innermost coordinate {} does not lie on a multiple of {} bytes",
                      coordinates[0], kInnerStartAlignment));
      continue;
    }
    // PTX ISA 9.7.9.27.1.1: an H200 answers with an illegal instruction. Loads may begin before 0.
    const auto negative = std::find_if(coordinates.begin(), coordinates.end(),
                                       [](std::int32_t coordinate) { return coordinate < 0; });
    if (!what.load && negative != coordinates.end()) {
      cluster.report(FindingKind::kBounds, &warp, static_cast<int>(lane), op.site,
                     fmt::format("the box to store begins at {} in dimension {}: a store's "
                                 "coordinates must not be negative",
                                 *negative, negative - coordinates.begin()));
      continue;
    }
    auto rows = rows_of(*map, coordinates, four, what.load ? BoxUse::kLoad : BoxUse::kStore);
    u32 bytes = 0;
    for (const BoxRow& row : rows) bytes += row.bytes;
    if (!what.load) {
      auto store = std::make_unique<TensorStore>();
      store->map = *map;
      store->rows = std::move(rows);
      store->tile = tile;
      store->reduces = what.reduces;
      store->operation = what.operation;
      if (tile.rank() != warp.cta->rank) {
        cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                       "the source lies in another CTA's shared memory");
        continue;
      }
      if (store->reduces && element_type(map->type) == Type::kNone) {
        cluster.report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                       "this tensor type has no reductions");
        continue;
      }
      store->group = open_group(warp.copies.bulk, u32{1} << lane);
      ++store->group->unread;
      ++store->group->unwritten;
      cluster.start(std::move(store), warp, op, u32{1} << lane);
      continue;
    }
    auto load = std::make_unique<TensorLoad>();
    load->map = *map;
    load->rows = std::move(rows);
    load->set_bytes(bytes);
    SharedAddress barrier;
    if (!shared_operand(warp, op, lane, warp.value(list[kBarrier], lane, what.barrier_wide), false,
                        &barrier))
      continue;
    if (what.multicast) {
      const u32 targets = warp.lane32(list[kTargets], lane) & 0xFFFF;
      if (targets == 0)
        cluster.report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                       "the multicast mask is empty");
      for (const u32 r : lanes_of(targets)) {
        // cta_group::2: the signal goes to the CTA of each pair that the mbarrier's address names.
        const u32 to = what.pair ? ((r & ~1u) | (barrier.rank() & 1)) : r;
        load->targets.push_back({tile.in(r), barrier.in(to)});
      }
    } else {
      load->targets.push_back({tile, barrier});
      if (barrier.rank() != tile.rank() && (!what.pair || barrier.rank() / 2 != tile.rank() / 2)) {
        cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                       "the mbarrier lies in another CTA than the destination");
      }
      if (what.to_own && tile.rank() != warp.cta->rank) {
        cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                       "a .shared::cta destination in another CTA");
        continue;
      }
    }
    cluster.start(std::move(load), warp, op, u32{1} << lane);
  }
  return Step::kNext;
}

bool decode_tensor(Decoding& d, bool reduces) {
  for (const std::string_view name : {"async", "reduce", "bulk", "tensor"}) d.take(name);
  const int dimensions = 1 + d.take_any({"1d", "2d", "3d", "4d", "5d"});
  if (dimensions == 0) return d.invalid("a number of dimensions is needed");
  const bool policy = d.take("L2::cache_hint");
  const bool prefetch = d.take("prefetch");
  d.take("tile");
  const bool four = d.take("tile::gather4") || d.take("tile::scatter4");
  if (!d.take_prefix("im2col").empty()) return d.unsupported("im2col is not modelled");
  const std::size_t coordinates = four ? 5 : static_cast<std::size_t>(dimensions);
  if (prefetch) {
    d.take("L2");
    d.take("global");
    if (!d.expect(1, 2) || !d.done()) return false;
    d.emit<execute_nothing>();
    return true;
  }
  const bool group = d.take("bulk_group");
  const bool barrier = d.take("mbarrier::complete_tx::bytes");
  const bool multicast = d.take("multicast::cluster");
  const bool pair = d.take("cta_group::2");
  d.take("cta_group::1");
  const bool cluster = d.take("shared::cluster"), cta = d.take("shared::cta");
  if (!d.take("global")) return d.invalid(".global is needed");
  if (group == barrier) return d.invalid(".bulk_group or .mbarrier::complete_tx::bytes is needed");
  TensorTransfer transfer;
  transfer.load = !group;
  transfer.four_rows = four;
  transfer.multicast = multicast;
  transfer.pair = pair;
  transfer.to_own = cta && !cluster && !group;
  transfer.reduces = reduces;
  transfer.dimensions = dimensions;
  if (reduces && !take_atomic_operation(d, &transfer.operation)) return false;
  if (group ? !cta : !(cluster || cta)) return d.invalid("a shared space is needed");
  const std::size_t operands = (group ? 2 : 3) + (multicast ? 1 : 0) + (policy ? 1 : 0);
  if (!d.expect(operands, operands) || !d.done()) return false;
  // Loads: [dst], [map, {c}], [mbar]; stores: [map, {c}], [src].
  const Operand& map = d.in.operands[group ? 0 : 1];
  const Operand& tile = d.in.operands[group ? 1 : 0];
  if (!map.has_coordinates || map.parts.size() != coordinates)
    return d.invalid(fmt::format("{} coordinates are needed", coordinates));
  std::vector<Ref> refs(kCoordinates, kNoRef);
  refs[kTile] = d.address_value(tile, &transfer.tile_wide);
  Operand map_address = map;
  map_address.parts.clear();
  map_address.has_coordinates = false;
  bool wide = false;
  refs[kMap] = d.address_value(map_address, &wide);
  if (!d.failed() && !wide) return d.invalid("a tensor map's address has 64 bits");
  if (barrier) refs[kBarrier] = d.address_value(d.in.operands[2], &transfer.barrier_wide);
  if (multicast) refs[kTargets] = d.source(3, 16);
  if (policy) d.source(d.count() - 1, 64);
  for (const Operand& c : map.parts) refs.push_back(d.source(c, 32));
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit<execute_tensor>(transfer);
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  if (reduces) d.f.builder.program->communicates = true;
  return true;
}

// ------------------------------------------------------------------------------------------------

struct Replacement {
  TensorMapField field{};
  int ordinal = 0;
  Space space = Space::kGeneric;
  bool address_wide = false, value_wide = false;  ///< of 64 bits
};

// s = {address, value}
Step execute_replace(Warp& warp, const Op& op, const Replacement& what, u32 mask) {
  for (const u32 lane : lanes_of(mask)) {
    Place place;
    const u64 address = warp.value(op.s[0], lane, what.address_wide);
    if (!warp.cluster->resolve(warp, op, lane, what.space, address, 64, &place)) continue;
    Place rest;
    if (!warp.cluster->resolve(warp, op, lane, what.space, address + 64, 64, &rest)) continue;
    warp.cluster->record(warp, op, {u32{1} << lane}, place, 128, true, false);
    auto map = decode_partial_tensor_map(reinterpret_cast<const std::byte*>(place.data));
    if (!map) {
      warp.cluster->report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                           "the 128 bytes are not a tensor map");
      continue;
    }
    const u64 value = is_constant(op.s[1]) || !what.value_wide ? warp.lane32(op.s[1], lane)
                                                               : warp.lane64(op.s[1], lane);
    if (const char* problem = replace_field(&*map, what.field, what.ordinal, value)) {
      warp.cluster->report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                           problem);
      continue;
    }
    const TensorMapBytes bytes = encode_tensor_map(*map);
    std::memcpy(place.data, bytes.data(), bytes.size());
  }
  warp.cluster->note_progress();
  return Step::kNext;
}

bool decode_replace(Decoding& d) {
  d.take("replace");
  d.take("tile");
  const int field = d.take_any({"global_address", "rank", "box_dim", "global_dim", "global_stride",
                                "element_stride", "elemtype", "interleave_layout", "swizzle_mode",
                                "swizzle_atomicity", "fill_mode"});
  if (field < 0) return d.invalid("a field is needed");
  const Space space = d.take_space(Space::kGeneric);
  d.take("b1024");
  const Type type = d.take_type();
  const int bits = bits_of(type);
  if (bits != 32 && bits != 64) return d.invalid(".b32 or .b64 is needed");
  const bool ordinal = field >= 2 && field <= 5;
  if (!d.expect(ordinal ? 3 : 2, ordinal ? 3 : 2) || !d.done()) return false;
  u64 which = 0;
  if (ordinal && !d.immediate(1, &which)) return false;
  bool wide = false;
  const Ref a = d.address_value(d.in.operands[0], &wide), v = d.source(ordinal ? 2 : 1, bits);
  if (d.failed()) return false;
  Op& op = d.emit<execute_replace>(
      {static_cast<TensorMapField>(field), static_cast<int>(which), space, wide, bits == 64});
  op.s[0] = a;
  op.s[1] = v;
  return true;
}

struct MapCopy {
  bool from_wide = false;  ///< the source's address has 64 bits
};

// s = {to, from}
Step execute_copy_map(Warp& warp, const Op& op, const MapCopy& what, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  const u32 lane = lowest_lane(mask);
  Place to, from;
  const u64 destination = warp.lane64(op.s[0], lane),
            source = warp.value(op.s[1], lane, what.from_wide);
  for (u32 half = 0; half < 128; half += 64) {
    if (!warp.cluster->resolve(warp, op, lane, Space::kGeneric, destination + half, 64, &to))
      return Step::kNext;
    if (!warp.cluster->resolve(warp, op, lane, Space::kShared, source + half, 64, &from))
      return Step::kNext;
    warp.cluster->record(warp, op, {mask}, from, 64, false, false);
    warp.cluster->record(warp, op, {mask}, to, 64, true, false);
    std::memcpy(to.data, from.data, 64);
    if (to.poison != nullptr) std::memset(to.poison, 0, 64);
  }
  warp.clocks.maps_released = warp.clocks.epoch++;
  warp.cluster->note_progress();
  return Step::kNext;
}

bool decode_copy_map(Decoding& d) {
  for (const std::string_view name :
       {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "sync", "aligned"})
    d.take(name);
  d.take_semantics();
  u64 bytes = 0;
  if (!d.expect(3, 3) || !d.done() || !d.immediate(2, &bytes)) return false;
  if (bytes != 128) return d.invalid("a tensor map has 128 bytes");
  bool to_wide = false, from_wide = false;
  const Ref to = d.address_value(d.in.operands[0], &to_wide),
            from = d.address_value(d.in.operands[1], &from_wide);
  if (d.failed()) return false;
  if (!to_wide) return d.invalid("a global address has 64 bits");
  Op& op = d.emit<execute_copy_map>({from_wide});
  op.s[0] = to;
  op.s[1] = from;
  op.set(kOpAligned);
  return true;
}

}  // namespace

void add_tensor_copies(InstructionTable& t) {
  t.add({"cp", ".async.bulk.tensor", "tensor copy",
         "1d-5d, .tile, tile::gather4, tile::scatter4, every swizzle, out-of-bounds fill, "
         "multicast, cta_group; loads and stores; prefetch",
         "9.7.9.27.1", [](Decoding& d) { return decode_tensor(d, false); }});
  t.add({"cp", ".reduce.async.bulk.tensor", "tensor copy", "add min max inc dec and or xor",
         "9.7.9.27.2", [](Decoding& d) { return decode_tensor(d, true); }});
  t.add({"tensormap", ".replace", "tensor copy", "every field; shared and global", "9.7.9.28",
         decode_replace});
  t.add({"tensormap", ".cp_fenceproxy", "tensor copy", "", "9.7.13.17", decode_copy_map});
}

}  // namespace attnjit::emulator
