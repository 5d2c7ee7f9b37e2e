// SPDX-License-Identifier: Apache-2.0
// .npy files: what is written is read, and hostile bytes are refused, never followed.
#include "verify/npy.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "../temporary_folder.h"
#include "verify/random.h"

namespace attnjit::verify {
namespace {

std::string header(const std::string& dict, char major = 1) {
  std::string text = dict + "\n";
  std::string result = std::string("\x93NUMPY") + major + '\0';
  result += static_cast<char>(text.size() & 0xff);
  result += static_cast<char>(text.size() >> 8);
  if (major > 1) result += std::string(2, '\0');
  return result + text;
}

TEST(Npy, BytesAreWhatNumpyWrites) {
  Tensor tensor = make_tensor(Dtype::kI32, {2});
  tensor.as<std::int32_t>()[0] = 1;
  tensor.as<std::int32_t>()[1] = -1;
  // numpy.save(f, numpy.array([1, -1], numpy.int32)), NumPy 1.26.
  std::string expected = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                         "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
  expected.resize(127, ' ');
  expected += "\n";
  expected += std::string("\x01\x00\x00\x00\xff\xff\xff\xff", 8);
  Result<std::string> bytes = npy_bytes(tensor);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, expected);
}

TEST(Npy, RoundTripsEveryShape) {
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{}, {0}, {7}, {3, 5}, {2, 0, 3}, {1, 2, 3, 4}}) {
    for (const Dtype dtype :
         {Dtype::kF32, Dtype::kF64, Dtype::kFp16, Dtype::kI8, Dtype::kU8, Dtype::kI16, Dtype::kU16,
          Dtype::kI32, Dtype::kU32, Dtype::kI64, Dtype::kU64}) {
      Tensor tensor = make_tensor(dtype, shape);
      for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
        tensor.bytes[i] = static_cast<std::uint8_t>(i * 37);
      }
      Result<std::string> bytes = npy_bytes(tensor);
      ASSERT_TRUE(bytes.ok());
      EXPECT_EQ((bytes->size() - tensor.bytes.size()) % 64, 0U);
      Result<Tensor> again = parse_npy(*bytes, "x");
      ASSERT_TRUE(again.ok()) << again.error().to_string();
      EXPECT_EQ(again->dtype, dtype);
      EXPECT_EQ(again->shape, shape);
      EXPECT_EQ(again->bytes, tensor.bytes);
    }
  }
}

TEST(Npy, FilesRoundTrip) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "tensor.npy";
  Tensor tensor = make_tensor(Dtype::kF32, {300, 7});
  for (int i = 0; i < 2100; ++i) tensor.as<float>()[i] = static_cast<float>(i);
  ASSERT_TRUE(write_npy(path, tensor).ok());
  Result<Tensor> again = read_npy(path);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->bytes, tensor.bytes);
  EXPECT_FALSE(read_npy(path, 100).ok());  // larger than allowed
  std::filesystem::resize_file(path, 8000);
  EXPECT_FALSE(read_npy(path).ok());
}

TEST(Npy, RefusesWhatIsNoRegularFile) {
  for (const char* path : {"/dev/zero", "/proc/self", "/", "/nonexistent/x.npy"}) {
    Result<Tensor> tensor = read_npy(path);
    ASSERT_FALSE(tensor.ok()) << path;
    EXPECT_EQ(tensor.error().code, ErrorCode::kInvalid);
  }
}

TEST(Npy, RefusesHostileHeaders) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  ASSERT_TRUE(parse_npy(header(good) + "abcd", "x").ok());
  ASSERT_TRUE(parse_npy(header(good, 2) + "abcd", "x").ok());
  EXPECT_FALSE(parse_npy(header(good) + "abc", "x").ok());
  EXPECT_FALSE(parse_npy(header(good) + "abcde", "x").ok());
  EXPECT_FALSE(parse_npy(header(good, 9) + "abcd", "x").ok());
  for (const char* dict : {
           "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
           "{'descr': '<f8', 'fortran_order': False, 'shape': (1125899906842624, 1048576), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
           "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }",
           "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } junk",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
           "{'descr': '<f4",
           "{",
           "",
       }) {
    Result<Tensor> tensor = parse_npy(header(dict) + "abcd", "x");
    EXPECT_FALSE(tensor.ok()) << dict;
  }
}

TEST(Npy, AnyDamageEndsInAResult) {
  Tensor tensor = make_tensor(Dtype::kF32, {4, 4});
  Result<std::string> bytes = npy_bytes(tensor);
  ASSERT_TRUE(bytes.ok());
  for (std::size_t length = 0; length < bytes->size(); ++length) {
    EXPECT_FALSE(parse_npy(std::string_view(*bytes).substr(0, length), "x").ok());
  }
  const RandomStream stream(1, "npy");
  for (std::uint64_t i = 0; i < 20000; ++i) {
    std::string damaged = *bytes;
    damaged[stream.bits(2 * i) % 128] = static_cast<char>(stream.bits(2 * i + 1));
    (void)parse_npy(damaged, "x");  // under the sanitizers: no read past the end
  }
}

}  // namespace
}  // namespace attnjit::verify
