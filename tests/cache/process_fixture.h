// SPDX-License-Identifier: Apache-2.0
// Processes on a real folder: children that a test binary starts of itself (--child MODE FOLDER
// ..), and a folder that they share. A binary that uses this has a main of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../temporary_folder.h"
#include "cache/store.h"
#include "cache_test_util.h"

extern char** environ;

namespace attnjit::cache {

namespace stdfs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline CacheOptions options_for(const std::string& folder) {
  CacheOptions options;
  options.layers = {folder};
  return options;
}

inline bool get(CubinCache& cache, int number, const std::function<void()>& compiling = {},
                milliseconds time = milliseconds(60000), bool* from_disk = nullptr) {
  const auto image = cache.get_or_compile(
      make_key(number), kBuild, BuildPolicy::kExact, Clock::now() + time,
      [&]() -> Result<KernelImage> {
        if (compiling) compiling();
        return make_image(number, 20000);
      },
      FoundFlag(from_disk).get());
  return image.ok() && same_image(*image, make_image(number, 20000));
}

inline void append_byte(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, "x", 1) != 1) std::abort();
  ::close(file);
}

/// A child process, with pipes to its standard input and from its standard output.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"test_cache_process", "--child"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& text : all) argv.push_back(text.data());
    argv.push_back(nullptr);
    std::array<int, 2> in{}, out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) != 0) {
      std::abort();
    }
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    go();
    ::close(from_);
  }

  void go() {
    if (to_ >= 0) ::close(to_);
    to_ = -1;
  }
  void wait_for_a_byte() const {
    char c = 0;
    ASSERT_EQ(::read(from_, &c, 1), 1);
  }
  void signal(int number) const { ::kill(pid_, number); }
  /// The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() { use_base(stdfs::temp_directory_path()); }
  void use_base(const stdfs::path& parent) {
    base = temporary.emplace(parent).path();
    folder = base + "/cache";
  }

  std::string entry_path(int number) const {
    const std::string name = file_name(*entry_id(make_key(number), kBuild));
    return folder + "/v2/entries/" + name.substr(0, 2) + "/" + name;
  }
  std::size_t files_in(const std::string& room) const {
    const stdfs::path path = folder + "/v2/" + room;
    if (!stdfs::exists(path)) return 0;
    std::size_t count = 0;
    for (const auto& entry : stdfs::recursive_directory_iterator(path)) {
      if (!entry.is_directory()) ++count;
    }
    return count;
  }
  /// Nothing in the folder is wrong, and it serves and keeps as ever.
  void expect_sound(const std::string& what) {
    const auto cache = attnjit::open_cache(options_for(folder));
    const CacheVerifyReport report = cache->verify();
    EXPECT_TRUE(report.bad.empty()) << what << ": " << report.bad.front().problem;
    EXPECT_TRUE(report.unreadable.empty()) << what;
    EXPECT_TRUE(get(*cache, 1)) << what;
    bool from_disk = false;
    EXPECT_TRUE(get(*cache, 1, {}, milliseconds(60000), &from_disk)) << what;
    EXPECT_TRUE(from_disk) << what;
  }

  std::optional<test::TemporaryFolder> temporary;
  std::string base, folder;
};

}  // namespace attnjit::cache
