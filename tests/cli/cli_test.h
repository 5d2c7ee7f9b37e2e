// SPDX-License-Identifier: Apache-2.0
// What the command's tests share: a cache folder of their own, and JSON that must be one object.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.h"

namespace attnjit::testing {

using Json = nlohmann::json;

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    options_.environment["ATTNJIT_CACHE_DIR"] = folder_ / "cache";
    options_.environment["ATTNJIT_LOG_LEVEL"] = "warn";
  }

  Process run(const std::vector<std::string>& arguments) {
    return run_attnjit(arguments, options_);
  }

  /// Runs with --json: standard output must be exactly one JSON object.
  Json run_json(std::vector<std::string> arguments, int expected_exit) {
    arguments.push_back("--json");
    last_ = run(arguments);
    EXPECT_EQ(last_.exit_code, expected_exit) << last_.err << last_.out;
    const Json json = Json::parse(last_.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << "standard output is not one JSON object: " << last_.out;
    return json.is_object() ? json : Json::object();
  }

  /// Bad input: exit code 2, one message, and (with --json) an error object; never a crash.
  void expect_bad(const std::vector<std::string>& arguments, const std::string& in_message = {}) {
    const Process process = run(arguments);
    EXPECT_EQ(process.exit_code, 2) << process.err;
    EXPECT_EQ(process.out, "");
    EXPECT_FALSE(process.err.empty());
    if (!in_message.empty()) {
      EXPECT_NE(process.err.find(in_message), std::string::npos)
          << in_message << " is not in: " << process.err;
    }
    const Json json = run_json(arguments, 2);
    EXPECT_EQ(json.value("/error/code"_json_pointer, ""), "invalid");
  }

  /// From now on the command is another user's, where this one may choose that: who owns nothing
  /// and may not read all. False where it may not.
  bool become_another_user() {
    if (::geteuid() != 0) return false;
    options_.through = {
        "/usr/bin/setpriv",     "--reuid",        "12345", "--regid", "54321", "--groups",
        std::to_string(kGroup), "--inh-caps=-all"};
    return true;
  }
  static constexpr gid_t kGroup = 2000;  ///< a further group of the other user

  bool has_nvrtc() {
    const Process process = run({"doctor", "--json"});
    return Json::parse(process.out).at("nvrtc").at("found");
  }

  // A driver library in a folder that the loader looks into first.
  void use_driver(const std::string& library) {
    std::filesystem::create_directories(folder_ / "driver");
    std::filesystem::remove(folder_ / "driver/libcuda.so.1");
    if (library.empty()) {
      write_text(folder_ / "driver/libcuda.so.1", "no library");
    } else {
      std::filesystem::create_symlink(library, folder_ / "driver/libcuda.so.1");
    }
    options_.environment["LD_LIBRARY_PATH"] = folder_ / "driver";
    options_.environment["ATTNJIT_FAKE_KERNEL"] = "attnjit_forward";
  }

  TemporaryFolder folder_;
  ProcessOptions options_;
  Process last_;
};

/// A kernel that sm_90a's template serves.
inline std::vector<std::string> hopper(const std::string& command,
                                       std::vector<std::string> more = {}) {
  std::vector<std::string> words{command, "--arch",  "sm_90a", "--num-q-heads",
                                 "8",     "--group", "2",      "--qk-depth",
                                 "64",    "--mask",  "causal"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace attnjit::testing
