// SPDX-License-Identifier: Apache-2.0
// Tests of tensor maps: their bytes, their rules, and the walk over a box with its edges.
#include "emulator/model/tensor_map.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace attnjit::emulator {
namespace {

TensorMapDescription description() {
  TensorMapDescription d;
  d.name = "q";
  d.buffer = "q";
  d.dtype = Dtype::kBf16;
  d.dims = {128, 4, 100};
  d.strides = {256, 1024};
  d.box = {64, 1, 32};
  d.element_strides = {1, 1, 1};
  d.swizzle = 128;
  return d;
}

TEST(TensorMap, BytesRoundTrip) {
  std::string error;
  const auto map = make_tensor_map(description(), 0x7000'0000'0000, &error);
  ASSERT_TRUE(map) << error;
  const TensorMapBytes bytes = encode_tensor_map(*map);
  const auto back = decode_tensor_map(bytes.data());
  ASSERT_TRUE(back);
  EXPECT_EQ(encode_tensor_map(*back), bytes);
  EXPECT_EQ(back->box_bytes(), 64u * 32 * 2);
  EXPECT_EQ(back->address, 0x7000'0000'0000u);
}

TEST(TensorMap, ArbitraryBytesAreNoMap) {
  std::mt19937 random(3);
  TensorMapBytes bytes;
  for (int i = 0; i < 1000; ++i) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    EXPECT_FALSE(decode_tensor_map(bytes.data()));
  }
}

TEST(TensorMap, RefusesWhatTheDriverRefuses) {
  const auto refused = [](auto change, std::uint64_t address = 0x1000) {
    TensorMapDescription d = description();
    change(d);
    std::string error;
    const bool bad = !make_tensor_map(d, address, &error).has_value();
    return bad && !error.empty();
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto&) {}, 0x1008)) << "misaligned address";
  EXPECT_TRUE(refused([](auto& d) { d.strides[0] = 250; }));
  EXPECT_TRUE(refused([](auto& d) { d.strides[0] = std::uint64_t{1} << 40; }));
  EXPECT_TRUE(refused([](auto& d) { d.box[0] = 128; })) << "wider than the swizzle";
  EXPECT_TRUE(refused([](auto& d) { d.box[0] = 4; })) << "not a multiple of 16 bytes";
  EXPECT_TRUE(refused([](auto& d) { d.box[2] = 257; }));
  EXPECT_TRUE(refused([](auto& d) { d.dims[1] = 0; }));
  EXPECT_TRUE(refused([](auto& d) { d.swizzle = 96; }));
  EXPECT_TRUE(refused([](auto& d) { d.strides.pop_back(); }));
  EXPECT_TRUE(refused([](auto& d) { d.element_strides[1] = 9; }));
  EXPECT_TRUE(refused([](auto& d) {
    d.dtype = Dtype::kI32;
    d.box[0] = 32;
    d.oob = TensorMapDescription::OutOfBounds::kNan;
  }));
}

/// The element-by-element meaning of a box, straight from the definition.
std::vector<std::int64_t> naive_box(const TensorMap& map, std::array<std::int32_t, 5> c) {
  std::vector<std::int64_t> offsets;  // -1: out of bounds
  std::array<std::uint32_t, 5> count{1, 1, 1, 1, 1};
  for (int i = 0; i < map.rank; ++i) count[i] = map.box_elements(i);
  for (std::uint32_t i4 = 0; i4 < count[4]; ++i4)
    for (std::uint32_t i3 = 0; i3 < count[3]; ++i3)
      for (std::uint32_t i2 = 0; i2 < count[2]; ++i2)
        for (std::uint32_t i1 = 0; i1 < count[1]; ++i1)
          for (std::uint32_t i0 = 0; i0 < count[0]; ++i0) {
            const std::uint32_t index[5] = {i0, i1, i2, i3, i4};
            std::int64_t offset = 0;
            bool inside = true;
            for (int i = 0; i < map.rank; ++i) {
              const std::int64_t at = c[i] + static_cast<std::int64_t>(index[i]) *
                                                 (i == 0 ? 1 : map.element_strides[i]);
              inside = inside && at >= 0 && at < static_cast<std::int64_t>(map.dims[i]);
              offset +=
                  at * static_cast<std::int64_t>(i == 0 ? map.element_bytes() : map.strides[i]);
            }
            offsets.push_back(inside ? offset : -1);
          }
  return offsets;
}

TEST(TensorMap, TheWalkMatchesTheDefinition) {
  std::mt19937 random(4);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int round = 0; round < 500; ++round) {
    TensorMap map;
    map.type = TensorMapType::kBf16;
    map.rank = pick(1, 5);
    std::array<std::int32_t, 5> c{};
    std::uint64_t stride = 2;
    for (int i = 0; i < map.rank; ++i) {
      map.dims[i] = static_cast<std::uint64_t>(pick(1, 20));
      map.strides[i] = i == 0 ? 0 : (stride + 15) / 16 * 16;
      stride = (i == 0 ? 2 : map.strides[i]) * map.dims[i];
      map.box[i] = i == 0 ? 8u * static_cast<std::uint32_t>(pick(1, 2))
                          : static_cast<std::uint32_t>(pick(1, 4));
      map.element_strides[i] = static_cast<std::uint32_t>(i == 0 ? 1 : pick(1, 2));
      c[i] = pick(-6, 22);
    }
    ASSERT_EQ(check_tensor_map(map), "");
    std::vector<std::int64_t> walked(map.box_bytes() / 2, -2);
    for_each_box_row(map, c, false, BoxUse::kLoad, [&](const BoxRow& row) {
      for (std::uint32_t b = 0; b < row.bytes; b += 2) {
        const bool valid = b >= row.first_valid && b < row.first_valid + row.valid;
        walked[(row.shared_offset + b) / 2] = valid ? row.global_offset + b - row.first_valid : -1;
      }
    });
    EXPECT_EQ(walked, naive_box(map, c));
  }
}

TEST(TensorMap, GatherTakesFourRows) {
  TensorMap map;
  map.type = TensorMapType::kBf16;
  map.rank = 2;
  map.dims = {64, 10};
  map.strides = {0, 128};
  map.box = {64, 1};
  map.element_strides = {1, 1};
  std::vector<std::int64_t> rows;
  for_each_box_row(map, {0, 7, 3, -1, 12}, true, BoxUse::kLoad, [&](const BoxRow& row) {
    EXPECT_EQ(row.shared_offset, rows.size() * 128);
    rows.push_back(row.valid != 0 ? row.global_offset / 128 : -1);
  });
  EXPECT_EQ(rows, (std::vector<std::int64_t>{7, 3, -1, -1}));
}

TEST(TensorMap, ReplaceUsesPtxsTypeCodes) {
  TensorMap map;
  EXPECT_EQ(replace_field(&map, TensorMapField::kElemType, 0, 10), nullptr);
  EXPECT_EQ(map.type, TensorMapType::kBf16);
  EXPECT_EQ(replace_field(&map, TensorMapField::kRank, 0, 2), nullptr);
  EXPECT_EQ(map.rank, 3);
  EXPECT_NE(replace_field(&map, TensorMapField::kRank, 0, 5), nullptr);
  EXPECT_NE(replace_field(&map, TensorMapField::kGlobalStride, 4, 16), nullptr);
}

}  // namespace
}  // namespace attnjit::emulator
