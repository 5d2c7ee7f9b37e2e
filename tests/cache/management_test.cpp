// SPDX-License-Identifier: Apache-2.0
// What `attnjit cache` calls: list, stats, verify, gc, clear, export and import; and eviction.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/bundle.h"
#include "cache/default_layers.h"
#include "cache/key_lock.h"
#include "cache/store.h"
#include "cache_test_util.h"
#include "fault_file_system.h"
#include "memory_file_system.h"

namespace attnjit::cache {
namespace {

class ManagementTest : public ::testing::Test {
 protected:
  ManagementTest() {
    fs.make_path("/home/u", 1000, 0755);
    options.layers = {"/home/u/cache"};
    options.log = log.sink();
  }
  std::unique_ptr<CubinCache> open() { return open_cache(options, fs); }
  static std::string entry_path(int number, const std::string& layer = "/home/u/cache") {
    const std::string name = file_name(*entry_id(make_key(number), kBuild));
    return layer + "/v2/entries/" + name.substr(0, 2) + "/" + name;
  }
  bool has(int number) { return fs.exists(entry_path(number)); }
  void store(CubinCache& cache, int number) {
    ASSERT_TRUE(cache.store(make_key(number), kBuild, make_image(number)).ok());
  }
  bool finds(CubinCache& cache, int number) {
    const auto image = cache.find(make_key(number), kBuild, BuildPolicy::kExact);
    return image && same_image(*image, make_image(number));
  }
  /// Bytes on disk of one entry of make_image.
  std::int64_t entry_bytes() {
    MemoryFileSystem other;
    other.make_path("/home/u", 1000, 0755);
    const auto cache = open_cache(options, other);
    store(*cache, 1);
    return cache->layers().front().entry_bytes;
  }

  LogLines log;
  MemoryFileSystem fs;
  CacheOptions options;
};

TEST_F(ManagementTest, ListsEveryImage) {
  const auto cache = open();
  EXPECT_TRUE(cache->list().empty());
  for (int number = 1; number <= 3; ++number) store(*cache, number);
  ASSERT_TRUE(cache->store(make_key(1), "another build", make_image(7)).ok());
  fs.advance_s(500);
  EXPECT_TRUE(finds(*cache, 2));
  const auto entries = cache->list();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end(),
                             [](const auto& a, const auto& b) { return a.key < b.key; }));
  int of_key_1 = 0;
  for (const CacheEntryInfo& info : entries) {
    EXPECT_EQ(info.layer, "/home/u/cache");
    EXPECT_TRUE(fs.exists(info.path));
    EXPECT_EQ(info.bytes, static_cast<std::int64_t>(fs.data(info.path).size()));
    EXPECT_EQ(info.created_unix_s, 1700000000);
    if (info.key == make_key(2).hex) {
      EXPECT_EQ(info.last_used_unix_s, 1700000500);
      EXPECT_EQ(info.build_id, kBuild);
      EXPECT_EQ(info.entry, "attnjit_kernel_2");
    } else {
      EXPECT_EQ(info.last_used_unix_s, 1700000000);
    }
    if (info.key == make_key(1).hex) ++of_key_1;
  }
  EXPECT_EQ(of_key_1, 2);
}

TEST_F(ManagementTest, AUseIsNotedByItsOwnStampAndNotOften) {
  const auto cache = open();
  store(*cache, 1);
  fs.advance_s(30);
  EXPECT_TRUE(finds(*cache, 1));
  EXPECT_EQ(fs.modified_s(entry_path(1)), 1700000000) << "half a minute is no difference";
  fs.advance_s(60);
  EXPECT_TRUE(finds(*cache, 1));
  EXPECT_EQ(fs.modified_s(entry_path(1)), 1700000090);
  fs.advance_s(-86400);
  EXPECT_TRUE(finds(*cache, 1));
  EXPECT_EQ(fs.modified_s(entry_path(1)), 1700000090 - 86400) << "a stamp from the future";
}

TEST_F(ManagementTest, EvictsTheLeastRecentlyUsedWhenTheCapIsReached) {
  const std::int64_t one = entry_bytes();
  options.max_bytes = 4 * one;
  const auto cache = open();
  for (int number = 1; number <= 4; ++number) {
    store(*cache, number);
    fs.advance_s(100);
  }
  for (int number = 1; number <= 4; ++number) EXPECT_TRUE(has(number)) << number;
  EXPECT_TRUE(finds(*cache, 1));
  fs.advance_s(100);
  store(*cache, 5);
  EXPECT_TRUE(has(1)) << "used since";
  EXPECT_FALSE(has(2)) << "the oldest use";
  for (int number = 3; number <= 5; ++number) EXPECT_TRUE(has(number)) << number;
  EXPECT_EQ(cache->statistics().evicted, 1u);
  EXPECT_TRUE(fs.files("/home/u/cache/v2/temp").empty());
}

TEST_F(ManagementTest, StaysUnderTheCapWhoeverWrites) {
  const std::int64_t one = entry_bytes();
  options.max_bytes = 5 * one;
  const auto first = open();
  const auto second = open();
  for (int number = 0; number < 40; ++number) {
    store(number % 2 == 0 ? *first : *second, number);
    fs.advance_s(1);
    EXPECT_LE(first->layers().front().entry_bytes, options.max_bytes);
    EXPECT_TRUE(has(number)) << "what was just written is not what goes";
  }
}

// Whoever sends code that does not compile, again and again another one, fills no disk and drives
// out no kernel.
TEST_F(ManagementTest, AFloodOfFailuresHasAShareOfItsOwn) {
  options.max_bytes = 400000;
  const auto cache = open();
  for (int number = 0; number < 20; ++number) store(*cache, number);
  const auto failing = [&](CubinCache& asked, int number, int& compiles) {
    return asked.get_or_compile(
        make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> {
          ++compiles;
          return make_error(ErrorCode::kCompileFailed, std::string(3000, 'e'));
        },
        nullptr);
  };
  int compiles = 0;
  for (int number = 1000; number < 1600; ++number) {
    fs.advance_s(1);
    EXPECT_FALSE(failing(*cache, number, compiles).ok());
    const CacheLayerInfo info = cache->layers().front();
    ASSERT_LE(info.entry_bytes + info.other_bytes, options.max_bytes) << number;
  }
  EXPECT_EQ(compiles, 600);
  for (int number = 0; number < 20; ++number) EXPECT_TRUE(has(number)) << number;
  EXPECT_EQ(cache->statistics().evicted, 0u);
  // The newest ones are still known to other processes.
  EXPECT_FALSE(failing(*open(), 1599, compiles).ok());
  EXPECT_EQ(compiles, 600);
}

TEST_F(ManagementTest, TheNumberOfFilesHasACapToo) {
  options.max_files = 64;
  const auto cache = open();
  const auto files = [&] { return fs.files("/home/u/cache").size(); };
  for (int number = 0; number < 200; ++number) {
    fs.advance_s(1);
    ASSERT_TRUE(cache
                    ->get_or_compile(
                        make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
                        [&]() -> Result<KernelImage> { return make_image(number); }, nullptr)
                    .ok());
    // The lock of the compile that goes on is there yet.
    ASSERT_LE(files(), 64U + 1) << number;
    EXPECT_TRUE(has(number)) << number;
  }
  // Code that does not compile has a share, and its locks have one: kernels stay.
  for (int number = 1000; number < 1200; ++number) {
    fs.advance_s(1);
    ASSERT_FALSE(cache
                     ->get_or_compile(
                         make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
                         [&]() -> Result<KernelImage> {
                           return make_error(ErrorCode::kCompileFailed, "bad code");
                         },
                         nullptr)
                     .ok());
    ASSERT_LE(files(), 64U + 1) << number;
  }
  EXPECT_GE(cache->list().size(), 50U);
}

TEST_F(ManagementTest, KeepsNoEntryLargerThanTheCap) {
  options.max_bytes = 1000;
  const auto cache = open();
  EXPECT_FALSE(cache->store(make_key(1), kBuild, make_image(1)).ok());
  EXPECT_FALSE(has(1));
}

TEST_F(ManagementTest, AFullCacheIsLookedThroughNowAndThenOnly) {
  options.max_bytes = std::int64_t{1} << 30;
  FaultFileSystem counter(fs);
  const auto cache = open_cache(options, counter);
  for (int number = 0; number < 20; ++number) store(*cache, number);
  counter.fail_nothing();
  store(*cache, 100);
  EXPECT_LT(counter.calls(), 40) << "no look at each of the 20 entries";
}

// An entry that was replaced, or used, after the scan is not the one that was chosen to go.
TEST_F(ManagementTest, SparesWhatWasReplacedOrUsedMeanwhile) {
  const auto cache = open();
  store(*cache, 1);
  Trust trust;
  trust.user = 1000;
  Layer layer(fs, "/home/u/cache", true, trust, Logger());
  const auto root = layer.root(false);
  ASSERT_TRUE(root);
  const std::string name = file_name(*entry_id(make_key(1), kBuild));
  const Loaded seen = layer.load(name, {});
  fs.advance_s(1000);
  EXPECT_TRUE(finds(*cache, 1));
  EXPECT_FALSE(layer.remove_if_same(*root, name, seen.stat)) << "used";
  const Loaded used = layer.load(name, {});
  store(*cache, 1);
  EXPECT_FALSE(layer.remove_if_same(*root, name, used.stat)) << "replaced";
  EXPECT_FALSE(layer.quarantine(*root, name, used.stat, "a test"));
  EXPECT_TRUE(finds(*cache, 1));

  // Replaced between the look and the rename: given back.
  FaultFileSystem racing(fs);
  Layer racer(racing, "/home/u/cache", true, trust, Logger());
  const auto racer_root = racer.root(false);
  const auto race = [&](auto&& act) {
    const Loaded target = layer.load(name, {});
    bool raced = false;
    racing.before = [&](long, std::string_view call) {
      if (call == "rename" && !raced) {
        raced = true;
        fs.advance_s(1);
        store(*cache, 1);
      }
    };
    EXPECT_FALSE(act(target.stat));
    EXPECT_TRUE(raced);
    racing.before = nullptr;
    EXPECT_TRUE(finds(*cache, 1));
    EXPECT_TRUE(fs.files("/home/u/cache/v2/temp").empty());
    EXPECT_TRUE(fs.files("/home/u/cache/v2/quarantine").empty());
  };
  race([&](const FileStat& stat) { return racer.remove_if_same(*racer_root, name, stat); });
  race([&](const FileStat& stat) { return racer.quarantine(*racer_root, name, stat, "a test"); });
}

TEST_F(ManagementTest, GcBringsTheCacheUnderACap) {
  const std::int64_t one = entry_bytes();
  const auto cache = open();
  for (int number = 1; number <= 6; ++number) {
    store(*cache, number);
    fs.advance_s(100);
  }
  CacheGcOptions gc;
  gc.max_bytes = 2 * one;
  gc.dry_run = true;
  auto report = cache->gc(gc);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries_before, 6);
  EXPECT_EQ(report->entries_after, 2);
  EXPECT_EQ(report->removed.size(), 4u);
  for (int number = 1; number <= 6; ++number) EXPECT_TRUE(has(number)) << "dry run";
  gc.dry_run = false;
  report = cache->gc(gc);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->bytes_before, 6 * one);
  EXPECT_EQ(report->bytes_after, 2 * one);
  EXPECT_EQ(report->removed.front(), file_name(*entry_id(make_key(1), kBuild)));
  for (int number = 1; number <= 6; ++number) EXPECT_EQ(has(number), number >= 5);
  gc.max_bytes = 0;
  ASSERT_TRUE(cache->gc(gc).ok());
  EXPECT_TRUE(cache->list().empty());
  fs.remove_tree("/home/u/cache");
  EXPECT_TRUE(open()->gc(gc).ok()) << "nothing there is nothing to do";
}

TEST_F(ManagementTest, GcRemovesWhatWasLeftBehind) {
  const auto cache = open();
  store(*cache, 1);
  EXPECT_FALSE(
      cache
          ->get_or_compile(
              make_key(2), kBuild, BuildPolicy::kExact, in_a_minute(),
              []() -> Result<KernelImage> { return make_error(ErrorCode::kCompileFailed, "x"); },
              nullptr)
          .ok());
  fs.put_file("/home/u/cache/v2/temp/killed", "half an entry");
  Trust trust;
  trust.user = 1000;
  Layer layer(fs, "/home/u/cache", true, trust, Logger());
  KeyLock held(layer, "held.lock");
  ASSERT_EQ(held.try_acquire(), KeyLock::State::kHeld);
  auto report = cache->gc();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->removed_temporary + report->removed_locks + report->removed_failures, 0)
      << "all of it may be in use";
  fs.advance_s(2 * 3600);
  report = cache->gc();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->removed_temporary, 1);
  EXPECT_EQ(report->removed_failures, 1);
  EXPECT_EQ(report->removed_locks, 1) << "not the one that is held";
  EXPECT_TRUE(fs.exists("/home/u/cache/v2/locks/held.lock"));
  EXPECT_TRUE(finds(*cache, 1));
}

TEST_F(ManagementTest, GcRemovesOlderVersionsThatNobodyUsesAnyMore) {
  const auto cache = open();
  store(*cache, 1);
  for (const char* path : {"/home/u/cache/v0/entries/00", "/home/u/cache/v0/locks",
                           "/home/u/cache/v3/entries/00", "/home/u/cache/v01"}) {
    fs.make_path(path, 1000, 0700);
  }
  const std::string old = "/home/u/cache/v0/entries/00/unused",
                    used = "/home/u/cache/v0/locks/used";
  const std::string newer = "/home/u/cache/v3/entries/00/newer", other = "/home/u/cache/v01/other";
  for (const std::string& file : {old, newer, other}) fs.put_file(file, "x");
  fs.advance_s(29 * 86400);
  fs.put_file(used, "x");
  EXPECT_EQ(cache->gc()->removed_of_older_versions, 0);
  fs.advance_s(2 * 86400);
  EXPECT_EQ(cache->gc({{}, true})->removed_of_older_versions, 1);
  EXPECT_TRUE(fs.exists(old)) << "a dry run";
  EXPECT_EQ(cache->gc()->removed_of_older_versions, 1);
  EXPECT_FALSE(fs.exists("/home/u/cache/v0/entries"));
  for (const std::string& file : {used, newer, other}) EXPECT_TRUE(fs.exists(file)) << file;
  fs.advance_s(30 * 86400);
  EXPECT_EQ(cache->gc()->removed_of_older_versions, 1);
  EXPECT_FALSE(fs.exists("/home/u/cache/v0"));
  for (const std::string& file : {newer, other}) EXPECT_TRUE(fs.exists(file)) << file;
  EXPECT_TRUE(finds(*cache, 1));
}

TEST_F(ManagementTest, ALockThatWasCleanedUpIsNotHeldByTwo) {
  const auto cache = open();
  store(*cache, 1);
  Trust trust;
  trust.user = 1000;
  Layer layer(fs, "/home/u/cache", true, trust, Logger());
  KeyLock first(layer, "k.lock"), second(layer, "k.lock"), third(layer, "k.lock");
  ASSERT_EQ(first.try_acquire(), KeyLock::State::kHeld);
  ASSERT_EQ(second.try_acquire(), KeyLock::State::kBusy);  // has the file open now
  first.release();
  fs.advance_s(2 * 3600);
  ASSERT_EQ(cache->gc()->removed_locks, 1);
  ASSERT_EQ(third.try_acquire(), KeyLock::State::kHeld);  // a new file
  EXPECT_EQ(second.try_acquire(), KeyLock::State::kBusy) << "its old file is nobody's lock";
}

TEST_F(ManagementTest, VerifyReadsEverythingAndSetsTheBadAside) {
  options.layers = {"/home/u/lower"};
  {
    const auto lower = open();
    store(*lower, 10);
    store(*lower, 11);
  }
  options.layers = {"/home/u/cache", "/home/u/lower"};
  const auto cache = open();
  for (int number = 1; number <= 4; ++number) store(*cache, number);
  EXPECT_TRUE(cache->verify().bad.empty());
  EXPECT_EQ(cache->verify().good, 6);

  const auto flip = [&](const std::string& path) {
    std::string bytes = fs.data(path);
    bytes.back() ^= 1;  // the last byte of the PTX
    fs.put_file(path, bytes);
  };
  flip(entry_path(1));
  flip(entry_path(10, "/home/u/lower"));
  const std::string shard = entry_path(2).substr(0, entry_path(2).rfind('/'));
  fs.put_file(shard + "/" + make_key(2).hex.substr(0, 2) + "-notes.txt", "hello");
  const CacheVerifyReport report = cache->verify();
  EXPECT_EQ(report.checked, 7);
  EXPECT_EQ(report.good, 4);
  ASSERT_EQ(report.bad.size(), 3u);
  for (const CacheFinding& finding : report.bad) {
    EXPECT_FALSE(finding.problem.empty());
    EXPECT_EQ(finding.quarantined, finding.path.starts_with("/home/u/cache/")) << finding.path;
  }
  EXPECT_FALSE(has(1));
  EXPECT_TRUE(fs.exists(entry_path(10, "/home/u/lower"))) << "a lower layer is not ours";
  EXPECT_EQ(cache->verify().bad.size(), 1u);
}

// Digests that fit do not make a kernel of what is none.
TEST_F(ManagementTest, VerifyAndImportPutAnImageThroughTheCompilersGate) {
  const auto damage = [](int number) {
    KernelImage image = make_image(number);
    if (number == 1) image.cubin = fake::make_cubin(image.entries, 90);
    if (number == 2) image.cubin = fake::make_cubin({"another_kernel"}, 100);
    if (number == 3) image.cubin.assign(1000, 0x5a);
    return image;
  };
  const auto cache = open();
  for (int number = 1; number <= 4; ++number) {
    ASSERT_TRUE(cache->store(make_key(number), kBuild, damage(number)).ok());
  }
  ASSERT_TRUE(cache->export_bundle("/home/u/all.bundle").ok());
  const CacheVerifyReport verified = cache->verify();
  EXPECT_EQ(verified.checked, 4);
  EXPECT_EQ(verified.good, 1);
  ASSERT_EQ(verified.bad.size(), 3u);
  for (int number = 1; number <= 4; ++number) EXPECT_EQ(has(number), number == 4) << number;

  ASSERT_TRUE(cache->clear().ok());
  const auto imported = cache->import_bundle("/home/u/all.bundle");
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  EXPECT_EQ(imported->entries, 1);
  EXPECT_EQ(imported->bad.size(), 3u);
  for (int number = 1; number <= 4; ++number) EXPECT_EQ(has(number), number == 4) << number;
}

TEST_F(ManagementTest, ClearTakesAllThatIsOursAndNothingElse) {
  const auto cache = open();
  for (int number = 1; number <= 4; ++number) store(*cache, number);
  fs.put_file(entry_path(1), "bad");
  EXPECT_FALSE(finds(*cache, 1));
  EXPECT_FALSE(
      cache
          ->get_or_compile(
              make_key(9), kBuild, BuildPolicy::kExact, in_a_minute(),
              []() -> Result<KernelImage> { return make_error(ErrorCode::kCompileFailed, "x"); },
              nullptr)
          .ok());
  fs.put_file("/home/u/cache/precious.txt", "not ours");
  const auto report = cache->clear();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->removed_files, 6) << "three entries, one in quarantine, a failure, a lock";
  EXPECT_TRUE(report->left.empty());
  EXPECT_EQ(fs.files("/home/u/cache"), std::vector<std::string>{"/home/u/cache/precious.txt"});
  EXPECT_TRUE(cache
                  ->get_or_compile(
                      make_key(9), kBuild, BuildPolicy::kExact, in_a_minute(),
                      []() -> Result<KernelImage> { return make_image(9); }, nullptr)
                  .ok())
      << "the failure is forgotten, too";
  EXPECT_TRUE(finds(*cache, 9));
}

TEST_F(ManagementTest, LayersTellTheirState) {
  fs.make_path("/home/u/foreign", 1001, 0755);
  fs.make_path("/home/u/lower", 1000, 0755);
  fs.make_path("/home/u/lower/v2/entries", 1000, 0755);
  options.layers = {"/home/u/cache", "/home/u/foreign", "/home/u/missing", "/home/u/lower"};
  const auto cache = open();
  EXPECT_EQ(cache->layers()[0].state, CacheLayerInfo::State::kMissing);
  EXPECT_FALSE(fs.exists("/home/u/cache")) << "looking makes nothing";
  store(*cache, 1);
  const auto layers = cache->layers();
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].state, CacheLayerInfo::State::kWritable);
  EXPECT_EQ(layers[0].entries, 1);
  EXPECT_GT(layers[0].entry_bytes, 0);
  EXPECT_EQ(layers[0].temporary, 0);
  EXPECT_EQ(layers[1].state, CacheLayerInfo::State::kRefused);
  EXPECT_EQ(layers[1].reason, "it belongs to user 1001, not to user 1000 or root");
  EXPECT_EQ(layers[2].state, CacheLayerInfo::State::kMissing);
  EXPECT_EQ(layers[3].state, CacheLayerInfo::State::kReadOnly);
}

// --- Bundles -------------------------------------------------------------------------------------

TEST_F(ManagementTest, ABundleCarriesACacheToAnotherMachine) {
  const auto cache = open();
  for (int number = 1; number <= 5; ++number) store(*cache, number);
  ASSERT_TRUE(cache->store(make_key(1), "another build", make_image(7)).ok());
  const auto exported = cache->export_bundle("/home/u/bundle");
  ASSERT_TRUE(exported.ok()) << exported.error().to_string();
  EXPECT_EQ(exported->entries, 6);

  MemoryFileSystem other;
  other.make_path("/home/u", 1000, 0755);
  other.put_file("/home/u/bundle", fs.data("/home/u/bundle"));
  const auto there = open_cache(options, other);
  auto imported = there->import_bundle("/home/u/bundle");
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  EXPECT_EQ(imported->entries, 6);
  EXPECT_EQ(imported->existing, 0);
  EXPECT_TRUE(imported->bad.empty());
  for (int number = 1; number <= 5; ++number) EXPECT_TRUE(finds(*there, number));
  // Without the compiler that made them.
  EXPECT_TRUE(there->find(make_key(3), "", BuildPolicy::kExact));
  imported = there->import_bundle("/home/u/bundle");
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->entries, 0);
  EXPECT_EQ(imported->existing, 6);
  // The same entries give the same bytes, whatever was used since.
  other.advance_s(100000);
  EXPECT_TRUE(finds(*there, 2));
  ASSERT_TRUE(there->export_bundle("/home/u/again").ok());
  EXPECT_TRUE(other.data("/home/u/again") == fs.data("/home/u/bundle"));
}

TEST_F(ManagementTest, ABundleOfSomeKeysAndOfAllLayers) {
  options.layers = {"/home/u/lower"};
  {
    const auto lower = open();
    store(*lower, 1);
    store(*lower, 2);
  }
  options.layers = {"/home/u/cache", "/home/u/lower"};
  const auto cache = open();
  store(*cache, 2);
  store(*cache, 3);
  fs.put_file(entry_path(3), "bad");
  auto report = cache->export_bundle("/home/u/bundle");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 2);
  EXPECT_EQ(report->bad.size(), 1u);
  report = cache->export_bundle("/home/u/bundle", {make_key(1).hex});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 1);
  EXPECT_FALSE(cache->export_bundle("/home/nowhere/bundle").ok());
}

TEST_F(ManagementTest, AKeyThatIsNotThereIsReported) {
  const auto cache = open();
  store(*cache, 1);
  const auto report =
      cache->export_bundle("/home/u/bundle", {make_key(1).hex, make_key(2).hex, make_key(2).hex});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 1);
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_EQ(report->bad[0].path, make_key(2).hex);
  const auto none = cache->export_bundle("/home/u/none", {"zz"});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(none.error().field, "key");
  EXPECT_FALSE(fs.exists("/home/u/none"));
}

// `cache export /dev/full` replaced the device by the bundle.
TEST_F(ManagementTest, AnExportReplacesNothingButFiles) {
  const auto cache = open();
  store(*cache, 1);
  fs.make_path("/home/u/folder", 1000, 0755);
  const auto refused = cache->export_bundle("/home/u/folder");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_NE(refused.error().message.find("not a regular file"), std::string::npos);
  EXPECT_EQ(fs.files("/home/u").size(), fs.files("/home/u/cache").size()) << "no temporary is left";
  for (const auto& error : {cache->export_bundle("/home/u/folder/").error(),
                            cache->import_bundle("/home/u/folder/").error()}) {
    EXPECT_NE(error.message.find("not a regular file"), std::string::npos) << error.message;
  }
  EXPECT_FALSE(cache->export_bundle("/home/u/new/").ok());
  EXPECT_FALSE(fs.exists("/home/u/new"));
  // A link is followed, and stays; what it leads to need not be there yet.
  fs.put_symlink("/home/u/link", "bundle", 1000);
  ASSERT_TRUE(cache->export_bundle("/home/u/link").ok());
  EXPECT_TRUE(fs.exists("/home/u/bundle"));
  ASSERT_TRUE(cache->export_bundle("/home/u/link").ok()) << "an old bundle is replaced";
  EXPECT_TRUE(cache->import_bundle("/home/u/link").ok());
  EXPECT_FALSE(cache->import_bundle("/home/u/bundle/").ok()) << "no folder";
  fs.put_symlink("/home/u/circle", "circle", 1000);
  EXPECT_FALSE(cache->export_bundle("/home/u/circle").ok());
}

TEST_F(ManagementTest, AnEmptyBundleIsABundle) {
  const auto cache = open();
  ASSERT_TRUE(cache->export_bundle("/home/u/bundle").ok());
  const auto report = cache->import_bundle("/home/u/bundle");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 0);
}

TEST_F(ManagementTest, AHostileBundleDoesNoHarm) {
  const auto cache = open();
  store(*cache, 1);
  store(*cache, 2);
  ASSERT_TRUE(cache->export_bundle("/home/u/bundle").ok());
  const std::string whole = fs.data("/home/u/bundle");
  const std::size_t head = kBundleHeaderBytes + 2 * kBundleRowBytes;
  ASSERT_TRUE(cache->clear().ok());

  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] ^= 0x20;
    fs.put_file("/home/u/bundle", bytes);
    const auto report = cache->import_bundle("/home/u/bundle");
    if (i < head) {
      ASSERT_FALSE(report.ok()) << i;
      EXPECT_EQ(report.error().code, ErrorCode::kCorrupt);
      EXPECT_TRUE(cache->list().empty()) << "nothing of it";
    } else {
      ASSERT_TRUE(report.ok()) << i;
      ASSERT_EQ(report->bad.size(), 1u) << i;
      ASSERT_EQ(report->entries, 1) << "the other one is good";
      ASSERT_TRUE(cache->verify().bad.empty());
      ASSERT_TRUE(cache->clear().ok());
    }
  }
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    fs.put_file("/home/u/bundle", whole.substr(0, size));
    EXPECT_FALSE(cache->import_bundle("/home/u/bundle").ok()) << size;
  }
  fs.put_file("/home/u/bundle", whole + "x");
  EXPECT_FALSE(cache->import_bundle("/home/u/bundle").ok());
  const auto missing = cache->import_bundle("/home/u/no such file");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalid) << "bad input, as every other named file";
  EXPECT_FALSE(cache->import_bundle("/home/u").ok());
  EXPECT_FALSE(cache->import_bundle("").ok());
  EXPECT_TRUE(cache->list().empty());
}

// A manifest with right digests whose entries are lies.
TEST_F(ManagementTest, AForgedBundleIsCheckedEntryByEntry) {
  const auto cache = open();
  const std::string good = *encode_entry(make_key(1), kBuild, make_image(1), 5);
  const std::string other = *encode_entry(make_key(2), kBuild, make_image(2), 5);
  std::vector<std::string> lies = {other, std::string(good.size(), 'x'), good.substr(0, 400)};
  std::string flipped = good;
  flipped[600] ^= 1;
  lies.push_back(flipped);
  for (const std::string& lie : lies) {
    BundleRow row;
    row.id = *entry_id(make_key(1), kBuild);
    row.size = lie.size();
    row.digest = sha256(lie);
    fs.put_file("/home/u/bundle", encode_bundle_head({row}) + lie);
    const auto report = cache->import_bundle("/home/u/bundle");
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->entries, 0);
    EXPECT_EQ(report->bad.size(), 1u);
    EXPECT_FALSE(has(1));
  }
  BundleRow huge;
  huge.size = kMaxEntryBytes;
  fs.put_file("/home/u/bundle", encode_bundle_head({huge}));
  EXPECT_FALSE(cache->import_bundle("/home/u/bundle").ok()) << "before it takes the memory";
}

TEST_F(ManagementTest, AnImportReplacesABadEntryAndKeepsAGoodOne) {
  const auto cache = open();
  store(*cache, 1);
  ASSERT_TRUE(cache->export_bundle("/home/u/bundle").ok());
  fs.put_file(entry_path(1), "bad");
  const auto report = cache->import_bundle("/home/u/bundle");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 1);
  EXPECT_TRUE(finds(*cache, 1));
}

// --- Which folders -------------------------------------------------------------------------------

TEST_F(ManagementTest, TheEnvironmentNamesTheLayers) {
  using Layers = std::vector<std::string>;
  Environment environment;
  EXPECT_EQ(default_layers(environment, fs), Layers{}) << "no HOME: no cache";
  environment.home = "/home/u";
  EXPECT_EQ(default_layers(environment, fs), Layers{"/home/u/.cache/attnjit"});
  environment.home = "/nonexistent";
  EXPECT_EQ(default_layers(environment, fs), Layers{}) << "a HOME is not made";
  environment.home = "relative";
  EXPECT_EQ(default_layers(environment, fs), Layers{});
  fs.make_path("/home/other", 1001, 0755);
  environment.home = "/home/other";
  EXPECT_EQ(default_layers(environment, fs), Layers{}) << "a shell of root with another's HOME";
  environment.home = "/home/u";
  fs.set_mode("/home/u", 0775);
  EXPECT_EQ(default_layers(environment, fs), Layers{"/home/u/.cache/attnjit"});
  environment.xdg_cache_home = "/x/cache";
  EXPECT_EQ(default_layers(environment, fs), Layers{"/x/cache/attnjit"});
  environment.xdg_cache_home = "relative";
  EXPECT_EQ(default_layers(environment, fs), Layers{"/home/u/.cache/attnjit"});
  environment.cache_dir = "/a:/b:c";
  EXPECT_EQ(default_layers(environment, fs), (Layers{"/a", "/b", "c"}));
  environment.cache_dir = ":/a::/b:";
  EXPECT_EQ(default_layers(environment, fs), (Layers{"/a", "/b"}));
}

// Whichever folder it is: who asks is told, by its path, and what is not in it is done all the
// same.
TEST_F(ManagementTest, AFolderThatCannotBeReadIsNamed) {
  options.layers = {"/home/u/cache", "/home/u/lower"};
  {
    CacheOptions lower = options;
    lower.layers = {"/home/u/lower"};
    store(*open_cache(lower, fs), 3);
  }
  for (int number = 1; number <= 2; ++number) store(*open(), number);
  const auto shard = [](int number, const std::string& layer) {
    const std::string path = entry_path(number, layer);
    return path.substr(0, path.rfind('/'));
  };
  const std::string first = "/home/u/cache", second = "/home/u/lower";
  const auto names = [](const std::vector<CacheFinding>& findings, const std::string& folder) {
    return std::any_of(findings.begin(), findings.end(), [&](const CacheFinding& finding) {
      return folder.starts_with(finding.path) && !finding.problem.empty();
    });
  };
  for (const std::string& folder : {shard(1, first), first + "/v2/entries", first + "/v2", first,
                                    shard(3, second), second + "/v2/entries", second}) {
    fs.set_mode(folder, 0);
    const auto cache = open();
    std::vector<CacheFinding> unreadable;
    (void)cache->list(&unreadable);
    EXPECT_TRUE(names(unreadable, folder)) << folder;
    unreadable.clear();
    for (const CacheLayerInfo& info : cache->layers()) {
      unreadable.insert(unreadable.end(), info.unreadable.begin(), info.unreadable.end());
    }
    EXPECT_TRUE(names(unreadable, folder)) << folder;
    EXPECT_TRUE(names(cache->verify().unreadable, folder)) << folder;
    const auto exported = cache->export_bundle("/home/u/bundle");
    ASSERT_TRUE(exported.ok());
    EXPECT_TRUE(names(exported->unreadable, folder)) << folder;
    EXPECT_EQ(exported->entries, folder == shard(1, first)   ? 2
                                 : folder.starts_with(first) ? 1
                                                             : 2)
        << folder;
    if (folder.starts_with(first)) {
      const auto trimmed = cache->gc({});
      EXPECT_TRUE(!trimmed || names(trimmed->unreadable, folder)) << folder;
    }
    fs.set_mode(folder, 0700);
  }
  const std::string locks = first + "/v2/temp";
  fs.set_mode(locks, 0);
  EXPECT_TRUE(names(open()->layers().front().unreadable, locks));
  EXPECT_TRUE(names(open()->gc({})->unreadable, locks));
  EXPECT_TRUE(names(open()->clear()->left, locks));
  fs.set_mode(locks, 0700);
  store(*open(), 1);
  ASSERT_TRUE(open()->export_bundle("/home/u/bundle").ok());
  fs.set_mode(shard(1, first), 0);
  const auto imported = open()->import_bundle("/home/u/bundle");
  EXPECT_TRUE(!imported || names(imported->unreadable, shard(1, first)));
  EXPECT_TRUE(names(open()->clear()->left, shard(1, first)));
}

TEST_F(ManagementTest, AnExportThatFailsSaysWhatFailed) {
  store(*open(), 1);
  FaultFileSystem faulty(fs);
  const auto cache = open_cache(options, faulty);
  long calls = 0;
  faulty.fail_nothing();
  ASSERT_TRUE(cache->export_bundle("/home/u/bundle").ok());
  calls = faulty.calls();
  int told = 0;
  for (long call = 1; call <= calls; ++call) {
    faulty.fail(call, EIO);
    const auto report = cache->export_bundle("/home/u/bundle");
    if (report) continue;
    EXPECT_EQ(report.error().to_string().find("changed"), std::string::npos)
        << call << ": " << report.error().to_string();
    told += report.error().to_string().find("Input/output error") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(told, 3);
}

TEST_F(ManagementTest, ABadEntryOfALowerLayerIsWarnedOfOnce) {
  options.layers = {"/home/u/lower"};
  for (int number = 1; number <= 2; ++number) store(*open(), number);
  for (int number = 1; number <= 2; ++number) {
    fs.put_file(entry_path(number, "/home/u/lower"), "no entry, but long enough to be looked at");
  }
  options.layers = {"/home/u/cache", "/home/u/lower"};
  const auto cache = open();
  for (int i = 0; i < 3; ++i) {
    for (int number = 1; number <= 2; ++number) {
      EXPECT_FALSE(finds(*cache, number));
    }
  }
  EXPECT_TRUE(cache
                  ->get_or_compile(
                      make_key(1), kBuild, BuildPolicy::kAny, in_a_minute(),
                      [&]() -> Result<KernelImage> { return make_image(1); }, nullptr)
                  .ok());
  EXPECT_EQ(log.count(LogLevel::kWarning, "bad entry"), 2U) << "of each entry once";
}

}  // namespace
}  // namespace attnjit::cache
