// SPDX-License-Identifier: Apache-2.0
// compile, prewarm and cache on real NVRTC: JSON, exit codes, and a cache that serves.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "../in_proof.h"
#include "cli_test.h"
#include "source_dir.h"

namespace attnjit::testing {
namespace {

namespace fs = std::filesystem;

class Compile : public CliTest {
 protected:
  void SetUp() override {
    if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  }
  void hide_nvrtc() { options_.environment["ATTNJIT_NVRTC"] = "/nonexistent"; }

  // The entries in the cache folder, by size: the images are the large ones.
  std::vector<fs::path> entries() {
    std::vector<fs::path> found;
    const Json list = run_json({"cache", "list"}, 0);
    for (const Json& entry : list.at("entries")) {
      found.emplace_back(entry.at("path").get<std::string>());
    }
    return found;
  }
};

TEST_F(Compile, TheCacheSaysWhatItsImagesCompute) {
  write_text(folder_ / "model.json",
             R"({"name": "toy", "source": "s", "specs": [{"num_q_heads": 1, "qk_depth": 128}, )"
             R"({"num_q_heads": 8, "group": 2, "qk_depth": 64, "mask": "causal"}]})");
  const std::string key = run_json(hopper("compile"), 0).at("key");
  run_json({"compile", "--arch", "sm_90a", "--num-q-heads", "8", "--qk-depth", "64", "--qkv-dtype",
            "fp16", "--page-size", "32", "--return-lse", "--mask",
            R"({"kind": "custom", "name": "odd", "code": "(kv_idx & 1) == 1"})"},
           0);
  const Json entries = run_json({"cache", "list"}, 0).at("entries");
  ASSERT_EQ(entries.size(), 2U);
  const bool second = entries[1].at("key") == key;
  const Json &causal = entries[second ? 1 : 0], &odd = entries[second ? 0 : 1];
  EXPECT_EQ(causal.at("spec").at("mask"), "causal");
  EXPECT_EQ(causal.at("spec").at("dtype"), "bf16");
  EXPECT_EQ(causal.at("spec").at("qk_depth"), 64);
  EXPECT_EQ(causal.at("spec").at("group"), 2);
  EXPECT_EQ(causal.at("spec").at("page_size"), 0);
  EXPECT_TRUE(causal.at("manifest").is_null());
  EXPECT_GT(causal.at("registers").get<int>(), 0);
  EXPECT_FALSE(causal.at("nvrtc_version").get<std::string>().empty());
  EXPECT_EQ(odd.at("spec").at("dtype"), "fp16");
  EXPECT_EQ(odd.at("spec").at("page_size"), 32);
  EXPECT_EQ(odd.at("spec").at("return_lse"), true);

  const std::string listed =
      run({"cache", "list", "--long", "--manifest", folder_ / "model.json"}).out;
  EXPECT_NE(listed.find("bf16, depth 64, group 2, causal"), std::string::npos) << listed;
  EXPECT_NE(listed.find("of toy[1]"), std::string::npos) << listed;
  EXPECT_NE(listed.find("fp16, depth 64, group 1, "), std::string::npos) << listed;
  EXPECT_NE(listed.find("NVRTC "), std::string::npos) << listed;

  const Process shown = run({"cache", "show", key.substr(0, 12)});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_NE(shown.out.find("key        " + key), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("model      not known; give --manifest"), std::string::npos);
  const Json one =
      run_json({"cache", "show", key, "--manifest", folder_ / "model.json"}, 0).at("entries");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].at("manifest"), "toy[1]");
  const Process code = run({"cache", "show", odd.at("key").get<std::string>()});
  EXPECT_NE(code.out.find("kv_idx & 1"), std::string::npos) << code.out;
  expect_bad({"cache", "show", "abc"}, "4 to 64 digits");
  expect_bad({"cache", "show", "ABCD"}, "4 to 64 digits");
  expect_bad({"cache", "show", std::string(64, '0')}, "no image");
  expect_bad({"cache", "list", "--manifest", folder_ / "none.json"}, "none.json");
}

TEST_F(Compile, TellsWhatTheDesignLists) {
  const Json first =
      run_json(hopper("compile", {"-o", folder_ / "k.cubin", "--ptx", folder_ / "k.ptx"}), 0);
  EXPECT_EQ(first.at("outcome"), "compiled");
  EXPECT_EQ(first.at("arch"), "sm_90a");
  EXPECT_EQ(first.at("key").get<std::string>().size(), 64U);
  EXPECT_GT(first.at("compile_ms").get<double>(), 0);
  EXPECT_GE(first.at("total_ms").get<double>(), first.at("compile_ms").get<double>());
  EXPECT_GT(first.at("registers").get<int>(), 0);
  EXPECT_GE(first.at("spill_bytes").get<int>(), 0);
  EXPECT_GE(first.at("stack_bytes").get<int>(), 0);
  EXPECT_GT(first.at("smem_bytes").get<int>(), 0);
  EXPECT_FALSE(first.at("nvrtc_version").get<std::string>().empty());
  const std::string cubin = read_text(folder_ / "k.cubin");
  EXPECT_EQ(first.at("cubin_bytes").get<std::size_t>(), cubin.size());
  EXPECT_EQ(cubin.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_NE(read_text(folder_ / "k.ptx").find(".target sm_90a"), std::string::npos);

  const Json second = run_json(hopper("compile", {"-o", folder_ / "again.cubin"}), 0);
  EXPECT_EQ(second.at("outcome"), "disk");
  EXPECT_EQ(second.at("compile_ms"), 0);
  EXPECT_EQ(second.at("key"), first.at("key"));
  EXPECT_EQ(second.at("registers"), first.at("registers"));
  EXPECT_EQ(second.at("spill_bytes"), first.at("spill_bytes"));
  EXPECT_EQ(second.at("smem_bytes"), first.at("smem_bytes"));
  EXPECT_EQ(read_text(folder_ / "again.cubin"), cubin);
  // PTX of an entry that was stored without it is had by a compile, or was stored.
  const Json third = run_json(hopper("compile", {"--ptx", folder_ / "b.ptx"}), 0);
  EXPECT_EQ(third.at("key"), first.at("key"));
  EXPECT_FALSE(read_text(folder_ / "b.ptx").empty());
}

TEST_F(Compile, TextNamesTheOutcome) {
  const Process first = run(hopper("compile"));
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("compiled"), std::string::npos);
  EXPECT_NE(run(hopper("compile")).out.find("disk"), std::string::npos);
}

TEST_F(Compile, LaunchScalarsAreNotInTheKeyUnlessConstant) {
  const auto key = [&](const std::string& mask) {
    return run_json({"generate", "--arch", "sm_90a", "--num-q-heads", "8", "--qk-depth", "64",
                     "--mask", mask},
                    0)
        .at("key");
  };
  const auto window = [](int n, bool constant) {
    return R"({"kind": "sliding_window", "window": )" + std::to_string(n) +
           (constant ? R"(, "constant": true})" : "}");
  };
  EXPECT_EQ(key(window(100, false)), key(window(200, false)));
  EXPECT_NE(key(window(100, true)), key(window(200, true)));
  EXPECT_NE(key(window(100, true)), key(window(100, false)));
}

TEST_F(Compile, WithoutNvrtcColdIsFourWarmIsServed) {
  const Json made = run_json(hopper("compile"), 0);
  hide_nvrtc();
  const Json served = run_json(hopper("compile"), 0);
  EXPECT_EQ(served.at("outcome"), "disk");
  EXPECT_EQ(served.at("key"), made.at("key"));
  const Json missing = run_json(hopper("compile", {"--qk-depth", "128"}), 2);  // given twice
  EXPECT_TRUE(missing.contains("error"));
  const Json cold =
      run_json({"compile", "--arch", "sm_90a", "--num-q-heads", "8", "--qk-depth", "128"}, 4);
  EXPECT_EQ(cold.at("error").at("code"), "environment");
  EXPECT_NE(last_.err.find("/nonexistent"), std::string::npos) << last_.err;
}

TEST_F(Compile, ADamagedEntryIsCompiledAgain) {
  const Json made = run_json(hopper("compile", {"-o", folder_ / "a.cubin"}), 0);
  const std::vector<fs::path> files = entries();
  ASSERT_EQ(files.size(), 1U);
  const std::string good = read_text(files[0].string());
  for (const std::size_t at :
       proof::some_of<std::size_t>({9, good.size() - 1, good.size() / 2, 0}, 2)) {
    std::string bad = read_text(files[0].string());
    ASSERT_FALSE(bad.empty());
    bad[std::min(at, bad.size() - 1)] = static_cast<char>(bad[std::min(at, bad.size() - 1)] ^ 0x10);
    write_text(files[0].string(), bad);
    const Json again = run_json(hopper("compile", {"-o", folder_ / "b.cubin"}), 0);
    EXPECT_EQ(again.at("outcome"), "compiled") << at;
    EXPECT_EQ(read_text(folder_ / "b.cubin"), read_text(folder_ / "a.cubin"));
    EXPECT_EQ(run_json(hopper("compile"), 0).at("outcome"), "disk");
  }
  fs::resize_file(files[0], good.size() / 3);
  EXPECT_EQ(run_json(hopper("compile"), 0).at("outcome"), "compiled");
}

TEST_F(Compile, UnsupportedIsThree) {
  const auto deep = [](const std::string& command) {
    return std::vector<std::string>{command,      "--arch", "sm_90a",      "--num-q-heads", "8",
                                    "--qk-depth", "512",    "--qkv-dtype", "e4m3"};
  };
  const Json json = run_json(deep("compile"), 3);
  EXPECT_EQ(json.at("error").at("code"), "unsupported");
  EXPECT_FALSE(last_.err.empty());
  EXPECT_EQ(run(deep("generate")).exit_code, 3);
  EXPECT_EQ(run(deep("verify")).exit_code, 3);
}

TEST_F(Compile, TemplatesThatAreNotThereAreFour) {
  fs::create_directories(folder_ / "empty");
  fs::create_directories(folder_ / "part");  // nothing for the architecture
  write_text(folder_ / "part/attention.cu.tmpl", "");
  for (const std::string& folder :
       {folder_ / "missing", folder_ / "empty", folder_ / "part", std::string("/dev/null")}) {
    options_.environment["ATTNJIT_TEMPLATES"] = folder;
    for (const char* command : {"compile", "generate", "verify"}) {
      const Json json = run_json(hopper(command), 4);
      EXPECT_EQ(json.at("error").at("code"), "environment") << folder;
      EXPECT_NE(last_.err.find("ATTNJIT_TEMPLATES"), std::string::npos) << last_.err;
    }
  }
}

TEST_F(Compile, AFailureIsToldOnce) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::string mask = R"({"kind": "custom", "name": "m", "trusted": true,)"
                           R"( "code": "return nonexistent_name(q_idx);"})";
  const auto told = [&] {
    std::size_t count = 0;
    const std::string what = "nonexistent_name";
    for (std::size_t at = 0; (at = last_.err.find(what, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  last_ = run(
      {"compile", "--arch", "sm_90a", "--num-q-heads", "8", "--qk-depth", "64", "--mask", mask});
  EXPECT_EQ(last_.exit_code, 1) << last_.err;
  EXPECT_EQ(told(), 1U) << last_.err;
  write_text(
      folder_ / "manifest.json",
      R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64, "mask": )" +
          mask + "}]}");
  last_ = run({"prewarm", folder_ / "manifest.json", "--arch", "sm_90a"});
  EXPECT_EQ(last_.exit_code, 1) << last_.err;
  EXPECT_EQ(told(), 1U) << last_.err;
}

// Static shared memory of trusted code beside the kernel's own, which every GPU lacks.
TEST_F(Compile, AnImageThatNoGpuCanLaunchIsNotPublished) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::string mask = R"({"kind": "custom", "name": "m", "trusted": true, "code":)"
                           R"( "__shared__ int x[50000]; x[q_idx] = 1; return x[kv_idx] > 0;"})";
  const std::vector<std::string> spec{"--arch",     "sm_90a", "--num-q-heads", "1",
                                      "--qk-depth", "64",     "--mask",        mask};
  for (const std::string command : {"compile", "verify"}) {
    std::vector<std::string> words{command};
    words.insert(words.end(), spec.begin(), spec.end());
    if (command == "verify") words.insert(words.end(), {"--backend", "emulator"});
    const Json json = run_json(words, 1);
    EXPECT_EQ(json.at("error").at("code"), "compile_failed");
    const std::string message = json.at("error").at("message");
    for (const char* part : {"bytes of static", "of dynamic", "364768 in all", "232448"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  write_text(
      folder_ / "manifest.json",
      R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 1, "qk_depth": 64, "mask": )" +
          mask + "}]}");
  const Json json = run_json({"prewarm", folder_ / "manifest.json", "--arch", "sm_90a"}, 1);
  EXPECT_EQ(json.at("failed"), 1);
  EXPECT_EQ(json.at("specs")[0].at("error").at("code"), "compile_failed");
  EXPECT_TRUE(run_json({"cache", "list"}, 0).at("entries").empty());
}

TEST_F(Compile, AnArchitectureThatIsNamedTwiceIsDoneOnce) {
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  options_.environment["ATTNJIT_NVRTC"] = folder_ / "no.so";  // nothing is compiled
  const Json json =
      run_json({"prewarm", folder_ / "manifest.json", "--arch", "sm_90a,sm_100a,sm_90a,sm_90a"}, 4);
  ASSERT_EQ(json.at("specs").size(), 2U);
  EXPECT_EQ(json.at("specs")[0].at("arch"), "sm_90a");
  EXPECT_EQ(json.at("specs")[1].at("arch"), "sm_100a");
}

// The kernels of the cache were made by another build than the NVRTC at hand, which compiles none.
TEST_F(Compile, DoctorSaysWhatAnotherNvrtcWouldCompileAnew) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::vector<std::string> merge{"compile", "--arch",     "sm_90a", "--num-q-heads",
                                       "2",       "--qk-depth", "64",     "--merge"};
  run_json(merge, 0);
  const auto cache = [&] { return Json::parse(run({"doctor", "--json"}).out).at("cache"); };
  EXPECT_EQ(cache().at("nvrtc_policy"), "exact");
  EXPECT_EQ(cache().at("misses"), Json::array());
  const Json made_by = Json::parse(run({"doctor", "--json"}).out).at("nvrtc");
  EXPECT_FALSE(made_by.at("why").get<std::string>().empty());

  const std::filesystem::path other = folder_ / "nvrtc";
  std::filesystem::create_directories(other);
  std::filesystem::copy_file(ATTNJIT_FAKE_NVRTC, other / "libnvrtc.so.99");
  std::filesystem::copy_file(ATTNJIT_FAKE_BUILTINS, other / "libnvrtc-builtins.so.99.9");
  options_.environment["ATTNJIT_NVRTC"] = (other / "libnvrtc.so.99").string();
  EXPECT_EQ(cache().at("misses"),
            Json::array({{{"build_id", made_by.at("build_id")}, {"kernels", 1}}}));
  EXPECT_NE(run({"doctor"}).out.find("ATTNJIT_NVRTC_POLICY=any"), std::string::npos);
  EXPECT_NE(run(merge).exit_code, 0);
  options_.environment["ATTNJIT_NVRTC_POLICY"] = "any";
  EXPECT_EQ(run_json(merge, 0).at("outcome"), "disk");
  EXPECT_EQ(cache().at("misses"), Json::array());
  options_.environment["ATTNJIT_NVRTC_POLICY"] = "all";
  expect_bad(merge, "ATTNJIT_NVRTC_POLICY");
}

TEST_F(Compile, AnNvrtcThatIsTooOldIsFour) {
  options_.environment["ATTNJIT_NVRTC"] = ATTNJIT_FAKE_NVRTC_OLD;
  for (const char* arch : {"sm_90a", "sm_100a"}) {
    const Json error =
        run_json({"compile", "--arch", arch, "--num-q-heads", "2", "--qk-depth", "64"}, 4)
            .at("error");
    EXPECT_EQ(error.at("code"), "environment");
    const std::string message = error.at("message");
    EXPECT_NE(message.find("NVRTC 12.8 at "), std::string::npos) << message;
    EXPECT_NE(message.find("needs NVRTC 12.9"), std::string::npos) << message;
  }
  // Image builds tell it from a spec that does not compile.
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  const Json json = run_json({"prewarm", folder_ / "manifest.json", "--arch", "sm_90a,sm_100a"}, 4);
  EXPECT_EQ(json.at("failed"), 2);
  EXPECT_EQ(json.at("specs")[1].at("error").at("code"), "environment");
}

TEST_F(Compile, ATemplateFolderThatIsNotWholeIsFour) {
  std::filesystem::create_directories(folder_ / "templates");
  std::filesystem::copy_file(ATTNJIT_SOURCE_DIR "/templates/attention.cu.tmpl",
                             folder_ / "templates/attention.cu.tmpl");
  options_.environment["ATTNJIT_TEMPLATES"] = folder_ / "templates";
  for (const char* command : {"generate", "compile"}) {
    EXPECT_EQ(run_json(hopper(command), 4).at("error").at("code"), "environment") << command;
  }
}

TEST_F(Compile, VerifyWithoutAGpuIsFour) {
  const Json doctor = Json::parse(run({"doctor", "--json"}).out);
  if (!doctor.at("gpus").empty()) GTEST_SKIP() << "there is a GPU";
  const Json json = run_json(hopper("verify", {"--backend", "gpu"}), 4);
  EXPECT_EQ(json.at("error").at("code"), "environment");
  EXPECT_EQ(run(hopper("bench")).exit_code, 4);
}

TEST_F(Compile, TheClockTellsOfRoles) {
  const std::string trace = folder_ / "trace.json";
  const Json json = run_json(hopper("verify", {"--timing", "sm_90a", "--q-len", "192", "--kv-len",
                                               "128", "--trace", trace}),
                             0);
  ASSERT_EQ(json.at("launches").size(), 1U);
  EXPECT_EQ(json.at("cycles"), json.at("launches")[0].at("cycles"));
  const Json& roles = json.at("roles");
  ASSERT_TRUE(roles.contains("load") && roles.contains("consumer 0"));
  // One of the consumers waits for products; the load makes none.
  double waited = 0;
  for (const auto& [name, cycles] : roles.items()) waited += cycles.at("product").get<double>();
  EXPECT_GT(waited, 0);
  EXPECT_EQ(roles.at("load").at("product").get<double>(), 0);
  EXPECT_GT(roles.at("load").at("issued").get<double>(), 0);
  // Barriers have the plan's names: a consumer waits for the first K.
  const Json& waits = json.at("launches")[0].at("barrier_waits");
  EXPECT_TRUE(waits.contains("warpgroup 1: K 0 full")) << waits;
  // So have the trace's rows and waits.
  std::set<std::string> rows, spans;
  const Json events = Json::parse(read_text(trace)).at("traceEvents");
  for (const Json& event : events) {
    if (event.at("name") == "thread_name") rows.insert(event.at("args").at("name"));
    if (event.at("ph") == "X") spans.insert(event.at("name"));
  }
  EXPECT_TRUE(rows.count("warp 4, consumer 0"));
  EXPECT_TRUE(spans.count("waits: Q 0 of 0 full"));
}

// One long sequence among short ones is cut among all CTAs, and few ranges have all the rows that
// are merged: many CTAs have a part in that.
TEST_F(Compile, RowsOfOneLongSequenceAreMergedByManyCtas) {
  const std::string spec = folder_ / "mla.json";
  write_text(spec, R"({"arch": "sm_90a", "mla": "decode", "num_q_heads": 32, "group": 32,
                       "qk_depth": 576, "ov_depth": 512, "page_size": 64, "mask": "causal",
                       "num_partitions": 0, "max_q_len": 2})");
  const Json json = run_json({"verify", spec, "--timing", "sm_90a", "--timed-sms", "132", "--q-len",
                              "2,2,2,2,2", "--kv-len", "30000,64,64,64,64"},
                             0);
  const Json& launches = json.at("launches");
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[1].at("entry"), "attnjit_merge");
  EXPECT_LT(launches[1].at("us").get<double>(), 2 * launches[0].at("us").get<double>());
}

// A launch runs one of a kernel's two bodies: they have barriers at other places.
TEST_F(Compile, TheClockNamesTheBarriersOfTheBodyThatRuns) {
  const auto names = [&](const char* heads, const char* q_len) {
    const Json json =
        run_json({"verify", "--arch", "sm_90a", "--num-q-heads", heads, "--qk-depth", "128",
                  "--timing", "sm_90a", "--timed-sms", "1", "--q-len", q_len, "--kv-len", "128"},
                 0);
    std::set<std::string> mbarriers;
    const Json waits = json.at("launches")[0].at("barrier_waits");
    for (const auto& [wait, cycles] : waits.items()) {
      const std::string name = wait.substr(wait.find(": ") + 2);
      if (name.rfind("barrier ", 0) != 0) mbarriers.insert(name);
    }
    return mbarriers;
  };
  const std::set<std::string> first = names("16", "384"), second = names("32", "512");
  EXPECT_TRUE(first.count("Q 0 of 2 full"));  // of three consumers, and two
  EXPECT_TRUE(second.count("Q 0 of 1 full") && !second.count("Q 0 of 2 full"));
  for (const std::set<std::string>& some : {first, second}) {
    for (const std::string& name : some) EXPECT_NE(name.rfind("mbarrier 0x", 0), 0U) << name;
  }
}

TEST_F(Compile, AnUnwritableOutputIsOne) {
  EXPECT_EQ(run(hopper("compile", {"-o", "/dev/null/x.cubin"})).exit_code, 1);
  EXPECT_EQ(run(hopper("compile", {"-o", folder_.path()})).exit_code, 1);
}

TEST_F(Compile, AnUnusableCacheStillCompiles) {
  options_.environment["ATTNJIT_CACHE_DIR"] = "/dev/null/cache";
  EXPECT_EQ(run_json(hopper("compile"), 0).at("outcome"), "compiled");
}

TEST_F(Compile, InterruptedLeavesNothingBroken) {
  for (const int after_ms : {10, 60, 150, 300}) {
    options_.interrupt_after_ms = after_ms;
    const Process process = run(hopper("compile"));
    EXPECT_TRUE(process.signal == 2 || process.exit_code == 0) << process.err;
    EXPECT_LT(process.seconds, 20);
  }
  options_.interrupt_after_ms = -1;
  EXPECT_EQ(run_json(hopper("compile"), 0).at("arch"), "sm_90a");
  EXPECT_TRUE(run_json({"cache", "verify"}, 0).at("bad").empty());
}

TEST_F(Compile, PrewarmKeepsTheManifestsOrder) {
  write_text(folder_ / "m.json", R"({"name": "small", "source": "here", "specs": [
    {"num_q_heads": 8, "qk_depth": 128, "mask": "causal"},
    {"num_q_heads": 8, "qk_depth": 64, "mask": "causal"},
    {"num_q_heads": 8, "qk_depth": 128, "mask": "causal"}]})");
  const Json first = run_json({"prewarm", folder_ / "m.json", "--arch", "sm_90a", "-j", "2"}, 0);
  ASSERT_EQ(first.at("specs").size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const Json& spec = first.at("specs")[i];
    EXPECT_EQ(spec.at("index"), i);
    EXPECT_EQ(spec.at("arch"), "sm_90a");
    EXPECT_TRUE(spec.at("error").is_null());
    EXPECT_EQ(spec.at("key").get<std::string>().size(), 64U);
  }
  EXPECT_EQ(first.at("specs")[0].at("key"), first.at("specs")[2].at("key"));
  EXPECT_NE(first.at("specs")[0].at("key"), first.at("specs")[1].at("key"));
  // The third spec is the first one again: compiled with it, or found after it.
  EXPECT_EQ(first.at("compiled").get<int>() + first.at("hits").get<int>(), 3);
  EXPECT_GE(first.at("compiled"), 2);
  EXPECT_EQ(run_json({"cache", "stats"}, 0).at("layers").at(0).at("entries"), 2);
  EXPECT_EQ(first.at("failed"), 0);
  EXPECT_EQ(first.at("unsupported"), 0);
  hide_nvrtc();
  const Json second = run_json({"prewarm", folder_ / "m.json", "--arch", "sm_90a"}, 0);
  EXPECT_EQ(second.at("compiled"), 0);
  EXPECT_EQ(second.at("hits"), 3);
}

TEST_F(Compile, PrewarmGoesOnAfterABadSpec) {
  write_text(folder_ / "m.json", R"({"name": "mixed", "source": "here", "specs": [
    {"num_q_heads": 8, "qk_depth": -3},
    {"num_q_heads": 8, "group": 2, "qk_depth": 64, "mask": "causal"}]})");
  const Json json = run_json({"prewarm", folder_ / "m.json", "--arch", "sm_90a"}, 2);
  EXPECT_EQ(json.at("failed"), 1);
  EXPECT_EQ(json.at("compiled"), 1);
  EXPECT_EQ(json.at("specs")[0].at("stored"), false);
  EXPECT_EQ(json.at("specs")[1].at("stored"), true);
  EXPECT_EQ(json.at("specs")[0].at("error").at("field"),
            (folder_ / "m.json") + ": specs[0].qk_depth");
  EXPECT_FALSE(json.at("specs")[0].at("error").is_null());
  EXPECT_TRUE(json.at("specs")[1].at("error").is_null());
  EXPECT_EQ(run_json(hopper("compile"), 0).at("outcome"), "disk");
}

// Each way to have no usable cache: the exit code says so, each spec, and one warning.
TEST_F(Compile, PrewarmThatStoresNothingIsFour) {
  write_text(folder_ / "m.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  std::filesystem::create_directory(folder_ / "open");
  std::filesystem::create_directory(folder_ / "closed");
  ASSERT_EQ(::chmod((folder_ / "open").c_str(), 0777), 0);
  ASSERT_EQ(::chmod((folder_ / "closed").c_str(), 0555), 0);
  write_text(folder_ / "file", "no folder");
  const auto warnings = [&] {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = last_.err.find("[warning]", at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  };
  struct Case {
    std::string cache, home;
  };
  for (const Case& without : {Case{"", ""}, Case{"", "/nonexistent"}, Case{"", folder_ / "file"},
                              Case{folder_ / "open", ""}, Case{folder_ / "closed", ""},
                              Case{folder_ / "file", ""}, Case{"/proc/attnjit", ""}}) {
    if (without.cache == folder_ / "closed" && !become_another_user()) continue;
    options_.environment["ATTNJIT_CACHE_DIR"] = without.cache;
    options_.environment["XDG_CACHE_HOME"] = "";
    options_.environment["HOME"] = without.home;
    const Json json = run_json({"prewarm", folder_ / "m.json", "--arch", "sm_90a"}, 4);
    EXPECT_EQ(json.at("specs")[0].at("outcome"), "compiled");
    EXPECT_EQ(json.at("specs")[0].at("stored"), false);
    EXPECT_EQ(json.at("stored"), 0);
    EXPECT_EQ(warnings(), 1U) << last_.err;
    run_json(hopper("compile"), 0);
    EXPECT_EQ(warnings(), 1U) << last_.err;
    options_.through.clear();
  }
  // One that was found in a layer is stored, whether the first can be written or not.
  options_.environment["ATTNJIT_CACHE_DIR"] = folder_ / "cache";
  EXPECT_EQ(run_json({"prewarm", folder_ / "m.json", "--arch", "sm_90a"}, 0).at("stored"), 1);
  options_.environment["ATTNJIT_CACHE_DIR"] = (folder_ / "new") + ":" + (folder_ / "cache");
  EXPECT_EQ(run_json({"prewarm", folder_ / "m.json", "--arch", "sm_90a"}, 0).at("stored"), 1);
}

TEST_F(Compile, PrewarmReadsItsInputStrictly) {
  write_text(folder_ / "bad.json", "{");
  write_text(folder_ / "other.json", R"({"name": "x", "source": "y", "specs": 3})");
  expect_bad({"prewarm", folder_ / "bad.json", "--arch", "sm_90a"});
  expect_bad({"prewarm", folder_ / "other.json", "--arch", "sm_90a"}, "specs");
  expect_bad({"prewarm", folder_ / "missing.json", "--arch", "sm_90a"}, "missing.json");
  write_text(folder_ / "empty.json", R"({"name": "x", "source": "y", "specs": []})");
  expect_bad({"prewarm", folder_ / "empty.json", "--arch", "sm_90a"}, "specs");
  write_text(folder_ / "ok.json",
             R"({"name": "x", "source": "y", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  expect_bad({"prewarm", folder_ / "ok.json", "--arch", "sm_80"}, "sm_80");
  expect_bad({"prewarm", folder_ / "ok.json", "--arch", "sm_90a,"}, "arch");
  expect_bad({"prewarm", folder_ / "ok.json", "--arch", "sm_90a", "-j", "-1"}, "jobs");
}

TEST_F(Compile, CacheCommands) {
  EXPECT_EQ(run_json({"cache", "path"}, 0).at("layers").at(0), folder_ / "cache");
  EXPECT_EQ(run({"cache", "path"}).out, (folder_ / "cache") + "\n");
  EXPECT_TRUE(run_json({"cache", "list"}, 0).at("entries").empty());
  const Json made = run_json(hopper("compile"), 0);

  const Json list = run_json({"cache", "list"}, 0).at("entries");
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].at("key"), made.at("key"));
  EXPECT_EQ(list[0].at("arch"), "sm_90a");
  const Json stats = run_json({"cache", "stats"}, 0).at("layers").at(0);
  EXPECT_EQ(stats.at("entries"), 1);
  EXPECT_GT(stats.at("entry_bytes").get<int>(), 0);
  const Json verify = run_json({"cache", "verify"}, 0);
  EXPECT_EQ(verify.at("checked"), 1);
  EXPECT_EQ(verify.at("good"), 1);

  EXPECT_EQ(run_json({"cache", "export", folder_ / "bundle"}, 0).at("entries"), 1);
  EXPECT_EQ(run_json({"cache", "gc", "--max-bytes", "0", "--dry-run"}, 0).at("removed").size(), 1U);
  EXPECT_EQ(run_json({"cache", "list"}, 0).at("entries").size(), 1U);
  run_json({"cache", "clear"}, 0);
  EXPECT_TRUE(run_json({"cache", "list"}, 0).at("entries").empty());
  EXPECT_EQ(run_json({"cache", "import", folder_ / "bundle"}, 0).at("entries"), 1);
  EXPECT_EQ(run_json(hopper("compile"), 0).at("outcome"), "disk");
  EXPECT_EQ(run_json({"cache", "gc", "--max-bytes", "0"}, 0).at("entries_after"), 0);
  for (const char* bytes : {"-1", "99999999999999999999", "1e3", "1GG", "", " 1"}) {
    expect_bad({"cache", "gc", "--max-bytes", bytes}, "max_bytes");
  }

  EXPECT_EQ(run({"cache", "import", folder_ / "missing"}).exit_code, 2);
  write_text(folder_ / "junk", "junk");
  EXPECT_EQ(run({"cache", "import", folder_ / "junk"}).exit_code, 1);
  EXPECT_EQ(run({"cache", "export", "/dev/null/x"}).exit_code, 1);
}

TEST_F(Compile, CacheVerifyFindsDamage) {
  run_json(hopper("compile"), 0);
  const std::vector<fs::path> files = entries();
  ASSERT_EQ(files.size(), 1U);
  std::string bytes = read_text(files[0].string());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(files[0].string(), bytes);
  const Json verify = run_json({"cache", "verify"}, 1);
  EXPECT_EQ(verify.at("bad").size(), 1U);
  EXPECT_EQ(run_json({"cache", "verify"}, 0).at("checked"), 0);
}

TEST_F(Compile, ALowerLayerServes) {
  run_json(hopper("compile"), 0);
  options_.environment["ATTNJIT_CACHE_DIR"] = (folder_ / "upper") + ":" + (folder_ / "cache");
  hide_nvrtc();
  EXPECT_EQ(run_json(hopper("compile"), 0).at("outcome"), "disk");
}

}  // namespace
}  // namespace attnjit::testing
