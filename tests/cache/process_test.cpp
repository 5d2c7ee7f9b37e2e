// SPDX-License-Identifier: Apache-2.0
// Several processes on a real folder: kills at each step, stampedes, stopped and killed holders,
// evictors against readers. The test runs itself again as its children.
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "../sanitized.h"
#include "fault_file_system.h"
#include "process_fixture.h"

namespace attnjit::cache {
namespace {

// --- The children --------------------------------------------------------------------------------

/// Ends itself before the file-system call number `step` of one request.
int child_publish(const std::string& folder, long step) {
  FaultFileSystem faults(posix_file_system());
  faults.before = [step](long call, std::string_view) {
    if (call == step) ::kill(::getpid(), SIGKILL);
  };
  const auto cache = open_cache(options_for(folder), faults);
  return get(*cache, 1) ? 0 : 1;
}

/// Compiles for ever; tells on standard output that it began.
int child_hold(const std::string& folder) {
  const auto cache = attnjit::open_cache(options_for(folder));
  get(*cache, 1, [] {
    if (::write(1, "r", 1) != 1) std::abort();
    for (;;) ::pause();
  });
  return 1;
}

/// Four threads ask for three keys.
int child_stampede(const std::string& folder, const std::string& counts) {
  // A sleeping reader of standard input, so that all begin together.
  char c = 0;
  static_cast<void>(::read(0, &c, 1));
  const auto cache = attnjit::open_cache(options_for(folder));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        const int number = (t + i) % 3;
        if (!get(*cache, number, [&] {
              append_byte(counts + std::to_string(number));
              std::this_thread::sleep_for(milliseconds(200));
            })) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong == 0 ? 0 : 1;
}

/// Asks, stores, verifies and trims at random under a small cap.
int child_churn(const std::string& folder, unsigned seed, long milliseconds_to_run) {
  std::mt19937 random(seed);
  CacheOptions options = options_for(folder);
  options.max_bytes = 200000;  // eight entries or so, of 24 that are asked for
  const auto end = Clock::now() + milliseconds(milliseconds_to_run);
  const auto cache = attnjit::open_cache(options);
  while (Clock::now() < end) {
    const int number = static_cast<int>(random() % 24);
    switch (random() % 8) {
      case 0:
        if (!cache->store(make_key(number), kBuild, make_image(number, 20000)).ok()) return 2;
        break;
      case 1:
        if (!cache->gc().ok()) return 3;
        break;
      case 2:
        if (!cache->verify().bad.empty()) return 4;
        break;
      default:
        if (!get(*cache, number)) return 5;
    }
  }
  return cache->statistics().quarantined == 0 ? 0 : 6;
}

int run_child(int argc, char** argv) {
  const std::string mode = argv[2];
  const std::string folder = argv[3];
  if (mode == "publish" && argc == 5) return child_publish(folder, std::atol(argv[4]));
  if (mode == "hold") return child_hold(folder);
  if (mode == "stampede" && argc == 5) return child_stampede(folder, argv[4]);
  if (mode == "churn" && argc == 6) {
    return child_churn(folder, static_cast<unsigned>(std::atol(argv[4])), std::atol(argv[5]));
  }
  return 99;
}

// --- The tests ----------------------------------------------------------------------------------

TEST_F(ProcessTest, KilledAtEachStepOfPublishing) {
  // In memory where there is such a folder: some three hundred publishes would wait for the disk.
  if (::access("/dev/shm", W_OK) == 0) use_base("/dev/shm");
  FaultFileSystem counter(posix_file_system());
  {
    const auto cache = open_cache(options_for(folder), counter);
    ASSERT_TRUE(get(*cache, 1));
  }
  const long steps = counter.calls();
  ASSERT_GT(steps, 30);
  // Every third under sanitizers: what is left on the disk hangs on the step alone.
  for (long step = 1; step <= steps; step += kSanitized ? 3 : 1) {
    stdfs::remove_all(folder);
    ASSERT_EQ(Child({"publish", folder, std::to_string(step)}).wait(), -SIGKILL) << step;
    expect_sound("step " + std::to_string(step));
    // And with what the first one left behind, killed at the same step again.
    stdfs::remove(entry_path(1));
    Child({"publish", folder, std::to_string(step)}).wait();
    expect_sound("step " + std::to_string(step) + " again");
    if (HasFailure()) return;
  }
  stdfs::remove_all(folder);
  EXPECT_EQ(Child({"publish", folder, std::to_string(steps + 1)}).wait(), 0);
  expect_sound("not killed");
}

TEST_F(ProcessTest, KilledAtRandomTimes) {
  std::mt19937 random(20);
  for (int round = 0; round < 100; ++round) {
    Child child({"churn", folder, std::to_string(round), "10000"});
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
    child.signal(SIGKILL);
    ASSERT_EQ(child.wait(), -SIGKILL);
    expect_sound("round " + std::to_string(round));
    if (HasFailure()) return;
  }
}

TEST_F(ProcessTest, ManyProcessesOfFourThreadsCompileThreeKeysOnce) {
  int round = 0;
  const auto rounds = kSanitized ? std::vector{16, 32} : std::vector{16, 16, 32, 128};
  for (const int processes : rounds) {
    SCOPED_TRACE(processes);
    stdfs::remove_all(folder);
    const std::string counts = base + "/count" + std::to_string(round++) + ".";
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < processes; ++i) {
      children.push_back(
          std::make_unique<Child>(std::vector<std::string>{"stampede", folder, counts}));
    }
    for (const auto& child : children) child->go();
    for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
    for (int number = 0; number < 3; ++number) {
      EXPECT_EQ(stdfs::file_size(counts + std::to_string(number)), 1u) << "key " << number;
    }
    EXPECT_EQ(files_in("temp"), 0u);
  }
}

// NOTE: UBSan opens a pipe of its own to look at an object's type, so that it needs a few more.
#ifdef __SANITIZE_ADDRESS__
constexpr rlim_t kLeastDescriptors = 10;
#else
constexpr rlim_t kLeastDescriptors = 4;
#endif

// A compile opens a library, and needs a descriptor for that, however few this process may have.
TEST_F(ProcessTest, FewDescriptorsAreLeftToTheCompile) {
  for (rlim_t most = kLeastDescriptors; most <= 20; ++most) {
    stdfs::remove_all(folder);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close_range(3, ~0U, 0);
      const struct rlimit limit = {most, most};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(2);
      const auto cache = attnjit::open_cache(options_for(folder));
      bool opened = false;
      const bool got = get(*cache, 1, [&] { opened = ::open("/dev/null", O_RDONLY) >= 0; });
      ::_exit(got && opened ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << most << " descriptors";
  }
}

TEST_F(ProcessTest, AKilledHolderIsSucceededAtOnce) {
  Child holder({"hold", folder});
  holder.wait_for_a_byte();
  const auto cache = attnjit::open_cache(options_for(folder));
  int compiles = 0;
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    holder.signal(SIGKILL);
  });
  const auto begin = Clock::now();
  EXPECT_TRUE(get(*cache, 1, [&] { ++compiles; }));
  const auto took = Clock::now() - begin;
  killer.join();
  EXPECT_EQ(compiles, 1);
  EXPECT_GE(took, milliseconds(150));
  EXPECT_LT(took, milliseconds(5000)) << "far before half of the minute";
  EXPECT_EQ(cache->statistics().alone, 0u);
}

// The time is long because other tests write to the same disk: one write there may take over a
// second, and what is left of the time has to do for the compile and the entry.
TEST_F(ProcessTest, AStoppedHolderCostsHalfOfTheTime) {
  constexpr milliseconds kTime(10000);
  Child holder({"hold", folder});
  holder.wait_for_a_byte();
  holder.signal(SIGSTOP);
  const auto cache = attnjit::open_cache(options_for(folder));
  int compiles = 0;
  const auto begin = Clock::now();
  EXPECT_TRUE(get(
      *cache, 1, [&] { ++compiles; }, kTime));
  const auto took = Clock::now() - begin;
  EXPECT_GE(took, kTime / 2 - milliseconds(100)) << "it waited for its holder";
  EXPECT_LT(took, kTime);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(cache->statistics().alone, 1u);
  bool from_disk = false;
  EXPECT_TRUE(get(*cache, 1, {}, kTime, &from_disk));
  EXPECT_TRUE(from_disk) << "the next one need not wait";
}

TEST_F(ProcessTest, EvictorsReadersAndWritersUnderASmallCap) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(std::make_unique<Child>(
        std::vector<std::string>{"churn", folder, std::to_string(1000 + i), "1500"}));
  }
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
  CacheOptions options = options_for(folder);
  options.max_bytes = 200000;
  const auto cache = attnjit::open_cache(options);
  ASSERT_TRUE(cache->gc().ok());
  const CacheLayerInfo info = cache->layers().front();
  EXPECT_LE(info.entry_bytes + info.other_bytes, options.max_bytes);
  EXPECT_GE(info.entries, 2);
  EXPECT_EQ(info.temporary, 0);
  EXPECT_EQ(info.quarantined, 0);
  const CacheVerifyReport report = cache->verify();
  EXPECT_EQ(report.good, info.entries);
}

TEST_F(ProcessTest, SampledCorruptionsOnDisk) {
  const auto cache = attnjit::open_cache(options_for(folder));
  ASSERT_TRUE(get(*cache, 1));
  const auto size = stdfs::file_size(entry_path(1));
  std::mt19937 random(30);
  for (int sample = 0; sample < 30; ++sample) {
    const auto at = random() % size;
    if (sample % 3 == 2) {
      stdfs::resize_file(entry_path(1), at);
    } else {
      std::fstream file(entry_path(1), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const int old = file.get();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(old ^ (1 << random() % 8)));
    }
    int compiles = 0;
    bool from_disk = true;
    ASSERT_TRUE(get(
        *cache, 1, [&] { ++compiles; }, milliseconds(60000), &from_disk))
        << sample;
    EXPECT_EQ(compiles, 1) << sample;
    EXPECT_FALSE(from_disk);
    EXPECT_EQ(stdfs::file_size(entry_path(1)), size);
  }
  EXPECT_EQ(cache->statistics().quarantined, 30u);
  EXPECT_EQ(files_in("quarantine"), 30u);
}

TEST_F(ProcessTest, AnEntryThatIsNoFileIsAMissAndNoHang) {
  const auto cache = attnjit::open_cache(options_for(folder));
  ASSERT_TRUE(get(*cache, 1));
  stdfs::remove(entry_path(1));
  ASSERT_EQ(::mkfifo(entry_path(1).c_str(), 0600), 0);
  EXPECT_TRUE(get(*cache, 1));
  EXPECT_TRUE(stdfs::is_regular_file(entry_path(1)));
  stdfs::remove(entry_path(1));
  stdfs::create_symlink("/etc/passwd", entry_path(1));
  EXPECT_TRUE(get(*cache, 1));
  EXPECT_TRUE(stdfs::is_regular_file(stdfs::symlink_status(entry_path(1))));
  EXPECT_EQ(cache->statistics().quarantined, 2u);
}

TEST_F(ProcessTest, AFolderOfAnotherUserIsLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a folder away";
  stdfs::create_directory(folder);
  ASSERT_EQ(::chown(folder.c_str(), 12345, 12345), 0);
  LogLines lines;
  CacheOptions options = options_for(folder);
  options.log = lines.sink();
  const auto cache = attnjit::open_cache(options);
  EXPECT_TRUE(get(*cache, 1));
  EXPECT_TRUE(get(*cache, 1));
  EXPECT_TRUE(stdfs::is_empty(folder));
  EXPECT_EQ(lines.count(LogLevel::kWarning, "is not used: "), 1U);
  EXPECT_EQ(lines.count(LogLevel::kWarning, "belongs to user 12345"), 1U);  // the same line
  EXPECT_EQ(cache->layers().front().state, CacheLayerInfo::State::kRefused);
}

TEST_F(ProcessTest, MakesItsFolderPrivate) {
  const mode_t old = ::umask(0);
  const auto cache = attnjit::open_cache(options_for(base + "/a/b"));
  EXPECT_TRUE(get(*cache, 1));
  ::umask(old);
  for (const char* made : {"/a", "/a/b", "/a/b/v2", "/a/b/v2/entries"}) {
    EXPECT_EQ(stdfs::status(base + made).permissions(), stdfs::perms::owner_all) << made;
  }
}

}  // namespace
}  // namespace attnjit::cache

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "--child") return attnjit::cache::run_child(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
