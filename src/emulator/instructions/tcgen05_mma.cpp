// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma: decoding, the checks of its descriptors, and its execution.
//
// An operation reads its operands at one time and writes D at a later one, both the scheduler's
// choice. Source: PTX ISA 9.1, section 9.7.16.10.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/tcgen05.h"
#include "emulator/memory/tensor_memory.h"
#include "emulator/model/instruction_descriptor.h"
#include "emulator/model/matrix_descriptor.h"
#include "emulator/model/tensor_product.h"

namespace attnjit::emulator {
namespace {

/// What the opcode says.
struct Form {
  MmaKind kind = MmaKind::kF16;
  int cta_group = 1;
  bool ws = false;
  bool a_in_tmem = false;
  bool shifts_a = false;
  int block = 0;  ///< elements a scale factor; 0: not block-scaled
  int scale_d = 0;
};

// Places in Op::list.
enum Slot : u32 { kD, kA, kB, kDescriptor, kEnable, kScaleA, kScaleB, kColumns, kLanes };
constexpr u32 kSlots = kLanes + 8;

/// Which of n columns of B count as zeros (PTX ISA 9.7.16.4.3, by its examples: runs of use-span +
/// 1 zeros and skip-span + 1 ones, a sub-mask of its own for each part of N where M is below 128).
std::vector<bool> zero_columns(u64 descriptor, int m, int n) {
  std::vector<bool> mask(static_cast<std::size_t>(n), false);
  if ((descriptor >> 39 & 1) == 0) return mask;
  const int parts = m == 128 ? 1 : m == 64 ? 2 : 4;
  const int ones = static_cast<int>(descriptor >> 40 & 0xFF) + 1,
            zeros = static_cast<int>(descriptor >> 48 & 0xFF) + 1;
  for (int column = 0; column < n; ++column) {
    const int part = column / (n / parts);
    const bool begins_with_ones = (descriptor >> (32 + part) & 1) != 0;
    const int at =
        (column % (n / parts) + static_cast<int>(descriptor >> (8 * part) & 0xFF)) % (ones + zeros);
    mask[static_cast<std::size_t>(column)] = begins_with_ones ? at < ones : at >= zeros;
  }
  return mask;
}

/// Codes of an operand, [row][k], and which rows depend on uninitialised memory.
struct Codes {
  int k = 0;
  std::vector<u32> code;
  std::vector<u8> poison;
  void reset(int rows, int new_k) {
    k = new_k;
    code.assign(static_cast<std::size_t>(rows * k), 0);
    poison.assign(static_cast<std::size_t>(rows), 0);
  }
  u32& at(int row, int index) { return code[static_cast<std::size_t>(row * k + index)]; }
};

class TensorProduct : public TensorOp {
 public:
  Form form;
  InstructionDescriptor shape;
  MatrixDescriptor a, b;
  u32 d_address = 0, a_address = 0, scale_a = 0, scale_b = 0;
  bool accumulate = false;
  std::array<u32, 8> disabled{};
  std::vector<bool> zeroed;  ///< columns of B that count as zeros; empty: none
  AccumulatorLayout layout = AccumulatorLayout::kD;

  const char* unit() const override { return "tensor core (tcgen05.mma)"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kTensorProduct;
    w.m = static_cast<u32>(shape.m);
    w.n = static_cast<u32>(shape.n);
    w.k_bits = 256;
    w.ctas = static_cast<u32>(form.cta_group);
    w.a_in_registers = form.a_in_tmem;
    return w;
  }

  bool step(Cluster& cluster) override {
    if (!read_) {
      begin();
      ctas_ = {issuer->cta, nullptr};
      if (form.cta_group == 2) {
        Cta* peer = tensor_peer(*issuer->cta);
        ctas_[1] = peer;
        if (issuer->cta->rank % 2 != 0) std::swap(ctas_[0], ctas_[1]);
      }
      good_ = read_a(cluster) && read_b(cluster) && (form.block == 0 || read_scales(cluster));
      read_ = true;
      return false;
    }
    if (good_) {
      for (const Part& part : parts()) multiply(cluster, part);
      cluster.stats.mma_operations +=
          static_cast<u64>(shape.m) * static_cast<u64>(shape.n) * static_cast<u64>(shape.k);
    }
    finish();
    return true;
  }

 private:
  /// A block of D that one CTA computes from one copy of A.
  struct Part {
    int cta = 0;
    int m = 0, rows = 0;
    int n = 0, columns = 0;
    int copy = 0;  ///< of A in tensor memory
  };
  int count() const { return form.cta_group; }
  bool halves() const { return layout == AccumulatorLayout::kB; }
  std::vector<Part> parts() const {
    std::vector<Part> list;
    const int rows = shape.m / count();
    for (int c = 0; c < count(); ++c) {
      if (halves()) {
        const int half = shape.n / 2;
        list.push_back({c, c * rows, rows, 0, half, 0});
        list.push_back({c, c * rows, rows, half, half, 1});
      } else {
        list.push_back({c, c * rows, rows, 0, shape.n, 0});
      }
    }
    return list;
  }
  Cta& cta(int i) const { return *ctas_[static_cast<std::size_t>(i)]; }

  /// 16 bytes of a CTA's shared memory at an 18-bit offset; false after a finding.
  bool chunk(Cluster& cluster, Cta& from, u32 offset, u32 used, u8* bytes, u8* poisoned) {
    offset &= 0x3FFFF;
    if (offset < kSharedBegin || offset + 16 > from.shared_end) {
      cluster.report(
          FindingKind::kBounds, issuer, -1, site,
          fmt::format("an operand's 16 bytes at shared address 0x{:x} of CTA {}, whose shared "
                      "memory is 0x{:x} to 0x{:x}",
                      offset, from.rank, kSharedBegin, from.shared_end));
      return false;
    }
    if (from.live_threads == 0) {
      cluster.report(FindingKind::kSpace, issuer, -1, site,
                     fmt::format("shared memory of CTA {}, which has exited", from.rank));
      return false;
    }
    Place place;
    place.space = Space::kShared;
    place.offset = offset;
    place.data = from.shared.data() + offset;
    place.poison = from.shared_poison.empty() ? nullptr : from.shared_poison.data() + offset;
    place.shadow = cluster.machine.checks ? &from.shadow : nullptr;
    place.cta = &from;
    cluster.record(*this, place, used, false);
    std::memcpy(bytes, place.data, 16);
    *poisoned = place.poison != nullptr && std::memchr(place.poison, 1, used) != nullptr ? 1 : 0;
    return true;
  }

  /// Rows [to, to + rows) of an operand from a CTA's shared memory.
  bool read_shared(Cluster& cluster, Cta& from, const MatrixDescriptor& d, bool transposed,
                   const FloatFormat* format, int rows, int to, Codes* codes) {
    const int container = container_bits(form.kind, format);
    const int packed = format != nullptr && container == 8 ? format->bits() : container;
    const int per_chunk = 128 / container;
    // Sub-byte elements are packed at the front of their 16 bytes, padding follows.
    const auto used = static_cast<u32>(per_chunk * packed / 8);
    u8 bytes[16];
    u8 bad = 0;
    const auto code = [&](int i) {
      const int bit = i * packed;
      u32 v = 0;
      const int first = bit / 8;
      std::memcpy(&v, bytes + first, static_cast<std::size_t>(std::min(4, 16 - first)));
      v >>= bit % 8;
      if (packed < 32) v &= (u32{1} << packed) - 1;
      return format == &kFormatTf32 ? v >> 13 : v;
    };
    if (!transposed) {
      for (int row = 0; row < rows; ++row) {
        for (u32 c = 0; c < 2; ++c) {
          if (!chunk(cluster, from, k_major_chunk(d, static_cast<u32>(row), c), used, bytes, &bad))
            return false;
          codes->poison[static_cast<std::size_t>(to + row)] |= bad;
          for (int i = 0; i < per_chunk; ++i)
            codes->at(to + row, static_cast<int>(c) * per_chunk + i) = code(i);
        }
      }
      return true;
    }
    for (int mn = 0; mn < rows; mn += per_chunk) {
      for (int k = 0; k < codes->k; ++k) {
        if (!chunk(cluster, from,
                   mn_major_chunk(d, static_cast<u32>(mn / per_chunk), static_cast<u32>(k)), 16,
                   bytes, &bad))
          return false;
        for (int i = 0; i < per_chunk && mn + i < rows; ++i) {
          codes->poison[static_cast<std::size_t>(to + mn + i)] |= bad;
          codes->at(to + mn + i, k) = code(i);
        }
      }
    }
    return true;
  }

  bool read_a(Cluster& cluster) {
    const int rows = shape.m / count();
    codes_a_[0].reset(shape.m, shape.k);
    if (!form.a_in_tmem) {
      for (int c = 0; c < count(); ++c) {
        if (!read_shared(cluster, cta(c), a, shape.transpose_a, shape.a_format, rows, c * rows,
                         &codes_a_[0]))
          return false;
      }
      codes_a_[1] = codes_a_[0];
      return true;
    }
    codes_a_[1].reset(shape.m, shape.k);
    const int container = container_bits(form.kind, shape.a_format);
    const int bits = shape.a_format != nullptr ? shape.a_format->bits() : 8;
    const u32 column = tmem_column(a_address);
    const auto columns = static_cast<u32>(shape.k * container / 32);
    for (int c = 0; c < count(); ++c) {
      TensorMemory& memory = tensor_memory(cta(c));
      if (!access_rows(cluster, memory, column, columns, rows, false)) return false;
      for (int copy = 0; copy < (halves() ? 2 : 1); ++copy) {
        for (int row = 0; row < rows; ++row) {
          int from = row;
          // NOTE: .ashift moves rows down by one, all but the last.
          if (form.shifts_a && row > 0) from = row - 1;
          const auto at =
              static_cast<u32>(a_operand_lane(layout, from) + 64 * copy) + tmem_lane(a_address);
          Codes& codes = codes_a_[static_cast<std::size_t>(copy)];
          const int to = c * rows + row;
          for (u32 i = 0; i < columns; ++i)
            codes.poison[static_cast<std::size_t>(to)] |= memory.poison(at, column + i);
          for (int k = 0; k < shape.k; ++k) {
            const int bit = k * container;
            u32 v = memory.cell(at, column + static_cast<u32>(bit / 32)) >> (bit % 32);
            if (container < 32) v &= (u32{1} << container) - 1;
            // In 8-bit containers e2m1 lies in the middle, the 6-bit types at the bottom.
            if (container == 8 && bits == 4) v >>= 2;
            if (bits < 8) v &= (u32{1} << bits) - 1;
            codes.at(to, k) = shape.a_format == &kFormatTf32 ? v >> 13 : v;
          }
        }
      }
    }
    if (!halves()) codes_a_[1] = codes_a_[0];
    return true;
  }

  bool read_b(Cluster& cluster) {
    codes_b_.reset(shape.n, shape.k);
    const int rows = shape.n / count();
    for (int c = 0; c < count(); ++c) {
      if (!read_shared(cluster, cta(c), b, shape.transpose_b, shape.b_format, rows, c * rows,
                       &codes_b_))
        return false;
    }
    for (std::size_t n = 0; n < zeroed.size(); ++n) {
      if (!zeroed[n]) continue;
      codes_b_.poison[n] = 0;
      for (int i = 0; i < shape.k; ++i) codes_b_.at(static_cast<int>(n), i) = 0;
    }
    return true;
  }

  /// Records an access to the lanes that hold `rows` rows of A or D.
  bool access_rows(Cluster& cluster, TensorMemory& memory, u32 column, u32 columns, int rows,
                   bool write) {
    const Accessor who = write ? tensor_writer() : tensor_reader();
    if (layout == AccumulatorLayout::kF) {
      const u32 first = tmem_lane(d_address);
      for (u32 q = 0; q < 4; ++q) {
        if (!memory.access(cluster, {32 * q + first, 16, column, columns}, write, who, issuer,
                           site))
          return false;
      }
      return true;
    }
    const bool all = write || halves();
    return memory.access(cluster, {0, all ? kTmemLanes : static_cast<u32>(rows), column, columns},
                         write, who, issuer, site);
  }

  bool read_scales(Cluster& cluster) {
    const int vectors = shape.k / form.block;
    const FloatFormat& format = shape.scale_is_ue8m0 ? kFormatUe8m0 : kFormatUe4m3;
    for (int c = 0; c < count(); ++c) {
      TensorMemory& memory = tensor_memory(cta(c));
      const int rows = shape.m / count();
      const auto read = [&](u32 address, int number, int total, int id, bool is_b,
                            std::vector<double>* to, std::vector<u8>* poison) {
        const u32 column = tmem_column(address);
        const bool split = is_b && halves();
        const int per_half = split ? number / 2 : number;
        const auto columns = static_cast<u32>((per_half + 31) / 32);
        if (!memory.access(cluster, {0, kTmemLanes, column, columns}, false, tensor_reader(),
                           issuer, site))
          return false;
        to->assign(static_cast<std::size_t>(total * vectors), 0);
        poison->assign(static_cast<std::size_t>(total), 0);
        for (int i = 0; i < number; ++i) {
          const int half = split && i >= per_half ? 1 : 0;
          for (int v = 0; v < vectors; ++v) {
            const ScaleCell at = scale_cell(i - half * per_half, v, id);
            u32 codes[4];
            bool differ = false;
            const int copies = split ? 2 : 4;
            for (int rep = 0; rep < copies; ++rep) {
              const auto lane = static_cast<u32>(at.lane + 32 * rep + 64 * half);
              const u32 cell_column = column + static_cast<u32>(at.column);
              codes[rep] = memory.cell(lane, cell_column) >> (8 * at.byte) & 0xFF;
              (*poison)[static_cast<std::size_t>(i)] |= memory.poison(lane, cell_column);
              differ = differ || codes[rep] != codes[0];
            }
            if (differ && (*poison)[static_cast<std::size_t>(i)] == 0) {
              cluster.report(FindingKind::kTmem, issuer, -1, site,
                             fmt::format("the scale factors of {} {} are not the same in the "
                                         "quarters of the lanes",
                                         is_b ? "column" : "row", i));
              return true;
            }
            (*to)[static_cast<std::size_t>(i * vectors + v)] = decode(format, codes[0]);
          }
        }
        return true;
      };
      Scales& s = scales_[static_cast<std::size_t>(c)];
      if (!read(scale_a, rows, rows, shape.sfa_id, false, &s.a, &s.a_poison)) return false;
      if (!read(scale_b, shape.n, shape.n, shape.sfb_id, true, &s.b, &s.b_poison)) return false;
    }
    return true;
  }

  bool lane_disabled(int cta_index, u32 lane) const {
    return (disabled[static_cast<std::size_t>(cta_index) * 4 + lane / 32] >> (lane % 32) & 1) != 0;
  }

  void multiply(Cluster& cluster, const Part& part) {
    TensorMemory& memory = tensor_memory(cta(part.cta));
    const u32 column = tmem_column(d_address);
    const auto d_columns = static_cast<u32>(accumulator_columns(layout, shape.n));
    bool any_disabled = false;
    for (int q = 0; q < 4; ++q)
      any_disabled = any_disabled || disabled[static_cast<std::size_t>(part.cta * 4 + q)] != 0;
    if (part.n == 0) {
      // D is one access, for all parts of the CTA.
      if (!any_disabled) {
        if (!access_rows(cluster, memory, column, d_columns, part.rows, true)) return;
      } else {
        for (u32 lane = 0; lane < kTmemLanes; ++lane) {
          if (lane_disabled(part.cta, lane)) continue;
          if (layout == AccumulatorLayout::kF && (lane ^ tmem_lane(d_address)) % 32 >= 16) continue;
          if (!memory.access(cluster, {lane, 1, column, d_columns}, true, tensor_writer(), issuer,
                             site))
            return;
        }
      }
    } else if (column + d_columns > kTmemColumns) {
      return;
    }
    const int rows = part.rows, columns = part.columns, k = shape.k;
    const auto cells = static_cast<std::size_t>(rows * columns);
    const auto place = [&](int row, int n) {
      AccumulatorCell c = accumulator_cell(layout, shape.n, part.m + row, part.n + n);
      c.lane += static_cast<int>(tmem_lane(d_address));
      c.column += static_cast<int>(column);
      return c;
    };
    Codes& ca = codes_a_[static_cast<std::size_t>(part.copy)];
    std::vector<u32> result(cells);
    if (form.kind == MmaKind::kI8) {
      integers(memory, part, ca, place, &result);
    } else {
      floats(memory, part, ca, place, &result);
    }
    const bool half = shape.d_type == AccumulatorType::kF16;
    (void)k;
    for (int row = 0; row < rows; ++row) {
      for (int n = 0; n < columns; ++n) {
        const AccumulatorCell at = place(row, n);
        const auto lane = static_cast<u32>(at.lane), cell_column = static_cast<u32>(at.column);
        if (any_disabled && lane_disabled(part.cta, lane)) continue;
        u32& cell = memory.cell(lane, cell_column);
        const u32 v = result[static_cast<std::size_t>(row * columns + n)];
        // NOTE: what an f16 D leaves in the high half is not documented; it keeps its bits.
        cell = half ? (cell & 0xFFFF0000u) | v : v;
        u8& poison = memory.poison(lane, cell_column);
        u8 bad = static_cast<u8>(ca.poison[static_cast<std::size_t>(part.m + row)] |
                                 codes_b_.poison[static_cast<std::size_t>(part.n + n)]);
        if (form.block != 0) {
          const Scales& s = scales_[static_cast<std::size_t>(part.cta)];
          bad |= s.a_poison[static_cast<std::size_t>(row)];
          bad |= s.b_poison[static_cast<std::size_t>(part.n + n)];
        }
        poison = accumulate ? poison | bad : bad;
      }
    }
  }

  template <class Place>
  void integers(TensorMemory& memory, const Part& part, Codes& ca, const Place& place,
                std::vector<u32>* result) {
    const int rows = part.rows, columns = part.columns, k = shape.k;
    std::vector<std::int32_t> av(static_cast<std::size_t>(rows * k)),
        bv(static_cast<std::size_t>(columns * k)), c(static_cast<std::size_t>(rows * columns));
    const auto value = [](u32 code, bool is_signed) {
      return is_signed ? static_cast<std::int32_t>(static_cast<std::int8_t>(code))
                       : static_cast<std::int32_t>(code);
    };
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < k; ++i)
        av[static_cast<std::size_t>(row * k + i)] = value(ca.at(part.m + row, i), shape.a_signed);
    }
    for (int n = 0; n < columns; ++n) {
      for (int i = 0; i < k; ++i)
        bv[static_cast<std::size_t>(n * k + i)] = value(codes_b_.at(part.n + n, i), shape.b_signed);
    }
    if (accumulate) {
      for (int row = 0; row < rows; ++row) {
        for (int n = 0; n < columns; ++n) {
          const AccumulatorCell at = place(row, n);
          c[static_cast<std::size_t>(row * columns + n)] = static_cast<std::int32_t>(
              memory.cell(static_cast<u32>(at.lane), static_cast<u32>(at.column)));
        }
      }
    }
    std::vector<std::int32_t> d(c.size());
    integer_product(av.data(), bv.data(), rows, columns, k, shape.saturate,
                    accumulate ? c.data() : nullptr, d.data());
    std::copy(d.begin(), d.end(), result->begin());
  }

  template <class Place>
  void floats(TensorMemory& memory, const Part& part, Codes& ca, const Place& place,
              std::vector<u32>* result) {
    const int rows = part.rows, columns = part.columns, k = shape.k;
    const bool half = shape.d_type == AccumulatorType::kF16;
    ProductOperand av, bv;
    av.reset(rows, k);
    bv.reset(columns, k);
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < k; ++i)
        av.set(*shape.a_format, row, i, ca.at(part.m + row, i), shape.negate_a);
    }
    for (int n = 0; n < columns; ++n) {
      for (int i = 0; i < k; ++i)
        bv.set(*shape.b_format, n, i, codes_b_.at(part.n + n, i), shape.negate_b);
    }
    const auto cells = static_cast<std::size_t>(rows * columns);
    std::vector<float> c, d(cells);
    if (accumulate) {
      c.resize(cells);
      for (int row = 0; row < rows; ++row) {
        for (int n = 0; n < columns; ++n) {
          const AccumulatorCell at = place(row, n);
          const u32 bits = memory.cell(static_cast<u32>(at.lane), static_cast<u32>(at.column));
          float v = half ? half_to_float(static_cast<std::uint16_t>(bits)) : bits_to_float(bits);
          if (form.scale_d != 0) v = std::ldexp(v, -form.scale_d);
          c[static_cast<std::size_t>(row * columns + n)] = v;
        }
      }
    }
    const float* addend = accumulate ? c.data() : nullptr;
    if (form.block == 0) {
      tensor_product(half ? kTcgen05.with_f16_output() : kTcgen05, av, bv, addend, d.data());
    } else {
      const Scales& from = scales_[static_cast<std::size_t>(part.cta)];
      const int vectors = k / form.block;
      BlockScales scales;
      scales.block = form.block;
      scales.a = from.a;
      scales.b.assign(from.b.begin() + part.n * vectors,
                      from.b.begin() + (part.n + columns) * vectors);
      const bool packed = form.kind != MmaKind::kMxf8f6f4;
      scaled_tensor_product(packed ? kTcgen05Mxf4 : kTcgen05, av, bv, scales, packed, addend,
                            d.data());
    }
    for (std::size_t i = 0; i < cells; ++i)
      (*result)[i] = half ? float_to_half_rn(d[i]) : float_to_bits(d[i]);
  }

  struct Scales {
    std::vector<double> a, b;
    std::vector<u8> a_poison, b_poison;
  };
  std::array<Cta*, 2> ctas_{};
  bool read_ = false, good_ = false;
  std::array<Codes, 2> codes_a_;
  Codes codes_b_;
  std::array<Scales, 2> scales_;
};

/// nullptr, or why an operand's major-ness and swizzle do not go together (tables 51 and 54).
const char* check_major(const FloatFormat* format, bool transposed, const MatrixDescriptor& d) {
  const bool wide = format == &kFormatTf32;
  if (!transposed)
    return d.swizzle == Swizzle::k128BAtom32B && !wide
               ? "a K-major operand has no 128-byte swizzle with 32-byte atoms"
               : nullptr;
  if (wide != (d.swizzle == Swizzle::k128BAtom32B)) {
    return wide ? "an MN-major tf32 operand needs the 128-byte swizzle with 32-byte atoms"
                : "the 128-byte swizzle with 32-byte atoms is for MN-major 32-bit operands";
  }
  return nullptr;
}

/// Issues the operation of one lane; reports what is malformed and then issues nothing.
void issue(Warp& warp, const Op& op, const Form& form, u32 lane) {
  Cluster& cluster = *warp.cluster;
  const Ref* list = warp.machine->program.lists.data() + op.list;
  const auto malformed = [&](const std::string& text) {
    cluster.report(FindingKind::kDescriptor, &warp, static_cast<int>(lane), op.site, text);
  };
  auto product = std::make_unique<TensorProduct>();
  product->form = form;
  InstructionDescriptor& shape = product->shape;
  const u32 bits = warp.lane32(list[kDescriptor], lane);
  if (const char* problem = decode_instruction_descriptor(form.kind, bits, &shape)) {
    malformed(fmt::format("the instruction descriptor 0x{:08x}: {}", bits, problem));
    return;
  }
  if (const char* problem = check_mma_shape(form.kind, shape.m, shape.n, form.cta_group, form.ws)) {
    malformed(fmt::format("the instruction descriptor 0x{:08x}: M {}, N {}: {}", bits, shape.m,
                          shape.n, problem));
    return;
  }
  if (form.block != 0) {
    if (form.kind == MmaKind::kMxf4nvf4 && form.block == 16 && shape.scale_is_ue8m0) {
      malformed("blocks of 16 have scale factors of type UE4M3");
      return;
    }
    const int vectors = shape.k / form.block;
    for (const int id : {shape.sfa_id, shape.sfb_id}) {
      if (id + vectors > 4 || id % vectors != 0) {
        malformed(fmt::format("a scale factor id of {} for {} scale factors per row", id, vectors));
        return;
      }
    }
  }
  if (form.shifts_a && shape.m != 128 && shape.m != 256) {
    malformed(".ashift needs M 128 or 256");
    return;
  }
  product->layout = accumulator_layout(shape.m, form.cta_group, form.ws);
  const bool sixteen = product->layout == AccumulatorLayout::kF;
  const auto tensor_address = [&](Slot slot, const char* what, u32* address) {
    *address = warp.lane32(list[slot], lane);
    const u32 at = tmem_lane(*address);
    if (at == 0 || (sixteen && at == 16)) return true;
    cluster.report(FindingKind::kTmem, &warp, static_cast<int>(lane), op.site,
                   fmt::format("the address 0x{:08x} of {} names lane {}; this shape begins at "
                               "lane 0{}",
                               *address, what, at, sixteen ? " or 16" : ""));
    return false;
  };
  if (!tensor_address(kD, "D", &product->d_address)) return;
  const auto descriptor = [&](Slot slot, const FloatFormat* format, bool transposed,
                              MatrixDescriptor* out, const char* what) {
    const u64 value = warp.lane64(list[slot], lane);
    const char* problem = decode_tcgen05_descriptor(value, out);
    if (problem == nullptr) problem = check_major(format, transposed, *out);
    if (problem == nullptr) return true;
    malformed(fmt::format("the descriptor of {} (0x{:016x}): {}", what, value, problem));
    return false;
  };
  if (form.a_in_tmem) {
    if (!tensor_address(kA, "A", &product->a_address)) return;
    if (sixteen && tmem_lane(product->a_address) != tmem_lane(product->d_address)) {
      cluster.report(FindingKind::kTmem, &warp, static_cast<int>(lane), op.site,
                     "A and D of M 64 must begin at the same lane");
      return;
    }
    if (shape.transpose_a) {
      malformed("A in tensor memory is K-major, the instruction descriptor says MN-major");
      return;
    }
  } else if (!descriptor(kA, shape.a_format, shape.transpose_a, &product->a, "A")) {
    return;
  }
  if (!descriptor(kB, shape.b_format, shape.transpose_b, &product->b, "B")) return;
  if (form.block != 0) {
    product->scale_a = warp.lane32(list[kScaleA], lane) & 0x3FFFFFFF;
    product->scale_b = warp.lane32(list[kScaleB], lane) & 0x3FFFFFFF;
  }
  product->accumulate = (warp.predicate(list[kEnable]) >> lane & 1) != 0;
  for (u32 i = 0; i < 8; ++i) {
    if (list[kLanes + i] != kNoRef) product->disabled[i] = warp.lane32(list[kLanes + i], lane);
  }
  if (list[kColumns] != kNoRef) {
    const u64 columns = warp.lane64(list[kColumns], lane);
    if ((columns >> 56 & 0x3F) != 0) {
      malformed("a column shift in the zero-column mask is not modelled");
      return;
    }
    product->zeroed = zero_columns(columns, shape.m, shape.n);
  }
  auto event = std::make_shared<TensorEvent>();
  event->kind = TensorEvent::Kind::kMma;
  event->cta_group = form.cta_group;
  event->accumulator = {product->d_address, shape.m, shape.n, form.kind, form.ws};
  tensor_order(cluster).issue(std::move(product), warp, lane, op, std::move(event));
}

Step execute_mma(Warp& warp, const Op& op, const Form& form, u32 mask) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  constexpr std::array<const char*, kSlots> kRoles = {"the address of D",
                                                      "the address or descriptor of A",
                                                      "the descriptor of B",
                                                      "the instruction descriptor",
                                                      "enable-input-d",
                                                      "the address of A's scale factors",
                                                      "the address of B's scale factors",
                                                      "the zero-column mask",
                                                      "disable-output-lane",
                                                      "disable-output-lane",
                                                      "disable-output-lane",
                                                      "disable-output-lane",
                                                      "disable-output-lane",
                                                      "disable-output-lane",
                                                      "disable-output-lane",
                                                      "disable-output-lane"};
  bool defined = true;
  for (u32 i = 0; i < kSlots; ++i)
    defined = warp.require_defined(list[i], mask, op, kRoles[i]) && defined;
  if (!check_cta_group(warp, op, form.cta_group) || !defined) return Step::kNext;
  for (const u32 lane : lanes_of(mask)) issue(warp, op, form, lane);
  return Step::kNext;
}

bool decode_mma(Decoding& d) {
  d.take("mma");
  Form form;
  if (d.take("sp")) return d.unsupported("sparse products are not modelled");
  form.ws = d.take("ws");
  if (d.take("sp")) return d.unsupported("sparse products are not modelled");
  form.cta_group = take_cta_group(d);
  const int kind = d.take_any({"kind::f16", "kind::tf32", "kind::f8f6f4", "kind::i8",
                               "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"});
  if (kind < 0) return d.invalid("a .kind is needed");
  form.kind = static_cast<MmaKind>(kind);
  const bool scaled = kind >= static_cast<int>(MmaKind::kMxf8f6f4);
  form.shifts_a = d.take("ashift");
  int collector = -1;
  if (form.ws) {
    if (form.cta_group != 1) return d.invalid(".ws needs .cta_group::1");
    int uses = 0;
    for (const std::string_view buffer : {"b0", "b1", "b2", "b3"}) {
      for (const std::string_view use : {"fill", "use", "lastuse", "discard"})
        uses += d.take(fmt::format("collector::{}::{}", buffer, use)) ? 1 : 0;
    }
    if (uses > 1) return d.invalid("one collector usage is enough");
  } else {
    // NOTE: the collector keeps A for a later product; only which uses go together is checked.
    collector = d.take_any({"collector::a::discard", "collector::a::fill", "collector::a::use",
                            "collector::a::lastuse"});
  }
  if (form.shifts_a && (collector == 1 || collector == 2))
    return d.invalid(".ashift goes with neither collector::a::fill nor ::use");
  if (form.shifts_a && scaled) return d.unsupported(".ashift is not of a block-scaled kind");
  if (scaled) {
    if (form.ws) return d.invalid(".ws has no block-scaled kind");
    if (!d.take("block_scale")) return d.invalid(".block_scale is needed");
    const int size =
        d.take_any({"scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32"});
    const bool nvf4 = form.kind == MmaKind::kMxf4nvf4;
    if (size < 0 && nvf4) return d.invalid(".block16 or .block32 is needed");
    form.block = size == 2 || size == 3 ? 16 : 32;
    const bool fits = size < 0 || size == 4 || (form.kind == MmaKind::kMxf8f6f4 && size == 0) ||
                      (form.kind != MmaKind::kMxf8f6f4 && size == 1) ||
                      (nvf4 && (size == 2 || size == 3));
    if (!fits) return d.invalid("this kind has no such scale vector");
  }
  const std::size_t fixed = scaled ? 7 : 5;
  if (!d.expect(fixed, scaled ? fixed : fixed + 2) || !d.done()) return false;
  std::vector<Ref> refs(kSlots, kNoRef);
  refs[kD] = tensor_address(d, d.in.operands[0]);
  form.a_in_tmem = d.is(1, Operand::Kind::kAddress);
  refs[kA] = form.a_in_tmem ? tensor_address(d, d.in.operands[1]) : d.source(1, 64);
  refs[kB] = d.source(2, 64);
  refs[kDescriptor] = d.source(3, 32);
  if (form.shifts_a && !form.a_in_tmem) return d.invalid(".ashift needs A in tensor memory");
  std::size_t next = 4;
  if (scaled) {
    refs[kScaleA] = tensor_address(d, d.in.operands[4]);
    refs[kScaleB] = tensor_address(d, d.in.operands[5]);
    next = 6;
  } else if (d.is(4, Operand::Kind::kVector)) {
    const auto& lanes = d.in.operands[4].parts;
    if (form.ws || lanes.size() != static_cast<std::size_t>(4 * form.cta_group))
      return d.invalid("disable-output-lane has 4 registers, 8 for cta_group::2");
    for (std::size_t i = 0; i < lanes.size(); ++i) refs[kLanes + i] = d.source(lanes[i], 32);
    next = 5;
  }
  refs[kEnable] = d.source(next++, 1);
  if (d.count() > next) {
    u64 scale = 0;
    if (form.ws) {
      refs[kColumns] = d.source(next++, 64);
    } else if (!d.immediate(next++, &scale)) {
      return false;
    }
    if (scale > 15 || (!form.ws && form.kind != MmaKind::kF16 && form.kind != MmaKind::kTf32))
      return d.invalid("scale-input-d is 0 to 15, for kind::f16 and kind::tf32");
    form.scale_d = static_cast<int>(scale);
  }
  if (!d.expect(next, next)) return false;
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit<execute_mma>(form);
  op.list = list;
  op.list_count = kSlots;
  return true;
}

}  // namespace

void add_tcgen05_mma(InstructionTable& t) {
  t.add({"tcgen05", ".mma", "tensor core",
         "kinds f16 tf32 f8f6f4 i8, block-scaled mxf8f6f4 mxf4 mxf4nvf4; A in shared or tensor "
         "memory; cta_group::1 and ::2; M 64 128 256; disable-output-lane, scale-input-d, "
         "collector usage, .ashift",
         "9.7.16.10.9.1", decode_mma});
  t.add({"tcgen05", ".mma.ws", "tensor core", "M 32 64 128; zero-column mask without a shift",
         "9.7.16.10.9.3", decode_mma});
}

}  // namespace attnjit::emulator
