// SPDX-License-Identifier: Apache-2.0
// Files that a user names are replaced whole or not at all.
#include "cli/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "process.h"

namespace attnjit::cli {
namespace {

using testing::read_text;
using testing::TemporaryFolder;
using testing::write_text;

std::size_t files_in(const std::string& folder) {
  const std::filesystem::directory_iterator begin(folder), end;
  return static_cast<std::size_t>(std::distance(begin, end));
}

TEST(ReplaceFile, KeepsModeAndLinkAndLeavesNothingElse) {
  const TemporaryFolder folder;
  ASSERT_TRUE(replace_file(folder / "a", "one").ok());
  EXPECT_EQ(read_text(folder / "a"), "one");
  ASSERT_EQ(::chmod((folder / "a").c_str(), 0640), 0);
  std::filesystem::create_symlink("a", folder / "link");
  ASSERT_TRUE(replace_file(folder / "link", "two").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "a"), "two");
  struct stat status {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
  EXPECT_EQ(files_in(folder.path()), 2U);
}

TEST(ReplaceFile, WhatCannotBeReplacedStays) {
  const TemporaryFolder folder;
  EXPECT_EQ(replace_file(folder / "missing/a", "x").error().code, ErrorCode::kIo);
  EXPECT_EQ(replace_file(folder.path(), "x").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(replace_file("/dev/null", "x").error().code, ErrorCode::kInvalid);
  for (const std::string& path : {folder / "missing/a", folder.path(), std::string("/dev/null")}) {
    EXPECT_FALSE(check_replaceable(path).ok()) << path;
  }
  EXPECT_TRUE(check_replaceable(folder / "new").ok());
  // A file in the way of the temporary one: nothing of it is touched.
  write_text(folder / "a", "old");
  const std::string temporary = folder / "a." + std::to_string(::getpid()) + ".tmp";
  write_text(temporary, "another's");
  EXPECT_EQ(replace_file(folder / "a", "x").error().code, ErrorCode::kIo);
  EXPECT_EQ(read_text(folder / "a"), "old");
  EXPECT_EQ(read_text(temporary), "another's");
}

// --- FIFOs, whose other end may come a moment later ----------------------------------------------

TEST(Files, AFifoIsReadOnceItsWriterCame) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ofstream(path) << "late";
  });
  const Result<std::string> text = read_file(path, 1000);
  writer.join();
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_EQ(*text, "late");
}

TEST(Files, AFifoIsWrittenOnceItsReaderCame) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ifstream(path) >> got;
  });
  const Status written = write_file(path, "late");
  reader.join();
  EXPECT_TRUE(written.ok()) << written.error().to_string();
  EXPECT_EQ(got, "late");
}

TEST(Files, AFifoWithNobodyAtItsOtherEndIsAnErrorNotAHang) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "fifo", other = folder / "other";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(other.c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  auto written = std::async(std::launch::async, [&] { return write_file(other, "text"); });
  EXPECT_EQ(read_file(path, 1000).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(written.get().error().code, ErrorCode::kIo);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace attnjit::cli
