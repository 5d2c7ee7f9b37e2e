// SPDX-License-Identifier: Apache-2.0
// The store on a file system in memory: what it finds, keeps, refuses and remembers.
#include "cache/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cache_test_util.h"
#include "fault_file_system.h"
#include "memory_file_system.h"

namespace attnjit::cache {
namespace {

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    fs.make_path("/home/u", 1000, 0755);
    options.layers = {"/home/u/cache"};
    options.log = log.sink();
  }
  std::unique_ptr<CubinCache> open() { return open_cache(options, fs); }
  std::string entry_path(const RequestKey& key, const std::string& build = kBuild,
                         const std::string& layer = "/home/u/cache") {
    const std::string name = file_name(*entry_id(key, build));
    return layer + "/v2/entries/" + name.substr(0, 2) + "/" + name;
  }
  /// get_or_compile with a fake compiler that counts.
  Result<KernelImage> get(CubinCache& cache, int number, bool* from_disk = nullptr) {
    return cache.get_or_compile(
        make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> {
          ++compiles;
          return make_image(number);
        },
        FoundFlag(from_disk).get());
  }

  LogLines log;
  MemoryFileSystem fs;
  CacheOptions options;
  std::atomic<int> compiles{0};
};

TEST_F(StoreTest, FindsWhatWasStored) {
  const auto cache = open();
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
  ASSERT_TRUE(cache->store(make_key(1), kBuild, make_image(1)));
  const auto found = cache->find(make_key(1), kBuild, BuildPolicy::kExact);
  ASSERT_TRUE(found);
  EXPECT_TRUE(same_image(*found, make_image(1)));
  EXPECT_FALSE(cache->find(make_key(2), kBuild, BuildPolicy::kExact));
  const auto again = open()->find(make_key(1), kBuild, BuildPolicy::kExact);
  ASSERT_TRUE(again);
  EXPECT_TRUE(same_image(*again, make_image(1)));
  EXPECT_EQ(log.count(LogLevel::kWarning), 0u);
}

TEST_F(StoreTest, ReadsPtxOnlyWhereItIsWanted) {
  const auto cache = open();
  ASSERT_TRUE(cache->store(make_key(1), kBuild, make_image(1)));
  EXPECT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact, PtxNeed::kSkip)->ptx.empty());
  EXPECT_EQ(cache->find(make_key(1), kBuild, BuildPolicy::kExact, PtxNeed::kRequired)->ptx,
            make_image(1).ptx);
  ASSERT_TRUE(cache->store(make_key(2), kBuild, make_image(2, 1500, 0)));
  EXPECT_TRUE(cache->find(make_key(2), kBuild, BuildPolicy::kExact));
  EXPECT_FALSE(cache->find(make_key(2), kBuild, BuildPolicy::kExact, PtxNeed::kRequired));
  // The compile that gives the PTX replaces the entry without.
  bool from_disk = true;
  const auto image = cache->get_or_compile(
      make_key(2), kBuild, BuildPolicy::kExact, in_a_minute(),
      [&]() -> Result<KernelImage> { return make_image(2); }, FoundFlag(&from_disk).get(),
      PtxNeed::kRequired);
  ASSERT_TRUE(image.ok());
  EXPECT_FALSE(from_disk);
  EXPECT_TRUE(cache->find(make_key(2), kBuild, BuildPolicy::kExact, PtxNeed::kRequired));
}

TEST_F(StoreTest, CompilesOnceAndThenFinds) {
  const auto cache = open();
  bool from_disk = true;
  auto image = get(*cache, 1, &from_disk);
  ASSERT_TRUE(image.ok());
  EXPECT_FALSE(from_disk);
  image = get(*cache, 1, &from_disk);
  ASSERT_TRUE(image.ok());
  EXPECT_TRUE(from_disk);
  EXPECT_TRUE(same_image(*image, make_image(1)));
  EXPECT_EQ(compiles, 1);
  const CacheStatistics statistics = cache->statistics();
  EXPECT_EQ(statistics.hits, 1u);
  EXPECT_EQ(statistics.misses, 1u);
  EXPECT_EQ(statistics.stores, 1u);
  EXPECT_EQ(statistics.compiles, 1u);
}

TEST_F(StoreTest, KeepsImagesOfTwoBuildsApart) {
  const auto cache = open();
  ASSERT_TRUE(cache->store(make_key(1), "build A", make_image(1)));
  fs.advance_s(10);
  ASSERT_TRUE(cache->store(make_key(1), "build B", make_image(2)));
  const RequestKey key = make_key(1);
  EXPECT_TRUE(same_image(*cache->find(key, "build A", BuildPolicy::kExact), make_image(1)));
  EXPECT_TRUE(same_image(*cache->find(key, "build B", BuildPolicy::kExact), make_image(2)));
  EXPECT_FALSE(cache->find(key, "build C", BuildPolicy::kExact));
}

TEST_F(StoreTest, WithoutABuildGivesTheNewestImageThatVerifies) {
  const auto cache = open();
  const RequestKey key = make_key(1);
  ASSERT_TRUE(cache->store(key, "build B", make_image(1)));
  fs.advance_s(10);
  ASSERT_TRUE(cache->store(key, "build A", make_image(2)));
  EXPECT_TRUE(same_image(*cache->find(key, "", BuildPolicy::kExact), make_image(2)));
  EXPECT_TRUE(same_image(*cache->find(key, "build C", BuildPolicy::kAny), make_image(2)));
  // The build at hand goes before a newer one.
  EXPECT_TRUE(same_image(*cache->find(key, "build B", BuildPolicy::kAny), make_image(1)));
  // Use does not make an image newer.
  fs.advance_s(1000);
  EXPECT_TRUE(cache->find(key, "build B", BuildPolicy::kExact));
  EXPECT_TRUE(same_image(*cache->find(key, "", BuildPolicy::kExact), make_image(2)));

  std::string bytes = fs.data(entry_path(key, "build A"));
  bytes[bytes.size() - 1000] ^= 1;
  fs.put_file(entry_path(key, "build A"), bytes);
  EXPECT_TRUE(same_image(*cache->find(key, "", BuildPolicy::kExact), make_image(1)));
  EXPECT_EQ(cache->statistics().quarantined, 1u);
}

TEST_F(StoreTest, ServesLowerLayersAndLeavesThemAsTheyAre) {
  options.layers = {"/home/u/lower"};
  ASSERT_TRUE(open()->store(make_key(1), kBuild, make_image(1)));
  options.layers = {"/home/u/cache", "/home/u/missing", "/home/u/lower"};
  const auto cache = open();
  const auto before = fs.files("/home/u/lower");
  fs.advance_s(100000);
  bool from_disk = false;
  const auto image = get(*cache, 1, &from_disk);
  ASSERT_TRUE(image.ok());
  EXPECT_TRUE(from_disk);
  EXPECT_TRUE(same_image(*image, make_image(1)));
  EXPECT_EQ(compiles, 0);
  EXPECT_EQ(fs.files("/home/u/lower"), before);
  EXPECT_FALSE(fs.exists("/home/u/missing"));
  EXPECT_FALSE(fs.exists(entry_path(make_key(1)))) << "hits are not copied up";

  // A bad entry below is a miss, and stays for its owner.
  std::string bytes = fs.data(entry_path(make_key(1), kBuild, "/home/u/lower"));
  bytes[400] ^= 1;
  fs.put_file(entry_path(make_key(1), kBuild, "/home/u/lower"), bytes);
  ASSERT_TRUE(get(*cache, 1, &from_disk).ok());
  EXPECT_FALSE(from_disk);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(fs.files("/home/u/lower"), before);
  EXPECT_GE(log.count(LogLevel::kWarning, "bad entry"), 1u);
  EXPECT_TRUE(fs.exists(entry_path(make_key(1))));
}

TEST_F(StoreTest, ALowerLayerThatAppearsLaterIsUsed) {
  options.layers = {"/home/u/cache", "/home/u/lower"};
  const auto cache = open();
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
  options.layers = {"/home/u/lower"};
  ASSERT_TRUE(open()->store(make_key(1), kBuild, make_image(1)));
  EXPECT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
}

TEST_F(StoreTest, WorksWithoutAnyLayer) {
  options.layers = {};
  const auto cache = open();
  ASSERT_TRUE(get(*cache, 1).ok());
  ASSERT_TRUE(get(*cache, 1).ok());
  EXPECT_EQ(compiles, 2);
  EXPECT_TRUE(cache->list().empty());
  EXPECT_FALSE(cache->gc().ok());
}

TEST_F(StoreTest, AReadOnlyCacheServesAndSaysOnceThatItCannotWrite) {
  ASSERT_TRUE(get(*open(), 1).ok());
  fs.set_read_only(true);
  const auto cache = open();
  const auto before = fs.files("/");
  bool from_disk = false;
  ASSERT_TRUE(get(*cache, 1, &from_disk).ok());
  EXPECT_TRUE(from_disk);
  for (int number = 2; number < 6; ++number) {
    const auto image = get(*cache, number, &from_disk);
    ASSERT_TRUE(image.ok());
    EXPECT_TRUE(same_image(*image, make_image(number)));
    EXPECT_FALSE(from_disk);
  }
  EXPECT_EQ(fs.files("/"), before);
  EXPECT_EQ(log.count(LogLevel::kWarning, "cannot write to the cache"), 1u);
  EXPECT_EQ(cache->layers().front().state, CacheLayerInfo::State::kReadOnly);
}

TEST_F(StoreTest, AClockBefore1970IsNoDamage) {
  fs.set_now_s(-86400);
  const auto cache = open();
  ASSERT_TRUE(get(*cache, 1).ok());
  EXPECT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
  EXPECT_EQ(cache->statistics().quarantined, 0u);
}

TEST_F(StoreTest, MakesItsFoldersForTheUserAlone) {
  fs.make_path("/x", 1000, 0755);
  options.layers = {"/x/a/b/attnjit"};
  ASSERT_TRUE(get(*open(), 1).ok());
  for (const char* folder : {"/x/a", "/x/a/b", "/x/a/b/attnjit", "/x/a/b/attnjit/v2",
                             "/x/a/b/attnjit/v2/entries", "/x/a/b/attnjit/v2/temp"}) {
    EXPECT_EQ(fs.mode(folder), 0700u) << folder;
  }
  EXPECT_EQ(fs.mode(entry_path(make_key(1), kBuild, "/x/a/b/attnjit")), 0600u);
}

TEST_F(StoreTest, AFolderThatIsReadableForOthersGetsReadableEntries) {
  fs.make_path("/srv/cache", 1000, 0755);
  options.layers = {"/srv/cache"};
  ASSERT_TRUE(get(*open(), 1).ok());
  EXPECT_EQ(fs.mode("/srv/cache/v2"), 0755u);
  EXPECT_EQ(fs.mode(entry_path(make_key(1), kBuild, "/srv/cache")), 0644u);
}

// Each of these must leave the folder alone, serve the request, and say so once.
TEST_F(StoreTest, RefusesFoldersThatOthersCouldHaveFilled) {
  struct Case {
    const char* what;
    std::function<void()> spoil;
  };
  const std::vector<Case> cases = {
      {"belongs to another user", [&] { fs.set_owner("/home/u/cache", 1001); }},
      {"group-writable", [&] { fs.set_mode("/home/u/cache", 0770); }},
      {"world-writable", [&] { fs.set_mode("/home/u/cache", 0707); }},
      {"world-writable and sticky", [&] { fs.set_mode("/home/u/cache", 01777); }},
      {"foreign version folder", [&] { fs.set_owner("/home/u/cache/v2", 1001); }},
      {"writable entries folder", [&] { fs.set_mode("/home/u/cache/v2/entries", 0777); }},
      {"foreign shard",
       [&] { fs.set_owner("/home/u/cache/v2/entries/" + make_key(1).hex.substr(0, 2), 1001); }},
      {"a stranger's link",
       [&] {
         fs.remove_tree("/home/u/cache");
         fs.put_symlink("/home/u/cache", "/home/u/other", 1001);
       }},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.what);
    fs.make_path("/home/u/other", 1000, 0700);
    options.layers = {"/home/u/other"};
    ASSERT_TRUE(get(*open(), 1).ok());
    options.layers = {"/home/u/cache"};
    ASSERT_TRUE(get(*open(), 1).ok());
    item.spoil();
    LogLines lines;
    options.log = lines.sink();
    const auto cache = open();
    bool from_disk = true;
    for (int round = 0; round < 3; ++round) {
      const auto image = get(*cache, 1, &from_disk);
      ASSERT_TRUE(image.ok());
      EXPECT_FALSE(from_disk);
      EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
    }
    EXPECT_GE(lines.count(LogLevel::kWarning), 1u);
    EXPECT_LE(lines.count(LogLevel::kWarning), 2u) << "once a reason, not once a request";
    if (fs.exists("/home/u/cache")) {
      fs.remove_tree("/home/u/cache");
    }
    fs.remove_tree("/home/u/other");
  }
}

TEST_F(StoreTest, AnEntryForAnotherArchitectureThanItsKeysIsNoHit) {
  RequestKey forged = make_key(1);
  forged.arch = Arch::kSm90a;
  const auto cache = open();
  ASSERT_TRUE(cache->store(forged, kBuild, make_image(1)).ok());
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
  EXPECT_FALSE(fs.exists(entry_path(make_key(1)))) << "it is in quarantine";
}

// A copy of a cache may have lost what its folder's mode kept from others.
TEST_F(StoreTest, RefusesFilesThatOthersCouldHaveWritten) {
  const std::string path = entry_path(make_key(1));
  const std::vector<std::function<void(const std::string&)>> spoils = {
      [&](const std::string& file) {
        fs.set_owner(file, 1001);
        fs.set_mode(file, 0644);  // one that may not be read is only a miss
      },
      [&](const std::string& file) { fs.set_mode(file, 0660); },
      [&](const std::string& file) { fs.set_mode(file, 0666); },
  };
  for (const auto& spoil : spoils) {
    ASSERT_TRUE(open()->store(make_key(1), kBuild, make_image(1)).ok());
    spoil(path);
    EXPECT_FALSE(open()->find(make_key(1), kBuild, BuildPolicy::kExact));
    EXPECT_FALSE(fs.exists(path)) << "it is in quarantine";
  }
  // Nor is a failure believed that somebody else may have written.
  const auto fail = [&] {
    return open()->get_or_compile(
        make_key(2), kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> {
          ++compiles;
          return make_error(ErrorCode::kCompileFailed, "bad code");
        },
        nullptr);
  };
  ASSERT_FALSE(fail().ok());
  ASSERT_FALSE(fail().ok());
  EXPECT_EQ(compiles, 1);
  fs.set_mode("/home/u/cache/v2/failures/" + file_name(*entry_id(make_key(2), kBuild)) + ".failed",
              0666);
  ASSERT_FALSE(fail().ok());
  EXPECT_EQ(compiles, 2);
}

TEST_F(StoreTest, FollowsLinksOfItsOwnUser) {
  fs.make_path("/scratch/u", 1000, 0700);
  fs.put_symlink("/home/u/.cache", "../../scratch/./u", 1000);
  options.layers = {"/home/u/.cache/attnjit"};
  ASSERT_TRUE(get(*open(), 1).ok());
  EXPECT_TRUE(fs.exists(entry_path(make_key(1), kBuild, "/scratch/u/attnjit")));
}

TEST_F(StoreTest, AnEndlessLinkIsAnErrorNotAHang) {
  fs.put_symlink("/home/u/loop", "loop", 1000);
  options.layers = {"/home/u/loop/cache"};
  EXPECT_TRUE(get(*open(), 1).ok());
}

TEST_F(StoreTest, BelievesRootAndConfiguredOwners) {
  ASSERT_TRUE(get(*open(), 1).ok());
  for (const std::uint32_t owner : {0u, 1001u}) {
    for (const char* folder : {"/home/u/cache", "/home/u/cache/v2", "/home/u/cache/v2/entries"}) {
      fs.set_owner(folder, owner);
      fs.set_mode(folder, 0755);
    }
    const std::string shard = entry_path(make_key(1)).substr(0, 30);
    fs.set_owner(shard.substr(0, shard.rfind('/')), owner);
    fs.set_mode(shard.substr(0, shard.rfind('/')), 0755);
    options.trusted_owners = {1001};
    EXPECT_TRUE(open()->find(make_key(1), kBuild, BuildPolicy::kExact)) << owner;
  }
}

TEST_F(StoreTest, AFailedCompileIsRememberedForItsTime) {
  const auto cache = open();
  int calls = 0;
  const auto failing = [&]() -> Result<KernelImage> {
    ++calls;
    Error error = make_error(ErrorCode::kCompileFailed, "no such name", "score_mod", "declare it");
    error.line = 3;
    error.column = 9;
    error.others.push_back(make_error(ErrorCode::kCompileFailed, "another"));
    return error;
  };
  const auto attempt = [&](CubinCache& at) {
    return at.get_or_compile(make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(), failing,
                             nullptr);
  };
  const auto first = attempt(*cache);
  ASSERT_FALSE(first.ok());
  // At once, from memory; by another process, from disk.
  for (CubinCache* at : {cache.get(), open().release()}) {
    const auto again = attempt(*at);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().to_string(), first.error().to_string());
    EXPECT_EQ(at->statistics().failure_hits, 1u);
    if (at != cache.get()) delete at;
  }
  EXPECT_EQ(calls, 1);
  // Not for another build, not for another key.
  EXPECT_TRUE(get(*cache, 2).ok());
  EXPECT_TRUE(cache
                  ->get_or_compile(
                      make_key(1), "another build", BuildPolicy::kExact, in_a_minute(),
                      []() -> Result<KernelImage> { return make_image(1); }, nullptr)
                  .ok());
  fs.advance_s(options.failure_ttl.count() + 1);
  EXPECT_FALSE(attempt(*cache).ok());
  EXPECT_EQ(calls, 2);
  // A clock that was set back does not make it last.
  fs.advance_s(-86400);
  EXPECT_FALSE(attempt(*open()).ok());
  EXPECT_EQ(calls, 3);
}

TEST_F(StoreTest, OnlyFailuresThatWouldRepeatAreRemembered) {
  const auto cache = open();
  for (const ErrorCode code : {ErrorCode::kCancelled, ErrorCode::kEnvironment, ErrorCode::kForked,
                               ErrorCode::kInternal, ErrorCode::kCompileForbidden}) {
    int calls = 0;
    for (int round = 0; round < 2; ++round) {
      EXPECT_FALSE(cache
                       ->get_or_compile(
                           make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
                           [&]() -> Result<KernelImage> {
                             ++calls;
                             return make_error(code, "x");
                           },
                           nullptr)
                       .ok());
    }
    EXPECT_EQ(calls, 2) << to_string(code);
  }
  EXPECT_TRUE(get(*cache, 1).ok());
}

TEST_F(StoreTest, ADamagedFailureIsForgotten) {
  const auto failing = []() -> Result<KernelImage> {
    return make_error(ErrorCode::kCompileFailed, "bad");
  };
  EXPECT_FALSE(open()
                   ->get_or_compile(make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
                                    failing, nullptr)
                   .ok());
  const auto notes = fs.files("/home/u/cache/v2/failures");
  ASSERT_EQ(notes.size(), 1u);
  const std::string whole = fs.data(notes[0]);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] ^= 0x10;
    fs.put_file(notes[0], bytes);
    ASSERT_TRUE(get(*open(), 1).ok()) << i;
    fs.remove_tree(entry_path(make_key(1)));
    fs.put_file(notes[0], whole.substr(0, i));
    ASSERT_TRUE(get(*open(), 1).ok()) << i;
    fs.remove_tree(entry_path(make_key(1)));
  }
  fs.put_file(notes[0], whole);
  EXPECT_FALSE(get(*open(), 1).ok());
}

TEST_F(StoreTest, AnEntryGoesBeforeAFailure) {
  const auto cache = open();
  const auto failing = []() -> Result<KernelImage> {
    return make_error(ErrorCode::kCompileFailed, "bad");
  };
  EXPECT_FALSE(cache
                   ->get_or_compile(make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
                                    failing, nullptr)
                   .ok());
  ASSERT_TRUE(open()->store(make_key(1), kBuild, make_image(1)));
  EXPECT_TRUE(get(*cache, 1).ok());
  EXPECT_EQ(compiles, 0);
}

TEST_F(StoreTest, RefusesToKeepWhatIsNoImage) {
  const auto cache = open();
  KernelImage empty = make_image(1);
  empty.cubin.clear();
  EXPECT_FALSE(cache->store(make_key(1), kBuild, empty).ok());
  EXPECT_FALSE(cache->store(make_key(1), "", make_image(1)).ok());
  EXPECT_FALSE(cache->store(make_key(1), std::string(257, 'b'), make_image(1)).ok());
  RequestKey wrong = make_key(1);
  wrong.material += "x";
  EXPECT_FALSE(cache->store(wrong, kBuild, make_image(1)).ok());
  for (const std::string& hex : {std::string("../../../../etc/passwd"), std::string(64, 'G'),
                                 std::string(64, '/'), std::string()}) {
    RequestKey odd = make_key(1);
    odd.hex = hex;
    EXPECT_FALSE(cache->store(odd, kBuild, make_image(1)).ok());
    EXPECT_FALSE(cache->find(odd, kBuild, BuildPolicy::kAny));
  }
  EXPECT_TRUE(fs.files("/").empty());
  // A compile that gives such a thing still serves its caller.
  EXPECT_TRUE(cache
                  ->get_or_compile(
                      make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
                      [&]() -> Result<KernelImage> { return empty; }, nullptr)
                  .ok());
  EXPECT_TRUE(fs.files("/home/u/cache/v2/entries").empty());
}

TEST_F(StoreTest, ACallbackThatThrowsIsAnError) {
  const auto cache = open();
  const auto image = cache->get_or_compile(
      make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
      []() -> Result<KernelImage> { throw std::runtime_error("boom"); }, nullptr);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kInternal);
  EXPECT_TRUE(get(*cache, 1).ok()) << "the key is not stuck";
}

TEST_F(StoreTest, TheFolderMayBeRemovedUnderneath) {
  const auto cache = open();
  ASSERT_TRUE(get(*cache, 1).ok());
  fs.remove_tree("/home/u/cache");
  bool from_disk = true;
  ASSERT_TRUE(get(*cache, 1, &from_disk).ok());
  EXPECT_FALSE(from_disk);
  EXPECT_TRUE(fs.exists(entry_path(make_key(1)))) << "made again";
  ASSERT_TRUE(get(*cache, 1, &from_disk).ok());
  EXPECT_TRUE(from_disk);
}

TEST_F(StoreTest, LeavesNothingOpenAndNothingTemporary) {
  {
    const auto cache = open();
    for (int number = 0; number < 5; ++number) ASSERT_TRUE(get(*cache, number).ok());
    EXPECT_TRUE(fs.files("/home/u/cache/v2/temp").empty());
    EXPECT_LE(fs.open_handles(), 2u);
  }
  EXPECT_EQ(fs.open_handles(), 0u);
}

/// A compile of key 1 that another thread begins, and that goes on until this object's end.
class SlowCompile {
 public:
  explicit SlowCompile(CubinCache& cache)
      : thread_([&] {
          static_cast<void>(cache.get_or_compile(
              make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
              [&]() -> Result<KernelImage> {
                begun_ = true;
                while (!ended_) std::this_thread::yield();
                return make_image(1);
              },
              nullptr));
        }) {
    while (!begun_) std::this_thread::yield();
  }
  ~SlowCompile() {
    ended_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> begun_{false}, ended_{false};
  std::thread thread_;
};

// --- One compile a key ---------------------------------------------------------------------------

TEST_F(StoreTest, ThreadsOfSeveralCachesCompileAKeyOnce) {
  // Each cache stands for a process: they share nothing but the files.
  std::vector<std::unique_ptr<CubinCache>> caches;
  for (int i = 0; i < 4; ++i) caches.push_back(open());
  std::atomic<int> counts[3] = {};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        const int number = (i + t) % 3;
        const auto image = caches[static_cast<std::size_t>(t % 4)]->get_or_compile(
            make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
            [&]() -> Result<KernelImage> {
              ++counts[number];
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
              return make_image(number);
            },
            nullptr);
        if (!image.ok() || !same_image(*image, make_image(number))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : counts) EXPECT_EQ(count, 1);
  EXPECT_EQ(wrong, 0);
}

// The other process looks, finds nothing, and gets the lock only after the first one published and
// let go.
TEST_F(StoreTest, WhoGetsTheLockLooksAgain) {
  const auto first = open();
  FaultFileSystem hooked(fs);
  const auto second = open_cache(options, hooked);
  bool done = false;
  hooked.before = [&](long, std::string_view call) {
    if (call != "try_lock" || done) return;
    done = true;
    EXPECT_TRUE(get(*first, 1).ok());
  };
  bool from_disk = false;
  EXPECT_TRUE(get(*second, 1, &from_disk).ok());
  EXPECT_TRUE(done);
  EXPECT_TRUE(from_disk);
  EXPECT_EQ(compiles, 1);
}

TEST_F(StoreTest, DifferentKeysCompileAtTheSameTime) {
  const auto cache = open();
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      static_cast<void>(cache->get_or_compile(
          make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
          [&]() -> Result<KernelImage> {
            ++inside;
            for (int i = 0; i < 2000 && inside < 2; ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            if (inside == 2) met = true;
            return make_image(number);
          },
          nullptr));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(met);
}

TEST_F(StoreTest, AWaiterCompilesAloneWhenTheHolderDoesNotEnd) {
  options.max_wait = std::chrono::milliseconds(50);
  const auto holder = open();
  SlowCompile slow(*holder);
  // A thread of the same process and another process.
  for (CubinCache* cache : {holder.get(), open().release()}) {
    const int before = compiles;
    const auto image = get(*cache, 1);
    ASSERT_TRUE(image.ok());
    EXPECT_TRUE(same_image(*image, make_image(1)));
    EXPECT_EQ(compiles, before + (cache == holder.get() ? 1 : 0));
    if (cache != holder.get()) delete cache;
  }
  EXPECT_EQ(holder->statistics().alone, 1u);
}

TEST_F(StoreTest, AWaiterOfAnotherProcessCompilesAloneAtHalfOfItsTime) {
  options.max_wait = std::chrono::milliseconds::max();  // more than a clock counts
  const auto holder = open();
  SlowCompile slow(*holder);
  const auto other = open();
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration waited{};
  const auto image = other->get_or_compile(
      make_key(1), kBuild, BuildPolicy::kExact, begin + std::chrono::milliseconds(400),
      [&]() -> Result<KernelImage> {
        waited = std::chrono::steady_clock::now() - begin;
        return make_image(1);
      },
      nullptr);
  EXPECT_TRUE(image.ok());
  EXPECT_GE(waited, std::chrono::milliseconds(150));
  EXPECT_LT(waited, std::chrono::milliseconds(390));
  EXPECT_EQ(other->statistics().alone, 1u);
}

TEST_F(StoreTest, ADeadlineThatHasPassedIsATimeoutUnlessTheImageIsThere) {
  const auto cache = open();
  const auto past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  const auto compile = [&]() -> Result<KernelImage> {
    ++compiles;
    return make_image(1);
  };
  const auto late =
      cache->get_or_compile(make_key(1), kBuild, BuildPolicy::kExact, past, compile, nullptr);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(compiles, 0);
  ASSERT_TRUE(get(*cache, 1).ok()) << "a timeout of one's own is not remembered";
  EXPECT_TRUE(
      cache->get_or_compile(make_key(1), kBuild, BuildPolicy::kExact, past, compile, nullptr).ok());
}

TEST_F(StoreTest, NoDeadlineIsNoOverflow) {
  EXPECT_TRUE(open()
                  ->get_or_compile(
                      make_key(1), kBuild, BuildPolicy::kExact, Compiler::Deadline::max(),
                      []() -> Result<KernelImage> { return make_image(1); }, nullptr)
                  .ok());
}

TEST_F(StoreTest, AFollowerWithMoreTimeThanItsLeaderTriesItself) {
  const auto cache = open();
  std::atomic<bool> holding{false};
  std::thread hasty([&] {
    const auto image = cache->get_or_compile(
        make_key(1), kBuild, BuildPolicy::kExact,
        std::chrono::steady_clock::now() + std::chrono::milliseconds(100),
        [&]() -> Result<KernelImage> {
          holding = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(120));
          return make_error(ErrorCode::kTimeout, "out of time");
        },
        nullptr);
    EXPECT_FALSE(image.ok());
  });
  while (!holding) std::this_thread::yield();
  EXPECT_TRUE(get(*cache, 1).ok());
  hasty.join();
  EXPECT_EQ(compiles, 1);
}

TEST_F(StoreTest, ATimeLimitOfTheCompilersOwnIsRemembered) {
  const auto cache = open();
  int calls = 0;
  for (int round = 0; round < 3; ++round) {
    const auto image = cache->get_or_compile(
        make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> {
          ++calls;
          return make_error(ErrorCode::kTimeout, "the compiler was ended after 30 s");
        },
        nullptr);
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.error().code, ErrorCode::kTimeout);
  }
  EXPECT_EQ(calls, 1);
}

TEST_F(StoreTest, WithoutWorkingLocksEveryoneIsServed) {
  for (const int error : {ENOLCK, EOPNOTSUPP, EIO}) {
    fs.set_lock_error(error);
    LogLines lines;
    options.log = lines.sink();
    const auto cache = open();
    for (int number = 0; number < 3; ++number) {
      EXPECT_TRUE(get(*cache, number + error * 10).ok());
    }
    EXPECT_EQ(lines.count(LogLevel::kWarning, "no locks work"), 1u);
    EXPECT_EQ(cache->statistics().stores, 3u);
  }
}

TEST_F(StoreTest, ALockFileThatIsRemovedUnderneathDoesNotStopAnyone) {
  const auto cache = open();
  const auto other = open();
  EXPECT_TRUE(cache
                  ->get_or_compile(
                      make_key(1), kBuild, BuildPolicy::kExact, in_a_minute(),
                      [&]() -> Result<KernelImage> {
                        fs.remove_tree("/home/u/cache/v2/locks");
                        EXPECT_TRUE(get(*other, 1).ok());
                        return make_image(1);
                      },
                      nullptr)
                  .ok());
  EXPECT_EQ(compiles, 1) << "the other process saw no lock, and compiled";
}

}  // namespace
}  // namespace attnjit::cache
