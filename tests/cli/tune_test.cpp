// SPDX-License-Identifier: Apache-2.0
// attnjit tune where there is no GPU, and tuning tables in the commands that plan with them.
#include <unistd.h>

#include <filesystem>

#include "cli_test.h"

namespace attnjit::testing {
namespace {

class Tune : public CliTest {
 protected:
  bool table_exists() const { return std::filesystem::exists(folder_ / "table.json"); }
};

TEST_F(Tune, BadInputIsTold) {
  expect_bad(hopper("tune", {"--shape", "1:2"}), "shape");
  expect_bad(hopper("tune", {"--shape", "1:2:x"}), "shape");
  expect_bad(hopper("tune", {"--shape", "1:2:3:4"}), "shape");
  expect_bad(hopper("tune", {"--shape", "1:0:3"}), "shape");
  expect_bad(hopper("tune", {"--shape", "-1:5:3"}), "batch");
  expect_bad(hopper("tune", {"--shape", "1:999999999999:3"}), "q_len");
  expect_bad(hopper("tune", {"--pairs", "4"}), "pairs");
  expect_bad(hopper("tune", {"--max-variants", "0"}), "max_variants");
  expect_bad(hopper("tune", {"--tuning", "x"}));
  write_text(folder_ / "bad.json", R"({"rows": [{"choose": {"BN": "x"}}]})");
  expect_bad(hopper("tune", {"-o", folder_ / "bad.json"}), "bad.json");
  expect_bad(hopper("tune", {"-o", folder_.path()}));
  EXPECT_EQ(read_text(folder_ / "bad.json"), R"({"rows": [{"choose": {"BN": "x"}}]})");
}

TEST_F(Tune, AnOutputThatCannotBeWrittenIsToldBeforeAnythingIsMeasured) {
  use_driver("");
  const Process process = run(hopper("tune", {"-o", folder_ / "missing/table.json"}));
  EXPECT_EQ(process.exit_code, 1) << process.err;
  EXPECT_NE(process.err.find("missing/table.json"), std::string::npos) << process.err;
}

TEST_F(Tune, BadFlagsOfAModelAreTold) {
  expect_bad(hopper("tune", {"--model", "sm_1"}), "model");
  expect_bad(hopper("tune", {"--model", "sm_100a"}), "model");  // the spec is for sm_90a
  expect_bad(hopper("tune", {"--model", "sm_90a", "--pairs", "5"}), "pairs");
  expect_bad(hopper("tune", {"--model", "sm_90a", "--timed-sms", "0"}), "timed-sms");
  expect_bad(hopper("tune", {"--timed-sms", "2"}), "timed-sms");
}

TEST_F(Tune, AModelNeedsNoGpuAndWritesWhatItIs) {
  use_driver("");
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::vector<std::string> words =
      hopper("tune", {"--model", "sm_90a", "--max-seq-len", "32", "--shape", "1:32:32",
                      "--max-variants", "2", "--timed-sms", "1", "-o", folder_ / "table.json"});
  const Json json = run_json(words, 0);
  // Not on a terminal each stage is told at its end, in a line.
  for (const char* const line : {"compiled 2 of 2\n", "verified 20 of 20\n", "screened 2 of 2\n"}) {
    EXPECT_NE(last_.err.find(line), std::string::npos) << last_.err;
  }
  EXPECT_GT(json.at("model_version").get<int>(), 0);
  EXPECT_NE(json.at("model_error").get<std::string>().find("H200"), std::string::npos);
  EXPECT_EQ(json.at("control"), 1.0);
  ASSERT_EQ(json.at("variants").size(), 2U);
  EXPECT_GT(json.at("variants")[0].at("ms").at(0).get<double>(), 0);
  const Json row = Json::parse(read_text(folder_ / "table.json")).at("rows").at(0);
  EXPECT_EQ(row.at("modelled").at("model_version"), json.at("model_version"));
  EXPECT_EQ(row.at("modelled").at("key"), json.at("key"));
}

TEST_F(Tune, WhatIsUnsupportedIsToldBeforeAGpuIsMissed) {
  use_driver("");
  EXPECT_EQ(run(hopper("tune", {"--v-layout", "transposed"})).exit_code, 3);
}

TEST_F(Tune, WithoutAGpuNothingIsMeasuredOrWritten) {
  use_driver("");
  const Process process = run(hopper("tune", {"-o", folder_ / "table.json"}));
  EXPECT_EQ(process.exit_code, 4);
  EXPECT_EQ(process.out, "");
  EXPECT_NE(process.err.find("libcuda"), std::string::npos) << process.err;
  EXPECT_LT(process.seconds, 2) << "compiled before the GPU was missed";
  const Json json = run_json(hopper("tune", {"-o", folder_ / "table.json"}), 4);
  EXPECT_EQ(json.at("error").at("code"), "environment");
  EXPECT_FALSE(table_exists());
}

// A driver whose kernels do nothing: outputs stay as they were poisoned.
TEST_F(Tune, AKernelThatIsWrongIsNoChoice) {
  use_driver(ATTNJIT_FAKE_CUDA);
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Process process = run(
      hopper("tune", {"--shape", "1:64:64", "--max-variants", "1", "-o", folder_ / "table.json"}));
  EXPECT_EQ(process.exit_code, 1) << process.err;
  EXPECT_NE(process.err.find("the untuned kernel is wrong"), std::string::npos) << process.err;
  EXPECT_FALSE(table_exists());
}

// The library's rows are asked for by their name, and a file may ask for them behind its own.
TEST_F(Tune, TheLibraryHasRowsOfAModel) {
  write_text(folder_ / "table.json", R"({"rows": [], "else": "modelled"})");
  const auto kernel = [this](const std::vector<std::string>& tuning) {
    std::vector<std::string> words{"plan", "--arch",  "sm_100a", "--num-q-heads",
                                   "32",   "--group", "8",       "--qk-depth",
                                   "128",  "--mask",  "causal"};
    words.insert(words.end(), tuning.begin(), tuning.end());
    return run_json(words, 0).at("kernel");
  };
  EXPECT_EQ(kernel({}).at("tuned_by"), nullptr);
  for (const std::string& tuning : {std::string("modelled"), folder_ / "table.json"}) {
    const Json tuned = kernel({"--tuning", tuning});
    EXPECT_GT(tuned.at("tuned_by").at("model_version").get<int>(), 0) << tuning;
    EXPECT_GT(tuned.at("persistent").get<int>(), 0) << tuning;
  }
}

// A cache that is filled where there is no GPU has the keys that a server with the table asks for.
TEST_F(Tune, EveryCommandComesToTheSameKeyWithATable) {
  use_driver("");
  const int before = run_json(hopper("plan"), 0).at("kernel").at("BN");
  const int chosen = before == 96 ? 80 : 96;
  write_text(folder_ / "table.json",
             R"({"rows": [{"match": {"arch": "sm_90a", "qk_depth": 64}, "choose": {"BN": )" +
                 std::to_string(chosen) + "}}]}");
  const std::string table = folder_ / "table.json";
  const std::string plain = run_json(hopper("generate"), 0).at("key");
  const std::string tuned = run_json(hopper("generate", {"--tuning", table}), 0).at("key");
  EXPECT_NE(plain, tuned);
  EXPECT_EQ(run_json(hopper("plan", {"--tuning", table}), 0).at("kernel").at("BN"), chosen);
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "group": 2,)"
             R"( "qk_depth": 64, "mask": "causal"}]})");
  const Json warmed =
      run_json({"prewarm", folder_ / "manifest.json", "--arch", "sm_90a", "--tuning", table}, 0);
  EXPECT_EQ(warmed.at("specs").at(0).at("key"), tuned);
  const Json compiled = run_json(hopper("compile", {"--tuning", table}), 0);
  EXPECT_EQ(compiled.at("key"), tuned);
  EXPECT_EQ(compiled.at("outcome"), "disk");
}

}  // namespace
}  // namespace attnjit::testing
