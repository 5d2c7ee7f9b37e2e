// SPDX-License-Identifier: Apache-2.0
// What the machine around a cache does to it: full disks, umasks, signals, forks, exits, clocks
// that go back, file servers that answer late or twice, other versions beside it, and all of it at
// once.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <atomic>
#include <memory>
#include <random>
#include <set>

#include "fault_file_system.h"
#include "memory_file_system.h"
#include "process_fixture.h"

namespace attnjit::cache {
namespace {

// --- The children --------------------------------------------------------------------------------

/// Exits, as a program whose main returns, while another thread compiles.
int child_exit(const std::string& folder) {
  static std::unique_ptr<CubinCache> cache;  // destroyed by exit, under the compile
  cache = attnjit::open_cache(options_for(folder));
  static std::atomic<bool> compiling{false};
  std::thread([] {
    get(*cache, 1, [] {
      compiling = true;
      for (;;) ::pause();
    });
  }).detach();
  while (!compiling) std::this_thread::sleep_for(milliseconds(1));
  // NOTE: not destroyed: a thread that still uses it would be the program's mistake, not the
  // cache's.
  static_cast<void>(cache.release());
  std::exit(0);
}

/// Looks after a cache without rest, as several administrators would.
int child_manage(const std::string& folder, unsigned seed, long milliseconds_to_run) {
  std::mt19937 random(seed);
  const auto end = Clock::now() + milliseconds(milliseconds_to_run);
  CacheOptions options = options_for(folder);
  options.max_bytes = 150000 + static_cast<std::int64_t>(seed % 3) * 100000;  // caps of their own
  const auto cache = attnjit::open_cache(options);
  const std::string bundle = folder + ".bundle" + std::to_string(seed);
  while (Clock::now() < end) {
    switch (random() % 7) {
      case 0:
        if (!cache->gc({static_cast<std::int64_t>(random() % 300000), false}).ok()) return 2;
        break;
      case 1:
        if (random() % 4 == 0 && !cache->clear().ok()) return 3;
        break;
      case 2:
        if (!cache->verify().bad.empty()) return 4;
        break;
      case 3:
        static_cast<void>(cache->list());
        static_cast<void>(cache->layers());
        break;
      case 4:
        // NOTE: an entry that goes meanwhile is left out, or ends the export; none is called bad.
        if (const auto out = cache->export_bundle(bundle); out.ok()) {
          if (!out->bad.empty()) return 10;
        } else if (out.error().message.find("changed meanwhile") == std::string::npos) {
          return 5;
        }
        break;
      case 5:
        if (::access(bundle.c_str(), R_OK) == 0) {
          const auto merged = cache->import_bundle(bundle);
          // NOTE: a folder that is cleared again and again under an import ends it.
          if (!merged.ok() && merged.error().code != ErrorCode::kIo) return 6;
          if (merged.ok() && !merged->bad.empty()) return 9;
        }
        break;
      default:
        if (!get(*cache, static_cast<int>(random() % 24))) return 7;
    }
  }
  return cache->statistics().quarantined == 0 ? 0 : 8;
}

/// Fills a file system of 256 KiB with a cache that may grow to a gibibyte.
int child_full(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return 77;
  }
  stdfs::create_directories(folder);
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=256k,mode=0700") != 0) return 77;
  LogLines lines;
  CacheOptions options = options_for(folder);
  options.log = lines.sink();
  const auto cache = attnjit::open_cache(options);
  for (int number = 0; number < 30; ++number) {
    if (!get(*cache, number)) return 2;
  }
  const CacheStatistics statistics = cache->statistics();
  if (statistics.store_failures < 10 || statistics.stores < 5) return 3;
  if (lines.count(LogLevel::kWarning, "cannot write to the cache") != 1) return 4;
  const CacheVerifyReport report = cache->verify();
  if (!report.bad.empty() || report.good != static_cast<std::int64_t>(statistics.stores)) return 5;
  if (cache->layers().front().temporary != 0) return 6;
  // Room again: the next one is kept.
  if (!cache->gc({60000, false}).ok()) return 7;
  bool from_disk = false;
  if (!get(*cache, 99) || !get(*cache, 99, {}, milliseconds(60000), &from_disk)) return 8;
  return from_disk ? 0 : 9;
}

/// Uses a cache on a file system that is mounted read-only.
int child_read_only(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
      ::mount(nullptr, folder.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    return 77;
  }
  LogLines lines;
  CacheOptions options = options_for(folder);
  options.log = lines.sink();
  const auto cache = attnjit::open_cache(options);
  bool from_disk = false;
  if (!get(*cache, 1, {}, milliseconds(60000), &from_disk) || !from_disk) return 2;
  for (int number = 2; number < 6; ++number) {
    if (!get(*cache, number, {}, milliseconds(60000), &from_disk) || from_disk) return 3;
  }
  if (lines.count(LogLevel::kWarning, "cannot write to the cache") != 1) return 4;
  if (cache->layers().front().state != CacheLayerInfo::State::kReadOnly) return 5;
  if (!cache->verify().bad.empty()) return 6;
  static_cast<void>(cache->gc({0, false}));
  return get(*cache, 1, {}, milliseconds(60000), &from_disk) && from_disk ? 0 : 7;
}

/// Asks and stores; is killed at some time.
int child_work(const std::string& folder, unsigned seed) {
  std::mt19937 random(seed);
  CacheOptions options = options_for(folder);
  options.max_bytes = 400000;
  const auto cache = attnjit::open_cache(options);
  for (;;) {
    const int number = static_cast<int>(random() % 40);
    if (random() % 50 == 0) static_cast<void>(cache->gc());
    if (!get(*cache, number)) return 2;
  }
}

int run_child(int argc, char** argv) {
  const std::string mode = argv[2];
  const std::string folder = argv[3];
  if (mode == "exit") return child_exit(folder);
  if (mode == "full") return child_full(folder);
  if (mode == "read-only") return child_read_only(folder);
  if (mode == "work" && argc == 5) {
    return child_work(folder, static_cast<unsigned>(std::atol(argv[4])));
  }
  if (mode == "manage" && argc == 6) {
    return child_manage(folder, static_cast<unsigned>(std::atol(argv[4])), std::atol(argv[5]));
  }
  return 99;
}

// --- Processes -----------------------------------------------------------------------------------

class Surroundings : public ProcessTest {
 protected:
  static std::uint32_t mode_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
  }
};

TEST_F(Surroundings, GcClearVerifyExportAndImportRaceWithWriters) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(std::make_unique<Child>(
        std::vector<std::string>{"manage", folder, std::to_string(i), "1500"}));
  }
  for (std::size_t i = 0; i < children.size(); ++i) EXPECT_EQ(children[i]->wait(), 0) << i;
  expect_sound("afterwards");
  EXPECT_EQ(files_in("quarantine"), 0U);
  EXPECT_EQ(files_in("temp"), 0U);
}

TEST_F(Surroundings, AFullDiskServesAndKeepsNothingInPart) {
  const int code = Child({"full", folder}).wait();
  if (code == 77) GTEST_SKIP() << "a file system of one's own needs privileges";
  EXPECT_EQ(code, 0);
}

TEST_F(Surroundings, AReadOnlyMountServesWhatItHas) {
  ASSERT_TRUE(get(*attnjit::open_cache(options_for(folder)), 1));
  const int code = Child({"read-only", folder}).wait();
  if (code == 77) GTEST_SKIP() << "a mount of one's own needs privileges";
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(stdfs::exists(entry_path(1)));
}

TEST_F(Surroundings, ModesDoNotDependOnTheUmask) {
  for (const mode_t mask : {0000, 0022, 0077, 0027}) {
    for (const mode_t layer : {0700, 0755, 0750}) {
      stdfs::remove_all(folder);
      ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
      ASSERT_EQ(::chmod(folder.c_str(), layer), 0);
      const mode_t old = ::umask(mask);
      const auto cache = attnjit::open_cache(options_for(folder));
      EXPECT_TRUE(get(*cache, 1));
      ::umask(old);
      for (const char* made : {"/v2", "/v2/entries", "/v2/temp", "/v2/locks"}) {
        EXPECT_EQ(mode_of(folder + made), layer) << made << " under " << mask;
      }
      EXPECT_EQ(mode_of(entry_path(1)), layer & 0666) << "under " << mask;
      EXPECT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
    }
  }
}

std::atomic<int> alarms{0};

TEST_F(Surroundings, AStormOfSignalsCostsNothing) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ++alarms; };  // without SA_RESTART: calls end with EINTR
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 300}, {0, 300}}, never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  {
    const auto cache = attnjit::open_cache(options_for(folder));
    for (int number = 0; number < 40; ++number) {
      EXPECT_TRUE(get(*cache, number));
      bool from_disk = false;
      EXPECT_TRUE(get(*cache, number, {}, milliseconds(60000), &from_disk));
      EXPECT_TRUE(from_disk) << number;
    }
    EXPECT_EQ(cache->statistics().stores, 40U);
    EXPECT_EQ(cache->verify().good, 40);
    EXPECT_TRUE(cache->gc({0, false}).ok());
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(alarms, 10);
}

TEST_F(Surroundings, AnExitDuringACompileLeavesNothingHeld) {
  EXPECT_EQ(Child({"exit", folder}).wait(), 0);
  const auto begin = Clock::now();
  expect_sound("after the exit");
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  EXPECT_EQ(files_in("temp"), 0U);
}

// The child shares the lock's descriptor with the parent that compiles.
TEST_F(Surroundings, AForkDuringACompileKeepsNoLock) {
  const auto cache = attnjit::open_cache(options_for(folder));
  ASSERT_TRUE(get(*cache, 2));
  std::atomic<bool> compiling{false}, go{false};
  std::thread parent([&] {
    EXPECT_TRUE(get(*cache, 1, [&] {
      compiling = true;
      while (!go) std::this_thread::sleep_for(milliseconds(1));
    }));
  });
  while (!compiling) std::this_thread::sleep_for(milliseconds(1));
  const pid_t child = ::fork();
  if (child == 0) {
    // NOTE: only what takes no lock that a thread of the parent may have held.
    const bool found = cache->find(make_key(2), kBuild, BuildPolicy::kExact).has_value();
    if (!found) ::_exit(1);
    for (;;) ::pause();
  }
  go = true;
  parent.join();
  stdfs::remove(entry_path(1));
  // Somebody else gets the lock at once, though the child lives.
  const auto other = attnjit::open_cache(options_for(folder));
  const auto begin = Clock::now();
  EXPECT_TRUE(get(*other, 1));
  EXPECT_LT(Clock::now() - begin, milliseconds(3000));
  EXPECT_EQ(other->statistics().waits, 0U);
  EXPECT_EQ(other->statistics().alone, 0U);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "the child ended: " << status;
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

TEST_F(Surroundings, ALayerThatIsALinkIsTheFolderItPointsTo) {
  ASSERT_EQ(::mkdir((base + "/real").c_str(), 0700), 0);
  stdfs::create_directory_symlink("real", folder);
  const auto cache = attnjit::open_cache(options_for(folder));
  ASSERT_TRUE(get(*cache, 1));
  EXPECT_TRUE(stdfs::exists(base + "/real/v2/entries"));
  // By its own name it is the same cache.
  const auto direct = attnjit::open_cache(options_for(base + "/real"));
  EXPECT_TRUE(direct->find(make_key(1), kBuild, BuildPolicy::kExact));
  // Pointed elsewhere under a running process: the process goes on where it was, a new one moves.
  ASSERT_EQ(::mkdir((base + "/elsewhere").c_str(), 0700), 0);
  stdfs::remove(folder);
  stdfs::create_directory_symlink("elsewhere", folder);
  EXPECT_TRUE(get(*cache, 2));
  expect_sound("pointed elsewhere");
  EXPECT_TRUE(stdfs::exists(base + "/elsewhere/v2/entries"));
  // And into nothing: served, not kept.
  stdfs::remove(folder);
  stdfs::create_directory_symlink("nothing", folder);
  EXPECT_TRUE(get(*attnjit::open_cache(options_for(folder)), 3));
}

/// Folders on as many file systems as this machine offers.
std::vector<std::string> file_systems() {
  std::vector<std::string> parents;
  std::set<dev_t> seen;
  for (const std::string& path :
       {stdfs::temp_directory_path().string(), std::string("/dev/shm"), std::string("/var/tmp"),
        std::string("/run"), stdfs::current_path().string()}) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && ::access(path.c_str(), W_OK) == 0 &&
        seen.insert(status.st_dev).second) {
      parents.push_back(path);
    }
  }
  return parents;
}

// Workers that are killed at random for as long as ATTNJIT_SOAK_SECONDS says (default 2): every
// request is answered right, and what is left verifies. On each file system that there is.
TEST_F(Surroundings, SoakWithKillsOnEveryFileSystem) {
  const char* asked = std::getenv("ATTNJIT_SOAK_SECONDS");
  const std::vector<std::string> parents = file_systems();
  const double share = (asked != nullptr ? std::atof(asked) : 2.0) / double(parents.size());
  for (const std::string& parent : parents) {
    use_base(parent);
    std::mt19937 random(7);
    std::vector<std::unique_ptr<Child>> children(3);
    const auto end = Clock::now() + std::chrono::duration<double>(share);
    int kills = 0;
    for (unsigned seed = 0; Clock::now() < end; ++seed) {
      auto& child = children[random() % children.size()];
      if (child) {
        child->signal(SIGKILL);
        ASSERT_EQ(child->wait(), -SIGKILL) << parent << " after " << kills << " kills";
        ++kills;
      }
      child =
          std::make_unique<Child>(std::vector<std::string>{"work", folder, std::to_string(seed)});
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    }
    children.clear();
    expect_sound(parent);
    EXPECT_EQ(files_in("quarantine"), 0U) << parent;
    RecordProperty("kills_on_" + std::to_string(&parent - parents.data()), kills);
  }
}

// --- File servers, clocks and other versions
// ------------------------------------------------------

class Remote : public ::testing::Test {
 protected:
  Remote() : faults(fs) {
    fs.make_path("/home/u", 1000, 0755);
    options.layers = {"/home/u/cache"};
  }
  static bool get(CubinCache& cache, int number = 1, bool* from_disk = nullptr) {
    const auto image = cache.get_or_compile(
        make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> { return make_image(number); }, FoundFlag(from_disk).get());
    return image.ok() && same_image(*image, make_image(number));
  }
  void expect_sound(const std::string& what) {
    const auto cache = open_cache(options, fs);
    EXPECT_TRUE(cache->verify().bad.empty()) << what;
    EXPECT_TRUE(get(*cache)) << what;
    bool from_disk = false;
    EXPECT_TRUE(get(*cache, 1, &from_disk)) << what;
    EXPECT_TRUE(from_disk) << what;
  }
  std::string entry_path(int number) const {
    const std::string name = file_name(*entry_id(make_key(number), kBuild));
    return "/home/u/cache/v2/entries/" + name.substr(0, 2) + "/" + name;
  }

  MemoryFileSystem fs;
  FaultFileSystem faults;
  CacheOptions options;
};

// The answer to a rename, link, remove or mkdir is lost, the call is sent again, and the second
// answer is an error though the work is done.
TEST_F(Remote, ACallThatWasDoneAndReportedAsFailed) {
  faults.do_what_fails(true);
  long calls = 0;
  for (const int error : {ENOENT, EEXIST, EIO, ESTALE, ETIMEDOUT}) {
    for (long n = 1; n == 1 || n <= calls + 1; ++n) {
      if (fs.exists("/home/u/cache")) fs.remove_tree("/home/u/cache");
      {
        const auto cache = open_cache(options, faults);
        faults.fail(n, error);
        EXPECT_TRUE(get(*cache)) << "call " << n << ", errno " << error;
        calls = std::max(calls, faults.calls());
        faults.fail_nothing();
      }
      expect_sound("call " + std::to_string(n) + ", errno " + std::to_string(error));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(calls, 20);
}

// The client remembers for a minute that a name was not there (its negative entries), while another
// machine has published it.
TEST_F(Remote, AnEntryThatIsSeenLate) {
  const auto here = open_cache(options, faults);
  EXPECT_FALSE(here->find(make_key(1), kBuild, BuildPolicy::kExact));
  const auto there = open_cache(options, fs);
  ASSERT_TRUE(get(*there));
  bool visible = false;
  faults.hidden = [&](const std::string& name) { return !visible && name.ends_with(".kernel"); };
  bool from_disk = true;
  EXPECT_TRUE(get(*here, 1, &from_disk));
  EXPECT_FALSE(from_disk) << "compiled once more, and served";
  EXPECT_EQ(here->statistics().quarantined, 0U);
  EXPECT_TRUE(there->find(make_key(1), kBuild, BuildPolicy::kExact));
  visible = true;
  EXPECT_TRUE(get(*here, 1, &from_disk));
  EXPECT_TRUE(from_disk);
  expect_sound("visible");
}

TEST_F(Remote, AClockThatGoesBackADay) {
  options.max_bytes = 12000;  // five entries or so
  const auto cache = open_cache(options, fs);
  ASSERT_TRUE(get(*cache, 1));
  fs.put_file("/home/u/cache/v2/temp/0123456789abcdef", "left behind");
  fs.advance_s(-86400);
  bool from_disk = false;
  EXPECT_TRUE(get(*cache, 1, &from_disk));
  EXPECT_TRUE(from_disk);
  // Neither the cap nor the order of use is lost to stamps from the future.
  for (int number = 2; number < 30; ++number) {
    fs.advance_s(100);
    EXPECT_TRUE(get(*cache, number));
  }
  const CacheLayerInfo info = cache->layers().front();
  EXPECT_LE(info.entry_bytes, options.max_bytes);
  EXPECT_TRUE(cache->find(make_key(29), kBuild, BuildPolicy::kExact));
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact))
      << "its use was stamped with the new time, and is the oldest";
  // What was left behind goes once it is an hour old by the new clock.
  fs.advance_s(86400 + 7200);
  ASSERT_TRUE(cache->gc().ok());
  EXPECT_FALSE(fs.exists("/home/u/cache/v2/temp/0123456789abcdef"));
}

TEST_F(Remote, OtherVersionsLiveBesideThisOne) {
  fs.make_path("/home/u/cache", 1000, 0700);
  fs.make_path("/home/u/cache/v3/entries/00", 1000, 0700);
  fs.put_file("/home/u/cache/v3/entries/00/of the future", "unknown");
  fs.make_path("/home/u/cache/v0", 1000, 0700);
  fs.put_file("/home/u/cache/v0/of the past", "unknown");
  const auto cache = open_cache(options, fs);
  ASSERT_TRUE(get(*cache, 1));
  ASSERT_TRUE(get(*cache, 2));
  // An entry of another version that somebody copied into this one's folder.
  std::string newer = fs.data(entry_path(1));
  newer[8] = 3;
  fs.put_file(entry_path(1), newer);
  bool from_disk = true;
  EXPECT_TRUE(get(*cache, 1, &from_disk));
  EXPECT_FALSE(from_disk);
  EXPECT_EQ(cache->statistics().quarantined, 1U);
  ASSERT_TRUE(cache->gc({0, false}).ok());
  ASSERT_TRUE(cache->clear().ok());
  EXPECT_EQ(fs.data("/home/u/cache/v3/entries/00/of the future"), "unknown");
  EXPECT_EQ(fs.data("/home/u/cache/v0/of the past"), "unknown");
}

TEST_F(Remote, TwoCapsOnOneFolderMakeTheSmallerOneHold) {
  CacheOptions small = options, large = options;
  small.max_bytes = 12000;
  large.max_bytes = 1 << 20;
  const auto a = open_cache(small, fs), b = open_cache(large, fs);
  for (int number = 0; number < 20; ++number) {
    fs.advance_s(100);
    EXPECT_TRUE(get(*b, number));
  }
  EXPECT_EQ(b->statistics().evicted, 0U);
  fs.advance_s(100);
  EXPECT_TRUE(get(*a, 20));
  EXPECT_LE(a->layers().front().entry_bytes, small.max_bytes);
  EXPECT_TRUE(b->find(make_key(20), kBuild, BuildPolicy::kExact));
  EXPECT_TRUE(b->find(make_key(19), kBuild, BuildPolicy::kExact));
  EXPECT_TRUE(get(*b, 0)) << "evicted by the other, compiled again";
  EXPECT_TRUE(b->verify().bad.empty());
}

}  // namespace
}  // namespace attnjit::cache

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "--child") return attnjit::cache::run_child(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
