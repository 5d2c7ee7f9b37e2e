// SPDX-License-Identifier: Apache-2.0
// Signatures of entries and bundles: what is signed is served, and nothing else where one is asked
// for, whatever a server or a folder gives.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "../temporary_folder.h"
#include "cache/entry_format.h"
#include "cache/file_hash.h"
#include "cache/minisign.h"
#include "cache/remote_tier.h"
#include "cache/signature.h"
#include "cache/trust.h"
#include "cache_test_util.h"
#include "http_server.h"
#include "memory_file_system.h"

namespace attnjit::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

SecretKey make_secret_key() { return *SecretKey::generate(); }

Keyring ring_of(const std::vector<const SecretKey*>& keys, const std::string& more = {}) {
  std::string text = more;
  for (const SecretKey* key : keys) text += key->public_key().to_minisign();
  return *Keyring::parse(text);
}

std::string signed_entry(int number, const SecretKey& key) {
  std::string bytes = *encode_entry(make_key(number), kBuild, make_image(number), 1700000000);
  return bytes + sign_entry(bytes.substr(0, kHeaderBytes), make_key(number).arch, key);
}

TEST(KeysTest, ASecretKeyIsWrittenAndReadBack) {
  const SecretKey key = make_secret_key();
  const auto again = SecretKey::from_pem(key.to_pem());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->public_key().point, key.public_key().point);
  EXPECT_TRUE(key.public_key().verifies("text", again->sign("text")));
  EXPECT_FALSE(key.public_key().verifies("texu", again->sign("text")));
  EXPECT_FALSE(make_secret_key().public_key().verifies("text", key.sign("text")));
  for (const char* bad : {"", "no key", "-----BEGIN PRIVATE KEY-----\n"}) {
    EXPECT_FALSE(SecretKey::from_pem(bad).ok());
  }
}

TEST(KeysTest, AKeyringIsReadStrictly) {
  const SecretKey one = make_secret_key(), two = make_secret_key();
  const Keyring ring = ring_of({&one, &two}, "# ours\n\nleast-template-version: 7\r\n");
  ASSERT_NE(ring.find(two.public_key().id), nullptr);
  EXPECT_EQ(ring.find(two.public_key().id)->point, two.public_key().point);
  EXPECT_EQ(ring.find(make_secret_key().public_key().id), nullptr);
  EXPECT_EQ(ring.least_template_version(), 7U);
  for (const char* bad : {"x", "RWQ", "least-template-version: seven", "least-template-version:",
                          "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}) {
    const auto parsed = Keyring::parse(std::string("# first\n") + bad + "\n");
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().line, 2) << bad;
  }
}

// Made by minisign 0.11 with -S -t.
constexpr const char* kMinisignKey =
    "untrusted comment: minisign public key 3E562FEB82F4FC6E\n"
    "RWRu/PSC6y9WPrPkJesqDCNZU4QP6g0gV8i84T4moYK06ikifQZv3mYw\n";
constexpr const char* kMinisignSignature =
    "untrusted comment: signature from minisign secret key\n"
    "RURu/PSC6y9WPqkHv2MU+pB0I6LlT6o7YrI4xI3vEyhaaBNk4KtJ5HjJVOSAV3c8M5ZAAQ5Jwct8tYcyVotFvtotL2IC4k"
    "EJiAU=\n"
    "trusted comment: a trusted comment\n"
    "Mr9rBluPKl6IqqkxHDXwfmBVnCuPfMKFgO2c/N6KU6nuHkiL4dq3/aD/JE62O+G+ItDnqUiSu11K56XSTTBaDg==\n";

std::string hash_of(std::string_view bytes) {
  FileHash hash(FileHash::Kind::kBlake2b512);
  hash.add(bytes.substr(0, bytes.size() / 2));
  hash.add(bytes.substr(bytes.size() / 2));
  return hash.finish();
}

TEST(MinisignTest, WhatMinisignSignedVerifies) {
  const Keyring ring = *Keyring::parse(kMinisignKey);
  const auto comment = verify_minisign(hash_of("attnjit\n"), kMinisignSignature, ring);
  ASSERT_TRUE(comment.ok()) << comment.error().message;
  EXPECT_EQ(*comment, "a trusted comment");
  EXPECT_FALSE(verify_minisign(hash_of("attnjiT\n"), kMinisignSignature, ring).ok());
  // Every changed character, but for those of the comment that nobody signs.
  const std::string text = kMinisignSignature;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    if (at + 1 == text.size()) continue;  // the last line's end
    EXPECT_FALSE(verify_minisign(hash_of("attnjit\n"), changed, ring).ok()) << at;
  }
}

TEST(MinisignTest, WhatIsSignedHereVerifiesWithMinisign) {
  if (std::system("command -v minisign >/dev/null") != 0) GTEST_SKIP() << "there is no minisign";
  const test::TemporaryFolder folder;
  const SecretKey key = make_secret_key();
  std::ofstream(folder / "f") << "some bytes";
  std::ofstream(folder / "f.minisig") << minisign(hash_of("some bytes"), "said", key);
  std::ofstream(folder / "k.pub") << key.public_key().to_minisign();
  const std::string verify = "minisign -V -q -p " + (folder / "k.pub") + " -m " + (folder / "f");
  EXPECT_EQ(std::system(verify.c_str()), 0);
  std::ofstream(folder / "f") << "some byteS";
  EXPECT_NE(std::system((verify + " 2>/dev/null").c_str()), 0);
}

TEST(EntrySignatureTest, EveryBitOfHeaderAndTrailerIsSigned) {
  const SecretKey key = make_secret_key();
  const Keyring ring = ring_of({&key});
  const std::string whole = signed_entry(1, key);
  const std::string header = whole.substr(0, kHeaderBytes);
  const std::string trailer = whole.substr(whole.size() - kTrailerBytes);
  const auto said = verify_entry_signature(header, trailer, ring);
  ASSERT_TRUE(said.ok()) << said.error().message;
  EXPECT_EQ(said->arch, make_key(1).arch);
  EXPECT_EQ(said->key, key.public_key().id);
  EXPECT_EQ(said->template_version, kTemplateVersion);
  for (std::size_t at = 0; at < header.size(); ++at) {
    std::string changed = header;
    changed[at] ^= static_cast<char>(1 << (at % 8));
    ASSERT_FALSE(verify_entry_signature(changed, trailer, ring).ok()) << at;
  }
  for (std::size_t at = 0; at < trailer.size(); ++at) {
    std::string changed = trailer;
    changed[at] ^= static_cast<char>(1 << (at % 8));
    ASSERT_FALSE(verify_entry_signature(header, changed, ring).ok()) << at;
  }
  EXPECT_FALSE(verify_entry_signature(header, "", ring).ok());
  EXPECT_FALSE(verify_entry_signature(header, trailer.substr(1), ring).ok());
  EXPECT_FALSE(verify_entry_signature(header, trailer, ring_of({})).ok());
  const Keyring newer =
      ring_of({&key}, "least-template-version: " + std::to_string(kTemplateVersion + 1) + "\n");
  EXPECT_FALSE(verify_entry_signature(header, trailer, newer).ok()) << "rolled back";
}

class SignedCacheTest : public ::testing::Test {
 protected:
  SignedCacheTest() {
    write("secret", key.to_pem(), 0600);
    write("ring", key.public_key().to_minisign(), 0644);
  }

  void write(const std::string& name, const std::string& text, mode_t mode) const {
    std::ofstream(base + "/" + name, std::ios::binary) << text;
    ::chmod((base + "/" + name).c_str(), mode);
  }
  CacheOptions options(const std::vector<std::string>& layers, bool signs, bool asks) {
    CacheOptions made;
    for (const std::string& layer : layers) made.layers.push_back(base + "/" + layer);
    if (signs) made.signatures.sign_key_file = base + "/secret";
    if (asks) made.signatures.trust_file = base + "/ring";
    made.log = log.sink();
    return made;
  }
  static bool has(CubinCache& cache, int number) {
    const auto image = cache.find(make_key(number), kBuild, BuildPolicy::kExact);
    EXPECT_TRUE(!image || same_image(*image, make_image(number)));
    return image.has_value();
  }
  static void store(CubinCache& cache, int number) {
    ASSERT_TRUE(cache.store(make_key(number), kBuild, make_image(number)).ok());
  }

  const test::TemporaryFolder temporary;
  const std::string& base = temporary.path();
  LogLines log;
  const SecretKey key = make_secret_key();
};

TEST_F(SignedCacheTest, ALowerLayerServesOnlyWhatIsSigned) {
  store(*attnjit::open_cache(options({"lower"}, true, false)), 1);
  store(*attnjit::open_cache(options({"lower"}, false, false)), 2);
  const auto asks = attnjit::open_cache(options({"own", "lower"}, false, true));
  EXPECT_TRUE(has(*asks, 1));
  EXPECT_FALSE(has(*asks, 2));
  EXPECT_EQ(log.count(LogLevel::kWarning, "it is not signed"), 1U);
  const CacheVerifyReport report = asks->verify();
  EXPECT_EQ(report.good, 1);
  EXPECT_EQ(report.bad.size(), 1U);
  // Who asks for nothing is served both, and without PTX too.
  const auto open = attnjit::open_cache(options({"own", "lower"}, false, false));
  EXPECT_TRUE(has(*open, 1) && has(*open, 2));
  EXPECT_TRUE(open->find(make_key(1), kBuild, BuildPolicy::kExact, PtxNeed::kSkip).has_value());
  EXPECT_TRUE(asks->find(make_key(1), kBuild, BuildPolicy::kExact, PtxNeed::kSkip).has_value());
}

TEST_F(SignedCacheTest, TheFirstLayerNeedsASignatureOnlyWhereThatIsAsked) {
  store(*attnjit::open_cache(options({"own"}, false, false)), 1);
  EXPECT_TRUE(has(*attnjit::open_cache(options({"own"}, false, true)), 1));
  CacheOptions everywhere = options({"own"}, false, true);
  everywhere.signatures.require_everywhere = true;
  const auto strict = attnjit::open_cache(everywhere);
  EXPECT_FALSE(has(*strict, 1));
  store(*strict, 2);  // nothing is written that would not be read
  EXPECT_EQ(strict->layers().front().entries, 0);
  everywhere.signatures.sign_key_file = base + "/secret";
  const auto signs = attnjit::open_cache(everywhere);
  store(*signs, 3);
  EXPECT_TRUE(has(*signs, 3));
}

TEST_F(SignedCacheTest, SignSignsWhatIsThere) {
  store(*attnjit::open_cache(options({"lower"}, false, false)), 1);
  const auto signer = attnjit::open_cache(options({"lower"}, true, false));
  store(*signer, 2);
  for (int i = 0; i < 2; ++i) {
    const auto report = signer->sign();
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->signed_now, 2);
    EXPECT_TRUE(report->bad.empty());
  }
  const auto asks = attnjit::open_cache(options({"own", "lower"}, false, true));
  EXPECT_TRUE(has(*asks, 1) && has(*asks, 2));
  EXPECT_FALSE(attnjit::open_cache(options({"lower"}, false, false))->sign().ok()) << "no key";
}

TEST_F(SignedCacheTest, AKeyringThatCannotBeReadBelievesNobody) {
  store(*attnjit::open_cache(options({"lower"}, true, false)), 1);
  write("ring", "no key\n", 0644);
  EXPECT_FALSE(has(*attnjit::open_cache(options({"own", "lower"}, false, true)), 1));
  EXPECT_EQ(log.count(LogLevel::kError, "no signature is believed"), 1U);
  SignatureOptions given;
  given.trust_file = base + "/ring";
  EXPECT_EQ(with_environment(given).error().code, ErrorCode::kInvalid);
  given.trust_file = base + "/missing";
  EXPECT_FALSE(with_environment(given).ok());
  write("ring", key.public_key().to_minisign(), 0666);
  given.trust_file = base + "/ring";
  EXPECT_FALSE(with_environment(given).ok()) << "others may write to it";
  write("secret", key.to_pem(), 0604);
  given = {};
  given.sign_key_file = base + "/secret";
  EXPECT_FALSE(with_environment(given).ok()) << "others may read it";
}

TEST_F(SignedCacheTest, ABundleMustBeSignedWhereThereIsAKeyring) {
  const auto from = attnjit::open_cache(options({"from"}, true, false));
  store(*from, 1);
  const std::string bundle = base + "/bundle";
  ASSERT_TRUE(from->export_bundle(bundle).ok());
  std::ifstream file(bundle, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto import = [&] {
    const auto report = attnjit::open_cache(options({"to"}, false, true))->import_bundle(bundle);
    return report ? std::to_string(report->entries + report->existing) : report.error().message;
  };
  EXPECT_NE(import().find("is not signed"), std::string::npos);
  write("bundle.minisig", minisign(hash_of(bytes), "x", make_secret_key()), 0644);
  EXPECT_NE(import().find("not in the keyring"), std::string::npos);
  write("bundle.minisig", minisign(hash_of(bytes + "x"), "x", key), 0644);
  EXPECT_NE(import().find("does not verify"), std::string::npos);
  EXPECT_EQ(attnjit::open_cache(options({"to"}, false, false))->layers().front().entries, 0);
  write("bundle.minisig", minisign(hash_of(bytes), "x", key), 0644);
  EXPECT_EQ(import(), "1");
}

// The signature of a bundle is asked for, and each entry is judged as in a lower layer.
TEST_F(SignedCacheTest, ASignedBundleBringsOnlyWhatALowerLayerCouldServe) {
  const SecretKey stranger = make_secret_key();
  write("stranger", stranger.to_pem(), 0600);
  CacheOptions others = options({"from"}, true, false);
  others.signatures.sign_key_file = base + "/stranger";
  store(*attnjit::open_cache(options({"from"}, true, false)), 1);
  store(*attnjit::open_cache(options({"from"}, false, false)), 2);
  store(*attnjit::open_cache(others), 3);
  const std::string bundle = base + "/bundle";
  ASSERT_TRUE(attnjit::open_cache(options({"from"}, false, false))->export_bundle(bundle).ok());
  std::ifstream file(bundle, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  write("bundle.minisig", minisign(hash_of(bytes), "x", key), 0644);
  const std::string ring = key.public_key().to_minisign();
  for (const std::uint64_t least : {std::uint64_t{0}, kTemplateVersion, kTemplateVersion + 1}) {
    write("ring", "least-template-version: " + std::to_string(least) + "\n" + ring, 0644);
    const std::string to = "to" + std::to_string(least);
    const auto cache = attnjit::open_cache(options({to}, false, true));
    const auto report = cache->import_bundle(bundle);
    ASSERT_TRUE(report.ok()) << report.error().message;
    const auto lower = attnjit::open_cache(options({"own" + to, "from"}, false, true));
    for (int number = 1; number <= 3; ++number) {
      EXPECT_EQ(has(*cache, number), has(*lower, number)) << number << ", least " << least;
    }
    EXPECT_EQ(report->entries, least <= kTemplateVersion ? 1 : 0);
    EXPECT_EQ(report->bad.size(), least <= kTemplateVersion ? 2U : 3U);
  }
  // Without a keyring whoever imports believes the bundle.
  const auto open = attnjit::open_cache(options({"open"}, false, false))->import_bundle(bundle);
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->entries, 3);
}

TEST_F(SignedCacheTest, AnImportReplacesWhatTheFirstLayerMayNotServe) {
  const auto signer = attnjit::open_cache(options({"from"}, true, false));
  store(*signer, 1);
  const std::string bundle = base + "/bundle";
  ASSERT_TRUE(signer->export_bundle(bundle).ok());
  std::ifstream file(bundle, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  write("bundle.minisig", minisign(hash_of(bytes), "x", key), 0644);
  store(*attnjit::open_cache(options({"own"}, false, false)), 1);
  CacheOptions strict = options({"own"}, false, true);
  strict.signatures.require_everywhere = true;
  const auto cache = attnjit::open_cache(strict);
  const auto report = cache->import_bundle(bundle);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 1);
  EXPECT_TRUE(has(*cache, 1));
}

// What reaches the driver is what find gives. ATTNJIT_FORGERIES says how many are tried.
TEST_F(SignedCacheTest, NoForgeryOfAServerIsServed) {
  const char* asked = std::getenv("ATTNJIT_FORGERIES");
  const int forgeries = asked != nullptr ? std::atoi(asked) : 300;
  const SecretKey stranger = make_secret_key();
  write("ring",
        "least-template-version: " + std::to_string(kTemplateVersion) + "\n" +
            key.public_key().to_minisign(),
        0644);
  const std::string good = signed_entry(1, key), other = signed_entry(2, key);
  const std::string bare = good.substr(0, good.size() - kTrailerBytes);
  const std::string header = bare.substr(0, kHeaderBytes);
  // Another image of the same key, whose digests are right: what somebody makes who can write to
  // the store and has no key.
  const std::string forged = *encode_entry(make_key(1), kBuild, make_image(77), 1700000000);

  HttpServer server;
  std::mt19937 random(20261122);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const auto make = [&]() -> std::string {
    std::string body = good;
    switch (below(10)) {
      case 0:  // some bits
        for (std::size_t i = 0; i <= below(4); ++i) {
          body[below(body.size())] ^= static_cast<char>(1 << below(8));
        }
        return body;
      case 1:  // cut
        body.resize(below(body.size()));
        return body;
      case 2:  // longer
        return body + std::string(1 + below(300), static_cast<char>(random()));
      case 3:  // a signed entry of another key: a replay
        return other;
      case 4:  // another image with the signature of the good one
        return forged + good.substr(bare.size());
      case 5:  // signed by a stranger, under his id or under ours
      {
        std::string trailer =
            sign_entry(forged.substr(0, kHeaderBytes), make_key(1).arch, stranger);
        if (below(2) == 0) trailer.replace(16, 8, good, bare.size() + 16, 8);
        return forged + trailer;
      }
      case 6:  // not signed
        return below(2) == 0 ? bare : forged;
      case 7:  // the trailer of another entry
        return bare + other.substr(other.size() - kTrailerBytes);
      case 8:  // pieces of both
      {
        const std::size_t at = below(std::min(body.size(), other.size()) - 1) + 1;
        return body.substr(0, at) + other.substr(at);
      }
      default:  // noise
        body.resize(below(4096));
        for (char& c : body) c = static_cast<char>(random());
        return body;
    }
  };
  std::uint64_t rejected = 0, expected = 0;
  CacheOptions client = options({}, false, true);
  client.log = {};
  client.remote.url = server.url();
  client.remote.lookup_budget = milliseconds(5000);
  const std::string path = "/" + remote_path(*entry_id(make_key(1), kBuild));
  for (int i = 0; i < forgeries; ++i) {
    std::string body = make();
    if (body == good) continue;  // bits that were flipped twice
    server.put(path, body);
    const auto cache = attnjit::open_cache(client);
    ASSERT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact).has_value()) << i;
    const RemoteStatistics counted = cache->statistics().remote;
    rejected += counted.rejected;
    ++expected;
    ASSERT_EQ(rejected, expected) << i;
  }
  server.put(path, good);
  EXPECT_TRUE(has(*attnjit::open_cache(client), 1));
}

TEST_F(SignedCacheTest, WhoCannotSignSendsNothingToAStoreThatAsks) {
  HttpServer server;
  CacheOptions client = options({"own"}, false, true);
  client.remote.url = server.url();
  const auto cache = attnjit::open_cache(client);
  store(*cache, 1);
  ASSERT_TRUE(cache->flush(Clock::now() + milliseconds(5000)));
  EXPECT_TRUE(server.objects().empty());
  client.signatures.sign_key_file = base + "/secret";
  const auto signer = attnjit::open_cache(client);
  store(*signer, 2);
  ASSERT_TRUE(signer->flush(Clock::now() + milliseconds(5000)));
  EXPECT_EQ(server.objects().size(), 2U);
  // And what it sent is kept as it came: signed.
  const auto reader = attnjit::open_cache([&] {
    CacheOptions made = options({"third"}, false, true);
    made.remote.url = server.url();
    made.remote.lookup_budget = milliseconds(5000);
    return made;
  }());
  EXPECT_TRUE(has(*reader, 2));
  ASSERT_TRUE(reader->flush(Clock::now() + milliseconds(5000)));
  EXPECT_TRUE(has(*attnjit::open_cache(options({"fourth", "third"}, false, true)), 2));
}

// Keys in folders as Kubernetes lays them out, read by user 1000: root's files behind root's links.
class KeyFilesTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kRoot = 0, kUser = 1000, kStranger = 4321;

  KeyFilesTest() { mount("..1", 0644, 0400); }

  /// A new folder of both keys, to which ..data leads from now on.
  void mount(const std::string& folder, std::uint32_t public_mode, std::uint32_t secret_mode) {
    fs.set_user(kRoot);
    fs.make_path("/etc/keys", kRoot, 01777);
    fs.make_path("/etc/keys/" + folder, kRoot, 0755);
    put(folder + "/fleet.pub", key.public_key().to_minisign(), public_mode);
    put(folder + "/fleet.key", key.to_pem(), secret_mode);
    fs.put_symlink("/etc/keys/..data", folder, kRoot);
    fs.put_symlink("/etc/keys/fleet.pub", "..data/fleet.pub", kRoot);
    fs.put_symlink("/etc/keys/fleet.key", "..data/fleet.key", kRoot);
    fs.set_user(kUser);
  }
  void put(const std::string& name, const std::string& text, std::uint32_t mode) {
    fs.put_file("/etc/keys/" + name, text);
    fs.set_mode("/etc/keys/" + name, mode);
  }
  /// Empty, or why the keys are not taken.
  std::string problem(const std::string& ring, const std::string& secret) {
    SignatureOptions options;
    if (!ring.empty()) options.trust_file = "/etc/keys/" + ring;
    if (!secret.empty()) options.sign_key_file = "/etc/keys/" + secret;
    const auto trust = read_trust(options, fs);
    if (!trust) {
      EXPECT_EQ(trust.error().code, ErrorCode::kInvalid);
      return trust.error().message;
    }
    EXPECT_TRUE(ring.empty() || trust->ring->find(key.public_key().id) != nullptr);
    EXPECT_TRUE(secret.empty() || trust->key->public_key().id == key.public_key().id);
    return {};
  }
  static bool says(const std::string& problem, const std::string& what) {
    return problem.find(what) != std::string::npos;
  }

  MemoryFileSystem fs;
  SecretKey key = make_secret_key();
};

TEST_F(KeyFilesTest, LinksOfRootAreFollowed) {
  EXPECT_EQ(problem("fleet.pub", ""), "");
  fs.put_symlink("/etc/fleet", "/etc/keys/fleet.pub", kUser);
  fs.put_symlink("/etc/keys/mine", "../fleet", kUser);
  EXPECT_EQ(problem("mine", ""), "") << "and this user's, one behind another";
  fs.put_symlink("/etc/keys/round", "round", kRoot);
  EXPECT_TRUE(says(problem("round", ""), "Too many levels"));
  fs.put_symlink("/etc/keys/loose", "..data/missing", kRoot);
  EXPECT_TRUE(says(problem("loose", ""), "No such file"));
  EXPECT_TRUE(says(problem("..data", ""), "not a regular file"));
}

TEST_F(KeyFilesTest, LinksOfStrangersAreNot) {
  for (const char* link : {"/etc/keys/fleet.pub", "/etc/keys/..data"}) {
    fs.set_owner(link, kStranger);
    EXPECT_TRUE(says(problem("fleet.pub", ""), "symbolic link")) << link;
    fs.set_owner(link, kRoot);
  }
}

TEST_F(KeyFilesTest, TheNewKeysAreReadAfterTheyWereRenewed) {
  ASSERT_EQ(problem("fleet.pub", ""), "");
  key = make_secret_key();
  mount("..2", 0644, 0400);
  fs.remove_tree("/etc/keys/..1");
  EXPECT_EQ(problem("fleet.pub", ""), "");
}

TEST_F(KeyFilesTest, ASecretOfRootMayBeReadByItsGroup) {
  const auto secret = [&](std::uint32_t owner, std::uint32_t mode) {
    fs.set_user(kRoot);  // whom no mode keeps from reading
    fs.set_owner("/etc/keys/..1/fleet.key", owner);
    fs.set_mode("/etc/keys/..1/fleet.key", mode);
    std::string found = problem("", "fleet.key");
    fs.set_user(kUser);
    return found;
  };
  for (const std::uint32_t mode : {0400U, 0440U, 0600U, 0640U}) EXPECT_EQ(secret(kRoot, mode), "");
  for (const std::uint32_t mode : {0404U, 0444U, 0604U, 0644U}) {
    EXPECT_TRUE(says(secret(kRoot, mode), "others may read")) << mode;
  }
  EXPECT_TRUE(says(secret(kRoot, 0660), "others can write"));
  // One's own is for oneself.
  fs.set_owner("/etc/keys/..1/fleet.key", kUser);
  for (const std::uint32_t mode : {0400U, 0600U}) {
    fs.set_mode("/etc/keys/..1/fleet.key", mode);
    EXPECT_EQ(problem("", "fleet.key"), "");
  }
  for (const std::uint32_t mode : {0440U, 0640U}) {
    fs.set_mode("/etc/keys/..1/fleet.key", mode);
    EXPECT_TRUE(says(problem("", "fleet.key"), "its group may read"));
  }
}

TEST_F(KeyFilesTest, KeysOfOtherUsersAreNotTaken) {
  for (const std::uint32_t mode : {0400U, 0600U, 0644U}) {
    for (const char* name : {"fleet.pub", "fleet.key"}) {
      fs.set_owner(std::string("/etc/keys/..1/") + name, kStranger);
      fs.set_mode(std::string("/etc/keys/..1/") + name, mode);
    }
    for (const std::uint32_t user : {kUser, kRoot}) {
      fs.set_user(user);
      if (user != kRoot && mode != 0644) continue;  // the system refuses it
      EXPECT_TRUE(says(problem("fleet.pub", ""), "belongs to user 4321")) << user << " " << mode;
      EXPECT_TRUE(says(problem("", "fleet.key"), "belongs to user 4321")) << user << " " << mode;
    }
  }
}

}  // namespace
}  // namespace attnjit::cache
