// SPDX-License-Identifier: Apache-2.0
// Keys, signatures, image layouts and the remote tier, as the command shows them.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/sha256.h"
#include "cli_test.h"

namespace attnjit::testing {
namespace {

class FleetCommand : public CliTest {};

TEST_F(FleetCommand, AKeySignsABundleAndTheKeyringJudgesIt) {
  const std::string key = folder_ / "key", bundle = folder_ / "bundle";
  const Json made = run_json({"cache", "keygen", key}, 0);
  EXPECT_EQ(made.at("public"), key + ".pub");
  struct ::stat seen {};
  ASSERT_EQ(::stat(key.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0600U);
  expect_bad({"cache", "keygen", key}, "File exists");  // a key that is there stays

  ASSERT_EQ(run({"cache", "export", bundle}).exit_code, 0);
  run_json({"cache", "verify", bundle, "--trust", key + ".pub"}, 2);  // there is no signature
  EXPECT_EQ(run_json({"cache", "sign", bundle, "--key", key}, 0).at("file"), bundle + ".minisig");
  EXPECT_NE(run_json({"cache", "verify", bundle, "--trust", key + ".pub"}, 0)
                .at("comment")
                .get<std::string>()
                .find("template version"),
            std::string::npos);
  options_.environment["ATTNJIT_TRUST"] = key + ".pub";
  run_json({"cache", "import", bundle}, 0);
  write_text(bundle, read_text(bundle) + "x");
  run_json({"cache", "verify", bundle}, 1);
  run_json({"cache", "import", bundle}, 1);
}

TEST_F(FleetCommand, BadKeysAreBadInput) {
  write_text(folder_ / "ring", "nonsense\n");
  expect_bad({"cache", "sign", folder_ / "missing", "--key", folder_ / "none"}, "none");
  expect_bad({"cache", "sign"}, "key");
  expect_bad({"cache", "verify", folder_ / "missing"}, "keyring");
  expect_bad({"cache", "verify", "--trust", folder_ / "ring"}, "public key");
  options_.environment["ATTNJIT_TRUST"] = folder_ / "ring";
  expect_bad(hopper("compile"), "public key");
}

TEST_F(FleetCommand, AnImageLayoutIsWholeAndTheSameEachTime) {
  expect_bad({"cache", "export"}, "--oci");
  write_text(folder_ / "one.bundle", "somebody's");
  for (const char* name : {"one", "two/"}) {
    const Json made = run_json({"cache", "export", "--oci", folder_ / name}, 0);
    EXPECT_EQ(made.at("entries"), 0);
    EXPECT_EQ(made.at("file"), folder_ / name);
  }
  // Nothing but the layouts: what is beside them stays, and nothing stays beside them.
  EXPECT_EQ(read_text(folder_ / "one.bundle"), "somebody's");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "")) {
    names.insert(file.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{"one", "one.bundle", "two"}));
  EXPECT_EQ(read_text(folder_ / "one/index.json"), read_text(folder_ / "two/index.json"));
  expect_bad({"cache", "export", "--oci", folder_ / "one"}, "not an empty folder");
  // Every blob has the digest that it is named after, and the size that is said of it.
  const auto blob = [&](const Json& descriptor) {
    const std::string digest = descriptor.at("digest").get<std::string>().substr(7);
    const std::string bytes = read_text(folder_ / ("one/blobs/sha256/" + digest));
    EXPECT_EQ(to_hex(sha256(bytes)), digest);
    EXPECT_EQ(bytes.size(), descriptor.at("size").get<std::size_t>());
    return bytes;
  };
  const Json index = Json::parse(read_text(folder_ / "one/index.json"));
  const Json manifest = Json::parse(blob(index.at("manifests").at(0)));
  const Json config = Json::parse(blob(manifest.at("config")));
  EXPECT_EQ(config.at("rootfs").at("diff_ids").at(0), manifest.at("layers").at(0).at("digest"));
  EXPECT_EQ(blob(manifest.at("layers").at(0)).size() % 512, 0U);
  if (std::system("command -v skopeo >/dev/null") == 0) {
    const std::string command = "skopeo --insecure-policy copy -q oci:" + (folder_ / "one") +
                                ":latest dir:" + (folder_ / "copy");
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
}

TEST_F(FleetCommand, DoctorNamesTheRemoteTier) {
  EXPECT_TRUE(Json::parse(run({"doctor", "--json"}).out).at("remote").is_null());
  options_.environment["ATTNJIT_REMOTE"] = "http://user:word@127.0.0.1:9/cache";
  const Process process = run({"doctor", "--json"});
  const Json remote = Json::parse(process.out).at("remote");
  EXPECT_EQ(remote.at("url"), "http://127.0.0.1:9/cache");
  EXPECT_EQ(remote.at("usable"), false);
  EXPECT_EQ(process.out.find("word"), std::string::npos);
  options_.environment["ATTNJIT_REMOTE"] = "nonsense";
  EXPECT_EQ(Json::parse(run({"doctor", "--json"}).out).at("remote").at("usable"), false);
  expect_bad(hopper("compile"), "remote");
}

// Whatever a password holds, and whether the URL is a good one or not.
TEST_F(FleetCommand, NoOutputHoldsAPassword) {
  const auto hides = [&](const std::string& variable, const std::string& url) {
    options_.environment[variable] = url;
    for (const auto& words : {std::vector<std::string>{"doctor", "--collect"},
                              {"doctor", "--json"},
                              hopper("compile")}) {
      const Process process = run(words);
      for (const char* secret : {"hunter", "Swordfish"}) {
        EXPECT_EQ((process.out + process.err).find(secret), std::string::npos)
            << url << "\n"
            << process.out << process.err;
      }
    }
    options_.environment[variable] = "";
  };
  for (const char* between : {"", "/", "#", "?", "%", "@", ":", "\\", "%2F", "[", " ", "\n"}) {
    const std::string who = std::string("bob:hunter") + between + "Swordfish@";
    for (const char* scheme : {"http://", "https://", "s3+http://", "redis://", "ftp://", ""}) {
      hides("ATTNJIT_REMOTE", scheme + who + "127.0.0.1:9/x");
    }
    for (const char* scheme : {"redis://", "http://", ""}) {
      hides("ATTNJIT_LEASE", scheme + who + "127.0.0.1:9");
    }
  }
  options_.environment["ATTNJIT_REMOTE"] = "http://bob:hun/ter2@127.0.0.1:9/x";
  expect_bad(hopper("compile"), "%XX");
  options_.environment["ATTNJIT_REMOTE"] = "http://127.0.0.1:9/x";
  options_.environment["no_proxy"] = "";
  hides("http_proxy", "http://bob:hunter/Swordfish@127.0.0.1:9");
}

}  // namespace
}  // namespace attnjit::testing
