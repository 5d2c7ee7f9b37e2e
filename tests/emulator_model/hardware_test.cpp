// SPDX-License-Identifier: Apache-2.0
// The formulas against an H200's own answers: TMA placement, wgmma and mma.sync operands and
// arithmetic.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "emulator/model/fragment.h"
#include "emulator/model/matrix_descriptor.h"
#include "emulator/model/numeric.h"
#include "emulator/model/tensor_map.h"
#include "emulator/model/tensor_product.h"
#include "recorded.h"

namespace attnjit::emulator {
namespace {

using nlohmann::json;

std::optional<TensorMap> map_of(const json& m) {
  TensorMapDescription d;
  d.dtype = *dtype_from_string(m.at("dtype").get<std::string>());
  d.dims = m.at("dims").get<std::vector<std::uint64_t>>();
  d.strides = m.at("strides").get<std::vector<std::uint64_t>>();
  d.box = m.at("box").get<std::vector<std::uint32_t>>();
  d.element_strides = m.at("element_strides").get<std::vector<std::uint32_t>>();
  d.swizzle = m.at("swizzle").get<int>();
  if (m.at("oob") == "nan") d.oob = TensorMapDescription::OutOfBounds::kNan;
  std::string error;
  auto map = make_tensor_map(d, 0, &error);
  EXPECT_TRUE(map) << error;
  return map;
}

/// The first difference of two byte arrays, for messages shorter than the arrays.
std::string difference(const std::vector<std::uint8_t>& got,
                       const std::vector<std::uint8_t>& expected) {
  if (got.size() != expected.size()) return "sizes differ";
  std::size_t count = 0, first = 0;
  for (std::size_t i = got.size(); i-- > 0;) {
    if (got[i] != expected[i]) {
      ++count;
      first = i;
    }
  }
  if (count == 0) return {};
  return fmt::format("{} of {} bytes differ, the first at {}: got {:02x}, expected {:02x}", count,
                     got.size(), first, got[first], expected[first]);
}

TEST(Hardware, TmaLoadsLandWhereTheWalkSays) {
  const Recorded recorded("tma");
  int compared = 0;
  for (const json& c : recorded.cases()) {
    const std::string entry = c.at("launch").at("entry");
    if (entry.rfind("load_", 0) != 0 || c.contains("fault")) continue;
    const auto map = map_of(c.at("launch").at("tensor_maps").at("m"));
    ASSERT_TRUE(map);
    const json& args = c.at("launch").at("args");
    std::array<std::int32_t, 5> at{};
    for (int i = 0; i < 5; ++i) at[i] = args[3 + i].at("i32");
    const int dump = args[9].at("i32"), destination = args[10].at("i32");
    const auto global = recorded.buffer(c, "inputs", "global");
    std::vector<std::uint8_t> shared(static_cast<std::size_t>(dump), 0xEE);
    for_each_box_row(*map, at, false, BoxUse::kLoad, [&](const BoxRow& row) {
      for (std::uint32_t b = 0; b < row.bytes; ++b) {
        const bool valid = b >= row.first_valid && b < row.first_valid + row.valid;
        const std::uint8_t value =
            valid ? global.at(static_cast<std::size_t>(row.global_offset + b - row.first_valid))
                  : (map->oob_nan ? nan_fill_byte(b) : std::uint8_t{0});
        // Dynamic shared memory begins 1024 bytes into the window, where every pattern begins
        // again.
        shared.at(swizzle_address(
            map->swizzle, static_cast<std::uint32_t>(destination) + row.shared_offset + b)) = value;
      }
    });
    EXPECT_EQ(difference(shared, recorded.buffer(c, "expect", "out")), "") << c.at("name");
    ++compared;
  }
  EXPECT_GT(compared, 120);
}

TEST(Hardware, TmaStoresLandWhereTheWalkSays) {
  const Recorded recorded("tma");
  int compared = 0;
  for (const json& c : recorded.cases()) {
    const std::string entry = c.at("launch").at("entry");
    if (entry.rfind("store_", 0) != 0 || c.contains("fault")) continue;
    const auto map = map_of(c.at("launch").at("tensor_maps").at("m"));
    const json& args = c.at("launch").at("args");
    std::array<std::int32_t, 5> at{};
    for (int i = 0; i < 5; ++i) at[i] = args[2 + i].at("i32");
    auto global = recorded.buffer(c, "inputs", "global");
    const auto shared = recorded.buffer(c, "inputs", "in");
    for_each_box_row(*map, at, false, BoxUse::kStore, [&](const BoxRow& row) {
      for (std::uint32_t b = row.first_valid; b < row.first_valid + row.valid; ++b) {
        global.at(static_cast<std::size_t>(row.global_offset + b - row.first_valid)) =
            shared.at(swizzle_address(map->swizzle, row.shared_offset + b));
      }
    });
    EXPECT_EQ(difference(global, recorded.buffer(c, "expect", "global")), "") << c.at("name");
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

const FloatFormat* format_of(const std::string& name) {
  if (name == "bf16") return &kFormatBf16;
  if (name == "f16") return &kFormatF16;
  if (name == "tf32") return &kFormatTf32;
  if (name == "e4m3") return &kFormatE4m3;
  if (name == "e5m2") return &kFormatE5m2;
  return nullptr;
}

/// A code as the multiplier sees it: tf32 drops its low 13 bits.
std::uint32_t multiplier_code(const FloatFormat* format, std::uint32_t raw) {
  return format == &kFormatTf32 ? raw >> 13 : raw;
}

std::uint32_t load(const std::vector<std::uint8_t>& bytes, std::size_t at, int size) {
  std::uint32_t v = 0;
  std::memcpy(&v, bytes.data() + at, static_cast<std::size_t>(size));
  return v;
}

/// One case's A or B: codes by [row][k], fetched through the descriptor.
std::vector<std::uint32_t> fetch(const std::vector<std::uint8_t>& image, const MatrixDescriptor& d,
                                 int rows, int k, int size, bool transposed) {
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows) * k);
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < k; ++i) {
      std::uint32_t address = 0;
      if (transposed) {
        const int per_chunk = 16 / size;
        address = mn_major_chunk(d, static_cast<std::uint32_t>(row / per_chunk),
                                 static_cast<std::uint32_t>(i)) +
                  static_cast<std::uint32_t>(row % per_chunk * size);
      } else {
        const int byte = i * size;
        address = k_major_chunk(d, static_cast<std::uint32_t>(row),
                                static_cast<std::uint32_t>(byte / 16)) +
                  static_cast<std::uint32_t>(byte % 16);
      }
      codes[static_cast<std::size_t>(row) * k + i] = load(image, address, size);
    }
  }
  return codes;
}

struct WgmmaCase {
  std::string d, a, b;
  int n = 0;
  bool rs = false, negate = false, ta = false, tb = false;
};

/// wgmma_<d>_<a>[_<b>]_n<n>_<ss|rs>[_neg]_t<ta><tb>
WgmmaCase parse(const std::string& entry) {
  WgmmaCase c;
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at <= entry.size()) {
    const std::size_t next = entry.find('_', at);
    parts.push_back(entry.substr(at, next == std::string::npos ? next : next - at));
    if (next == std::string::npos) break;
    at = next + 1;
  }
  c.d = parts[1];
  c.a = c.b = parts[2];
  std::size_t i = 3;
  if (parts[i][0] != 'n') c.b = parts[i++];
  c.n = std::stoi(parts[i++].substr(1));
  c.rs = parts[i++] == "rs";
  if (parts[i] == "neg") {
    c.negate = true;
    ++i;
  }
  c.ta = parts[i][1] == '1';
  c.tb = parts[i][2] == '1';
  return c;
}

TEST(Hardware, WgmmaMatchesBitForBit) {
  const Recorded recorded("wgmma");
  int mismatched_cases = 0;
  for (const json& c : recorded.cases()) {
    const WgmmaCase w = parse(c.at("launch").at("entry"));
    const FloatFormat* fa = format_of(w.a);
    const FloatFormat* fb = format_of(w.b);
    const int size = w.a == "bf16" || w.a == "f16" ? 2 : w.a == "tf32" ? 4 : 1;
    const int k = 32 / size;
    const json& args = c.at("launch").at("args");
    MatrixDescriptor da, db;
    ASSERT_EQ(decode_wgmma_descriptor(
                  static_cast<std::uint64_t>(args[3].at("i64").get<std::int64_t>()), &da),
              nullptr);
    ASSERT_EQ(decode_wgmma_descriptor(
                  static_cast<std::uint64_t>(args[4].at("i64").get<std::int64_t>()), &db),
              nullptr);
    const bool accumulate = args[6].at("i32").get<int>() != 0;
    const auto image = recorded.buffer(c, "inputs", "in");
    std::vector<std::uint32_t> a(64 * static_cast<std::size_t>(k));
    if (w.rs) {
      const auto registers = recorded.buffer(c, "inputs", "a");
      for (int t = 0; t < 128; ++t) {
        for (int j = 0; j < 4; ++j) {
          for (int e = 0; e < 4 / size; ++e) {
            const Element at = wgmma_a(t, j, e, size);
            a[static_cast<std::size_t>(at.row) * k + at.column] =
                load(registers, static_cast<std::size_t>((t * 4 + j) * 4 + e * size), size);
          }
        }
      }
    } else {
      a = fetch(image, da, 64, k, size, w.ta);
    }
    const std::vector<std::uint32_t> b = fetch(image, db, w.n, k, size, w.tb);
    const auto before = recorded.array<std::uint32_t>(c, "inputs", "d");
    const auto after = recorded.array<std::uint32_t>(c, "expect", "d");
    const std::size_t width = static_cast<std::size_t>(w.n);
    const bool half = w.d == "f16";
    const int regs = half ? w.n / 4 : w.n / 2;
    int wrong = 0;
    const auto compare = [&](auto&& value_of) {
      for (int t = 0; t < 128; ++t) {
        for (int i = 0; i < w.n / 2; ++i) {
          const Element at = wgmma_d(t, i);
          const std::uint32_t expected =
              half ? (after[static_cast<std::size_t>(t * regs + i / 2)] >> (16 * (i & 1))) & 0xFFFF
                   : after[static_cast<std::size_t>(t * regs + i)];
          const std::uint32_t got = value_of(static_cast<std::size_t>(at.row) * width + at.column);
          if (got != expected && ++wrong <= 3) {
            ADD_FAILURE() << c.at("name") << " row " << at.row << " column " << at.column
                          << std::hex << " got " << got << " expected " << expected;
          }
        }
      }
    };
    if (fa == nullptr) {
      const auto widen = [](const std::string& type, std::uint32_t code) {
        return type == "s8" ? static_cast<std::int32_t>(static_cast<std::int8_t>(code))
                            : static_cast<std::int32_t>(code);
      };
      std::vector<std::int32_t> ia(a.size()), ib(b.size()), d(64 * width), initial(64 * width);
      for (std::size_t i = 0; i < a.size(); ++i) ia[i] = widen(w.a, a[i]);
      for (std::size_t i = 0; i < b.size(); ++i) ib[i] = widen(w.b, b[i]);
      for (int t = 0; t < 128; ++t) {
        for (int i = 0; i < regs; ++i) {
          const Element at = wgmma_d(t, i);
          initial[static_cast<std::size_t>(at.row) * width + at.column] =
              static_cast<std::int32_t>(before[static_cast<std::size_t>(t * regs + i)]);
        }
      }
      integer_product(ia.data(), ib.data(), 64, w.n, k, false,
                      accumulate ? initial.data() : nullptr, d.data());
      compare([&](std::size_t at) { return static_cast<std::uint32_t>(d[at]); });
    } else {
      ProductOperand oa, ob;
      oa.reset(64, k);
      ob.reset(w.n, k);
      for (int r = 0; r < 64; ++r) {
        for (int i = 0; i < k; ++i) {
          oa.set(*fa, r, i, multiplier_code(fa, a[static_cast<std::size_t>(r) * k + i]), w.negate);
        }
      }
      for (int r = 0; r < w.n; ++r) {
        for (int i = 0; i < k; ++i) {
          ob.set(*fb, r, i, multiplier_code(fb, b[static_cast<std::size_t>(r) * k + i]));
        }
      }
      std::vector<float> initial(64 * width), d(64 * width);
      for (int t = 0; t < 128; ++t) {
        for (int i = 0; i < w.n / 2; ++i) {
          const Element at = wgmma_d(t, i);
          initial[static_cast<std::size_t>(at.row) * width + at.column] =
              half ? half_to_float(static_cast<std::uint16_t>(
                         before[static_cast<std::size_t>(t * regs + i / 2)] >> (16 * (i & 1))))
                   : bits_to_float(before[static_cast<std::size_t>(t * regs + i)]);
        }
      }
      ProductModel model = size == 1 ? kWgmmaFp8 : kWgmmaF16;
      if (half) model = model.with_f16_output();
      tensor_product(model, oa, ob, accumulate ? initial.data() : nullptr, d.data());
      compare([&](std::size_t at) {
        return half ? static_cast<std::uint32_t>(float_to_half_rn(d[at])) : float_to_bits(d[at]);
      });
    }
    if (wrong != 0) {
      ++mismatched_cases;
      ADD_FAILURE() << c.at("name") << ": " << wrong << " of " << 64 * w.n << " elements differ";
    }
  }
  EXPECT_EQ(mismatched_cases, 0);
}

struct MmaCase {
  const char* name;
  const char* a;  ///< also B's type
  const char* d;
  int k, a_registers, b_registers, d_registers;
};

constexpr MmaCase kMmaCases[] = {
    {"bf16", "bf16", "f32", 16, 4, 2, 4}, {"bf16_k8", "bf16", "f32", 8, 2, 1, 4},
    {"f16", "f16", "f32", 16, 4, 2, 4},   {"f16_f16", "f16", "f16", 16, 4, 2, 2},
    {"tf32", "tf32", "f32", 8, 4, 2, 4},  {"tf32_k4", "tf32", "f32", 4, 2, 1, 4},
    {"e4m3", "e4m3", "f32", 32, 4, 2, 4}, {"e5m2", "e5m2", "f32", 32, 4, 2, 4},
    {"s8", "s8", "s32", 32, 4, 2, 4},     {"u8", "u8", "s32", 32, 4, 2, 4},
    {"s8_k16", "s8", "s32", 16, 2, 1, 4}};

TEST(Hardware, MmaSyncMatchesBitForBit) {
  const Recorded recorded("mma");
  int compared = 0;
  for (const json& c : recorded.cases()) {
    const std::string entry = c.at("launch").at("entry");
    const MmaCase* m = nullptr;
    for (const MmaCase& candidate : kMmaCases) {
      if (entry == std::string("mma_") + candidate.name) m = &candidate;
    }
    if (m == nullptr) continue;
    ++compared;
    const FloatFormat* format = format_of(m->a);
    const int size = std::string(m->a) == "bf16" || std::string(m->a) == "f16" ? 2
                     : std::string(m->a) == "tf32"                             ? 4
                                                                               : 1;
    const bool half = std::string(m->d) == "f16";
    const auto a_raw = recorded.buffer(c, "inputs", "a"), b_raw = recorded.buffer(c, "inputs", "b");
    const auto c_raw = recorded.array<std::uint32_t>(c, "inputs", "c");
    const auto expected = recorded.array<std::uint32_t>(c, "expect", "d");
    int wrong = 0;
    for (int block = 0; block < 4; ++block) {
      std::vector<std::uint32_t> a(16 * static_cast<std::size_t>(m->k)),
          b(8 * static_cast<std::size_t>(m->k));
      for (int lane = 0; lane < 32; ++lane) {
        const int at = block * 32 + lane;
        for (int j = 0; j < m->a_registers; ++j) {
          for (int e = 0; e < 4 / size; ++e) {
            const Element where = mma_a(lane, j, e, size);
            a[static_cast<std::size_t>(where.row) * m->k + where.column] = load(
                a_raw, static_cast<std::size_t>((at * m->a_registers + j) * 4 + e * size), size);
          }
        }
        for (int j = 0; j < m->b_registers; ++j) {
          for (int e = 0; e < 4 / size; ++e) {
            const Element where = mma_b(lane, j, e, size);
            b[static_cast<std::size_t>(where.column) * m->k + where.row] = load(
                b_raw, static_cast<std::size_t>((at * m->b_registers + j) * 4 + e * size), size);
          }
        }
      }
      const auto word = [&](const std::vector<std::uint32_t>& v, int lane, int i) {
        const std::uint32_t w =
            v[static_cast<std::size_t>((block * 32 + lane) * m->d_registers + (half ? i / 2 : i))];
        return half ? (w >> (16 * (i & 1))) & 0xFFFF : w;
      };
      std::vector<float> cf(128), df(128);
      std::vector<std::int32_t> ci(128), di(128);
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const Element where = mma_d(lane, i);
          const std::uint32_t w = word(c_raw, lane, i);
          cf[where.row * 8 + where.column] =
              half ? half_to_float(static_cast<std::uint16_t>(w)) : bits_to_float(w);
          ci[where.row * 8 + where.column] = static_cast<std::int32_t>(w);
        }
      }
      if (format == nullptr) {
        std::vector<std::int32_t> ia(a.size()), ib(b.size());
        const bool is_signed = std::string(m->a) == "s8";
        for (std::size_t i = 0; i < a.size(); ++i)
          ia[i] = is_signed ? static_cast<std::int8_t>(a[i]) : static_cast<std::int32_t>(a[i]);
        for (std::size_t i = 0; i < b.size(); ++i)
          ib[i] = is_signed ? static_cast<std::int8_t>(b[i]) : static_cast<std::int32_t>(b[i]);
        integer_product(ia.data(), ib.data(), 16, 8, m->k, false, ci.data(), di.data());
      } else {
        ProductOperand oa, ob;
        oa.reset(16, m->k);
        ob.reset(8, m->k);
        for (int r = 0; r < 16; ++r) {
          for (int i = 0; i < m->k; ++i)
            oa.set(*format, r, i,
                   multiplier_code(format, a[static_cast<std::size_t>(r) * m->k + i]));
        }
        for (int r = 0; r < 8; ++r) {
          for (int i = 0; i < m->k; ++i)
            ob.set(*format, r, i,
                   multiplier_code(format, b[static_cast<std::size_t>(r) * m->k + i]));
        }
        if (size == 1) {
          mma_sync_fp8(oa, ob, cf.data(), df.data());
        } else {
          tensor_product(half ? kMmaSync.with_f16_output() : kMmaSync, oa, ob, cf.data(),
                         df.data());
        }
      }
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const Element where = mma_d(lane, i);
          const int at = where.row * 8 + where.column;
          const std::uint32_t got = format == nullptr ? static_cast<std::uint32_t>(di[at])
                                    : half ? static_cast<std::uint32_t>(float_to_half_rn(df[at]))
                                           : float_to_bits(df[at]);
          if (got != word(expected, lane, i)) ++wrong;
        }
      }
    }
    EXPECT_EQ(wrong, 0) << c.at("name") << ": elements of 512 that differ";
  }
  EXPECT_EQ(compared, 33);
}

}  // namespace
}  // namespace attnjit::emulator
