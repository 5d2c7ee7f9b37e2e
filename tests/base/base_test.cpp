// SPDX-License-Identifier: Apache-2.0
// Tests of the base room: errors, types, digests.
#include <gtest/gtest.h>

#include "attnjit/result.h"
#include "attnjit/types.h"
#include "base/printable.h"
#include "base/sha256.h"

namespace attnjit {
namespace {

TEST(Sha256, MatchesTheStandardsVector) {
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Error, PrintsEachProblemOnItsLine) {
  Error error = make_error(ErrorCode::kInvalid, "is 0; allowed: 1 or more", "group", "set it");
  error.others.push_back(make_error(ErrorCode::kInvalid, "is missing", "qk_depth"));
  EXPECT_EQ(error.to_string(), "group: is 0; allowed: 1 or more; set it\nqk_depth: is missing");
}

TEST(ErrorCode, MapsToTheExitCodesOfTheContract) {
  EXPECT_EQ(exit_code(ErrorCode::kInvalid), 2);
  EXPECT_EQ(exit_code(ErrorCode::kUnsupported), 3);
  EXPECT_EQ(exit_code(ErrorCode::kEnvironment), 4);
  EXPECT_EQ(exit_code(ErrorCode::kCompileFailed), 1);
}

TEST(Dtype, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(Dtype::kU64); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_string("f16"), Dtype::kFp16);
  EXPECT_EQ(dtype_from_string("float"), std::nullopt);
}

TEST(Printable, KeepsTextAndEscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("a\tb\nµ €😀"), "a\tb\nµ €😀");
  EXPECT_EQ(printable("\x1b[2J\r\x07\x7f"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "\\xc2\\x9b1m")
      << "CSI, as UTF-8";
  EXPECT_EQ(printable("\x9b\xff\xe2\x82"), "\\x9b\\xff\\xe2\\x82") << "no UTF-8";
  EXPECT_EQ(printable("\xc0\x9b\xed\xa0\x80"), "\\xc0\\x9b\\xed\\xa0\\x80") << "nor these";
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
}

}  // namespace
}  // namespace attnjit
