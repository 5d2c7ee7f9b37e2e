// SPDX-License-Identifier: Apache-2.0
// emulate: the launch file, exit codes and outputs, on kernels small enough to read.
#include <algorithm>
#include <array>
#include <filesystem>

#include "cli_test.h"
#include "source_dir.h"

namespace attnjit::testing {
namespace {

constexpr const char* kAddOne = R"(.version 8.7
.target sm_90a
.address_size 64
.visible .entry add_one(.param .u64 in, .param .u64 out)
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r2, [%rd4];
  add.s32 %r3, %r2, 1;
  st.global.u32 [%rd5], %r3;
  ret;
}
)";

// A warp asks for a copy's completion until it is there.
constexpr const char* kAskForACopy = R"(.version 9.0
.target sm_90a
.address_size 64
.shared .align 128 .b8 buf[1024];
.shared .align 8 .b64 bar;
.visible .entry add_one(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, buf; mov.u32 %r3, bar;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r3];
READY:
  bar.sync 0;
ASK:
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r3], 0;
  @!%p2 bra ASK;
  shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r2;
  ld.shared.b32 %r5, [%r4];
  mul.wide.u32 %rd3, %r1, 4; add.s64 %rd3, %rd3, %rd2;
  st.global.b32 [%rd3], %r5;
  ret;
}
)";

class Emulate : public CliTest {
 protected:
  void SetUp() override {
    if (run({"emulate", "/nonexistent", "--launch", "/nonexistent"}).exit_code == 3) {
      GTEST_SKIP() << "the emulator is not in this build";
    }
    write_text(folder_ / "k.ptx", kAddOne);
    write_launch("7", 32);
  }

  // Threads that add one to `elements` numbers that hold `fill`.
  void write_launch(const std::string& fill, int elements, int threads = 32) {
    const std::string shape = "[" + std::to_string(elements) + "]";
    const std::string count = std::to_string(threads);
    write_text(folder_ / "LAUNCH.json",
               R"({"entry": "add_one", "grid": [1, 1, 1], "block": [)" + count + R"(, 1, 1],
                   "dynamic_smem": 0, "seed": 0,
                   "buffers": {"in": {"shape": )" +
                   shape + R"(, "dtype": "i32", "fill": )" + fill + R"(}, "out": {"shape": [)" +
                   count + R"(], "dtype": "i32", "fill": "uninitialised"}},
                   "args": [{"ptr": "in", "offset": 0}, {"ptr": "out", "offset": 0}],
                   "out": {"out": "o.npy"}})");
  }
  std::vector<std::string> words(std::vector<std::string> more = {}) {
    std::vector<std::string> all{"emulate", folder_ / "k.ptx", "--launch", folder_ / "LAUNCH.json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Emulate, RunsAndWritesItsOutputs) {
  const Json json = run_json(words({"--seeds", "3", "--stats"}), 0);
  EXPECT_TRUE(json.at("passed"));
  EXPECT_TRUE(json.at("findings").empty());
  EXPECT_GT(json.at("steps").get<int>(), 0);
  EXPECT_TRUE(json.contains("stats"));
  const std::string npy = read_text(folder_ / "o.npy");
  EXPECT_NE(npy.find("'shape': (32,)"), std::string::npos);
  ASSERT_EQ(npy.size(), 128U + 32 * 4);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(npy[128 + 4 * i], 8);
  EXPECT_EQ(run(words()).exit_code, 0);
}

// What a launch is to leave zero for the next one; a file that says nothing of it is as before.
TEST_F(Emulate, WhatIsNotLeftZeroIsAFinding) {
  const auto write = [&](const std::string& fill, const std::string& left_zero) {
    write_launch(fill, 32);
    std::string text = read_text(folder_ / "LAUNCH.json");
    const std::string what = "\"uninitialised\"";
    text.replace(text.find(what), what.size(), what + left_zero);
    write_text(folder_ / "LAUNCH.json", text);
  };
  write("7", "");
  EXPECT_TRUE(run_json(words(), 0).at("passed"));
  write("7", R"(, "left_zero": false)");
  EXPECT_TRUE(run_json(words(), 0).at("passed"));
  write("-1", R"(, "left_zero": true)");  // -1 + 1
  EXPECT_TRUE(run_json(words({"--seeds", "3"}), 0).at("passed"));
  write("7", R"(, "left_zero": true)");
  const Json json = run_json(words({"--seeds", "3"}), 1);
  ASSERT_EQ(json.at("findings").size(), 1U);
  EXPECT_EQ(json.at("findings")[0].at("kind"), "workspace");
  EXPECT_EQ(json.at("findings")[0].at("text"),
            "byte 0 of out is 0x08 after the launch, which is to leave it zero");
  run_json(words({"--timing", "sm_90a"}), 0);  // a clock compares nothing
}

TEST_F(Emulate, TimesALaunch) {
  const std::vector<std::string> timing{"--timing", "sm_90a", "--trace", folder_ / "trace.json"};
  const Json json = run_json(words(timing), 0);
  EXPECT_EQ(json.at("timing"), "sm_90a");
  EXPECT_NE(json.at("model_error").get<std::string>().find("H200"), std::string::npos);
  EXPECT_GT(json.at("us").get<double>(), 1);
  ASSERT_EQ(json.at("launches").size(), 1u);
  const Json& launch = json.at("launches")[0];
  EXPECT_EQ(launch.at("entry"), "add_one");
  EXPECT_EQ(launch.at("ctas"), 1);
  EXPECT_GT(launch.at("cycles").get<double>(), 100);
  EXPECT_GT(launch.at("roles").at("warpgroup 0").at("load").get<double>(), 100);
  EXPECT_EQ(json.at("roles"), launch.at("roles"));
  EXPECT_EQ(json.at("cycles"), launch.at("cycles"));
  EXPECT_EQ(run_json(words(timing), 0), json);
  EXPECT_EQ(read_text(folder_ / "o.npy").size(), 128U + 32 * 4);  // what its kernels wrote
  EXPECT_TRUE(Json::parse(read_text(folder_ / "trace.json")).contains("traceEvents"));
}

TEST_F(Emulate, TimesEachWarpgroup) {
  write_launch("7", 320, 320);
  const Json roles = run_json(words({"--timing", "sm_90a"}), 0).at("roles");
  ASSERT_EQ(roles.size(), 3u);
  for (const char* const group : {"warpgroup 0", "warpgroup 1", "warpgroup 2"}) {
    EXPECT_GT(roles.at(group).at("load").get<double>(), 100) << group;
  }
}

TEST_F(Emulate, TimingIsAskedForWhole) {
  expect_bad(words({"--timing", "sm_1"}), "timing");
  expect_bad(words({"--timing", "sm_90a", "--stats"}), "timing");
  expect_bad(words({"--timing", "sm_90a", "--model", "isa"}), "timing");
  expect_bad(words({"--timing", "sm_90a", "--waive", "in-order-mma"}), "timing");
  expect_bad(words({"--timing", "sm_100a"}), "timing");  // the kernel is for sm_90a
  expect_bad(words({"--timing", "sm_90a", "--timed-sms", "0"}), "timed-sms");
  expect_bad(words({"--report"}), "report");
  expect_bad(words({"--timing", "sm_103a"}), "timing");
}

// A copy that completes late is asked for many times.
TEST_F(Emulate, APolicyHoldsForEverySeed) {
  write_text(folder_ / "k.ptx", kAskForACopy);
  const auto steps = [&](const std::string& policy, int seed) {
    std::vector<std::string> more{"--seed", std::to_string(seed)};
    if (!policy.empty()) more.insert(more.end(), {"--policy", policy});
    return run_json(words(more), 0).at("steps").get<int>();
  };
  for (int seed = 0; seed < 4; ++seed) {
    EXPECT_GT(steps("lazy", seed), 2000) << seed;
    for (const char* policy : {"random", "eager", "starve"}) EXPECT_LT(steps(policy, seed), 2000);
    EXPECT_EQ(steps("", seed), steps(std::array{"random", "eager", "lazy", "starve"}[seed], seed));
  }
}

TEST_F(Emulate, AFindingIsOne) {
  write_launch("7", 31);  // the last lane reads past the end
  const Json json = run_json(words(), 1);
  EXPECT_FALSE(json.at("passed"));
  ASSERT_FALSE(json.at("findings").empty());
  const Json& finding = json.at("findings")[0];
  EXPECT_EQ(finding.at("kind"), "bounds");
  EXPECT_EQ(finding.at("ptx_line"), 14);
  EXPECT_EQ(finding.at("lane"), 31);
  for (const char* field : {"source_line", "cta", "warp", "text"}) {
    EXPECT_TRUE(finding.contains(field)) << field;
  }
}

TEST_F(Emulate, BadInputIsTwoAndUnknownPtxIsThree) {
  expect_bad({"emulate", folder_ / "missing.ptx", "--launch", folder_ / "LAUNCH.json"}, "missing");
  expect_bad({"emulate", folder_ / "k.ptx", "--launch", folder_ / "missing.json"}, "missing");
  expect_bad(words({"--model", "magic"}), "model");
  expect_bad(words({"--waive", "fences"}), "in-order-mma");
  expect_bad(words({"--seeds", "0"}), "seeds");
  expect_bad(words({"--seed", "-1"}), "seed");
  expect_bad(words({"--mood", "angry"}), "policy");
  write_launch("1e99", 32);
  expect_bad(words(), "fill");
  write_launch("7", 2000000000);
  write_text(folder_ / "big.json", [&] {
    std::string text = read_text(folder_ / "LAUNCH.json");
    text.replace(text.find("[2000000000]"), 12, "[2000000000, 100]");
    return text;
  }());
  expect_bad({"emulate", folder_ / "k.ptx", "--launch", folder_ / "big.json"}, "memory");
  write_launch("7", 32);
  write_text(folder_ / "k.ptx", "this is no PTX");
  expect_bad(words());
  std::string odd = kAddOne;
  odd.replace(odd.find("add.s32"), 7, "addle.s32");
  write_text(folder_ / "k.ptx", odd);
  const Json json = run_json(words(), 3);
  EXPECT_EQ(json.at("error").at("line"), 15);
}

// Errors of the two files name the file and the place in it.
TEST_F(Emulate, WithoutMemoryIsFourAndOneJsonObject) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs all address space";
#endif
  write_launch("7", 100'000'000);
  options_.memory_mib = 300;
  const Json json = run_json(words(), 4);
  EXPECT_EQ(json.value("/error/code"_json_pointer, ""), "environment") << last_.out;
}

// A launch file may come from anybody: nothing in it reaches the terminal as a command.
TEST_F(Emulate, WhatIsPrintedIsNoTerminalCommand) {
  std::string launch = read_text(folder_ / "LAUNCH.json");
  launch.replace(launch.find("add_one"), 7, "\\u001b]0;title\\u0007\\u009b2J");
  write_text(folder_ / "LAUNCH.json", launch);
  const Process process = run(words());
  EXPECT_NE(process.exit_code, 0);
  for (const char* bad : {"\x1b", "\x07", "\xc2\x9b"}) {
    EXPECT_EQ((process.out + process.err).find(bad), std::string::npos);
  }
  EXPECT_NE((process.out + process.err).find("\\x1b]0;title\\x07"), std::string::npos)
      << process.err;
}

TEST_F(Emulate, ErrorsNameTheFileAndThePlace) {
  const std::string launch = read_text(folder_ / "LAUNCH.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = launch;
    text.replace(text.find(from), from.size(), to);
    write_text(folder_ / "LAUNCH.json", text);
  };
  with("\"grid\": [1, 1, 1]", "\"grid\": [1, 0, 1]");
  expect_bad(words(), folder_ / "LAUNCH.json");
  const Json json = run_json(words(), 2);
  EXPECT_EQ(json.at("error").at("field"), "grid");
  EXPECT_EQ(json.at("error").at("line"), 1);
  EXPECT_EQ(json.at("error").at("column"), 30);
  with("\"grid\": [1, 1, 1]", "\"grid\": [1, 65536, 1]");
  expect_bad(words(), "65535");
  with("\"seed\": 0", "\"seed\": 0, \"grid\": [1, 1, 1]");
  expect_bad(words(), "given twice");
  with("\"seed\": 0", "\"seed\": ,");
  EXPECT_EQ(run_json(words(), 2).at("error").at("field"), folder_ / "LAUNCH.json");
  EXPECT_EQ(run_json(words(), 2).at("error").at("line"), 2);
  write_text(folder_ / "LAUNCH.json", launch);
  write_text(folder_ / "k.ptx", std::string(kAddOne) + "\n}");
  const Json ptx = run_json(words(), 2);
  EXPECT_EQ(ptx.at("error").at("field"), folder_ / "k.ptx");
  EXPECT_EQ(ptx.at("error").at("line"), 20);
  EXPECT_EQ(ptx.at("error").at("column"), 1);
}

// docs/emulator.md: relative to the file, as they are written, `..` and absolute ones too.
TEST_F(Emulate, PathsMayLeaveTheLaunchsFolder) {
  write_launch("7", 32);
  run_json(words(), 0);  // o.npy
  std::string launch = read_text(folder_ / "LAUNCH.json");
  const std::string made = R"({"shape": [32], "dtype": "i32", "fill": 7})";
  std::filesystem::create_directories(folder_ / "sub");
  for (const std::string& path : {std::string("../o.npy"), std::string(folder_ / "o.npy")}) {
    std::string text = launch;
    text.replace(text.find(made), made.size(), R"({"dtype": "i32", "file": ")" + path + R"("})");
    text.replace(text.find("\"o.npy\""), 7, "\"../again.npy\"");
    write_text(folder_ / "sub/LAUNCH.json", text);
    const Json json =
        run_json({"emulate", folder_ / "k.ptx", "--launch", folder_ / "sub/LAUNCH.json"}, 0);
    EXPECT_TRUE(json.value("passed", false));
    const std::string npy = read_text(folder_ / "again.npy");
    ASSERT_EQ(npy.size(), 128U + 32 * 4);
    EXPECT_EQ(npy[128], 9);  // 7 + 1, and 1 more
    std::filesystem::remove(folder_ / "again.npy");
  }
}

TEST_F(Emulate, VerifyRefusesBadFoldersAndSmCounts) {
  const auto verify = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--backend", "emulator"});
    return hopper("verify", more);
  };
  expect_bad(verify({"--dump", ""}), "dump");
  write_text(folder_ / "file", "x");
  expect_bad(verify({"--dump", folder_ / "file"}), "no folder");
  expect_bad(verify({"--sm-count", "0"}), "sm_count");
  expect_bad(hopper("verify", {"--backend", "gpu", "--sm-count", "3"}), "sm_count");
}

// Users write such numbers where they mean that a key is not to count; a row may have no others.
TEST_F(Emulate, VerifiesRowsOfOneScoreFarFromZero) {
  if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  const std::string mod = R"({"kind": "custom", "name": "far", "code": "p.x + 0.0f * score",)"
                          R"( "params": [{"name": "x", "type": "f32"}]})";
  for (const char* arch : {"sm_90a", "sm_100a"}) {
    for (const char* interpreted : {"false", "true"}) {
      for (const char* x : {"x=-1e9", "x=-1e10", "x=1e20"}) {
        const Json json =
            run_json({"verify",    "--arch",      arch,      "--num-q-heads", "1", "--qk-depth",
                      "64",        "--qkv-dtype", "fp16",    "--score-mod",   mod, "--interpreted",
                      interpreted, "--param",     x,         "--q-len",       "2", "--kv-len",
                      "70",        "--backend",   "emulator"},
                     0);
        EXPECT_TRUE(json.value("passed", false)) << arch << " " << x << " " << interpreted;
      }
    }
  }
}

// Damages that only an input of the kind shows, of either family.
TEST_F(Emulate, VerifyShowsWhatOnlyUnusualInputsReach) {
  if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  struct Damage {
    std::string file, from, to, input, found;
    std::vector<std::string> spec;
  };
  const std::vector<std::string> batch{"--batch", "2", "--q-len", "20", "--kv-len", "150,129"};
  const std::vector<std::string> paged{"--page-size", "16", "--mask", "causal"};
  const std::vector<std::string> tokens{"--page-size", "16",       "--qkv-dtype",
                                        "e4m3",        "--scales", "token"};
  const std::string kLengths = "common/sequence_lengths.cuh";
  const std::vector<Damage> damages = {
      {"common/online.cuh",
       "fabsf(log2_scale) < 0x1p-120f ? 0x1p-120f : log2_scale",
       "log2_scale",
       "zero",
       "nan",
       {"--page-size", "16", "--kv-dtype", "e4m3", "--scales", "head"}},
      {"common/key_scales.cuh", "0x1p-60f", "0x1p-6f", "small", "rel_err", tokens},
      {"common/key_scales.cuh", "page < 0 || page >= arguments.num_pages", "false", "stray",
       "bounds", tokens},
      {kLengths, "min(max(arguments.kv_lens[sequence], 0), arguments.kv_len)",
       "arguments.kv_lens[sequence]", "stray", "", paged},
      {"common/online.cuh", "kMaxFloor = -0x1p+100f", "kMaxFloor = -0x1p+12f", "far", "err", paged},
      {"common/online.cuh",
       "fminf(sink * kLog2e, largest_float())",
       "fminf(sink * kLog2e, 1024.0f)",
       "far",
       "",
       {"--page-size", "16", "--sink"}},
  };
  for (const char* arch : {"sm_90a", "sm_100a"}) {
    for (const Damage& damage : damages) {
      std::vector<std::string> words{"verify",  "--arch",       arch,        "--num-q-heads",
                                     "4",       "--group",      "2",         "--qk-depth",
                                     "64",      "--return-lse", "--backend", "emulator",
                                     "--input", damage.input};
      words.insert(words.end(), damage.spec.begin(), damage.spec.end());
      words.insert(words.end(), batch.begin(), batch.end());
      options_.environment.erase("ATTNJIT_TEMPLATES");
      run_json(words, 0);
      const std::filesystem::path templates = folder_ / "damaged";
      std::filesystem::remove_all(templates);
      std::filesystem::copy(ATTNJIT_SOURCE_DIR "/templates", templates,
                            std::filesystem::copy_options::recursive);
      std::string text = read_text(templates / damage.file);
      const std::size_t at = text.find(damage.from);
      ASSERT_NE(at, std::string::npos) << damage.from;
      write_text(templates / damage.file, text.replace(at, damage.from.size(), damage.to));
      options_.environment["ATTNJIT_TEMPLATES"] = templates;
      const Json json = run_json(words, 1);
      ASSERT_TRUE(json.contains("reason")) << json.dump();
      const std::string reason = json.at("reason");
      EXPECT_NE(reason.find(damage.found), std::string::npos) << arch << ": " << reason;
    }
  }
}

// Any q_len and batch: a launch without queries has nothing to do, and is right.
TEST_F(Emulate, VerifiesLaunchesWithoutQueries) {
  if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  const std::vector<std::string> ragged{
      "verify",     "--arch",   "sm_100a",  "--num-q-heads", "1",
      "--qk-depth", "64",       "--ragged", "--return-lse",  "--q-len",
      "0,0",        "--kv-len", "5,0",      "--backend",     "emulator"};
  for (const std::vector<std::string>& words :
       {ragged, hopper("verify", {"--q-len", "0", "--kv-len", "5", "--backend", "emulator"}),
        hopper("verify", {"--batch", "0", "--backend", "emulator"})}) {
    const Json json = run_json(words, 0);
    EXPECT_TRUE(json.at("passed"));
    EXPECT_EQ(json.at("rel_err"), 0);
    EXPECT_NE(run(words).out.find("no queries"), std::string::npos);
  }
  // And its LAUNCH.json is one that runs.
  std::vector<std::string> words = ragged;
  words.resize(words.size() - 2);
  words[0] = "generate";
  words.insert(words.end(), {"--launch", "-o", folder_ / "l"});
  run_json(words, 0);
  run_json({"compile", "--arch", "sm_100a", "--num-q-heads", "1", "--qk-depth", "64", "--ragged",
            "--return-lse", "--ptx", folder_ / "l/kernel.ptx"},
           0);
  EXPECT_TRUE(
      run_json({"emulate", folder_ / "l/kernel.ptx", "--launch", folder_ / "l/LAUNCH.json"}, 0)
          .at("passed"));
}

TEST_F(Emulate, GenerateWritesTheLaunchOfAnyNumberOfSms) {
  const auto grid = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--launch", "-o", folder_ / "l", "--q-len", "1000"});
    run_json(hopper("generate", more), 0);
    return Json::parse(read_text(folder_ / "l/LAUNCH.json")).at("grid").at(0).get<int>();
  };
  EXPECT_EQ(grid({"--sm-count", "2"}), 2);
  EXPECT_GT(grid({}), 2);
  for (const char* count : {"0", "-1", "2000000"}) {
    expect_bad(hopper("generate", {"--launch", "-o", folder_ / "l", "--sm-count", count}),
               "sm_count");
  }
  expect_bad(hopper("generate", {"--sm-count", "2"}), "--launch");
}

// As the clock times it there.
TEST_F(Emulate, GenerateWritesTheLaunchOfTheArchitecturesGpu) {
  for (const auto& [arch, sms] : {std::pair("sm_90a", 132), {"sm_100a", 148}, {"sm_103a", 152}}) {
    run_json({"generate", "--arch", arch, "--num-q-heads", "64", "--qk-depth", "64", "--launch",
              "-o", folder_ / arch, "--q-len", "1024", "--kv-len", "8"},
             0);
    const Json launch = Json::parse(read_text(folder_ / (std::string(arch) + "/LAUNCH.json")));
    EXPECT_EQ(launch.at("grid").at(0), sms) << arch;
  }
}

TEST_F(Emulate, GenerateWritesALaunch) {
  expect_bad(hopper("generate", {"--launch"}), "-o");
  const Json json =
      run_json(hopper("generate", {"--launch", "-o", folder_ / "l", "--q-len", "5"}), 0);
  const Json launch = Json::parse(read_text(folder_ / "l/LAUNCH.json"));
  EXPECT_EQ(launch.at("buffers").at("q").at("dtype"), "bf16");
  EXPECT_FALSE(read_text(folder_ / "l/q.npy").empty());
  EXPECT_EQ(launch.at("out").at("o"), "o.npy");
}

TEST_F(Emulate, VerifiesARealKernelAndDumpsIt) {
  if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  const std::vector<std::string> words =
      hopper("verify", {"--return-lse", "--sink", "--backend", "emulator", "--q-len", "9",
                        "--kv-len", "40", "--input", "rising", "--seed", "3"});
  std::vector<std::string> dumping = words;
  dumping.insert(dumping.end(), {"--dump", folder_ / "dump"});
  const Json json = run_json(dumping, 0);
  EXPECT_EQ(json.at("backend"), "emulator");
  EXPECT_TRUE(json.at("passed"));
  EXPECT_TRUE(json.at("reason").is_null());
  EXPECT_LE(json.at("rel_err").get<double>(), 1e-2);
  EXPECT_GT(json.at("rel_err").get<double>(), 0);
  EXPECT_LE(json.at("max_row_err").get<double>(), 4e-2);
  EXPECT_LE(json.at("lse_max_abs_err").get<double>(), 1e-2);
  EXPECT_GT(json.at("max_abs_err").get<double>(), 0);
  for (const char* file :
       {"spec.json", "q.npy", "k.npy", "v.npy", "o.npy", "scale.npy", "lse.npy", "sink.npy"}) {
    EXPECT_FALSE(read_text((folder_ / "dump/") + file).empty()) << file;
  }
  EXPECT_NE(read_text(folder_ / "dump/q.npy").find("'<f4'"), std::string::npos);
  EXPECT_NE(read_text(folder_ / "dump/o.npy").find("(1, 9, 8, 64)"), std::string::npos);
  EXPECT_NE(read_text(folder_ / "dump/lse.npy").find("(1, 8, 9)"), std::string::npos);
  EXPECT_EQ(run({"plan", "--spec", folder_ / "dump/spec.json"}).exit_code, 0);
  EXPECT_NE(run(words).out.find("passed"), std::string::npos);
}

// P lies over S (docs/sm100.md): the isa model finds it, and nothing else, unless it is waived.
TEST_F(Emulate, TheBlackwellKernelReliesOnInOrderIssueAndSaysSo) {
  if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  const std::vector<std::string> spec{"--arch",     "sm_100a", "--num-q-heads", "1",
                                      "--qk-depth", "64",      "--q-len",       "8",
                                      "--kv-len",   "400",     "--num-qo",      "1"};
  const auto with = [&](const char* command, std::vector<std::string> more) {
    more.insert(more.begin(), command);
    more.insert(more.end(), spec.begin(), spec.end());
    return more;
  };
  const Json verified = run_json(with("verify", {"--model", "isa", "--seeds", "3"}), 0);
  EXPECT_EQ(verified.at("backend"), "emulator");
  EXPECT_EQ(verified.at("model"), "isa");
  EXPECT_EQ(verified.at("waivers"), Json::array({"in-order-mma"}));
  const Json silicon = run_json(with("verify", {"--backend", "emulator"}), 0);
  EXPECT_EQ(silicon.at("model"), "silicon");
  EXPECT_TRUE(silicon.at("waivers").empty());
  expect_bad(with("verify", {"--backend", "gpu", "--model", "isa"}), "emulator");

  run_json(with("generate", {"--launch", "-o", folder_ / "l"}), 0);
  std::vector<std::string> compile = with("compile", {"--ptx", folder_ / "l/kernel.ptx"});
  compile.erase(std::find(compile.begin(), compile.end(), "--q-len"),
                std::find(compile.begin(), compile.end(), "--num-qo"));
  run_json(compile, 0);
  const std::vector<std::string> emulate{"emulate",  folder_ / "l/kernel.ptx",
                                         "--launch", folder_ / "l/LAUNCH.json",
                                         "--model",  "isa",
                                         "--seeds",  "3"};
  const Json found = run_json(emulate, 1);
  for (const Json& finding : found.at("findings")) EXPECT_EQ(finding.at("kind"), "race");
  std::vector<std::string> waived = emulate;
  waived.insert(waived.end(), {"--waive", "in-order-mma"});
  EXPECT_TRUE(run_json(waived, 0).at("passed"));
}

// A plan of two kernels: what each of the commands says and does with it.
TEST_F(Emulate, RunsPlansOfSeveralKernels) {
  if (!has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  const auto words = [&](const std::string& command, std::vector<std::string> more) {
    more.insert(more.begin(), {"--return-lse", "--accumulate"});
    return hopper(command, more);
  };
  const std::vector<std::string> shape{"--q-len", "70", "--kv-len", "50"};
  std::vector<std::string> more = shape;
  more.insert(more.end(), {"--backend", "emulator"});
  EXPECT_TRUE(run_json(words("verify", more), 0).at("passed"));

  const Json compiled = run_json(words("compile", {"--ptx", folder_ / "kernel.ptx"}), 0);
  ASSERT_EQ(compiled.at("kernels").size(), 2U);
  EXPECT_EQ(compiled.at("kernels")[0].at("entry"), "attnjit_forward");
  EXPECT_EQ(compiled.at("kernels")[1].at("entry"), "attnjit_merge");
  EXPECT_EQ(compiled.at("registers"), compiled.at("kernels")[0].at("registers"));
  EXPECT_EQ(compiled.at("smem_bytes"), compiled.at("kernels")[0].at("smem_bytes"));

  more = shape;
  more.insert(more.end(), {"--launch", "-o", folder_ / "l"});
  run_json(words("generate", more), 0);
  const Json launch = Json::parse(read_text(folder_ / "l/LAUNCH.json"));
  ASSERT_EQ(launch.at("launches").size(), 2U);
  EXPECT_EQ(launch.at("launches")[1].at("entry"), "attnjit_merge");
  EXPECT_TRUE(launch.at("buffers").contains("partial_o"));
  EXPECT_TRUE(
      run_json({"emulate", folder_ / "kernel.ptx", "--launch", folder_ / "l/LAUNCH.json"}, 0)
          .at("passed"));
}

}  // namespace
}  // namespace attnjit::testing
