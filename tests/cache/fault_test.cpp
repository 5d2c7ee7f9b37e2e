// SPDX-License-Identifier: Apache-2.0
// The file system fails: each call in turn, with each errno, and the power at every point. The
// caller is always served with the right image, and nothing wrong is ever found afterwards.
#include <gtest/gtest.h>

#include <cerrno>
#include <iterator>
#include <vector>

#include "../sanitized.h"
#include "cache/store.h"
#include "cache_test_util.h"
#include "fault_file_system.h"
#include "memory_file_system.h"

namespace attnjit::cache {
namespace {

constexpr int kErrors[] = {EIO,    ENOSPC, EDQUOT,  EROFS,  EACCES,
                           EPERM,  EMFILE, ENFILE,  ENOMEM, EINTR,
                           ESTALE, ENOENT, ENOTSUP, ELOOP,  FaultFileSystem::kShort};

/// Those that the nth call fails with: all, and a third of them by turns under sanitizers, which
/// look for what the way of each call does to memory.
std::vector<int> errors_of(long n) {
  std::vector<int> errors;
  for (int i = 0; i < static_cast<int>(std::size(kErrors)); ++i) {
    if (!kSanitized || i % 3 == n % 3) errors.push_back(kErrors[i]);
  }
  return errors;
}

/// The image of key 1. NOTE: made once: the scenes are some ten thousands.
const KernelImage& image_1() {
  static const KernelImage image = make_image(1);
  return image;
}

/// What a run does: each of these has its own calls to fail.
enum class Scene { kCold, kWarm, kBadEntry, kFailure, kNewestBuild };
constexpr Scene kScenes[] = {Scene::kCold, Scene::kWarm, Scene::kBadEntry, Scene::kFailure,
                             Scene::kNewestBuild};

class World {
 public:
  explicit World(Scene scene) : scene_(scene), faults(memory) {
    memory.make_path("/home/u", 1000, 0755);
    options.layers = {"/home/u/cache", "/home/u/lower"};
    if (scene == Scene::kCold) return;
    const auto cache = open_cache(options, memory);
    if (scene == Scene::kFailure) {
      EXPECT_FALSE(get(*cache, true));
      return;
    }
    EXPECT_TRUE(cache->store(make_key(1), kBuild, image_1()));
    if (scene == Scene::kNewestBuild) {
      memory.advance_s(10);
      EXPECT_TRUE(cache->store(make_key(1), "an older NVRTC", image_1()));
    }
    if (scene == Scene::kBadEntry) {
      const std::string path = entry_path();
      std::string bytes = memory.data(path);
      bytes[700] ^= 1;
      memory.put_file(path, bytes);
    }
    memory.advance_s(1000);  // so that a use is stamped
  }

  std::string entry_path() const {
    const std::string name = file_name(*entry_id(make_key(1), kBuild));
    return "/home/u/cache/v2/entries/" + name.substr(0, 2) + "/" + name;
  }

  /// The scene's request: right image, or the failure that its compile gives.
  bool get(CubinCache& cache, bool failing) {
    const auto image = cache.get_or_compile(
        make_key(1), scene_ == Scene::kNewestBuild ? "" : kBuild, BuildPolicy::kExact,
        in_a_minute(),
        [&]() -> Result<KernelImage> {
          if (failing) return make_error(ErrorCode::kCompileFailed, "bad code");
          return image_1();
        },
        nullptr);
    if (failing) return image.ok();
    EXPECT_TRUE(image.ok());
    if (!image.ok()) return false;
    EXPECT_TRUE(same_image(*image, image_1()));
    return same_image(*image, image_1());
  }
  void request(CubinCache& cache) {
    if (scene_ == Scene::kFailure) {
      EXPECT_FALSE(get(cache, true));
    } else {
      EXPECT_TRUE(get(cache, false));
    }
  }

  /// Whatever is visible verifies, and the cache works as ever.
  void expect_sound() {
    {
      const auto cache = open_cache(options, memory);
      const auto found = cache->find(make_key(1), kBuild, BuildPolicy::kExact);
      if (found) {
        EXPECT_TRUE(same_image(*found, image_1()));
      }
      const CacheVerifyReport report = cache->verify();
      EXPECT_TRUE(report.bad.empty());
      EXPECT_TRUE(report.unreadable.empty());
    }
    if (scene_ == Scene::kFailure) return;
    {
      const auto cache = open_cache(options, memory);
      EXPECT_TRUE(get(*cache, false));
    }
    const auto cache = open_cache(options, memory);
    const auto found = cache->find(make_key(1), "", BuildPolicy::kExact);
    ASSERT_EQ(found.has_value(), true);
    EXPECT_TRUE(same_image(*found, image_1()));
    EXPECT_EQ(memory.open_handles(), 2u) << "the open cache's own";
  }

 private:
  const Scene scene_;

 public:
  MemoryFileSystem memory;
  FaultFileSystem faults;
  CacheOptions options;
};

long calls_of(Scene scene) {
  World world(scene);
  const auto cache = open_cache(world.options, world.faults);
  world.faults.fail_nothing();
  world.request(*cache);
  return world.faults.calls();
}

TEST(FaultTest, EachCallFailsWithEachError) {
  for (const Scene scene : kScenes) {
    const long calls = calls_of(scene);
    ASSERT_GT(calls, 10);
    for (long n = 1; n <= calls + 2; ++n) {
      for (const int error : errors_of(n)) {
        SCOPED_TRACE("scene " + std::to_string(static_cast<int>(scene)) + ", call " +
                     std::to_string(n) + ", errno " + std::to_string(error));
        World world(scene);
        {
          const auto cache = open_cache(world.options, world.faults);
          world.faults.fail(n, error);
          world.request(*cache);
          world.faults.fail_nothing();
        }
        if (scene == Scene::kBadEntry) {
          // It may still be there, bad: the next look finds that out.
          const auto cache = open_cache(world.options, world.memory);
          const auto found = cache->find(make_key(1), kBuild, BuildPolicy::kExact);
          if (found) {
            EXPECT_TRUE(same_image(*found, image_1()));
          }
        }
        world.expect_sound();
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(FaultTest, EverythingFailsFromSomeCallOn) {
  for (const Scene scene : kScenes) {
    const long calls = calls_of(scene);
    for (long n = 1; n <= calls; ++n) {
      for (const int error : errors_of(n)) {
        SCOPED_TRACE("scene " + std::to_string(static_cast<int>(scene)) + ", from call " +
                     std::to_string(n) + ", errno " + std::to_string(error));
        World world(scene);
        {
          const auto cache = open_cache(world.options, world.faults);
          world.faults.fail(n, error, 1000000);
          world.request(*cache);
          world.faults.fail_nothing();
        }
        if (scene == Scene::kBadEntry) {
          const auto cache = open_cache(world.options, world.memory);
          static_cast<void>(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
        }
        world.expect_sound();
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(FaultTest, AnInterruptedOrShortCallCostsNothing) {
  for (const int error : {EINTR, FaultFileSystem::kShort}) {
    const long calls = calls_of(Scene::kCold);
    for (long n = 1; n <= calls; ++n) {
      World world(Scene::kCold);
      const auto cache = open_cache(world.options, world.faults);
      world.faults.fail(n, error);
      world.request(*cache);
      EXPECT_EQ(cache->statistics().stores, 1u) << "call " << n;
      EXPECT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact)) << "call " << n;
    }
  }
}

TEST(FaultTest, AnErrorOfTheDiskIsNoReasonForQuarantine) {
  World world(Scene::kWarm);
  const long calls = calls_of(Scene::kWarm);
  for (const int error : {EIO, EMFILE, ENOMEM, EACCES, ESTALE}) {
    for (long n = 1; n <= calls; ++n) {
      const auto cache = open_cache(world.options, world.faults);
      world.faults.fail(n, error);
      static_cast<void>(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
      EXPECT_EQ(cache->statistics().quarantined, 0u);
      world.faults.fail_nothing();
      EXPECT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact));
    }
  }
}

TEST(FaultTest, TheCallsOfManagementMayFail) {
  World world(Scene::kWarm);
  const auto drive = [&] {
    const auto cache = open_cache(world.options, world.faults);
    static_cast<void>(cache->layers());
    static_cast<void>(cache->list());
    static_cast<void>(cache->verify());
    static_cast<void>(cache->gc());
    static_cast<void>(cache->export_bundle("/home/u/bundle"));
    static_cast<void>(cache->import_bundle("/home/u/bundle"));
  };
  world.faults.fail_nothing();
  drive();
  const long calls = world.faults.calls();
  for (const int error : {EIO, ENOSPC, EACCES, EMFILE, ESTALE, FaultFileSystem::kShort}) {
    for (long n = 1; n <= calls; ++n) {
      world.faults.fail(n, error);
      drive();
      world.faults.fail_nothing();
      const auto cache = open_cache(world.options, world.memory);
      ASSERT_TRUE(cache->find(make_key(1), kBuild, BuildPolicy::kExact))
          << "call " << n << " errno " << error;
      for (const std::string& path : world.memory.files("/home/u")) {
        ASSERT_FALSE(path.starts_with("/home/u/.attnjit-") && error != EIO && error != EACCES &&
                     error != EMFILE && error != ESTALE && error != ENOSPC)
            << path;
      }
    }
  }
}

// The power fails before the nth call of a request, or of two processes one after the other.
TEST(PowerLossTest, AtEveryPointLeavesNothingWrong) {
  using Loss = MemoryFileSystem::Loss;
  for (const Scene scene : {Scene::kCold, Scene::kBadEntry}) {
    const long calls = calls_of(scene);
    for (long n = 1; n <= calls + 1; ++n) {
      for (unsigned variant = 0; variant < 11; ++variant) {
        if (kSanitized && variant >= 3 && variant % 3 != n % 3) continue;
        SCOPED_TRACE("scene " + std::to_string(static_cast<int>(scene)) + ", call " +
                     std::to_string(n) + ", variant " + std::to_string(variant));
        World world(scene);
        {
          const auto cache = open_cache(world.options, world.faults);
          // Without power no call does anything any more.
          world.faults.fail(n, EIO, 1000000);
          world.request(*cache);
          world.faults.fail_nothing();
          const Loss loss = variant < 3 ? static_cast<Loss>(variant) : Loss::kRandom;
          world.memory.power_loss(loss, variant);
        }
        // Files without their data are there, and are found out.
        {
          const auto cache = open_cache(world.options, world.memory);
          const auto found = cache->find(make_key(1), kBuild, BuildPolicy::kExact);
          if (found) {
            EXPECT_TRUE(same_image(*found, image_1()));
          }
          if (n > calls) {
            EXPECT_TRUE(found) << "what was stored before survives";
          }
        }
        world.expect_sound();
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace attnjit::cache
