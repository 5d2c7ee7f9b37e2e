// SPDX-License-Identifier: Apache-2.0
// wmma.load, wmma.mma and wmma.store, and the mma.sync shapes and types that do not go through the
// tensor core's f16 path: f64, 4-bit and 1-bit integers, 8x8 tiles, FP8 with k16 or an f16 result.
//
// A wmma fragment's layout is the machine's own (PTX ISA 9.7.14.4.1): here it is mma.sync's, so
// that one rule places the elements of both. Executors are stateless.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/instructions/operands.h"
#include "emulator/instructions/warp_products.h"
#include "emulator/lanes/number_format.h"
#include "emulator/machine/machine.h"
#include "emulator/model/fragment.h"
#include "emulator/model/tensor_product.h"

namespace attnjit::emulator {
namespace {

enum class Role : u8 { kA, kB, kAccumulator };

/// Element e (low bits first) of register r of a lane; the column is k for A, the row is k for B.
/// `extent` rows (A) or columns (B) of k elements; `per` elements per register.
Element multiplicand(Role role, u32 extent, u32 k, u32 per, u32 lane, u32 r, u32 e) {
  const u32 group = lane / 4, thread = lane % 4;
  const u32 across = k / (4 * per);  // registers along k
  u32 major = 0, minor = 0;
  if (role == Role::kA && extent >= 16) {
    const u32 tile = r / (2 * across), in_tile = r % (2 * across);
    major = 16 * tile + group + 8 * (in_tile & 1);
    minor = (in_tile >> 1) * 4 * per + thread * per + e;
  } else {
    major = 8 * (r / across) + group;
    minor = (r % across) * 4 * per + thread * per + e;
  }
  if (role == Role::kA) return {static_cast<int>(major), static_cast<int>(minor)};
  return {static_cast<int>(minor), static_cast<int>(major)};
}

/// Element i of a lane's accumulator of m rows: tiles of 16 x 8 side by side, or of 8 x 8.
Element accumulator(u32 m, u32 lane, u32 i) {
  const u32 column = 2 * (lane % 4) + (i & 1), row = lane / 4;
  if (m == 8) return {static_cast<int>(row), static_cast<int>(8 * (i >> 1) + column)};
  if (m == 32)
    return {static_cast<int>(16 * (i >> 2) + row + 8 * (i >> 1 & 1)), static_cast<int>(column)};
  return {static_cast<int>(row + 8 * (i >> 1 & 1)), static_cast<int>(8 * (i >> 2) + column)};
}

struct Shape {
  u32 m = 0, n = 0, k = 0;
};

bool take_shape(Decoding& d, Shape* shape) {
  for (const Shape& s : {Shape{16, 16, 16}, Shape{32, 8, 16}, Shape{8, 32, 16}, Shape{16, 16, 8},
                         Shape{8, 8, 32}, Shape{8, 8, 128}, Shape{8, 8, 4}, Shape{8, 8, 16},
                         Shape{16, 8, 4}, Shape{16, 8, 8}, Shape{16, 8, 16}, Shape{16, 8, 32},
                         Shape{16, 8, 64}, Shape{16, 8, 128}, Shape{16, 8, 256}}) {
    if (d.take(fmt::format("m{}n{}k{}", s.m, s.n, s.k))) {
      *shape = s;
      return true;
    }
  }
  return false;
}

/// Registers of an operand, and how many of them are distinct (wmma's .f16 multiplicands are always
/// eight).
struct Fragment {
  u32 registers = 0, distinct = 0;
};

Fragment multiplicand_fragment(u32 extent, u32 k, Type type, bool wmma) {
  const u32 per = type == Type::kF64 ? 1 : 32 / static_cast<u32>(bits_of(type));
  const u32 distinct = extent * k / (32 * per);
  return {wmma && type == Type::kF16 ? 8 : distinct, distinct};
}

u32 accumulator_registers(const Shape& s, Type type) {
  return s.m * s.n / 32 / (type == Type::kF16 ? 2 : 1);
}

bool take_registers(Decoding& d, const Operand& operand, u32 count, int bits, bool stores_to,
                    std::vector<Ref>* refs) {
  const bool vector = operand.kind == Operand::Kind::kVector;
  if ((vector ? operand.parts.size() : 1) != count)
    return d.invalid(fmt::format("{} registers are needed", count));
  for (u32 i = 0; i < count; ++i) {
    const Operand& part = vector ? operand.parts[i] : operand;
    Ref r = stores_to ? d.destination(part, bits) : d.source(part, bits);
    if (r == kNoRef && !d.failed()) r = d.f.scratch(bits == 64 ? 2 : 1);
    refs->push_back(r);
  }
  return !d.failed();
}

// ------------------------------------------------------------------------------- load and store

/// Of the registers in Op::list. Op::s[1]: the stride in elements.
struct Movement {
  Address address;
  Type type = Type::kNone;
  Role role = Role::kA;
  bool row_major = false;
  u8 distinct = 0;
  u16 m = 0, n = 0, k = 0;
};

/// Calls f(lane, register, first bit in it, place, bytes) for every piece of a fragment: whole
/// elements, or bytes of narrower ones.
template <class F>
void for_each_piece(Warp& warp, const Op& op, const Movement& m, u32 mask, bool write, F&& f) {
  Cluster& cluster = *warp.cluster;
  const u32 bits = static_cast<u32>(bits_of(m.type));
  const u32 width = m.type == Type::kF64 ? 64 : 32;
  const u32 step = bits < 8 ? 8 / bits : 1;  // elements of one piece
  const u32 bytes = bits < 8 ? 1 : bits / 8;
  for (const u32 lane : lanes_of(mask)) {
    const u64 base = lane_address(warp, op, m.address, lane);
    const u64 stride = warp.lane32(op.s[1], lane);
    for (u32 r = 0; r < op.list_count; ++r) {
      for (u32 e = 0; e < width / bits; e += step) {
        const u32 at = r % m.distinct;
        const Element element = m.role == Role::kAccumulator
                                    ? accumulator(m.m, lane, at * (width / bits) + e)
                                    : multiplicand(m.role, m.role == Role::kA ? m.m : m.n, m.k,
                                                   width / bits, lane, at, e);
        const u64 index = m.row_major ? static_cast<u64>(element.row) * stride + element.column
                                      : static_cast<u64>(element.column) * stride + element.row;
        Place place;
        if (!cluster.resolve(warp, op, lane, m.address.space, base + index * bits / 8, bytes,
                             &place))
          continue;
        cluster.record(warp, op, {mask}, place, bytes, write, false);
        f(lane, r, e * bits, place, bytes);
      }
    }
  }
}

/// Waits for the warp. Its address and its stride are to be defined.
Step gather_fragment(Warp& warp, const Op& op, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext || !warp.machine->checks) return step;
  if (op.s[0] != kNoRef) warp.require_defined(op.s[0], mask, op, "the address");
  warp.require_defined(op.s[1], mask, op, "the stride");
  return step;
}

Step execute_fragment_load(Warp& warp, const Op& op, const Movement& movement, u32 mask) {
  const Step step = gather_fragment(warp, op, mask);
  if (step != Step::kNext) return step;
  const bool checks = warp.machine->checks;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  std::array<std::array<u64, 32>, 8> values{};
  std::array<u32, 8> poison{};
  for_each_piece(warp, op, movement, mask, false,
                 [&](u32 lane, u32 r, u32 bit, const Place& place, u32 bytes) {
                   u64 v = 0;
                   std::memcpy(&v, place.data, bytes);
                   values[r][lane] |= v << bit;
                   if (place.poison == nullptr) return;
                   for (u32 b = 0; b < bytes; ++b)
                     if (place.poison[b] != 0) poison[r] |= u32{1} << lane;
                 });
  for (u32 r = 0; r < op.list_count; ++r) {
    blend_result(warp, list[r], values[r].data(), movement.type == Type::kF64, mask);
    if (checks) warp.set_poison(list[r], poison[r], mask, op.site);
  }
  return Step::kNext;
}

Step execute_fragment_store(Warp& warp, const Op& op, const Movement& movement, u32 mask) {
  const Step step = gather_fragment(warp, op, mask);
  if (step != Step::kNext) return step;
  const bool checks = warp.machine->checks;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  for_each_piece(
      warp, op, movement, mask, true, [&](u32 lane, u32 r, u32 bit, const Place& place, u32 bytes) {
        const u64 v = warp.value(list[r], lane, movement.type == Type::kF64) >> bit;
        std::memcpy(place.data, &v, bytes);
        if (!checks) return;
        const bool bad = (warp.poison_of(list[r]) >> lane & 1) != 0;
        if (place.poison != nullptr) std::memset(place.poison, bad ? 1 : 0, bytes);
        if (bad && place.space == Space::kGlobal) {
          warp.cluster->report(FindingKind::kUninitialised, &warp, static_cast<int>(lane), op.site,
                               "a value that depends on uninitialised data is stored to "
                               "global memory");
        }
      });
  warp.cluster->note_progress();
  return Step::kNext;
}

bool decode_fragment_move(Decoding& d, bool store) {
  if (!d.take(store ? "store" : "load")) return d.invalid("load, mma or store is needed");
  const int which = store ? d.take("d") ? 2 : -1 : d.take_any({"a", "b", "c"});
  if (which < 0) return d.invalid("the matrix's name is needed");
  const Role role = which == 0 ? Role::kA : which == 1 ? Role::kB : Role::kAccumulator;
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  const int layout = d.take_any({"row", "col"});
  if (layout < 0) return d.invalid(".row or .col is needed");
  Shape shape;
  if (!take_shape(d, &shape)) return d.invalid("a shape is needed");
  const Space space = d.take_space(Space::kGeneric);
  const Type type = d.take_type();
  if (type == Type::kNone) return d.invalid("a type is needed");
  if (!d.expect(2, 3) || !d.done()) return false;
  const u32 extent = role == Role::kA ? shape.m : shape.n;
  const Fragment fragment =
      role == Role::kAccumulator
          ? Fragment{accumulator_registers(shape, type), accumulator_registers(shape, type)}
          : multiplicand_fragment(extent, shape.k, type, true);
  if (fragment.distinct == 0 || fragment.registers > 8)
    return d.invalid("this shape has no such type");
  if (bits_of(type) < 8 && (layout == 0) != (role == Role::kA))
    return d.invalid("elements below 8 bits lie along k");
  std::vector<Ref> refs;
  if (!take_registers(d, d.in.operands[store ? 1 : 0], fragment.registers,
                      type == Type::kF64 ? 64 : 32, !store, &refs))
    return false;
  Movement movement;
  Ref base = kNoRef;
  if (!d.address(d.in.operands[store ? 0 : 1], space, &movement.address, &base)) return false;
  // Without a stride: the leading extent of the matrix.
  const u32 rows = role == Role::kB ? shape.k : shape.m,
            columns = role == Role::kA ? shape.k : shape.n;
  const Ref stride =
      d.count() == 3 ? d.source(2, 32) : d.constant(layout == 0 ? columns : rows, 32);
  const u32 list = d.list(refs);
  if (d.failed()) return false;
  movement.type = type;
  movement.role = role;
  movement.row_major = layout == 0;
  movement.distinct = static_cast<u8>(fragment.distinct);
  movement.m = static_cast<u16>(shape.m);
  movement.n = static_cast<u16>(shape.n);
  movement.k = static_cast<u16>(shape.k);
  Op& op =
      store ? d.emit<execute_fragment_store>(movement) : d.emit<execute_fragment_load>(movement);
  op.s[0] = base;
  op.s[1] = stride;
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.set(kOpAligned);
  return true;
}

// ------------------------------------------------------------------------------------- products

/// Op::list: the registers of D, A, B and C.
struct Product {
  enum class Bits : u8 { kNone, kXor, kAnd };  ///< .xor.popc, .and.popc
  u16 m = 0, n = 0, k = 0;
  u8 d_regs = 0, a_regs = 0, b_regs = 0, c_regs = 0;
  u8 a_distinct = 0, b_distinct = 0;
  Type d_type = Type::kNone, a_type = Type::kNone, b_type = Type::kNone, c_type = Type::kNone;
  bool saturate = false;
  Bits bits = Bits::kNone;
};

/// Calls f(row or column, k, code) for every element of a multiplicand.
template <class F>
void for_each_code(const Warp& warp, Role role, u32 extent, u32 k, Type type, const Ref* refs,
                   u32 distinct, F&& f) {
  const bool wide = type == Type::kF64;
  const u32 bits = static_cast<u32>(bits_of(type));
  const u32 per = wide ? 1 : 32 / bits;
  const u64 element = bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 r = 0; r < distinct; ++r) {
      const u64 v = warp.value(refs[r], lane, wide);
      for (u32 e = 0; e < per; ++e) {
        const Element at = multiplicand(role, extent, k, per, lane, r, e);
        const int major = role == Role::kA ? at.row : at.column,
                  minor = role == Role::kA ? at.column : at.row;
        f(static_cast<u32>(major), static_cast<u32>(minor), v >> (bits * e) & element);
      }
    }
  }
}

std::int32_t widened(Type type, u64 code) {
  const auto v = static_cast<std::int32_t>(code);
  if (type == Type::kS8) return static_cast<s8>(code);
  if (type == Type::kS4) return (v ^ 8) - 8;
  return v;
}

Step execute_product(Warp& warp, const Op& op, const Product& p, u32 mask) {
  const Step step = gather_warp(warp, op, mask);
  if (step != Step::kNext) return step;
  const u32 m = p.m, n = p.n, k = p.k;
  const Ref* d = warp.machine->program.lists.data() + op.list;
  const Ref* a = d + p.d_regs;
  const Ref* b = a + p.a_regs;
  const Ref* c = b + p.b_regs;
  u32 poison = 0;
  if (warp.machine->checks) {
    const u32 sources = u32{p.a_regs} + p.b_regs + p.c_regs;
    for (u32 i = 0; i < sources; ++i) poison |= warp.poison_of(a[i]);
  }
  const u32 elements = m * n / 32;  // of the accumulator, a lane
  const auto cell = [&](u32 lane, u32 i) {
    const Element at = accumulator(m, lane, i);
    return static_cast<std::size_t>(at.row) * n + static_cast<std::size_t>(at.column);
  };
  u64 out[8][32] = {};
  if (p.a_type == Type::kF64) {
    std::vector<double> av(m * k), bv(n * k), dv(m * n);
    for_each_code(warp, Role::kA, m, k, p.a_type, a, p.a_distinct,
                  [&](u32 row, u32 i, u64 code) { av[row * k + i] = std::bit_cast<double>(code); });
    for_each_code(warp, Role::kB, n, k, p.b_type, b, p.b_distinct,
                  [&](u32 row, u32 i, u64 code) { bv[row * k + i] = std::bit_cast<double>(code); });
    for (u32 lane = 0; lane < 32; ++lane)
      for (u32 i = 0; i < elements; ++i)
        dv[cell(lane, i)] = std::bit_cast<double>(warp.lane64(c[i], lane));
    for (u32 row = 0; row < m; ++row) {
      for (u32 column = 0; column < n; ++column) {
        double& sum = dv[row * n + column];
        for (u32 i = 0; i < k; ++i) sum = std::fma(av[row * k + i], bv[column * k + i], sum);
      }
    }
    for (u32 lane = 0; lane < 32; ++lane)
      for (u32 i = 0; i < elements; ++i) out[i][lane] = std::bit_cast<u64>(dv[cell(lane, i)]);
  } else if (p.d_type == Type::kS32) {
    std::vector<std::int32_t> av(m * k), bv(n * k), dv(m * n);
    for_each_code(warp, Role::kA, m, k, p.a_type, a, p.a_distinct,
                  [&](u32 row, u32 i, u64 code) { av[row * k + i] = widened(p.a_type, code); });
    for_each_code(warp, Role::kB, n, k, p.b_type, b, p.b_distinct,
                  [&](u32 row, u32 i, u64 code) { bv[row * k + i] = widened(p.b_type, code); });
    for (u32 lane = 0; lane < 32; ++lane)
      for (u32 i = 0; i < elements; ++i)
        dv[cell(lane, i)] = static_cast<std::int32_t>(warp.lane32(c[i], lane));
    if (p.bits == Product::Bits::kXor) {
      for (u32 row = 0; row < m; ++row) {
        for (u32 column = 0; column < n; ++column) {
          u32 sum = static_cast<u32>(dv[row * n + column]);
          for (u32 i = 0; i < k; ++i) sum += static_cast<u32>(av[row * k + i] ^ bv[column * k + i]);
          dv[row * n + column] = static_cast<std::int32_t>(sum);
        }
      }
    } else {
      integer_product(av.data(), bv.data(), static_cast<int>(m), static_cast<int>(n),
                      static_cast<int>(k), p.saturate, dv.data(), dv.data());
    }
    for (u32 lane = 0; lane < 32; ++lane)
      for (u32 i = 0; i < elements; ++i) out[i][lane] = static_cast<u32>(dv[cell(lane, i)]);
  } else {
    ProductOperand av, bv;
    av.reset(static_cast<int>(m), static_cast<int>(k));
    bv.reset(static_cast<int>(n), static_cast<int>(k));
    const auto set = [](ProductOperand& operand, Type type, u32 row, u32 i, u64 code) {
      operand.set(*float_format(type), static_cast<int>(row), static_cast<int>(i),
                  operand_code(type, static_cast<u32>(code)));
    };
    for_each_code(warp, Role::kA, m, k, p.a_type, a, p.a_distinct,
                  [&](u32 row, u32 i, u64 code) { set(av, p.a_type, row, i, code); });
    for_each_code(warp, Role::kB, n, k, p.b_type, b, p.b_distinct,
                  [&](u32 row, u32 i, u64 code) { set(bv, p.b_type, row, i, code); });
    std::vector<float> dv(m * n);
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 i = 0; i < elements; ++i) {
        dv[cell(lane, i)] =
            p.c_type == Type::kF16
                ? half_to_float(static_cast<u16>(warp.lane32(c[i / 2], lane) >> (16 * (i % 2))))
                : bits_to_float(warp.lane32(c[i], lane));
      }
    }
    const bool fp8 = p.a_type == Type::kE4m3 || p.a_type == Type::kE5m2;
    if (fp8) {
      mma_sync_fp8(av, bv, dv.data(), dv.data());
    } else {
      tensor_product(p.d_type == Type::kF16 ? kMmaSync.with_f16_output() : kMmaSync, av, bv,
                     dv.data(), dv.data());
    }
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 i = 0; i < elements; ++i) {
        const float v = dv[cell(lane, i)];
        if (p.d_type == Type::kF16) {
          out[i / 2][lane] |= static_cast<u64>(float_to_half_rn(v)) << (16 * (i % 2));
        } else {
          out[i][lane] = float_to_bits(v);
        }
      }
    }
  }
  for (u32 i = 0; i < p.d_regs; ++i) {
    if (p.d_type == Type::kF64) {
      warp.blend(d[i], out[i], 2, mask);
    } else {
      u32 narrow[32];
      for (u32 lane = 0; lane < 32; ++lane) narrow[lane] = static_cast<u32>(out[i][lane]);
      warp.blend(d[i], narrow, 1, mask);
    }
    if (warp.machine->checks) warp.set_poison(d[i], poison != 0 ? ~u32{0} : 0, mask, op.site);
  }
  warp.cluster->stats.mma_operations += u64{m} * n * k;
  return Step::kNext;
}

bool integer_type(Type type) {
  return type == Type::kS8 || type == Type::kU8 || type == Type::kS4 || type == Type::kU4 ||
         type == Type::kB1;
}

/// Which multiplicands a shape takes (PTX ISA 9.7.14.4.5 and 9.7.14.5).
bool shape_takes(const Shape& s, Type type, bool wmma) {
  const int bits = bits_of(type);
  if (wmma && s.n == 8 && s.m == 16) return false;  // mma.sync's
  if (!wmma && (s.m * s.n > 128)) return false;
  switch (bits) {
    case 1:
      return s.k == 128 || s.k == 256;
    case 4:
      return s.k == 32 || s.k == 64;
    case 8:
      return s.k == 16 || (s.k == 32 && s.m != 8);
    case 16:
      return s.k == 16 && (s.m != 8 || s.n != 8);
    case 32:
      return s.k == 8 && s.n != 8;
    default:
      return s.k == 4 || (s.m == 16 && s.n == 8 && (s.k == 8 || s.k == 16));
  }
}

}  // namespace

bool decode_warp_product(Decoding& d, bool wmma) {
  if (wmma && !d.take("mma")) return d.invalid("load, mma or store is needed");
  if (!d.take("sync") || !d.take("aligned")) return d.invalid(".sync.aligned is needed");
  Shape shape;
  if (!take_shape(d, &shape)) return d.unsupported("this shape is not modelled");
  // NOTE: a fragment's layout here does not depend on the matrix's.
  const int first = d.take_any({"row", "col"}), second = d.take_any({"row", "col"});
  if (first < 0) return d.invalid("the layouts are needed");
  if (!wmma && (first != 0 || second != 1)) return d.unsupported("only .row.col is modelled");
  d.take("rn");
  const bool saturate = d.take("satfinite");
  using Bits = Product::Bits;
  Bits bit_operation = Bits::kNone;
  if (d.take("xor")) bit_operation = Bits::kXor;
  if (d.take("and")) bit_operation = Bits::kAnd;
  if (bit_operation != Bits::kNone && !d.take("popc")) return d.invalid(".popc is needed");
  Type dt = d.take_type(), at = d.take_type(), bt = d.take_type(), ct = d.take_type();
  if (bt == Type::kNone) {  // wmma of f16 names only the accumulators' types
    ct = at;
    at = bt = Type::kF16;
  }
  const bool f64 = at == Type::kF64 && bt == at && dt == at && ct == at;
  const bool fp8 =
      (at == Type::kE4m3 || at == Type::kE5m2) && (bt == Type::kE4m3 || bt == Type::kE5m2);
  const bool integer = integer_type(at) && integer_type(bt) && dt == Type::kS32 && ct == dt &&
                       bits_of(at) == bits_of(bt) &&
                       (at == Type::kB1) == (bit_operation != Bits::kNone);
  const bool half = at == bt && (at == Type::kF16 || at == Type::kBf16 || at == Type::kTf32);
  const auto wide = [&](Type t) {
    return t == Type::kF32 || (t == Type::kF16 && (fp8 || at == t));
  };
  const bool floats = (half || fp8) && wide(dt) && wide(ct) && (wmma || dt == ct);
  if (!f64 && !integer && !floats) return d.unsupported("these operand types are not modelled");
  if (!shape_takes(shape, at, wmma))
    return d.unsupported(fmt::format("shape m{}n{}k{} with .{} is not modelled", shape.m, shape.n,
                                     shape.k, to_string(at)));
  if (!d.expect(4, 4) || !d.done()) return false;
  const Fragment a = multiplicand_fragment(shape.m, shape.k, at, wmma),
                 b = multiplicand_fragment(shape.n, shape.k, bt, wmma);
  const u32 d_regs = accumulator_registers(shape, dt), c_regs = accumulator_registers(shape, ct);
  const int bits = f64 ? 64 : 32;
  std::vector<Ref> refs;
  if (!take_registers(d, d.in.operands[0], d_regs, bits, true, &refs) ||
      !take_registers(d, d.in.operands[1], a.registers, bits, false, &refs) ||
      !take_registers(d, d.in.operands[2], b.registers, bits, false, &refs) ||
      !take_registers(d, d.in.operands[3], c_regs, bits, false, &refs))
    return false;
  const u32 list = d.list(refs);
  Product product;
  product.m = static_cast<u16>(shape.m);
  product.n = static_cast<u16>(shape.n);
  product.k = static_cast<u16>(shape.k);
  product.d_regs = static_cast<u8>(d_regs);
  product.a_regs = static_cast<u8>(a.registers);
  product.b_regs = static_cast<u8>(b.registers);
  product.c_regs = static_cast<u8>(c_regs);
  product.a_distinct = static_cast<u8>(a.distinct);
  product.b_distinct = static_cast<u8>(b.distinct);
  product.d_type = dt;
  product.a_type = at;
  product.b_type = bt;
  product.c_type = ct;
  product.saturate = saturate;
  product.bits = bit_operation;
  Op& op = d.emit<execute_product>(product);
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.set(kOpAligned);
  return true;
}

void add_wmma(InstructionTable& t) {
  t.add({"wmma", ".load", "matrix",
         "a b c; .row .col; m16n16k16 m32n8k16 m8n32k16 m16n16k8 m8n8k32 m8n8k128 m8n8k4; f16 bf16 "
         "tf32 f32 f64 s8 u8 s4 u4 b1 s32",
         "9.7.14.4.3", [](Decoding& d) { return decode_fragment_move(d, false); }});
  t.add({"wmma", ".store", "matrix", "d; as wmma.load", "9.7.14.4.4",
         [](Decoding& d) { return decode_fragment_move(d, true); }});
  t.add({"wmma", ".mma", "matrix",
         "shapes of wmma.load; .satfinite, .xor.popc .and.popc; f64 only .rn; a fragment lies as "
         "mma.sync's",
         "9.7.14.4.5", [](Decoding& d) { return decode_warp_product(d, true); }});
}

}  // namespace attnjit::emulator
