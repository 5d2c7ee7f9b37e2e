// SPDX-License-Identifier: Apache-2.0
// Damaged entries: every flipped header byte, every truncation, foreign files. Each is a miss, the
// caller gets the right image, and the damage is in quarantine.
#include <gtest/gtest.h>

#include "cache/store.h"
#include "cache_test_util.h"
#include "memory_file_system.h"

namespace attnjit::cache {
namespace {

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    fs.make_path("/home/u", 1000, 0755);
    options.layers = {"/home/u/cache"};
    cache = open_cache(options, fs);
    EXPECT_TRUE(cache->store(key, kBuild, image));
    whole = fs.data(path());
  }
  std::string path(int number = 1) const {
    const std::string name = file_name(*entry_id(make_key(number), kBuild));
    return "/home/u/cache/v2/entries/" + name.substr(0, 2) + "/" + name;
  }
  /// Puts `bytes` in the entry's place and asks for it.
  void expect_recompiled(const std::string& bytes, const std::string& what) {
    fs.put_file(path(), bytes);
    const auto quarantined = cache->statistics().quarantined;
    bool from_disk = true;
    int compiles = 0;
    const auto got = cache->get_or_compile(
        key, kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> {
          ++compiles;
          return image;
        },
        FoundFlag(&from_disk).get());
    ASSERT_TRUE(got.ok()) << what;
    ASSERT_TRUE(same_image(*got, image)) << what;
    ASSERT_FALSE(from_disk) << what;
    ASSERT_EQ(compiles, 1) << what;
    ASSERT_EQ(cache->statistics().quarantined, quarantined + 1) << what;
    ASSERT_TRUE(fs.data(path()) == whole) << what << ": a good entry is in place again";
    ASSERT_LE(fs.files("/home/u/cache/v2/quarantine").size(), Layer::kMaxQuarantined) << what;
  }

  const RequestKey key = make_key(1);
  const KernelImage image = make_image(1);
  MemoryFileSystem fs;
  CacheOptions options;
  std::unique_ptr<CubinCache> cache;
  std::string whole;
};

TEST_F(DamageTest, EachFlippedByteIsAMiss) {
  ASSERT_GT(whole.size(), kHeaderBytes + 1800);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int bit : {0x01, 0x80}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ bit);
      expect_recompiled(bytes, "byte " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DamageTest, EachTruncationIsAMiss) {
  for (std::size_t size = 0; size < whole.size(); ++size) {
    expect_recompiled(whole.substr(0, size), "cut to " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DamageTest, WhatIsAppendedIsAMiss) {
  expect_recompiled(whole + '\0', "a byte more");
  expect_recompiled(whole + whole, "twice");
}

TEST_F(DamageTest, ZeroesAndNoiseAreAMiss) {
  expect_recompiled("", "empty");
  expect_recompiled(std::string(whole.size(), '\0'), "zeros");
  expect_recompiled(std::string(whole.size(), '\xff'), "ones");
  for (std::size_t block = 0; block < whole.size(); block += 512) {
    std::string bytes = whole;
    for (std::size_t i = block; i < std::min(bytes.size(), block + 512); ++i) bytes[i] = '\0';
    expect_recompiled(bytes, "a lost block");
  }
}

TEST_F(DamageTest, AnEntryUnderAnotherNameIsAMiss) {
  ASSERT_TRUE(cache->store(make_key(2), kBuild, make_image(2)));
  const std::string other = fs.data(path(2));
  expect_recompiled(other, "the entry of another key");
  ASSERT_TRUE(cache->store(key, "another build", make_image(3)));
  const std::string name = file_name(*entry_id(key, "another build"));
  expect_recompiled(fs.data("/home/u/cache/v2/entries/" + name.substr(0, 2) + "/" + name),
                    "the entry of another build");
}

TEST_F(DamageTest, OtherMaterialUnderTheSameKeyIsAMiss) {
  // What a collision of SHA-256 would be: the request has the key, and not the material.
  RequestKey impostor = key;
  impostor.material += "?";
  EXPECT_FALSE(cache->find(impostor, kBuild, BuildPolicy::kExact));
}

TEST_F(DamageTest, AFolderOrALinkInThePlaceOfAnEntryIsAMiss) {
  fs.put_file("/home/u/elsewhere", whole);
  fs.remove_tree(path());
  fs.put_symlink(path(), "/home/u/elsewhere", 1000);
  EXPECT_FALSE(cache->find(key, kBuild, BuildPolicy::kExact));
  EXPECT_FALSE(fs.exists(path())) << "in quarantine";
  fs.make_path(path(), 1000, 0700);
  EXPECT_FALSE(cache->find(key, kBuild, BuildPolicy::kExact));
  EXPECT_FALSE(fs.exists(path())) << "in quarantine";
}

TEST_F(DamageTest, DamageOfThePtxDoesNotMatterToWhoDoesNotWantIt) {
  std::string bytes = whole;
  bytes[bytes.size() - 1] ^= 1;
  fs.put_file(path(), bytes);
  EXPECT_TRUE(cache->find(key, kBuild, BuildPolicy::kExact, PtxNeed::kSkip));
  EXPECT_FALSE(cache->find(key, kBuild, BuildPolicy::kExact));
}

TEST_F(DamageTest, QuarantineHoldsTheNewestFew) {
  for (std::size_t i = 0; i < Layer::kMaxQuarantined + 10; ++i) {
    fs.advance_s(1);
    fs.put_file(path(), "bad " + std::to_string(i));
    EXPECT_FALSE(cache->find(key, kBuild, BuildPolicy::kExact));
  }
  const auto files = fs.files("/home/u/cache/v2/quarantine");
  ASSERT_EQ(files.size(), Layer::kMaxQuarantined);
  EXPECT_EQ(fs.data(files.front()), "bad 10");
  EXPECT_EQ(fs.data(files.back()), "bad " + std::to_string(Layer::kMaxQuarantined + 9));
}

TEST_F(DamageTest, WithoutAQuarantineABadEntryIsRemoved) {
  fs.put_file("/home/u/cache/v2/quarantine", "a file where the folder should be");
  fs.put_file(path(), "bad");
  EXPECT_FALSE(cache->find(key, kBuild, BuildPolicy::kExact));
  EXPECT_FALSE(fs.exists(path()));
}

}  // namespace
}  // namespace attnjit::cache
