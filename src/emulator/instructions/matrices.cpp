// SPDX-License-Identifier: Apache-2.0
// Matrices of a warp: ldmatrix, stmatrix, movmatrix and mma.sync.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/expansion.h"
#include "emulator/instructions/warp_products.h"
#include "emulator/lanes/number_format.h"
#include "emulator/machine/machine.h"
#include "emulator/model/fragment.h"
#include "emulator/model/tensor_product.h"

namespace attnjit::emulator {

namespace {

/// Of an element of a matrix in row-major order.
constexpr std::size_t index_of(int row, int columns, int column) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
         static_cast<std::size_t>(column);
}

/// Where element e (a byte) of register r of a lane lies: the row's address, and the byte in it.
/// Source of the transposed forms: the copy layouts of CUTLASS's cute/atom/copy_traits_sm100.hpp.
struct ByteElement {
  u32 row, column;
};
constexpr ByteElement byte_element(u32 lane, u32 r, u32 e, bool transposed, bool store) {
  if (!transposed) return {8 * r + lane / 4, 4 * (lane % 4) + e};  // m8n16
  const u32 column = lane / 4 + 8 * (e >> 1);
  if (store) return {8 * r + 2 * (lane % 4) + (e & 1), column};             // m16n8
  return {16 * (r >> 1) + 4 * (lane % 4) + 2 * (r & 1) + (e & 1), column};  // m16n16
}

/// ldmatrix and stmatrix, of the registers in Op::list.
struct MatrixCopy {
  Address address;
  u32 rows = 0;  ///< as many lanes name the address of one
  bool transposed = false;
  bool store = false;
  Expansion expansion = Expansion::kNone;

  Space space() const {
    return address.space == Space::kGeneric ? Space::kGeneric : Space::kShared;
  }
};

Step execute_byte_matrix_copy(Warp& warp, const Op& op, const MatrixCopy& copy, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  Cluster& cluster = *warp.cluster;
  const u32 lanes = copy.rows;
  const bool transposed = copy.transposed, store = copy.store;
  const Expansion expansion = copy.expansion;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const bool checks = warp.machine->checks;
  const u32 needed = lanes == 32 ? ~u32{0} : (u32{1} << lanes) - 1;
  if (checks && op.s[0] != kNoRef)
    warp.require_defined(op.s[0], mask & needed, op, "a row's address");
  u8 rows[32][16] = {}, poison[32][16] = {};
  Place places[32];
  bool ok[32] = {};
  const u32 used = expansion == Expansion::kFrom6 ? 12 : expansion == Expansion::kFrom4 ? 8 : 16;
  for (const u32 lane : lanes_of(mask & needed)) {
    ok[lane] = cluster.resolve(warp, op, lane, copy.space(),
                               lane_address(warp, op, copy.address, lane), 16, &places[lane]);
    if (ok[lane] && places[lane].cta == nullptr) {
      cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                     "matrices are loaded from and stored to shared memory");
      ok[lane] = false;
    }
    if (!ok[lane]) continue;
    cluster.record(warp, op, {mask}, places[lane], used, store, false);
    if (store) continue;
    if (expansion == Expansion::kNone) {
      std::memcpy(rows[lane], places[lane].data, 16);
      if (places[lane].poison != nullptr) std::memcpy(poison[lane], places[lane].poison, 16);
    } else {
      expand(expansion, places[lane].data, rows[lane]);
      const u8* from = places[lane].poison;
      if (from != nullptr && std::any_of(from, from + used, [](u8 b) { return b != 0; }))
        std::memset(poison[lane], 1, 16);
    }
  }
  for (u32 r = 0; r < op.list_count; ++r) {
    u32 result[32] = {};
    u32 bad = 0;
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 e = 0; e < 4; ++e) {
        const ByteElement at = byte_element(lane, r, e, transposed, store);
        if (!store) {
          result[lane] |= static_cast<u32>(rows[at.row][at.column]) << (8 * e);
          if (poison[at.row][at.column] != 0) bad |= u32{1} << lane;
          continue;
        }
        if (!ok[at.row]) continue;
        places[at.row].data[at.column] = static_cast<u8>(warp.lane32(list[r], lane) >> (8 * e));
        if (checks && places[at.row].poison != nullptr)
          places[at.row].poison[at.column] = warp.poison_of(list[r]) >> lane & 1;
      }
    }
    if (!store && list[r] != kNoRef) {
      warp.blend(list[r], result, 1, mask);
      if (checks) warp.set_poison(list[r], bad, mask, op.site);
    }
  }
  if (store) cluster.note_progress();
  cluster.stats.unit_bytes[store ? "stmatrix" : "ldmatrix"] += lanes * 16;
  return Step::kNext;
}

Step execute_matrix_copy(Warp& warp, const Op& op, const MatrixCopy& copy, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  Cluster& cluster = *warp.cluster;
  const u32 matrices = op.list_count;
  const bool transposed = copy.transposed, store = copy.store;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const bool checks = warp.machine->checks;
  const u32 lanes = copy.rows;
  const u32 needed = lanes == 32 ? ~u32{0} : (u32{1} << lanes) - 1;
  if (checks && op.s[0] != kNoRef)
    warp.require_defined(op.s[0], mask & needed, op, "a row's address");
  // Row addresses come from lanes 8i to 8i + 7 for matrix i.
  Place rows[32];
  bool ok[32] = {};
  for (const u32 lane : lanes_of(mask & needed)) {
    ok[lane] = cluster.resolve(warp, op, lane, copy.space(),
                               lane_address(warp, op, copy.address, lane), 16, &rows[lane]);
    if (ok[lane] && rows[lane].cta == nullptr) {
      cluster.report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                     "matrices are loaded from and stored to shared memory");
      ok[lane] = false;
    }
    if (ok[lane]) cluster.record(warp, op, {mask}, rows[lane], 16, store, false);
  }
  for (u32 m = 0; m < matrices; ++m) {
    u32 result[32] = {};
    u32 poison = 0;
    const u32 source_poison = store && checks ? warp.poison_of(list[m]) : 0;
    for (u32 lane = 0; lane < 32; ++lane) {
      for (int h = 0; h < 2; ++h) {
        const Element e = matrix8x8(static_cast<int>(lane), h, transposed);
        const u32 source = m * 8 + static_cast<u32>(e.row);
        if (!ok[source]) continue;
        const Place& place = rows[source];
        const auto at = static_cast<std::size_t>(e.column) * 2;
        if (store) {
          const auto v = static_cast<u16>(warp.lane32(list[m], lane) >> (16 * h));
          std::memcpy(place.data + at, &v, 2);
          if (place.poison != nullptr)
            std::memset(place.poison + at, (source_poison >> lane & 1) != 0 ? 1 : 0, 2);
        } else {
          u16 v;
          std::memcpy(&v, place.data + at, 2);
          result[lane] |= static_cast<u32>(v) << (16 * h);
          if (place.poison != nullptr && (place.poison[at] | place.poison[at + 1]) != 0)
            poison |= u32{1} << lane;
        }
      }
    }
    if (!store && list[m] != kNoRef) {
      warp.blend(list[m], result, 1, mask);
      if (checks) warp.set_poison(list[m], poison, mask, op.site);
    }
  }
  if (store) cluster.note_progress();
  cluster.stats.unit_bytes[store ? "stmatrix" : "ldmatrix"] += matrices * 128;
  return Step::kNext;
}

bool decode_matrix_copy(Decoding& d, bool store) {
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  // sm_100: m16n16.trans (ld) and m16n8.trans (st) of 8 bits, m8n16 of 6 or 4 bits (ld).
  const int shape = d.take_any({"m8n8", store ? "m16n8" : "m16n16", "m8n16"});
  if (shape < 0 || (store && shape == 2)) return d.invalid("a shape is needed");
  const int count = d.take_any({"x1", "x2", "x4"});
  if (count < 0) return d.invalid(".x1, .x2 or .x4 is needed");
  const bool transposed = d.take("trans");
  const bool square = shape == 1 && !store;  // 16 rows, two registers
  if (shape == 1 && (!transposed || (square && count == 2)))
    return d.invalid(".trans is needed, and at most .x2 of 16x16");
  if (shape == 2 && transposed) return d.invalid(".m8n16 has no .trans");
  const u32 matrices = (square ? 2u : 1u) << count;  // registers
  const Space space = d.take_space(Space::kGeneric);
  Expansion expansion = Expansion::kNone;
  if (shape != 0 && !store && d.take("b8x16")) {
    const int from = d.take_any({"b6x16_p32", "b4x16_p64"});
    if (from < 0) return d.invalid(".b6x16_p32 or .b4x16_p64 is needed");
    expansion = from == 0 ? Expansion::kFrom6 : Expansion::kFrom4;
  } else if (d.take_type() != (shape == 0 ? Type::kB16 : Type::kB8) || shape == 2) {
    return d.invalid("the type does not fit the shape");
  }
  if (!d.expect(2, 2) || !d.done()) return false;
  const Operand& vector = d.in.operands[store ? 1 : 0];
  std::vector<Ref> refs;
  const auto add = [&](const Operand& operand) {
    refs.push_back(store ? d.source(operand, 32) : d.destination(operand, 32));
  };
  if (vector.kind == Operand::Kind::kVector) {
    for (const Operand& part : vector.parts) add(part);
  } else {
    add(vector);
  }
  if (refs.size() != matrices) return d.invalid(fmt::format("{} registers are needed", matrices));
  MatrixCopy copy;
  Ref base = kNoRef;
  if (!d.address(d.in.operands[store ? 0 : 1], space, &copy.address, &base)) return false;
  const u32 list = d.list(refs);
  if (d.failed()) return false;
  copy.rows = 8 * matrices;
  copy.transposed = transposed;
  copy.store = store;
  copy.expansion = expansion;
  Op& op = shape == 0 ? d.emit<execute_matrix_copy>(copy) : d.emit<execute_byte_matrix_copy>(copy);
  op.s[0] = base;
  op.list = list;
  op.list_count = matrices;
  op.set(kOpAligned);
  return true;
}

Step execute_movmatrix(Warp& warp, const Op& op, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  u16 cells[8][8] = {};
  for (u32 lane = 0; lane < 32; ++lane) {
    for (int h = 0; h < 2; ++h) {
      const Element e = matrix8x8(static_cast<int>(lane), h, false);
      cells[e.row][e.column] = static_cast<u16>(warp.lane32(op.s[0], lane) >> (16 * h));
    }
  }
  u32 result[32] = {};
  for (u32 lane = 0; lane < 32; ++lane) {
    for (int h = 0; h < 2; ++h) {
      const Element e = matrix8x8(static_cast<int>(lane), h, true);
      result[lane] |= static_cast<u32>(cells[e.row][e.column]) << (16 * h);
    }
  }
  warp.blend(op.d, result, 1, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]) != 0 ? ~u32{0} : 0, mask, op.site);
  return Step::kNext;
}

bool decode_movmatrix(Decoding& d) {
  for (const std::string_view name : {"sync", "aligned", "m8n8", "trans", "b16"}) {
    if (!d.take(name)) return d.unsupported("only .sync.aligned.m8n8.trans.b16 is modelled");
  }
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref a = d.source(1, 32), to = d.destination(0, 32);
  if (d.failed()) return false;
  Op& op = d.emit<execute_movmatrix>();
  op.d = to == kNoRef ? d.f.scratch(1) : to;
  op.s[0] = a;
  op.set(kOpAligned);
  return true;
}

// ---------------------------------------------------------------------------------------- mma.sync

/// m16n8kK. Op::list: the registers of D, A, B and C.
struct WarpProduct {
  u8 k = 0;
  u8 d_registers = 0, a_registers = 0, b_registers = 0, c_registers = 0;
  Type d = Type::kNone, a = Type::kNone, b = Type::kNone, c = Type::kNone;
  bool saturate = false;
};

Step execute_mma(Warp& warp, const Op& op, const WarpProduct& product, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const int k = product.k;
  const u32 d_regs = product.d_registers, a_regs = product.a_registers,
            b_regs = product.b_registers, c_regs = product.c_registers;
  const Type d_type = product.d, a_type = product.a, b_type = product.b, c_type = product.c;
  const Ref* d = list;
  const Ref* a = d + d_regs;
  const Ref* b = a + a_regs;
  const Ref* c = b + b_regs;
  const int element = bits_of(a_type) / 8;
  const int per_register = 4 / element;
  u32 poison = 0;
  if (warp.machine->checks) {
    for (u32 i = 0; i < a_regs + b_regs + c_regs; ++i) poison |= warp.poison_of(a[i]);
  }
  const u32 element_mask = element == 4 ? ~u32{0} : (u32{1} << (element * 8)) - 1;
  u32 out[4][32] = {};
  if (d_type == Type::kS32) {
    const bool a_signed = a_type == Type::kS8, b_signed = b_type == Type::kS8;
    std::vector<std::int32_t> av(static_cast<std::size_t>(16 * k)),
        bv(static_cast<std::size_t>(8 * k)), cv(128), dv(128);
    const auto widen = [](u32 v, bool is_signed) {
      return is_signed ? static_cast<std::int32_t>(static_cast<s8>(v))
                       : static_cast<std::int32_t>(v & 0xFF);
    };
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 j = 0; j < a_regs; ++j) {
        for (int e = 0; e < per_register; ++e) {
          const Element at = mma_a(static_cast<int>(lane), static_cast<int>(j), e, element);
          av[index_of(at.row, k, at.column)] = widen(warp.lane32(a[j], lane) >> (8 * e), a_signed);
        }
      }
      for (u32 j = 0; j < b_regs; ++j) {
        for (int e = 0; e < per_register; ++e) {
          const Element at = mma_b(static_cast<int>(lane), static_cast<int>(j), e, element);
          bv[index_of(at.column, k, at.row)] = widen(warp.lane32(b[j], lane) >> (8 * e), b_signed);
        }
      }
      for (int i = 0; i < 4; ++i) {
        const Element at = mma_d(static_cast<int>(lane), i);
        cv[index_of(at.row, 8, at.column)] = static_cast<std::int32_t>(warp.lane32(c[i], lane));
      }
    }
    integer_product(av.data(), bv.data(), 16, 8, k, product.saturate, cv.data(), dv.data());
    for (u32 lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Element at = mma_d(static_cast<int>(lane), i);
        out[i][lane] = static_cast<u32>(dv[index_of(at.row, 8, at.column)]);
      }
    }
  } else {
    const FloatFormat* af = float_format(a_type);
    const FloatFormat* bf = float_format(b_type);
    ProductOperand av, bv;
    av.reset(16, k);
    bv.reset(8, k);
    float cv[128], dv[128];
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 j = 0; j < a_regs; ++j) {
        for (int e = 0; e < per_register; ++e) {
          const Element at = mma_a(static_cast<int>(lane), static_cast<int>(j), e, element);
          av.set(
              *af, at.row, at.column,
              operand_code(a_type, (warp.lane32(a[j], lane) >> (8 * element * e)) & element_mask));
        }
      }
      for (u32 j = 0; j < b_regs; ++j) {
        for (int e = 0; e < per_register; ++e) {
          const Element at = mma_b(static_cast<int>(lane), static_cast<int>(j), e, element);
          bv.set(
              *bf, at.column, at.row,
              operand_code(b_type, (warp.lane32(b[j], lane) >> (8 * element * e)) & element_mask));
        }
      }
      for (u32 i = 0; i < 4; ++i) {
        const Element at = mma_d(static_cast<int>(lane), static_cast<int>(i));
        const float v =
            c_type == Type::kF16
                ? half_to_float(static_cast<u16>(warp.lane32(c[i / 2], lane) >> (16 * (i % 2))))
                : bits_to_float(warp.lane32(c[i], lane));
        cv[at.row * 8 + at.column] = v;
      }
    }
    const ProductModel model = d_type == Type::kF16 ? kMmaSync.with_f16_output() : kMmaSync;
    if (element == 1) {
      mma_sync_fp8(av, bv, cv, dv);
    } else {
      tensor_product(model, av, bv, cv, dv);
    }
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 i = 0; i < 4; ++i) {
        const Element at = mma_d(static_cast<int>(lane), static_cast<int>(i));
        const float v = dv[at.row * 8 + at.column];
        if (d_type == Type::kF16) {
          out[i / 2][lane] |= static_cast<u32>(float_to_half_rn(v)) << (16 * (i % 2));
        } else {
          out[i][lane] = float_to_bits(v);
        }
      }
    }
  }
  for (u32 i = 0; i < d_regs; ++i) {
    if (d[i] == kNoRef) continue;
    warp.blend(d[i], out[i], 1, mask);
    if (warp.machine->checks) warp.set_poison(d[i], poison != 0 ? ~u32{0} : 0, mask, op.site);
  }
  warp.cluster->stats.mma_operations += static_cast<u64>(16 * 8 * k);
  return Step::kNext;
}

bool decode_mma(Decoding& d) {
  const bool fp8_apart = (d.has("e4m3") || d.has("e5m2")) && (d.has("m16n8k16") || d.has("f16"));
  for (const std::string_view name : {"f64", "s4", "u4", "b1", "m8n8k4", "m8n8k16"}) {
    if (d.has(name)) return decode_warp_product(d, false);
  }
  if (fp8_apart && !d.has("kind::f8f6f4")) return decode_warp_product(d, false);
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  const std::string_view shape = d.take_prefix("m16n8k");
  if (shape.empty()) return d.unsupported("only shapes m16n8kK are modelled");
  int k = 0;
  for (const char ch : shape.substr(6)) k = std::min(k * 10 + (ch - '0'), 10000);
  if (k != 4 && k != 8 && k != 16 && k != 32)
    return d.unsupported(fmt::format("shape {} is not modelled", shape));
  if (!d.take("row") || !d.take("col")) return d.unsupported("only .row.col is modelled");
  const bool saturate = d.take("satfinite");
  d.take("kind::f8f6f4");
  const Type dt = d.take_type(), at = d.take_type(), bt = d.take_type(), ct = d.take_type();
  const bool integer = dt == Type::kS32 && ct == Type::kS32 &&
                       (at == Type::kS8 || at == Type::kU8) && (bt == Type::kS8 || bt == Type::kU8);
  const bool fp8 =
      (at == Type::kE4m3 || at == Type::kE5m2) && (bt == Type::kE4m3 || bt == Type::kE5m2);
  const bool same = at == bt && (at == Type::kF16 || at == Type::kBf16 || at == Type::kTf32);
  const bool wide = (dt == Type::kF32 || (dt == Type::kF16 && at == Type::kF16)) && dt == ct;
  if (!integer && !((fp8 || same) && wide))
    return d.unsupported("these operand types are not modelled");
  if (saturate && !integer) return d.unsupported(".satfinite is of integers");
  const int element = bits_of(at) / 8;
  const bool fits = element == 1   ? (k == 32 || (k == 16 && integer))
                    : element == 2 ? (k == 8 || k == 16)
                                   : (k == 4 || k == 8);
  if (!fits)
    return d.unsupported(fmt::format("shape {} with .{} is not modelled", shape, to_string(at)));
  if (!d.expect(4, 4) || !d.done()) return false;
  const auto a_regs = static_cast<std::size_t>(16 * k * element / 128),
             b_regs = static_cast<std::size_t>(8 * k * element / 128);
  const std::size_t d_regs = dt == Type::kF16 ? 2 : 4, c_regs = ct == Type::kF16 ? 2 : 4;
  std::vector<Ref> refs;
  const std::size_t counts[4] = {d_regs, a_regs, b_regs, c_regs};
  for (std::size_t i = 0; i < 4; ++i) {
    const Operand& operand = d.in.operands[i];
    const bool vector = operand.kind == Operand::Kind::kVector;
    if ((vector ? operand.parts.size() : 1) != counts[i])
      return d.invalid(fmt::format("operand {} needs {} registers", i, counts[i]));
    for (std::size_t p = 0; p < counts[i]; ++p) {
      const Operand& part = vector ? operand.parts[p] : operand;
      refs.push_back(i == 0 ? d.destination(part, 32) : d.source(part, 32));
    }
  }
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  const auto count = [](std::size_t n) { return static_cast<u8>(n); };
  Op& op = d.emit<execute_mma>({static_cast<u8>(k), count(d_regs), count(a_regs), count(b_regs),
                                count(c_regs), dt, at, bt, ct, saturate});
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.set(kOpAligned);
  return true;
}

}  // namespace

void add_matrices(InstructionTable& t) {
  t.add({"ldmatrix", "", "matrix",
         ".m8n8 .b16 .trans; .m16n16.trans .b8; .m16n16.trans and .m8n16 .b8x16 from .b6x16_p32 "
         "and .b4x16_p64; .x1 .x2 .x4",
         "9.7.14.5.15", [](Decoding& d) { return decode_matrix_copy(d, false); }});
  t.add({"stmatrix", "", "matrix", ".m8n8 .b16 .trans; .m16n8.trans .b8; .x1 .x2 .x4",
         "9.7.14.5.16", [](Decoding& d) { return decode_matrix_copy(d, true); }});
  t.add({"movmatrix", "", "matrix", ".m8n8.trans.b16", "9.7.14.5.17", decode_movmatrix});
  t.add(
      {"mma", ".sync", "matrix",
       "m16n8k4/8/16/32; f16, bf16, tf32, e4m3, e5m2, s8, u8; f32, f16, s32; bit-equal to an H200; "
       "m8n8k16/32/128, m16n8k64/128/256; s4, u4, b1; f64 (.rn)",
       "9.7.14.5.14", decode_mma});
}

}  // namespace attnjit::emulator
