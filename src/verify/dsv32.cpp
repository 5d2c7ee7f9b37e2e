// SPDX-License-Identifier: Apache-2.0
// Packs and unpacks rows of the format dsv32.
#include "verify/dsv32.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "plan/launch/tensors.h"
#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

constexpr int kLatent = 512, kRope = 64, kDepth = kLatent + kRope;
constexpr int kPart = 128;  // elements that share a scale
constexpr int kScales = kLatent, kRopeBytes = kScales + kLatent / kPart * 4;
constexpr float kLargest = 448;
static_assert(kRopeBytes + 2 * kRope == kDsv32RowBytes);

float scale_of(const std::uint8_t* row, int part) {
  float scale = 0;
  std::memcpy(&scale, row + kScales + 4 * part, sizeof scale);
  return scale;
}

void pack_row(const float* from, std::uint8_t* to) {
  if (std::any_of(from, from + kDepth, [](float value) { return std::isnan(value); })) {
    std::fill_n(to, kDsv32RowBytes, std::uint8_t{0xff});
    return;
  }
  for (int part = 0; part < kLatent / kPart; ++part) {
    float largest = 0;
    for (int d = 0; d < kPart; ++d) largest = std::max(largest, std::abs(from[part * kPart + d]));
    const float scale = largest > 0 ? largest / kLargest : 1;
    std::memcpy(to + kScales + 4 * part, &scale, sizeof scale);
    for (int d = part * kPart; d < (part + 1) * kPart; ++d)
      to[d] = e4m3_from_float(from[d] / scale);
  }
  for (int d = 0; d < kRope; ++d) {
    const std::uint16_t bits = bf16_from_float(from[kLatent + d]);
    std::memcpy(to + kRopeBytes + 2 * d, &bits, sizeof bits);
  }
}

}  // namespace

Tensor pack_dsv32(const Tensor& k, Tensor& v) {
  std::vector<std::int64_t> shape = k.shape;
  shape.back() = kDsv32RowBytes;
  Tensor packed = make_tensor(Dtype::kU8, std::move(shape));
  const std::int64_t rows = k.elements() / kDepth;
  std::array<double, kDepth> row{};
  for (std::int64_t i = 0; i < rows; ++i) {
    pack_row(k.as<float>() + i * kDepth, packed.bytes.data() + i * kDsv32RowBytes);
    load_dsv32(packed, i, row.data());
    for (int d = 0; d < kLatent; ++d) v.as<float>()[i * kLatent + d] = static_cast<float>(row[d]);
  }
  return packed;
}

void load_dsv32(const Tensor& packed, std::int64_t row, double* out) {
  const std::uint8_t* const from = packed.bytes.data() + row * kDsv32RowBytes;
  for (int d = 0; d < kLatent; ++d) {
    const float value = float_from_e4m3(from[d]) * scale_of(from, d / kPart);
    out[d] = double{float_from_bf16(bf16_from_float(value))};
  }
  for (int d = 0; d < kRope; ++d) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + kRopeBytes + 2 * d, sizeof bits);
    out[kLatent + d] = double{float_from_bf16(bits)};
  }
}

}  // namespace attnjit::verify
