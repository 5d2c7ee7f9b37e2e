// SPDX-License-Identifier: Apache-2.0
// Tests of the base room: errors, types, digests.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "../temporary_folder.h"
#include "attnjit/result.h"
#include "attnjit/types.h"
#include "base/log.h"
#include "base/machine_limits.h"
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

class ControlGroups : public ::testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void expect(int cores, std::int64_t memory, const std::string& what) const {
    const MachineLimits limits = with_control_groups({16, 1000}, root);
    EXPECT_EQ(limits.cores, cores) << what;
    EXPECT_EQ(limits.memory_bytes, memory) << what;
  }
  const test::TemporaryFolder folder;
  const std::string& root = folder.path();
};

TEST_F(ControlGroups, TheLeastOfAGroupAndItsParentsCounts) {
  expect(16, 1000, "no groups");
  file("/proc/self/cgroup", "0::/pods/one\n");
  expect(16, 1000, "no files");
  file("/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
  file("/sys/fs/cgroup/pods/one/memory.max", "max\n");
  expect(16, 1000, "no limits");
  file("/sys/fs/cgroup/pods/one/cpu.max", "250000 100000\n");
  file("/sys/fs/cgroup/pods/one/memory.max", "800\n");
  expect(3, 800, "its own");
  file("/sys/fs/cgroup/pods/cpu.max", "20000 100000\n");
  file("/sys/fs/cgroup/pods/memory.max", "700\n");
  expect(1, 700, "its parent's");
  file("/sys/fs/cgroup/pods/cpu.max", "6400000 100000\n");
  file("/sys/fs/cgroup/pods/memory.max", "9000\n");
  expect(3, 800, "a parent that allows more");
}

TEST_F(ControlGroups, AContainerSeesItsGroupAsTheMount) {
  file("/proc/self/cgroup", "0::/kubepods/of/the/host\n");
  file("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  file("/sys/fs/cgroup/memory.max", "500\n");
  expect(4, 500, "");
}

TEST_F(ControlGroups, TheFirstVersionCountsToo) {
  file("/proc/self/cgroup",
       "12:cpu,cpuacct:/one\n11:memory:/one\n10:name=systemd:/\nnonsense\n0::/\n");
  file("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "-1\n");
  file("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_period_us", "100000\n");
  file("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", "9223372036854771712\n");
  expect(16, 1000, "no limits");
  file("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "100000\n");
  file("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", "600\n");
  expect(1, 600, "");
  file("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "100000");
  file("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_period_us", "0\n");
  expect(16, 600, "no period");
}

// A slip in its name is not to hide what is wrong.
TEST(Log, ALevelThatIsNoneIsToldAndWarningsAreWritten) {
  const auto written = [](const char* level) {
    ::testing::internal::CaptureStderr();
    const LogSink sink = make_stderr_sink(level);
    sink(LogLevel::kInfo, "an info");
    sink(LogLevel::kWarning, "a warning");
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string slip = written("warnings");
  EXPECT_NE(slip.find("ATTNJIT_LOG_LEVEL is 'warnings'"), std::string::npos) << slip;
  EXPECT_NE(slip.find("a warning"), std::string::npos) << slip;
  EXPECT_EQ(slip.find("an info"), std::string::npos) << slip;
  EXPECT_EQ(written("off"), "");
  EXPECT_EQ(written("error"), "");
  EXPECT_NE(written("info").find("an info"), std::string::npos);
  EXPECT_EQ(written("warn").find("ATTNJIT_LOG_LEVEL"), std::string::npos);
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
