// SPDX-License-Identifier: Apache-2.0
// The recipe for Kubernetes of docs/fleet.md, run through over folders that are laid out as a
// config map, a secret, an emptyDir and an image volume are, by a user who owns none of them.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "../cache/http_server.h"
#include "cli_test.h"

namespace attnjit::testing {
namespace {

namespace stdfs = std::filesystem;

class Kubernetes : public CliTest {
 protected:
  void SetUp() override {
    if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
    ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
    make_folder("scratch", 0777);
    make_folder("etc", 0777);
    make_folder("secret", 01777);
    make_folder("data", 0777);
    build();
    serve();
  }

  void make_folder(const std::string& name, mode_t mode) const {
    stdfs::create_directories(folder_ / name);
    ASSERT_EQ(::chmod((folder_ / name).c_str(), mode), 0);
  }

  /// Renews a mounted folder as the kubelet does: the files in a folder of their own, which a link
  /// leads to that is replaced at once; the folder before it goes.
  void mount(const std::string& name, const std::vector<std::string>& files, mode_t mode) {
    const std::string data = folder_ / (name + "/..data");
    const std::string before =
        stdfs::is_symlink(data) ? stdfs::read_symlink(data).string() : std::string();
    const std::string version = "..2026_11_29_" + std::to_string(++versions_);
    make_folder(name + "/" + version, 0755);
    for (const std::string& file : files) {
      const std::string base = stdfs::path(file).filename();
      const std::string copy = folder_ / (name + "/" + version + "/" + base);
      stdfs::copy_file(file, copy);
      ASSERT_EQ(::chmod(copy.c_str(), mode), 0);
      // Of a group alone where the mode says so: what fsGroup does.
      if (::geteuid() == 0 && (mode & 0040) != 0) {
        ASSERT_EQ(::chown(copy.c_str(), 0, kGroup), 0);
      }
      const std::string link = folder_ / (name + "/" + base);
      if (!stdfs::is_symlink(link)) stdfs::create_symlink("..data/" + base, link);
    }
    stdfs::create_symlink(version, data + "_tmp");
    stdfs::rename(data + "_tmp", data);
    if (!before.empty()) stdfs::remove_all(folder_ / (name + "/" + before));
  }

  /// On the machine that builds: a signed kernel, as a bundle and as an image that is mounted.
  void build() {
    options_.environment["ATTNJIT_CACHE_DIR"] = folder_ / "build";
    run_json({"cache", "keygen", folder_ / "fleet.key"}, 0);
    options_.environment["ATTNJIT_SIGN_KEY"] = folder_ / "fleet.key";
    write_text(folder_ / "model.json", R"({"name": "m", "source": "s", "specs": [
      {"num_q_heads": 8, "group": 2, "qk_depth": 64, "mask": "causal"}]})");
    run_json({"prewarm", folder_ / "model.json", "--arch", "sm_90a"}, 0);
    run_json({"cache", "export", folder_ / "kernels.bundle"}, 0);
    run_json({"cache", "sign", folder_ / "kernels.bundle"}, 0);
    run_json({"cache", "export", "--oci", folder_ / "oci"}, 0);
    make_folder("kernels", 0755);
    for (const auto& blob : stdfs::directory_iterator(folder_ / "oci/blobs/sha256")) {
      const std::string untar =
          "tar -xf " + blob.path().string() + " -C " + (folder_ / "kernels") + " 2>/dev/null";
      if (std::system(untar.c_str()) != 0) continue;  // the manifest, or the configuration
    }
    ASSERT_TRUE(stdfs::is_directory(folder_ / "kernels/v2/entries"));
  }

  /// From now on commands are a pod's.
  void serve() {
    mount("etc", {folder_ / "fleet.key.pub"}, 0644);
    mount("secret", {folder_ / "fleet.key"}, ::geteuid() == 0 ? 0440 : 0400);
    mount("data", {folder_ / "kernels.bundle", folder_ / "kernels.bundle.minisig"}, 0644);
    become_another_user();
    options_.environment["ATTNJIT_SIGN_KEY"] = "";
    options_.environment["HOME"] = "";
    options_.environment["XDG_CACHE_HOME"] = "";
    options_.environment["ATTNJIT_TRUST"] = folder_ / "etc/fleet.key.pub";
    options_.environment["ATTNJIT_REMOTE"] = server_.url();
    new_pod("a");
  }
  /// `more`: the layers behind the first one, which is new.
  void new_pod(const std::string& name, const std::string& more = ":KERNELS") {
    const bool has_image = more == ":KERNELS";
    options_.environment["ATTNJIT_CACHE_DIR"] =
        folder_ / ("scratch/" + name) + (has_image ? ":" + folder_ / "kernels" : more);
  }

  std::string outcome(const std::string& depth) {
    const Json json = run_json({"compile", "--arch", "sm_90a", "--num-q-heads", "8", "--group", "2",
                                "--qk-depth", depth, "--mask", "causal"},
                               0);
    return json.value("outcome", "");
  }

  cache::HttpServer server_;
  int versions_ = 0;
};

TEST_F(Kubernetes, TheRecipeOfTheDocumentsWorks) {
  // The image's kernel is believed, and another one is compiled and kept in the emptyDir.
  EXPECT_EQ(outcome("64"), "disk");
  EXPECT_EQ(outcome("128"), "compiled");
  EXPECT_EQ(outcome("128"), "disk");
  EXPECT_TRUE(server_.objects().empty()) << "what nobody signed is not sent";
  const Json prewarmed = run_json({"prewarm", folder_ / "model.json", "--arch", "sm_90a"}, 0);
  EXPECT_EQ(prewarmed.at("hits"), 1);

  // A pod that holds the secret sends what it compiles; the others are served it.
  options_.environment["ATTNJIT_SIGN_KEY"] = folder_ / "secret/fleet.key";
  new_pod("b", "");
  EXPECT_EQ(outcome("128"), "compiled");
  options_.environment["ATTNJIT_SIGN_KEY"] = "";
  std::string found;
  for (int i = 0; i < 10 && found != "remote"; ++i) {  // again where it was slow: it has 50 ms
    new_pod("c" + std::to_string(i), "");
    found = outcome("128");
  }
  EXPECT_EQ(found, "remote");

  // Bundles come through links, too.
  new_pod("d", "");
  EXPECT_EQ(run_json({"cache", "verify", folder_ / "data/kernels.bundle"}, 0).at("file"),
            folder_ / "data/kernels.bundle");
  EXPECT_EQ(run_json({"cache", "import", folder_ / "data/kernels.bundle"}, 0).at("entries"), 1);
  EXPECT_EQ(outcome("64"), "disk");
  new_pod("e", "");
  EXPECT_EQ(run_json({"prewarm", folder_ / "model.json", "--arch", "sm_90a", "--from",
                      folder_ / "data/kernels.bundle"},
                     0)
                .at("hits"),
            1);
  EXPECT_EQ(run_json({"cache", "export", folder_ / "scratch/out.bundle"}, 0).at("entries"), 1);
}

TEST_F(Kubernetes, WhatTheConfigMapHoldsNowIsAsked) {
  EXPECT_EQ(outcome("64"), "disk");
  options_.through.clear();
  run_json({"cache", "keygen", folder_ / "other/fleet.key"}, 1);  // no such folder
  make_folder("other", 0755);
  run_json({"cache", "keygen", folder_ / "other/fleet.key"}, 0);
  mount("etc", {folder_ / "other/fleet.key.pub"}, 0644);
  become_another_user();
  new_pod("f");
  last_ = run(hopper("compile", {"--json"}));
  EXPECT_EQ(Json::parse(last_.out).at("outcome"), "compiled");
  EXPECT_NE(last_.err.find("not in the keyring"), std::string::npos) << last_.err;
}

TEST_F(Kubernetes, KeysThatStrangersCouldChangeAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "files of other users need root";
  const std::string link = folder_ / "etc/fleet.key.pub";
  ASSERT_EQ(::lchown(link.c_str(), 4321, 0), 0);
  expect_bad(hopper("compile"), "symbolic link");
  ASSERT_EQ(::lchown(link.c_str(), 0, 0), 0);
  const std::string file = stdfs::canonical(link);
  ASSERT_EQ(::chown(file.c_str(), 4321, 0), 0);
  expect_bad(hopper("compile"), "belongs to user 4321");
  options_.through.clear();  // root believes him no more
  expect_bad(hopper("compile"), "belongs to user 4321");
  ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  options_.environment["ATTNJIT_SIGN_KEY"] = folder_ / "secret/fleet.key";
  const std::string secret = stdfs::canonical(folder_ / "secret/fleet.key");
  ASSERT_EQ(::chmod(secret.c_str(), 0644), 0);
  expect_bad(hopper("compile"), "others may read");
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  ASSERT_EQ(::chown(secret.c_str(), 4321, 0), 0);
  expect_bad(hopper("compile"), "belongs to user 4321");
}

}  // namespace
}  // namespace attnjit::testing
