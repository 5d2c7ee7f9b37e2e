// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma in its kinds, shapes and layouts against products in double; cp and shift.
#include <cmath>
#include <random>

#include "emulator/model/instruction_descriptor.h"
#include "emulator/model/matrix_descriptor.h"
#include "tcgen05_kernel.h"

namespace attnjit::emulator {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Operand {
  const FloatFormat* format = &kFormatBf16;  ///< null: i8
  bool transposed = false;
  Swizzle swizzle = Swizzle::k128B;
};

struct Case {
  std::string name;
  MmaKind kind = MmaKind::kF16;
  int group = 1, m = 128, n = 64;
  Operand a, b;
  bool ws = false, a_in_tmem = false, f16 = false;
  int block = 0;
  bool ue4m3 = false;
  int id = 0;  ///< of both scale factors
  int scale_d = 0;
  std::uint32_t extra = 0;    ///< bits of the instruction descriptor
  std::uint64_t columns = 0;  ///< .ws: the zero-column mask's descriptor; 0: no operand
};

/// PTX ISA 9.7.16.4.3, example 4 without its shift: the masks of the four parts of N, lowest column
/// first.
constexpr std::uint64_t kExample4 = 1u << 8 | 2u << 16 | 1u << 24 | std::uint64_t{3} << 32 |
                                    std::uint64_t{1} << 39 | std::uint64_t{2} << 40 |
                                    std::uint64_t{3} << 48;
bool column_is_zero(const Case& c, int n) {
  static const char* const kMasks[] = {"1110000111000011", "1100001110000111", "0011100001110000",
                                       "0001110000111000"};
  return c.columns != 0 && kMasks[n / 16][n % 16] == '1';
}

int k_of(const Case& c) {
  switch (c.kind) {
    case MmaKind::kF16:
      return 16;
    case MmaKind::kTf32:
      return 8;
    case MmaKind::kMxf4:
    case MmaKind::kMxf4nvf4:
      return 64;
    default:
      return 32;
  }
}

std::uint32_t type_code(MmaKind kind, const FloatFormat* f) {
  if (kind == MmaKind::kI8) return 1;
  if (kind == MmaKind::kTf32) return 2;
  if (kind == MmaKind::kMxf4 || kind == MmaKind::kMxf4nvf4) return 1;
  if (f == &kFormatF16 || f == &kFormatE4m3) return 0;
  if (f == &kFormatBf16 || f == &kFormatE5m2) return 1;
  return f == &kFormatE2m3 ? 3 : f == &kFormatE3m2 ? 4 : 5;
}

std::uint32_t descriptor_of(const Case& c) {
  const auto n = static_cast<std::uint32_t>(c.n), m = static_cast<std::uint32_t>(c.m);
  std::uint32_t d = type_code(c.kind, c.a.format) << 7 | type_code(c.kind, c.b.format) << 10 |
                    (c.a.transposed ? 1u << 15 : 0) | (c.b.transposed ? 1u << 16 : 0) |
                    (n >> 3) << 17 | c.extra;
  if (c.block != 0) {
    const auto id = static_cast<std::uint32_t>(c.id);
    return d | m >> 7 << 27 | (c.ue4m3 ? 0 : 1u << 23) | id << 4 | id << 29;
  }
  return d | m >> 4 << 24 | (c.kind == MmaKind::kI8 ? 2u << 4 : c.f16 ? 0 : 1u << 4);
}

/// Bits of an element where it is stored, and of its container's 16 bytes.
int stored_bits(const Case& c, const FloatFormat* f) {
  if (f == nullptr) return 8;
  if (f == &kFormatTf32) return 32;
  (void)c;
  return f->bits();
}

class Image {
 public:
  explicit Image(const Case& c) : case_(c) {}
  Bytes bytes;
  std::uint32_t reserve(std::size_t n) {
    const auto at = static_cast<std::uint32_t>((bytes.size() + 1023) / 1024 * 1024);
    bytes.resize(at + n);
    return at;
  }
  /// Stores rows of codes and gives the descriptor. `row0`: the first of `rows` rows.
  std::uint64_t store(const Operand& o, const std::vector<std::uint32_t>& codes, int k, int row0,
                      int rows) {
    const int container = container_bits(case_.kind, o.format), per = 128 / container;
    const int bits = stored_bits(case_, o.format);
    MatrixDescriptor d;
    d.swizzle = o.swizzle;
    const std::uint32_t span = swizzle_span(o.swizzle);
    const auto groups = static_cast<std::uint32_t>((rows + 7) / 8);
    if (!o.transposed) {
      d.stride = 8 * span;
      d.leading = o.swizzle == Swizzle::kNone ? groups * 128 : 16;
      d.start = reserve(groups * (o.swizzle == Swizzle::kNone ? 256 : 8 * span));
      if (span >= 64) d.start += 32;  // the second K step of the pattern's rows
    } else {
      const auto k_groups = static_cast<std::uint32_t>((k + 7) / 8);
      const auto chunks = static_cast<std::uint32_t>((rows + per - 1) / per);
      if (o.swizzle == Swizzle::kNone) {
        d.leading = 128;
        d.stride = k_groups * 128;
        d.start = reserve(chunks * d.stride);
      } else if (o.swizzle == Swizzle::k128BAtom32B) {
        d.stride = 512;
        d.leading = k_groups * 1024;
        d.start = reserve((chunks + 7) / 8 * d.leading);
      } else {
        d.stride = 8 * span;
        d.leading = k_groups * 8 * span;
        d.start = reserve((chunks * 16 + span - 1) / span * d.leading);
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < k; ++i) {
        const std::uint32_t code = codes[static_cast<std::size_t>((row0 + row) * k + i)];
        if (o.transposed) {
          const std::uint32_t at = mn_major_chunk(d, static_cast<std::uint32_t>(row / per),
                                                  static_cast<std::uint32_t>(i));
          put(at, row % per * bits, bits, code);
        } else {
          const std::uint32_t at = k_major_chunk(d, static_cast<std::uint32_t>(row),
                                                 static_cast<std::uint32_t>(i / per));
          put(at, i % per * bits, bits, code);
        }
      }
    }
    return encode_tcgen05_descriptor(d);
  }

 private:
  void put(std::uint32_t at, int bit, int bits, std::uint32_t code) {
    for (int b = 0; b < bits; ++b) {
      std::uint8_t& byte = bytes.at(at + static_cast<std::uint32_t>((bit + b) / 8));
      const int shift = (bit + b) % 8;
      byte = static_cast<std::uint8_t>((byte & ~(1 << shift)) | ((code >> b & 1) << shift));
    }
  }
  Case case_;
};

double value_of(const Case& c, const FloatFormat* f, std::uint32_t code) {
  if (f == nullptr) return static_cast<std::int8_t>(code);
  if (f == &kFormatTf32) return decode(*f, code >> 13);
  (void)c;
  return decode(*f, code);
}

/// A cell of D.
double number(const Case& c, std::uint32_t word) {
  if (c.kind == MmaKind::kI8) return static_cast<std::int32_t>(word);
  if (c.f16) return static_cast<double>(half_to_float(static_cast<std::uint16_t>(word)));
  return static_cast<double>(bits_to_float(word));
}

std::vector<std::uint32_t> random_codes(std::mt19937& random, const FloatFormat* f, int count) {
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(count));
  std::normal_distribution<double> normal;
  for (auto& code : codes) {
    if (f == nullptr) {
      code = static_cast<std::uint32_t>(random() & 0xFF);
    } else if (f == &kFormatTf32) {
      code = float_to_bits(static_cast<float>(normal(random)));
    } else if (f->bits() == 16) {
      code = encode(*f, static_cast<float>(normal(random)));
    } else {
      // Any number of the format; small ones mostly, so that sums do not overflow an f16.
      const double v = normal(random);
      code = encode(*f, static_cast<float>(v), {.saturate = true});
    }
  }
  return codes;
}

std::string instruction(const Case& c, const std::string& modifiers = "",
                        const std::string& extra = "") {
  static const char* kKinds[] = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"};
  const std::string scale = c.block == 0 ? "" : fmt::format(".block_scale.block{}", c.block);
  return fmt::format("tcgen05.mma{}.cta_group::{}.kind::{}{}{} [%td], {}, %db, %id, {}{}%pe{};",
                     c.ws ? ".ws" : "", c.group, kKinds[static_cast<int>(c.kind)], scale, modifiers,
                     c.a_in_tmem ? "[%ta]" : "%da", c.block != 0 ? "[%sa], [%sb], " : "", extra,
                     c.scale_d != 0   ? fmt::format(", {}", c.scale_d)
                     : c.columns != 0 ? fmt::format(", {}", c.columns)
                                      : std::string());
}

constexpr int kD = 0, kA = 256, kScales = 400;  // columns

/// Runs two accumulating steps on top of an initial D and compares every cell of tensor memory.
void check(const Case& c, const EmulatorOptions& options, const std::string& modifiers = "") {
  SCOPED_TRACE(c.name);
  std::mt19937 random(7);
  const int k = k_of(c), rows_a = c.m / c.group, rows_b = c.n / c.group;
  std::vector<Image> images(static_cast<std::size_t>(c.group), Image(c));
  std::vector<std::uint32_t> init(static_cast<std::size_t>(c.group) * 128 * 512);
  for (auto& word : init) {
    const auto draw = static_cast<std::uint32_t>(random());
    if (c.kind == MmaKind::kI8) {
      word = draw % 1000;
    } else if (c.f16) {
      word = draw << 16 | float_to_half_rn(0.25f * static_cast<float>(draw % 16));
    } else {
      word = float_to_bits(0.125f * static_cast<float>(draw % 64));
    }
  }
  const auto cell = [&](std::vector<std::uint32_t>& t, int cta, int lane,
                        int column) -> std::uint32_t& {
    return t[(static_cast<std::size_t>(cta) * 128 + lane) * 512 + column];
  };
  const AccumulatorLayout layout = accumulator_layout(c.m, c.group, c.ws);
  std::vector<double> sum(static_cast<std::size_t>(c.m * c.n)), size(sum.size());
  for (int m = 0; m < c.m; ++m) {
    for (int n = 0; n < c.n; ++n) {
      const AccumulatorCell at = accumulator_cell(layout, c.n, m, n);
      const std::uint32_t word = cell(init, at.cta, at.lane, kD + at.column);
      const double v = number(c, word);
      sum[static_cast<std::size_t>(m * c.n + n)] = v;
    }
  }
  std::vector<TensorStep> steps;
  for (int s = 0; s < 2; ++s) {
    const auto a = random_codes(random, c.a.format, c.m * k);
    const auto b = random_codes(random, c.b.format, c.n * k);
    TensorStep step;
    step.descriptor = descriptor_of(c);
    step.enable = 1;
    step.d = kD;
    step.a_tmem = static_cast<std::uint32_t>(kA + 8 * s);
    for (int cta = 0; cta < c.group; ++cta) {
      Image& image = images[static_cast<std::size_t>(cta)];
      if (!c.a_in_tmem) {
        step.a = image.store(c.a, a, k, cta * rows_a, rows_a);
      } else {
        const int container = container_bits(c.kind, c.a.format);
        const int copies = layout == AccumulatorLayout::kB ? 2 : 1;
        for (int row = 0; row < rows_a; ++row) {
          for (int i = 0; i < k * container / 32; ++i) {
            std::uint32_t word = 0;
            for (int e = 0; e < 32 / container; ++e) {
              std::uint32_t code =
                  a[static_cast<std::size_t>((cta * rows_a + row) * k + i * 32 / container + e)];
              if (container == 8 && stored_bits(c, c.a.format) == 4) code <<= 2;
              word |= code << (e * container);
            }
            for (int copy = 0; copy < copies; ++copy)
              cell(init, cta, a_operand_lane(layout, row) + 64 * copy, kA + 8 * s + i) = word;
          }
        }
      }
      step.b = image.store(c.b, b, k, cta * rows_b, rows_b);
    }
    std::vector<double> scale_a(static_cast<std::size_t>(c.m * 4), 1),
        scale_b(static_cast<std::size_t>(c.n * 4), 1);
    const int vectors = c.block != 0 ? k / c.block : 1;
    if (c.block != 0) {
      const FloatFormat& f = c.ue4m3 ? kFormatUe4m3 : kFormatUe8m0;
      step.scale_a = static_cast<std::uint32_t>(kScales + 32 * s);
      step.scale_b = step.scale_a + 16;
      const auto fill = [&](int rows, bool is_b, std::vector<double>* scales) {
        for (int row = 0; row < rows; ++row) {
          std::uint32_t word = 0;
          for (int v = 0; v < 4; ++v) {
            const auto code =
                static_cast<std::uint32_t>(c.ue4m3 ? 0x30 + random() % 16 : 125 + random() % 5);
            word |= code << (8 * v);
            (*scales)[static_cast<std::size_t>(row * 4 + v)] = decode(f, code);
          }
          for (int cta = 0; cta < c.group; ++cta) {
            int local = row;
            if (!is_b) {
              if (row / rows_a != cta) continue;
              local = row % rows_a;
            }
            const bool split = is_b && layout == AccumulatorLayout::kB;
            const int half = split && local >= c.n / 2 ? 1 : 0;
            if (split) local %= c.n / 2;
            for (int rep = 0; rep < (split ? 2 : 4); ++rep)
              cell(init, cta, local % 32 + 32 * rep + 64 * half,
                   static_cast<int>(is_b ? step.scale_b : step.scale_a) + local / 32) = word;
          }
        }
      };
      fill(c.m, false, &scale_a);
      fill(c.n, true, &scale_b);
    }
    for (int m = 0; m < c.m; ++m) {
      for (int n = 0; n < c.n; ++n) {
        const auto at = static_cast<std::size_t>(m * c.n + n);
        double total = c.scale_d != 0 ? std::ldexp(sum[at], -c.scale_d) : sum[at];
        for (int i = 0; i < k && !column_is_zero(c, n); ++i) {
          const int v = c.block != 0 ? i / c.block + c.id : 0;
          const double p = value_of(c, c.a.format, a[static_cast<std::size_t>(m * k + i)]) *
                           value_of(c, c.b.format, b[static_cast<std::size_t>(n * k + i)]) *
                           scale_a[static_cast<std::size_t>(m * 4 + v)] *
                           scale_b[static_cast<std::size_t>(n * 4 + v)] *
                           ((c.extra >> 13 & 1) != 0 ? -1 : 1) *
                           ((c.extra >> 14 & 1) != 0 ? -1 : 1);
          total += p;
          size[at] += std::abs(p);
        }
        (void)vectors;
        if (c.f16) total = half_to_float(float_to_half_rn(static_cast<float>(total)));
        sum[at] = total;
      }
    }
    steps.push_back(step);
  }
  std::size_t bytes = 16;
  for (Image& image : images) bytes = std::max(bytes, image.bytes.size());
  bytes = (bytes + 15) / 16 * 16;
  Bytes all;
  for (Image& image : images) {
    image.bytes.resize(bytes);
    all.insert(all.end(), image.bytes.begin(), image.bytes.end());
  }
  const TensorRun run = run_tensor(tensor_kernel(instruction(c, modifiers), c.group), c.group, all,
                                   init, steps, options);
  ASSERT_TRUE(run.report.passed) << words(run.report);
  std::vector<std::uint32_t> expected = init;
  int wrong = 0;
  for (int m = 0; m < c.m; ++m) {
    for (int n = 0; n < c.n; ++n) {
      const AccumulatorCell at = accumulator_cell(layout, c.n, m, n);
      const auto i = static_cast<std::size_t>(m * c.n + n);
      const std::uint32_t word = run.at(at.cta, at.lane, kD + at.column);
      cell(expected, at.cta, at.lane, kD + at.column) = word;
      if (c.kind == MmaKind::kI8) {
        EXPECT_EQ(static_cast<std::int32_t>(word), sum[i]) << m << " " << n;
        wrong += static_cast<std::int32_t>(word) != sum[i];
      } else {
        const double got = number(c, word);
        const double allowed =
            c.f16 ? 2e-3 * (1 + size[i]) : 1e-6 * (1 + size[i] + std::abs(sum[i]));
        EXPECT_NEAR(got, sum[i], allowed) << m << " " << n;
        wrong += !(std::abs(got - sum[i]) <= allowed);
        if (c.f16) {
          EXPECT_EQ(word >> 16, cell(init, at.cta, at.lane, kD + at.column) >> 16);
        }
      }
      ASSERT_LT(wrong, 5);
    }
  }
  // Nothing else was written.
  EXPECT_EQ(run.tmem, expected);
}

Operand op(const FloatFormat& f, Swizzle s = Swizzle::k128B, bool transposed = false) {
  return {&f, transposed, s};
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](std::string name, MmaKind kind, int group, int m, int n, Operand a,
                       Operand b) -> Case& {
    Case c;
    c.name = std::move(name);
    c.kind = kind;
    c.group = group;
    c.m = m;
    c.n = n;
    c.a = a;
    c.b = b;
    list.push_back(c);
    return list.back();
  };
  const FloatFormat &bf16 = kFormatBf16, &f16 = kFormatF16, &tf32 = kFormatTf32,
                    &e4m3 = kFormatE4m3, &e5m2 = kFormatE5m2, &e2m1 = kFormatE2m1,
                    &e3m2 = kFormatE3m2, &e2m3 = kFormatE2m3;
  const Swizzle none = Swizzle::kNone, s32 = Swizzle::k32B, s64 = Swizzle::k64B,
                s128 = Swizzle::k128B, atom = Swizzle::k128BAtom32B;
  const MmaKind kF = MmaKind::kF16, kT = MmaKind::kTf32, k8 = MmaKind::kF8f6f4, kI = MmaKind::kI8;
  for (const Swizzle s : {none, s32, s64, s128}) {
    add(fmt::format("bf16_swizzle{}", static_cast<int>(s)), kF, 1, 128, 64, op(bf16, s),
        op(bf16, s));
    add(fmt::format("bf16_mn_swizzle{}", static_cast<int>(s)), kF, 1, 128, 64, op(bf16, s, true),
        op(bf16, s, true));
  }
  add("f16_m64", kF, 1, 64, 8, op(f16), op(f16));
  add("bf16_n256", kF, 1, 128, 256, op(bf16), op(bf16));
  add("f16_output", kF, 1, 128, 48, op(f16), op(f16)).f16 = true;
  add("f16_output_fp8", k8, 1, 64, 32, op(e4m3), op(e5m2)).f16 = true;
  add("bf16_ts", kF, 1, 128, 64, op(bf16), op(bf16, s128, true)).a_in_tmem = true;
  add("bf16_ts_m64", kF, 1, 64, 64, op(bf16), op(bf16)).a_in_tmem = true;
  add("scaled_d", kF, 1, 128, 16, op(bf16), op(bf16)).scale_d = 3;
  add("negated", kF, 1, 128, 16, op(bf16), op(bf16)).extra = 1u << 13;
  add("bf16_pair_256", kF, 2, 256, 64, op(bf16), op(bf16));
  add("bf16_pair_128", kF, 2, 128, 64, op(bf16), op(bf16, s128, true));
  add("bf16_pair_256_ts", kF, 2, 256, 32, op(bf16), op(bf16)).a_in_tmem = true;
  add("bf16_pair_128_ts", kF, 2, 128, 64, op(bf16), op(bf16)).a_in_tmem = true;
  add("tf32", kT, 1, 128, 32, op(tf32), op(tf32));
  add("tf32_mn", kT, 1, 128, 32, op(tf32, atom, true), op(tf32, atom, true));
  add("tf32_pair", kT, 2, 256, 32, op(tf32), op(tf32));
  add("tf32_ts", kT, 1, 128, 32, op(tf32), op(tf32)).a_in_tmem = true;
  add("e4m3", k8, 1, 128, 64, op(e4m3), op(e4m3));
  add("e5m2_e4m3_mn", k8, 1, 128, 64, op(e5m2), op(e4m3, s128, true));
  add("e2m1_e3m2", k8, 1, 128, 32, op(e2m1), op(e3m2));
  add("e2m3_pair", k8, 2, 256, 32, op(e2m3), op(e4m3));
  add("e4m3_ts", k8, 1, 128, 32, op(e4m3), op(e4m3)).a_in_tmem = true;
  add("e2m1_ts", k8, 1, 128, 32, op(e2m1), op(e4m3)).a_in_tmem = true;
  add("e3m2_ts", k8, 1, 128, 32, op(e3m2), op(e4m3)).a_in_tmem = true;
  add("i8", kI, 1, 128, 32, {nullptr, false, s128}, {nullptr, false, s128});
  add("i8_pair_ts", kI, 2, 256, 32, {nullptr, false, s128}, {nullptr, false, s128}).a_in_tmem =
      true;
  for (const int m : {32, 64, 128})
    add(fmt::format("ws_m{}", m), kF, 1, m, 64, op(bf16), op(bf16)).ws = true;
  add("ws_zero_columns", kF, 1, 32, 64, op(bf16), op(bf16)).ws = true;
  list.back().columns = kExample4;
  add("mxf8", MmaKind::kMxf8f6f4, 1, 128, 64, op(e4m3), op(e5m2)).block = 32;
  add("mxf8_ids", MmaKind::kMxf8f6f4, 1, 128, 64, op(e4m3), op(e2m1)).block = 32;
  list.back().id = 3;
  add("mxf8_pair", MmaKind::kMxf8f6f4, 2, 256, 64, op(e4m3), op(e4m3)).block = 32;
  add("mxf8_pair_128", MmaKind::kMxf8f6f4, 2, 128, 64, op(e4m3), op(e4m3)).block = 32;
  add("mxf4", MmaKind::kMxf4, 1, 128, 64, op(e2m1), op(e2m1)).block = 32;
  add("mxf4_ts", MmaKind::kMxf4, 1, 128, 64, op(e2m1), op(e2m1)).block = 32;
  list.back().a_in_tmem = true;
  list.back().id = 2;
  add("nvf4", MmaKind::kMxf4nvf4, 1, 128, 64, op(e2m1), op(e2m1)).block = 16;
  list.back().ue4m3 = true;
  add("nvf4_block32", MmaKind::kMxf4nvf4, 1, 128, 64, op(e2m1), op(e2m1)).block = 32;
  return list;
}

class Product : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Tcgen05, Product, ::testing::ValuesIn(cases()),
                         [](const auto& i) { return i.param.name; });

TEST_P(Product, EqualsTheSumInDouble) {
  EmulatorOptions options;
  options.model = EmulatorModel::kIsa;
  for (const std::uint64_t seed : {1u}) {
    options.seed = seed;
    check(GetParam(), options);
  }
}

}  // namespace
}  // namespace attnjit::emulator
