// SPDX-License-Identifier: Apache-2.0
// wgmma: matrix products of a warpgroup, asynchronous, from shared memory and registers.
//
// Each warp's sixteen rows are an operation of their own: the rows of D that a warp holds depend on
// no other warp's registers. Source: PTX ISA 9.1, section 9.7.15.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/async_copies.h"
#include "emulator/lanes/number_format.h"
#include "emulator/model/fragment.h"
#include "emulator/model/matrix_descriptor.h"
#include "emulator/model/tensor_product.h"

namespace attnjit::emulator {
namespace {

/// Of mma_async. Op::list: the registers of D and, where it lies there, of A.
struct Shape {
  int n = 0, k = 0;
  Type d = Type::kF32, a = Type::kBf16, b = Type::kBf16;
  bool a_in_registers = false;
  bool negate_a = false, negate_b = false;
  bool transpose_a = false, transpose_b = false;
  bool saturate = false;
};

bool is_integer(Type t) { return t == Type::kS8 || t == Type::kU8; }

/// The parts of a warpgroup's product. NOTE: on an H200 it begins when all four warps have issued
/// it and their waits for it return together, so that one thread's arrival behind its wait may say
/// that all four parts have read their operands: CUTLASS's pipelines rely on that. The ISA speaks
/// of the executing threads alone.
struct WholeProduct {
  u32 issued = 0, done = 0;  ///< parts
  std::vector<std::shared_ptr<PendingCopies>> groups;
  View read_done, write_done;
};

class WarpProduct : public AsyncOp {
 public:
  Shape shape;
  MatrixDescriptor a, b;
  bool accumulate = true;
  std::vector<u32> d_rows, a_rows;  ///< absolute rows of the register file
  u64 sequence = 0;
  std::shared_ptr<PendingCopies> group;
  std::shared_ptr<WholeProduct> whole;  ///< under silicon

  /// Takes its place among the parts that wait for the last warp: none is done before that issues.
  void join(Cluster& cluster) {
    for (const auto& pending : cluster.pending) {
      const auto* const other = dynamic_cast<const WarpProduct*>(pending.get());
      if (other != nullptr && other->issuer->cta == issuer->cta && other->sequence == sequence &&
          other->issuer->index / 4 == issuer->index / 4)
        whole = other->whole;
    }
    if (whole == nullptr) whole = std::make_shared<WholeProduct>();
    ++whole->issued;
    whole->groups.push_back(group);
  }
  const char* unit() const override { return "tensor core (wgmma)"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kWgmma;
    w.m = 16;
    w.n = static_cast<u32>(shape.n);
    w.k_bits = static_cast<u32>(shape.k * bits_of(shape.a));
    w.a_in_registers = shape.a_in_registers;
    return w;
  }
  bool ready(Cluster&) override {
    return issuer->wgmma.done == sequence && (whole == nullptr || whole->issued == 4);
  }
  bool step(Cluster& cluster) override {
    if (issuer->machine->zero_products) {
      clear();
      finish();
      return true;
    }
    const int n = shape.n, k = shape.k, element = bits_of(shape.a) / 8;
    codes_a_.assign(static_cast<std::size_t>(16 * k), 0);
    codes_b_.assign(static_cast<std::size_t>(n * k), 0);
    poison_a_.assign(16, 0);
    poison_b_.assign(static_cast<std::size_t>(n), 0);
    const u32 quarter = issuer->index % 4;
    if (shape.a_in_registers) {
      read_a_registers(element);
    } else {
      read_operand(cluster, a, shape.transpose_a, element, 16 * static_cast<int>(quarter), 16,
                   &codes_a_, &poison_a_);
    }
    read_operand(cluster, b, shape.transpose_b, element, 0, n, &codes_b_, &poison_b_);
    multiply();
    cluster.stats.mma_operations += static_cast<u64>(16 * n * k);
    finish();
    return true;
  }

 private:
  void finish() {
    ++issuer->wgmma.done;
    if (whole == nullptr) {
      end(*group, reads_done(), all_done());
      return;
    }
    whole->read_done.acquire(reads_done());
    whole->write_done.acquire(all_done());
    if (++whole->done < 4) return;
    for (const auto& warp_copies : whole->groups)
      end(*warp_copies, whole->read_done, whole->write_done);
  }
  static void end(PendingCopies& warp_copies, const View& read, const View& written) {
    --warp_copies.unread;
    --warp_copies.unwritten;
    warp_copies.read_done.acquire(read);
    warp_copies.write_done.acquire(written);
  }
  void clear() {
    if (accumulate) return;
    for (const u32 row : d_rows) issuer->registers.rows[row] = {};
  }
  /// Bytes at an 18-bit offset of the CTA's own shared memory.
  bool chunk(Cluster& cluster, u32 address, u8* bytes, u8* poisoned) {
    Place place;
    if (!cluster.resolve_async(*this, issuer->cta->at(address & 0x3FFFF), 16, &place)) return false;
    cluster.record(*this, place, 16, false);
    std::memcpy(bytes, place.data, 16);
    *poisoned = place.poison != nullptr && std::memchr(place.poison, 1, 16) != nullptr ? 1 : 0;
    return true;
  }
  void read_operand(Cluster& cluster, const MatrixDescriptor& d, bool transposed, int element,
                    int first, int extent, std::vector<u32>* codes, std::vector<u8>* poison) {
    const int k = shape.k, per_chunk = 16 / element;
    u8 bytes[16];
    u8 bad = 0;
    const auto code = [&](int i) {
      u32 v = 0;
      std::memcpy(&v, bytes + i * element, static_cast<std::size_t>(element));
      return v;
    };
    if (!transposed) {
      for (int row = 0; row < extent; ++row) {
        for (u32 c = 0; c < 2; ++c) {
          if (!chunk(cluster, k_major_chunk(d, static_cast<u32>(first + row), c), bytes, &bad))
            return;
          (*poison)[static_cast<std::size_t>(row)] |= bad;
          for (int i = 0; i < per_chunk; ++i)
            (*codes)[static_cast<std::size_t>(row * k + static_cast<int>(c) * per_chunk + i)] =
                code(i);
        }
      }
      return;
    }
    for (int mn = 0; mn < extent; mn += per_chunk) {
      for (int at = 0; at < k; ++at) {
        if (!chunk(
                cluster,
                mn_major_chunk(d, static_cast<u32>((first + mn) / per_chunk), static_cast<u32>(at)),
                bytes, &bad))
          return;
        for (int i = 0; i < per_chunk && mn + i < extent; ++i) {
          (*poison)[static_cast<std::size_t>(mn + i)] |= bad;
          (*codes)[static_cast<std::size_t>((mn + i) * k + at)] = code(i);
        }
      }
    }
  }
  void read_a_registers(int element) {
    const int per_register = 4 / element;
    const u32 mask = element == 4 ? ~u32{0} : (u32{1} << (8 * element)) - 1;
    for (int lane = 0; lane < 32; ++lane) {
      for (int j = 0; j < 4; ++j) {
        const u32 row = a_rows[static_cast<std::size_t>(j)];
        for (int e = 0; e < per_register; ++e) {
          const Element at = wgmma_a(lane, j, e, element);
          codes_a_[static_cast<std::size_t>(at.row * shape.k + at.column)] =
              (issuer->registers.rows[row].lane[lane] >> (8 * element * e)) & mask;
          if ((issuer->registers.poison[row] >> lane & 1) != 0)
            poison_a_[static_cast<std::size_t>(at.row)] = 1;
        }
      }
    }
  }
  void multiply() {
    const int n = shape.n, k = shape.k;
    const bool half = shape.d == Type::kF16;
    const std::size_t cells = static_cast<std::size_t>(16 * n);
    const auto reg_of = [&](int i) { return d_rows[static_cast<std::size_t>(half ? i / 2 : i)]; };
    const int values = n / 2;  // a thread's values of D
    if (shape.d == Type::kS32) {
      std::vector<std::int32_t> av(codes_a_.size()), bv(codes_b_.size()), c(cells), r(cells);
      for (std::size_t i = 0; i < av.size(); ++i)
        av[i] = shape.a == Type::kS8 ? static_cast<s8>(codes_a_[i])
                                     : static_cast<std::int32_t>(codes_a_[i]);
      for (std::size_t i = 0; i < bv.size(); ++i)
        bv[i] = shape.b == Type::kS8 ? static_cast<s8>(codes_b_[i])
                                     : static_cast<std::int32_t>(codes_b_[i]);
      if (accumulate) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < values; ++i) {
            const Element at = wgmma_d(lane, i);
            c[static_cast<std::size_t>(at.row * n + at.column)] =
                static_cast<std::int32_t>(issuer->registers.rows[reg_of(i)].lane[lane]);
          }
        }
      }
      integer_product(av.data(), bv.data(), 16, n, k, shape.saturate,
                      accumulate ? c.data() : nullptr, r.data());
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < values; ++i) {
          const Element at = wgmma_d(lane, i);
          issuer->registers.rows[reg_of(i)].lane[lane] =
              static_cast<u32>(r[static_cast<std::size_t>(at.row * n + at.column)]);
        }
      }
    } else {
      const FloatFormat& af = *float_format(shape.a);
      const FloatFormat& bf = *float_format(shape.b);
      ProductOperand av, bv;
      av.reset(16, k);
      bv.reset(n, k);
      for (int row = 0; row < 16; ++row) {
        for (int at = 0; at < k; ++at)
          av.set(af, row, at,
                 operand_code(shape.a, codes_a_[static_cast<std::size_t>(row * k + at)]),
                 shape.negate_a);
      }
      for (int row = 0; row < n; ++row) {
        for (int at = 0; at < k; ++at)
          bv.set(bf, row, at,
                 operand_code(shape.b, codes_b_[static_cast<std::size_t>(row * k + at)]),
                 shape.negate_b);
      }
      std::vector<float> c(cells), r(cells);
      if (accumulate) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < values; ++i) {
            const Element at = wgmma_d(lane, i);
            const u32 bits = issuer->registers.rows[reg_of(i)].lane[lane];
            c[static_cast<std::size_t>(at.row * n + at.column)] =
                half ? half_to_float(static_cast<u16>(bits >> (16 * (i % 2))))
                     : bits_to_float(bits);
          }
        }
      }
      ProductModel model = bits_of(shape.a) == 8 ? kWgmmaFp8 : kWgmmaF16;
      if (half) model = model.with_f16_output();
      tensor_product(model, av, bv, accumulate ? c.data() : nullptr, r.data());
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < values; ++i) {
          const Element at = wgmma_d(lane, i);
          const float v = r[static_cast<std::size_t>(at.row * n + at.column)];
          u32& to = issuer->registers.rows[reg_of(i)].lane[lane];
          if (half) {
            const int shift = 16 * (i % 2);
            to = (to & ~(0xFFFFu << shift)) | (static_cast<u32>(float_to_half_rn(v)) << shift);
          } else {
            to = float_to_bits(v);
          }
        }
      }
    }
    if (!issuer->machine->checks) return;
    for (int i = 0; i < values; ++i) {
      u32 bad = 0;
      for (int lane = 0; lane < 32; ++lane) {
        const Element at = wgmma_d(lane, i);
        if (poison_a_[static_cast<std::size_t>(at.row)] != 0 ||
            poison_b_[static_cast<std::size_t>(at.column)] != 0)
          bad |= u32{1} << lane;
      }
      u32& p = issuer->registers.poison[reg_of(i)];
      const bool fresh = !half || i % 2 == 0;
      p = accumulate || !fresh ? (p | bad) : bad;
      if (bad != 0) issuer->registers.poison_site[reg_of(i)] = site;
    }
  }
  std::vector<u32> codes_a_, codes_b_;
  std::vector<u8> poison_a_, poison_b_;
};

void refresh_in_flight(Warp& warp) {
  std::fill(warp.registers.in_flight.begin(), warp.registers.in_flight.end(), InFlight::kNo);
  warp.registers.in_flight_rows = 0;
  for (const auto& g : warp.wgmma.groups) {
    for (const u32 row : g->rows_read) warp.registers.in_flight[row] = InFlight::kRead;
    for (const u32 row : g->rows_written) warp.registers.in_flight[row] = InFlight::kWritten;
    warp.registers.in_flight_rows += static_cast<u32>(g->rows_read.size() + g->rows_written.size());
  }
}

/// All wgmma instructions are .aligned: the four warps of a warpgroup execute the same ones.
void check_same_in_warpgroup(Warp& warp, const Op& op) {
  Cta& cta = *warp.cta;
  const u32 group_index = warp.index / 4;
  if (cta.wgmma_sites.size() <= group_index) cta.wgmma_sites.resize(group_index + 1);
  auto& sites = cta.wgmma_sites[group_index];
  const u64 place = warp.wgmma.executed++;
  if (place < sites.size()) {
    if (sites[place] != op.site) {
      warp.cluster->report(
          FindingKind::kAligned, &warp, -1, op.site,
          fmt::format("another warp of the warpgroup executes the wgmma instruction at {} instead",
                      warp.cluster->describe_site(sites[place])));
      sites[place] = op.site;
    }
  } else if (sites.size() < (1u << 20)) {
    sites.push_back(op.site);
  }
}

// s = {a descriptor, b descriptor, scale-d predicate}
Step execute_wgmma(Warp& warp, const Op& op, const Shape& shape, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  Cluster& cluster = *warp.cluster;
  Cta& cta = *warp.cta;
  if (warp.live != ~u32{0} || (warp.index / 4 + 1) * 4 > cta.warps.size()) {
    cluster.report(FindingKind::kAligned, &warp, -1, op.site,
                   "wgmma needs a warpgroup of four whole warps");
  }
  check_same_in_warpgroup(warp, op);
  auto product = std::make_unique<WarpProduct>();
  product->shape = shape;
  const auto descriptor = [&](Ref r, MatrixDescriptor* out, const char* name) {
    if (warp.machine->checks) warp.require_defined(r, mask, op, "the matrix descriptor");
    const u64 bits = warp.lane64(r, lowest_lane(mask));
    for (const u32 lane : lanes_of(mask)) {
      if (warp.lane64(r, lane) != bits) {
        cluster.report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site,
                       fmt::format("the descriptor of {} is not the same in all lanes", name));
        break;
      }
    }
    if (const char* problem = decode_wgmma_descriptor(bits, out)) {
      cluster.report(FindingKind::kDescriptor, &warp, -1, op.site,
                     fmt::format("the descriptor of {} (0x{:016x}): {}", name, bits, problem));
      return false;
    }
    return true;
  };
  if (!shape.a_in_registers && !descriptor(op.s[0], &product->a, "A")) return Step::kNext;
  if (!descriptor(op.s[1], &product->b, "B")) return Step::kNext;
  if (op.s[2] != kNoRef) {
    const u32 p = warp.predicate(op.s[2]) & mask;
    if (p != 0 && p != mask)
      cluster.report(FindingKind::kAligned, &warp, __builtin_ctz(p), op.site,
                     "scale-d is not the same in all lanes");
    if (warp.machine->checks) warp.require_defined(op.s[2], mask, op, "scale-d");
    product->accumulate = p != 0;
  }
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const u32 a_count = shape.a_in_registers ? 4 : 0;
  const u32 base = warp.group->row_base;
  for (u32 i = 0; i < op.list_count - a_count; ++i)
    product->d_rows.push_back(base + index_of(list[i]));
  for (u32 i = op.list_count - a_count; i < op.list_count; ++i)
    product->a_rows.push_back(base + index_of(list[i]));
  if (warp.machine->checks) {
    // PTX ISA 9.7.15.7.1: before the first wgmma.mma_async of a warpgroup, whatever it reads.
    if (!warp.wgmma.fenced) {
      cluster.report(FindingKind::kRace, &warp, -1, op.site,
                     "the first wgmma.mma_async comes without a wgmma.fence before it");
      warp.wgmma.fenced = true;
    }
    for (const auto& rows : {product->d_rows, product->a_rows}) {
      bool told = false;
      for (const u32 row : rows) {
        if (warp.registers.written_at[row] > warp.wgmma.fence_at && !told) {
          cluster.report(FindingKind::kRace, &warp, -1, op.site,
                         "a register of this wgmma was written after the last wgmma.fence");
          told = true;
        }
      }
    }
    for (const u32 row : product->a_rows) {
      if (warp.registers.in_flight[row] == InFlight::kWritten) {
        cluster.report(FindingKind::kRace, &warp, -1, op.site,
                       "a register of A is still being written by an earlier wgmma: "
                       "wgmma.wait_group is needed");
        break;
      }
    }
  }
  product->sequence = warp.wgmma.issued++;
  product->group = open_group(warp.wgmma.groups, mask);
  ++product->group->unread;
  ++product->group->unwritten;
  auto& g = *product->group;
  g.rows_written.insert(g.rows_written.end(), product->d_rows.begin(), product->d_rows.end());
  g.rows_read.insert(g.rows_read.end(), product->a_rows.begin(), product->a_rows.end());
  for (const u32 row : product->a_rows) warp.registers.in_flight[row] = InFlight::kRead;
  for (const u32 row : product->d_rows) warp.registers.in_flight[row] = InFlight::kWritten;
  warp.registers.in_flight_rows +=
      static_cast<u32>(product->a_rows.size() + product->d_rows.size());
  product->issuer = &warp;
  if (warp.machine->options.model == EmulatorModel::kSilicon) product->join(cluster);
  cluster.start(std::move(product), warp, op, mask);
  return Step::kNext;
}

struct Synchronisation {
  enum class Kind : u8 { kFence, kCommit, kWait };
  Kind kind = Kind::kFence;
  u64 allowed = 0;  ///< a wait: groups that may be pending
};

Step execute_wgmma_sync(Warp& warp, const Op& op, const Synchronisation& what, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  if (what.kind != Synchronisation::Kind::kWait) check_same_in_warpgroup(warp, op);
  if (what.kind == Synchronisation::Kind::kFence) {
    warp.wgmma.fence_at = warp.registers.writes;
    warp.wgmma.fenced = true;
  } else if (what.kind == Synchronisation::Kind::kCommit) {
    commit_group(warp.wgmma.groups, mask);
  } else {
    const Step waited =
        wait_group(warp, warp.wgmma.groups, Wait::Kind::kWgmma, mask, what.allowed, false, false);
    if (waited != Step::kNext) return waited;
    check_same_in_warpgroup(warp, op);
    refresh_in_flight(warp);
  }
  return Step::kNext;
}

bool decode_wgmma(Decoding& d) {
  const int what = d.take_any({"fence", "commit_group", "wait_group", "mma_async"});
  if (what < 0) return d.unsupported("this wgmma operation is not modelled");
  if (d.take("sp")) return d.unsupported("sparse wgmma is not modelled");
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  if (what < 3) {
    u64 n = 0;
    if (!d.expect(what == 2 ? 1 : 0, what == 2 ? 1 : 0) || !d.done() ||
        (what == 2 && !d.immediate(0, &n)))
      return false;
    d.emit<execute_wgmma_sync>({static_cast<Synchronisation::Kind>(what), n}).set(kOpAligned);
    return true;
  }
  Shape s;
  const std::string_view shape = d.take_prefix("m64n");
  const std::size_t at_k = shape.find('k');
  if (at_k == std::string_view::npos) return d.invalid("a shape m64nNkK is needed");
  for (const char c : shape.substr(4, at_k - 4)) s.n = std::min(s.n * 10 + (c - '0'), 10000);
  for (const char c : shape.substr(at_k + 1)) s.k = std::min(s.k * 10 + (c - '0'), 10000);
  s.saturate = d.take("satfinite");
  s.d = d.take_type();
  s.a = d.take_type();
  s.b = d.take_type();
  const bool integer = is_integer(s.a) && is_integer(s.b) && s.d == Type::kS32;
  const bool small = s.a == s.b && (s.a == Type::kF16 || s.a == Type::kBf16);
  const bool fp8 =
      (s.a == Type::kE4m3 || s.a == Type::kE5m2) && (s.b == Type::kE4m3 || s.b == Type::kE5m2);
  const bool tf32 = s.a == Type::kTf32 && s.b == Type::kTf32;
  const bool floats = (small || fp8 || tf32) &&
                      (s.d == Type::kF32 || (s.d == Type::kF16 && (s.a == Type::kF16 || fp8)));
  if (!integer && !floats) return d.unsupported("these operand types are not modelled");
  if (s.n < 8 || s.n > 256 || s.n % 8 != 0)
    return d.invalid(fmt::format("N of {} is not 8 to 256 in steps of 8", s.n));
  if (integer && s.n > 32 && s.n % 16 != 0)
    return d.invalid("N of integer products is 8, 16, 24, 32, then in steps of 16");
  if (s.k * bits_of(s.a) != 256) return d.invalid("K is 256 bits of the operand type");
  if (d.count() < 4) return d.invalid("operands are missing");
  const std::size_t d_regs = static_cast<std::size_t>(s.d == Type::kF16 ? s.n / 4 : s.n / 2);
  std::vector<Ref> refs;
  if (!d.is(0, Operand::Kind::kVector) || d.in.operands[0].parts.size() != d_regs)
    return d.invalid(fmt::format("D needs {} registers", d_regs));
  for (const Operand& part : d.in.operands[0].parts) refs.push_back(d.destination(part, 32));
  Ref a = kNoRef;
  s.a_in_registers = d.is(1, Operand::Kind::kVector);
  if (s.a_in_registers) {
    if (d.in.operands[1].parts.size() != 4) return d.invalid("A needs 4 registers");
    for (const Operand& part : d.in.operands[1].parts) refs.push_back(d.source(part, 32));
  } else {
    a = d.source(1, 64);
  }
  const Ref b = d.source(2, 64);
  const Ref scale = d.source(3, 1);
  for (const Ref r : refs) {
    if (r == kNoRef || !is_row(r))
      return d.failed() ? false : d.unsupported("D and A are registers");
  }
  std::size_t next = 4;
  if (!integer) {
    u64 sa = 0, sb = 0;
    if (!d.immediate(next++, &sa) || !d.immediate(next++, &sb)) return false;
    for (const u64 v : {sa, sb}) {
      if (v != 1 && v != ~u64{0}) return d.invalid("imm-scale is 1 or -1");
    }
    s.negate_a = sa != 1;
    s.negate_b = sb != 1;
    if (small) {
      u64 ta = 0, tb = 0;
      if (!s.a_in_registers && !d.immediate(next++, &ta)) return false;
      if (!d.immediate(next++, &tb)) return false;
      s.transpose_a = ta != 0;
      s.transpose_b = tb != 0;
    }
  }
  if (!d.expect(next, next) || !d.done()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit<execute_wgmma>(s);
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.s[0] = a;
  op.s[1] = b;
  op.s[2] = scale;
  op.set(kOpAligned);
  return true;
}

}  // namespace

void add_wgmma(InstructionTable& t) {
  t.add({"wgmma", "", "wgmma",
         "mma_async m64nNkK: f16, bf16, tf32, e4m3, e5m2, s8, u8 to f32, f16, s32; A from shared "
         "memory or registers; fence commit_group wait_group; bit-equal to an H200",
         "9.7.15", decode_wgmma});
}

}  // namespace attnjit::emulator
