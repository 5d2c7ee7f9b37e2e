// SPDX-License-Identifier: Apache-2.0
// tcgen05.alloc, dealloc, relinquish_alloc_permit, ld, st, wait and fence.
//
// A ld writes its registers when it executes; until tcgen05.wait::ld a use of them is a finding.
// The values are right all the same, as on hardware, where a register dependency is honoured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/tcgen05.h"
#include "emulator/memory/tensor_memory.h"

namespace attnjit::emulator {

int take_cta_group(Decoding& d) {
  const int group = d.take_any({"cta_group::1", "cta_group::2"});
  if (group < 0) d.invalid(".cta_group::1 or .cta_group::2 is needed");
  return group + 1;
}

Ref tensor_address(Decoding& d, const Operand& operand) {
  bool wide = false;
  const Ref ref = d.address_value(operand, &wide);
  if (!d.failed() && wide && !is_constant(ref)) d.invalid("a tensor-memory address has 32 bits");
  return ref;
}

bool uniform(Warp& warp, const Op& op, u32 mask, Ref r, const char* what) {
  warp.require_defined(r, mask, op, what);
  const u32 first = warp.lane32(r, lowest_lane(mask));
  for (const u32 lane : lanes_of(mask)) {
    if (warp.lane32(r, lane) == first) continue;
    warp.cluster->report(FindingKind::kAligned, &warp, static_cast<int>(lane), op.site,
                         fmt::format("{} is not the same in all lanes", what));
    return false;
  }
  return true;
}

namespace {

// ---------------------------------------------------------------------------------- allocation

Step wait_for_memory(Warp& warp) {
  Group& group = *warp.group;
  group.state = Group::State::kBlocked;
  const u64 since = group.arrived ? group.wait.since : warp.cluster->steps;
  group.arrived = true;
  group.wait = {};
  group.wait.kind = Wait::Kind::kTmemAlloc;
  group.wait.value = warp.cluster->progress;
  group.wait.since = since;
  return Step::kWait;
}

void store_address(Warp& warp, const Op& op, const Address& to, u32 lane, u32 column) {
  const u64 address = lane_address(warp, op, to, lane);
  Place place;
  if (!warp.cluster->resolve(warp, op, lane, to.space, address, 4, &place)) return;
  if (place.cta != warp.cta) {
    warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                         "the address goes to the CTA's own shared memory");
    return;
  }
  warp.cluster->record(warp, op, {warp.group->mask}, place, 4, true, false);
  std::memcpy(place.data, &column, 4);
  if (place.poison != nullptr) std::memset(place.poison, 0, 4);
}

bool valid_columns(Warp& warp, const Op& op, u32 columns) {
  if (columns >= 32 && columns <= kTmemColumns && (columns & (columns - 1)) == 0) return true;
  warp.cluster->report(FindingKind::kTmem, &warp, -1, op.site,
                       fmt::format("{} columns: it is a power of two from 32 to 512", columns));
  return false;
}

struct Allocation {
  Address address;
  int cta_group = 1;
};

// s = {address of the result, columns}
Step execute_alloc(Warp& warp, const Op& op, const Allocation& allocation, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  Cluster& cluster = *warp.cluster;
  Group& group = *warp.group;
  const auto lane = lowest_lane(mask);
  const int cta_group = allocation.cta_group;
  TensorMemory& memory = tensor_memory(*warp.cta);
  if (!group.arrived) {
    if (op.s[0] != kNoRef && allocation.address.space != Space::kGeneric)
      uniform(warp, op, mask, op.s[0], "the address");
    uniform(warp, op, mask, op.s[1], "the number of columns");
    if (!check_cta_group(warp, op, cta_group)) return Step::kNext;
  }
  const u32 columns = warp.lane32(op.s[1], lane);
  if (!group.arrived) {
    if (!valid_columns(warp, op, columns)) return Step::kNext;
    if (memory.relinquished) {
      cluster.report(FindingKind::kTmem, &warp, -1, op.site,
                     "the CTA has given up the right to allocate "
                     "(tcgen05.relinquish_alloc_permit)");
      return Step::kNext;
    }
    if (columns > memory.smallest) {
      cluster.report(FindingKind::kTmem, &warp, -1, op.site,
                     fmt::format("{} columns after an allocation of {}: the number may not "
                                 "increase from one allocation to the next",
                                 columns, memory.smallest));
    }
  }
  if (cta_group == 1) {
    const std::vector<u32> places = memory.candidates(columns);
    if (places.empty()) return wait_for_memory(warp);
    // NOTE: which free block it is depends on the SM's other CTAs, so any.
    const u32 column = places[cluster.random.below(static_cast<u32>(places.size()))];
    memory.allocate(column, columns, warp, op.site);
    group.arrived = false;
    store_address(warp, op, allocation.address, lane, column);
    cluster.note_progress();
    return Step::kNext;
  }
  using Request = TensorMemory::Request;
  TensorMemory& other = tensor_memory(*tensor_peer(*warp.cta));
  if (memory.request.state == Request::State::kNone) {
    memory.request = {Request::State::kWaiting, false, &warp, columns, 0, op.site};
    cluster.note_progress();
  } else if (memory.request.warp != &warp) {
    return wait_for_memory(warp);  // another warp's request goes first
  }
  if (memory.request.state == Request::State::kWaiting &&
      other.request.state == Request::State::kWaiting) {
    if (other.request.frees || other.request.columns != columns) {
      cluster.report(
          FindingKind::kTmem, &warp, -1, op.site,
          fmt::format("an allocation of {} columns meets {} of {} columns at {} in the peer CTA",
                      columns, other.request.frees ? "a deallocation" : "an allocation",
                      other.request.columns, cluster.describe_site(other.request.site)));
      memory.request = {};
      group.arrived = false;
      return Step::kNext;
    }
    std::vector<u32> places = memory.candidates(columns);
    std::erase_if(places, [&](u32 c) { return !other.is_free(c, columns); });
    if (!places.empty()) {
      const u32 column = places[cluster.random.below(static_cast<u32>(places.size()))];
      memory.allocate(column, columns, warp, op.site);
      other.allocate(column, columns, *other.request.warp, other.request.site);
      memory.request.state = other.request.state = Request::State::kServed;
      memory.request.column = other.request.column = column;
      cluster.note_progress();
    }
  }
  if (memory.request.state != Request::State::kServed) return wait_for_memory(warp);
  const u32 column = memory.request.column;
  memory.request = {};
  group.arrived = false;
  store_address(warp, op, allocation.address, lane, column);
  cluster.note_progress();
  return Step::kNext;
}

/// The CTA's half of a deallocation: checks it and frees.
void deallocate(Warp& warp, const Op& op, u32 column, u32 columns) {
  Cluster& cluster = *warp.cluster;
  TensorMemory& memory = tensor_memory(*warp.cta);
  const auto it =
      std::find_if(memory.allocations.begin(), memory.allocations.end(),
                   [&](const auto& a) { return a.column == column && a.columns == columns; });
  if (it == memory.allocations.end()) {
    cluster.report(
        FindingKind::kTmem, &warp, -1, op.site,
        fmt::format("{} columns from {} are no allocation of this CTA", columns, column));
    return;
  }
  // Freeing is the last access: every other must have come before it.
  memory.access(cluster, {0, kTmemLanes, column, columns}, true,
                warp.accessor(op, {warp.group->mask}), &warp, op.site);
  memory.free(column);
}

struct CtaGroup {
  int size = 1;
};

// s = {address, columns}
Step execute_dealloc(Warp& warp, const Op& op, const CtaGroup& ctas, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  Cluster& cluster = *warp.cluster;
  Group& group = *warp.group;
  const auto lane = lowest_lane(mask);
  const int cta_group = ctas.size;
  if (!group.arrived) {
    uniform(warp, op, mask, op.s[0], "the address");
    uniform(warp, op, mask, op.s[1], "the number of columns");
    if (!check_cta_group(warp, op, cta_group)) return Step::kNext;
  }
  const u32 column = warp.lane32(op.s[0], lane), columns = warp.lane32(op.s[1], lane);
  if (!group.arrived && !valid_columns(warp, op, columns)) return Step::kNext;
  if (cta_group == 1) {
    deallocate(warp, op, column, columns);
    cluster.note_progress();
    return Step::kNext;
  }
  using Request = TensorMemory::Request;
  TensorMemory& memory = tensor_memory(*warp.cta);
  TensorMemory& other = tensor_memory(*tensor_peer(*warp.cta));
  if (memory.request.state == Request::State::kNone) {
    memory.request = {Request::State::kWaiting, true, &warp, columns, column, op.site};
    deallocate(warp, op, column, columns);
    cluster.note_progress();
  } else if (memory.request.warp != &warp) {
    return wait_for_memory(warp);
  }
  if (memory.request.state == Request::State::kWaiting &&
      other.request.state == Request::State::kWaiting) {
    if (!other.request.frees || other.request.columns != columns ||
        other.request.column != column) {
      cluster.report(
          FindingKind::kTmem, &warp, -1, op.site,
          fmt::format("a deallocation of {} columns from {} meets {} of {} columns at {} in the "
                      "peer CTA",
                      columns, column, other.request.frees ? "a deallocation" : "an allocation",
                      other.request.columns, cluster.describe_site(other.request.site)));
    }
    memory.request.state = other.request.state = Request::State::kServed;
    cluster.note_progress();
  }
  if (memory.request.state != Request::State::kServed) return wait_for_memory(warp);
  memory.request = {};
  group.arrived = false;
  cluster.note_progress();
  return Step::kNext;
}

Step execute_relinquish(Warp& warp, const Op& op, const CtaGroup& ctas, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  if (check_cta_group(warp, op, ctas.size)) tensor_memory(*warp.cta).relinquished = true;
  return Step::kNext;
}

bool decode_alloc(Decoding& d) {
  d.take("alloc");
  const int group = take_cta_group(d);
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  Allocation allocation;
  allocation.cta_group = group;
  Ref base = kNoRef;
  const Space space = d.take("shared::cta") ? Space::kShared : Space::kGeneric;
  if (d.take_type() != Type::kB32) return d.invalid(".b32 is needed");
  if (!d.expect(2, 2) || !d.done() ||
      !d.address(d.in.operands[0], space, &allocation.address, &base))
    return false;
  const Ref columns = d.source(1, 32);
  if (d.failed()) return false;
  if (d.is(1, Operand::Kind::kInteger)) {
    const u64 n = d.in.operands[1].value;
    if (n < 32 || n > kTmemColumns || (n & (n - 1)) != 0)
      return d.invalid("the number of columns is a power of two from 32 to 512");
  }
  Op& op = d.emit<execute_alloc>(allocation);
  op.s[0] = base;
  op.s[1] = columns;
  op.set(kOpAligned);
  d.f.builder.program->uses_tmem = true;
  return true;
}

bool decode_dealloc(Decoding& d) {
  d.take("dealloc");
  const int group = take_cta_group(d);
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  if (d.take_type() != Type::kB32) return d.invalid(".b32 is needed");
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref address = d.source(0, 32), columns = d.source(1, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_dealloc>({group});
  op.s[0] = address;
  op.s[1] = columns;
  op.set(kOpAligned);
  return true;
}

bool decode_relinquish(Decoding& d) {
  d.take("relinquish_alloc_permit");
  const int group = take_cta_group(d);
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  if (!d.expect(0, 0) || !d.done()) return false;
  d.emit<execute_relinquish>({group}).set(kOpAligned);
  return true;
}

// ------------------------------------------------------------------------------------ ld and st

struct Movement {
  TmemShape shape = TmemShape::k32x32b;
  int n = 1;
  int half = 0;
  bool packs = false;
  bool stores = false;
  enum class Reduction : u8 { kNone, kMin, kMax };
  Reduction reduces = Reduction::kNone;  ///< .red, over the registers of a thread
  bool reduces_abs = false, reduces_nan = false;
  Type reduces_type = Type::kF32;

  int registers() const { return tmem_registers(shape, n); }
  int lanes() const { return shape == TmemShape::k32x32b ? 32 : 16; }
  /// Columns that the registers name; packed ones name pairs of columns.
  int columns() const {
    const int width = shape == TmemShape::k32x32b || shape == TmemShape::k16x32bx2 ? n
                      : shape == TmemShape::k16x64b                                ? 2 * n
                      : shape == TmemShape::k16x128b                               ? 4 * n
                                                                                   : 8 * n;
    return packs ? 2 * width : width;
  }
};

/// One step of tcgen05.ld.red (PTX ISA 9.7.16.8.3; NaN as in min and max).
u32 reduce(const Movement& m, u32 a, u32 b) {
  const bool min = m.reduces == Movement::Reduction::kMin;
  if (m.reduces_type != Type::kF32) {
    const bool less =
        m.reduces_type == Type::kU32 ? a < b : static_cast<s32>(a) < static_cast<s32>(b);
    return less == min ? a : b;
  }
  const float x = bits_to_float(a), y = bits_to_float(b);
  if (std::isnan(x) || std::isnan(y)) {
    if (m.reduces_nan || (std::isnan(x) && std::isnan(y))) return 0x7FFFFFFF;
    return std::isnan(x) ? b : a;
  }
  if (x == y) return std::signbit(x) == min ? a : b;  // -0 is less than +0
  return (x < y) == min ? a : b;
}

/// A tcgen05.ld or st of a warp.
class TensorMove : public TensorOp {
 public:
  Movement move;
  u32 first_lane = 0, column = 0;
  std::vector<u32> rows;      ///< absolute rows of the register file
  std::vector<u32> values;    ///< st: [register][lane]
  std::vector<u32> poisoned;  ///< st: by register
  std::shared_ptr<PendingCopies> group;
  const char* unit() const override { return move.stores ? "tcgen05.st" : "tcgen05.ld"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = move.stores ? UnitWork::Kind::kTensorWrite : UnitWork::Kind::kTensorRead;
    w.bytes = static_cast<u64>(move.registers()) * 128;
    return w;
  }

  bool step(Cluster& cluster) override {
    begin();
    TensorMemory& memory = tensor_memory(*issuer->cta);
    const auto lanes = static_cast<u32>(move.lanes());
    const auto columns = static_cast<u32>(move.columns());
    const Accessor accessor = move.stores ? tensor_writer() : tensor_reader();
    bool good = memory.access(cluster, {first_lane, lanes, column, columns}, move.stores, accessor,
                              issuer, site);
    if (move.shape == TmemShape::k16x32bx2)
      good =
          memory.access(cluster, {first_lane, lanes, column + static_cast<u32>(move.half), columns},
                        move.stores, accessor, issuer, site) &&
          good;
    if (good) {
      for (int r = 0; r < move.registers(); ++r) move_register(memory, r);
      if (move.reduces != Movement::Reduction::kNone) reduce_registers();
      cluster.stats.unit_bytes["tensor memory"] += static_cast<u64>(move.registers()) * 128;
    } else if (!move.stores) {
      for (const u32 row : rows) issuer->registers.poison[row] = ~u32{0};
    }
    --group->unwritten;
    group->write_done.acquire(view);
    return true;
  }

 private:
  void reduce_registers() {
    const auto n = static_cast<std::size_t>(move.registers());
    u32* to = issuer->registers.rows[rows[n]].lane;
    u32 bad = 0;
    for (std::size_t r = 0; r < n; ++r) {
      for (u32 lane = 0; lane < 32; ++lane) {
        u32 v = issuer->registers.rows[rows[r]].lane[lane];
        if (move.reduces_abs) v &= 0x7FFFFFFF;
        to[lane] = r == 0 ? v : reduce(move, to[lane], v);
      }
      if (issuer->machine->checks) bad |= issuer->registers.poison[rows[r]];
    }
    if (!issuer->machine->checks) return;
    issuer->registers.poison[rows[n]] = bad;
    if (bad != 0) issuer->registers.poison_site[rows[n]] = site;
  }

  void move_register(TensorMemory& memory, int r) {
    const auto at = static_cast<std::size_t>(r);
    u32 bad = 0;
    for (int t = 0; t < 32; ++t) {
      TmemCell c = tmem_cell(move.shape, t, r, move.packs ? 0 : move.half);
      if (move.packs) {
        // A register names two columns; .16x32bx2's offset is in columns.
        c.column = 2 * c.column + (move.shape == TmemShape::k16x32bx2 ? move.half * (t >> 4) : 0);
      }
      const u32 cell_lane = first_lane + static_cast<u32>(c.lane);
      const u32 cell_column = column + static_cast<u32>(c.column);
      const auto thread = static_cast<std::size_t>(t);
      if (move.stores) {
        const u32 v = values[at * 32 + thread];
        const auto p = static_cast<u8>(poisoned[at] >> t & 1);
        if (!move.packs) {
          memory.cell(cell_lane, cell_column) = v;
          memory.poison(cell_lane, cell_column) = p;
        } else {
          for (u32 h = 0; h < 2; ++h) {
            // NOTE: what .unpack leaves in the high halves is not documented; they keep their bits.
            u32& cell = memory.cell(cell_lane, cell_column + h);
            cell = (cell & 0xFFFF0000u) | (v >> (16 * h) & 0xFFFF);
            memory.poison(cell_lane, cell_column + h) = p;
          }
        }
        continue;
      }
      u32 v = memory.cell(cell_lane, cell_column);
      u8 p = memory.poison(cell_lane, cell_column);
      if (move.packs) {
        v = (v & 0xFFFF) | memory.cell(cell_lane, cell_column + 1) << 16;
        p |= memory.poison(cell_lane, cell_column + 1);
      }
      issuer->registers.rows[rows[at]].lane[t] = v;
      if (p != 0) bad |= u32{1} << t;
    }
    if (!move.stores && issuer->machine->checks) {
      issuer->registers.poison[rows[at]] = bad;
      if (bad != 0) issuer->registers.poison_site[rows[at]] = site;
    }
  }
};

// s = {address}; list: registers
Step execute_move(Warp& warp, const Op& op, const Movement& movement, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  Cluster& cluster = *warp.cluster;
  if (!uniform(warp, op, mask, op.s[0], "the tensor-memory address")) return Step::kNext;
  const u32 address = warp.lane32(op.s[0], lowest_lane(mask));
  auto move = std::make_unique<TensorMove>();
  move->move = movement;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const u32 base = warp.group->row_base;
  const u32 quarter = warp.index % 4 * 32;
  u32 lane = tmem_lane(address);
  const bool half_allowed = move->move.shape != TmemShape::k32x32b;
  if (lane != quarter && !(half_allowed && lane == quarter + 16)) {
    cluster.report(
        FindingKind::kTmem, &warp, -1, op.site,
        fmt::format("the address 0x{:08x} names lane {}, warp {} reaches lanes {} to {}: it must "
                    "be {}{}",
                    address, lane, warp.index, quarter, quarter + 31, quarter,
                    half_allowed ? fmt::format(" or {}", quarter + 16) : std::string()));
    lane = quarter;
  }
  move->first_lane = lane;
  move->column = tmem_column(address);
  auto& pending = move->move.stores ? warp.tensor.stores : warp.tensor.loads;
  if (pending == nullptr) pending = std::make_shared<PendingCopies>();
  move->group = pending;
  ++pending->unwritten;
  for (u32 i = 0; i < op.list_count; ++i) {
    const Ref r = list[i];
    if (!move->move.stores) {
      const u32 row = base + index_of(r);
      move->rows.push_back(row);
      if (!awaits_tensor_load(warp.registers.in_flight[row])) {
        warp.tensor.rows.push_back(row);
        ++warp.registers.in_flight_rows;
      }
      warp.registers.in_flight[row] = InFlight::kLoadsTensor;
      continue;
    }
    if (is_row(r) && awaits_tensor_load(warp.registers.in_flight[base + index_of(r)])) {
      report_unwaited_load(warp, op.site, "stores");
    }
    const auto* from = static_cast<const u32*>(warp.source(r));
    move->values.insert(move->values.end(), from, from + 32);
    move->poisoned.push_back(warp.machine->checks ? warp.poison_of(r) : 0);
  }
  issue_tensor_access(std::move(move), warp, op);
  return Step::kNext;
}

struct TensorWait {
  bool stores = false;  ///< or loads
};

Step execute_tensor_wait(Warp& warp, const Op& op, const TensorWait& what, u32 mask) {
  Group& group = *warp.group;
  if (!group.arrived) {
    const Step step = gather_warp(warp, op, mask);
    if (step != Step::kNext) return step;
  }
  auto& pending = what.stores ? warp.tensor.stores : warp.tensor.loads;
  if (pending != nullptr && pending->unwritten != 0) {
    group.arrived = true;
    group.state = Group::State::kBlocked;
    group.wait = {};
    group.wait.kind = what.stores ? Wait::Kind::kTmemStore : Wait::Kind::kTmemLoad;
    group.wait.since = warp.cluster->steps;
    return Step::kWait;
  }
  group.arrived = false;
  if (pending != nullptr) learn(warp, pending->write_done);
  pending = nullptr;
  if (!what.stores) {
    for (const u32 row : warp.tensor.rows) {
      if (!awaits_tensor_load(warp.registers.in_flight[row])) continue;
      warp.registers.in_flight[row] = InFlight::kNo;
      --warp.registers.in_flight_rows;
    }
    warp.tensor.rows.clear();
  }
  return Step::kNext;
}

bool decode_move(Decoding& d, bool stores) {
  d.take(stores ? "st" : "ld");
  const bool reduces = !stores && d.take("red");
  if (reduces && d.f.builder.module->target.starts_with("sm_100"))
    return d.unsupported("tcgen05.ld.red exists on sm_103a, not on sm_100a");
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  Movement m;
  m.stores = stores;
  const int shape = d.take_any({"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"});
  if (shape < 0) return d.invalid("a shape is needed");
  m.shape = static_cast<TmemShape>(shape);
  const int n = d.take_any({"x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128"});
  if (n < 0) return d.invalid("a number .x1 to .x128 is needed");
  m.n = 1 << n;
  if (m.registers() > 128) return d.invalid("this shape does not have that many repetitions");
  const bool halves = m.shape == TmemShape::k16x32bx2;
  if (reduces) {
    m.reduces = static_cast<Movement::Reduction>(1 + d.take_any({"min", "max"}));
    m.reduces_abs = d.take("abs");
    m.reduces_nan = d.take("NaN");
    const Type type = d.take_type();
    m.reduces_type = type;
    const bool integer = type == Type::kU32 || type == Type::kS32;
    const bool fits = type == Type::kF32 || (integer && !m.reduces_abs && !m.reduces_nan);
    if (m.reduces == Movement::Reduction::kNone || !fits || n == 0 ||
        (m.shape != TmemShape::k32x32b && !halves))
      return d.invalid(
          ".red takes .32x32b or .16x32bx2, .x2 or more, .min or .max and .f32, .u32 or .s32");
  } else {
    m.packs = d.take(stores ? "unpack::16b" : "pack::16b");
    if (d.take_type() != Type::kB32) return d.invalid(".b32 is needed");
  }
  const std::size_t operands = (halves ? 3u : 2u) + (reduces ? 1u : 0u);
  if (!d.expect(operands, operands) || !d.done()) return false;
  const std::size_t vector = stores ? operands - 1 : 0;
  if (halves) {
    u64 half = 0;
    if (!d.immediate(stores ? 1 : reduces ? 3 : 2, &half)) return false;
    if (half >= kTmemColumns) return d.invalid("the half's offset is a number of columns");
    m.half = static_cast<int>(half);
  }
  if (!d.is(vector, Operand::Kind::kVector) ||
      d.in.operands[vector].parts.size() != static_cast<std::size_t>(m.registers()))
    return d.invalid(fmt::format("a vector of {} registers is needed", m.registers()));
  const Ref address = tensor_address(d, d.in.operands[stores ? 0 : reduces ? 2 : 1]);
  std::vector<Ref> refs;
  for (const Operand& part : d.in.operands[vector].parts) {
    Ref r = stores ? d.source(part, 32) : d.destination(part, 32);
    if (!stores && r == kNoRef && !d.failed()) r = d.f.scratch(1);  // '_'
    refs.push_back(r);
  }
  if (reduces) {
    const Ref r = d.destination(1, 32);
    refs.push_back(r == kNoRef && !d.failed() ? d.f.scratch(1) : r);
  }
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit<execute_move>(m);
  op.s[0] = address;
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.set(kOpAligned);
  return true;
}

bool decode_tensor_wait(Decoding& d) {
  const bool stores = d.take("wait::st");
  if (!stores) d.take("wait::ld");
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  if (!d.expect(0, 0) || !d.done()) return false;
  d.emit<execute_tensor_wait>({stores}).set(kOpAligned);
  return true;
}

struct TensorFence {
  bool after = false;  ///< ::after_thread_sync, or ::before_thread_sync
};

Step execute_tensor_fence(Warp& warp, const Op&, const TensorFence& fence, u32 mask) {
  if (!fence.after) {
    warp.clocks.fence_tensor_before(mask);
  } else {
    join(warp.clocks.tensor_known, warp.clocks.view.tensor);
    // What relaxed waits saw counts too: the fence itself orders.
    join(warp.clocks.tensor_known, warp.clocks.pending_acquire.tensor);
    join(warp.clocks.view.generic, warp.clocks.tensor_known);
    join(warp.clocks.tensor_fenced, warp.clocks.view.generic);
    join(warp.clocks.tensor_fenced, warp.clocks.pending_acquire.generic);
  }
  return Step::kNext;
}

bool decode_tensor_fence(Decoding& d) {
  const int mode = d.take_any({"fence::before_thread_sync", "fence::after_thread_sync"});
  if (mode < 0) return d.unsupported("this tcgen05 instruction is not modelled");
  if (!d.expect(0, 0) || !d.done()) return false;
  d.emit<execute_tensor_fence>({mode == 1});
  return true;
}

}  // namespace

void report_unwaited_load(Warp& warp, u32 site, const char* what) {
  // NOTE: a warning under silicon: LDTM sets a scoreboard that ptxas makes every use of its
  // registers wait for, and LLVM (so Triton) moves arithmetic above the wait::ld.
  warp.cluster->report(FindingKind::kTmem, &warp, -1, site,
                       fmt::format("{} a register that a tcgen05.ld may not have written yet: "
                                   "tcgen05.wait::ld is needed",
                                   what),
                       warp.machine->options.model == EmulatorModel::kSilicon);
  complete_tensor_loads(warp);
  if (warp.machine->options.model != EmulatorModel::kSilicon) return;
  if (warp.tensor.loads != nullptr) learn(warp, warp.tensor.loads->write_done);
  warp.tensor.loads = nullptr;
  for (const u32 row : warp.tensor.rows) {  // told once a wait
    if (!awaits_tensor_load(warp.registers.in_flight[row])) continue;
    warp.registers.in_flight[row] = InFlight::kNo;
    --warp.registers.in_flight_rows;
  }
  warp.tensor.rows.clear();
}

void complete_tensor_loads(Warp& warp) {
  Cluster& cluster = *warp.cluster;
  for (std::size_t i = 0; i < cluster.pending.size();) {
    auto* move = dynamic_cast<TensorMove*>(cluster.pending[i].get());
    if (move == nullptr || move->issuer != &warp || move->move.stores) {
      ++i;
      continue;
    }
    move->step(cluster);
    cluster.agents.give_back(move->lease);
    cluster.pending.erase(cluster.pending.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void add_tcgen05_memory(InstructionTable& t) {
  t.add({"tcgen05", ".alloc", "tensor memory",
         "blocks until columns are free; any free block; cta_group::2 with the peer", "9.7.16.7.1",
         decode_alloc});
  t.add({"tcgen05", ".dealloc", "tensor memory", "", "9.7.16.7.1", decode_dealloc});
  t.add({"tcgen05", ".relinquish_alloc_permit", "tensor memory", "", "9.7.16.7.1",
         decode_relinquish});
  t.add({"tcgen05", ".ld", "tensor memory",
         ".32x32b .16x64b .16x128b .16x256b .16x32bx2, .x1 to .x128, .pack::16b; .red min max; "
         "asynchronous",
         "9.7.16.8.3", [](Decoding& d) { return decode_move(d, false); }});
  t.add({"tcgen05", ".st", "tensor memory", "as ld, .unpack::16b; asynchronous", "9.7.16.8.4",
         [](Decoding& d) { return decode_move(d, true); }});
  t.add({"tcgen05", ".wait::ld", "tensor memory", "", "9.7.16.8.5", decode_tensor_wait});
  t.add({"tcgen05", ".wait::st", "tensor memory", "", "9.7.16.8.5", decode_tensor_wait});
  t.add({"tcgen05", "", "tensor memory", ".fence::before_thread_sync .fence::after_thread_sync",
         "9.7.16.11.1", decode_tensor_fence});
}

}  // namespace attnjit::emulator
