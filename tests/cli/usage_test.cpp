// SPDX-License-Identifier: Apache-2.0
// Usage, bad input and standard streams: what every command promises.
#include <algorithm>
#include <filesystem>

#include <chrono>
#include <iterator>
#include <sstream>

#include "cli/arguments.h"
#include "cli/byte_size.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli_test.h"

namespace attnjit::testing {
namespace {

using cli::byte_size;

class Usage : public CliTest {};

TEST_F(Usage, HelpAndVersion) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"--version"},
                                             {"plan", "--help"},
                                             {"generate", "--help"},
                                             {"compile", "--help"},
                                             {"prewarm", "--help"},
                                             {"verify", "--help"},
                                             {"emulate", "--help"},
                                             {"bench", "--help"},
                                             {"tune", "--help"},
                                             {"cache", "--help"},
                                             {"cache", "gc", "--help"},
                                             {"doctor", "--help"}}) {
    const Process process = run(words);
    EXPECT_EQ(process.exit_code, 0) << words[0];
    EXPECT_FALSE(process.out.empty());
    EXPECT_EQ(process.err, "");
  }
  EXPECT_NE(run({"compile", "--help"}).out.find("--qk-depth"), std::string::npos);
  EXPECT_NE(run({"verify", "--help"}).out.find("Exit codes"), std::string::npos);
}

/// Splits at spaces: no example needs quotes.
std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// A command's own flags come first, those of specs and problems after them, two examples at the
// end.
TEST_F(Usage, HelpHasOwnFlagsFirstAndTwoExamplesThatAreUnderstood) {
  const std::string plan = run({"plan", "--help"}).out;
  EXPECT_LT(plan.find("--draw-mask"), plan.find("--num-q-heads"));
  EXPECT_LT(plan.find("--draw-mask"), plan.find("--kv-len"));
  const std::vector<std::string> commands{
      "plan",        "generate",     "compile",      "prewarm",      "verify",       "reference",
      "emulate",     "bench",        "tune",         "cache",        "manifest",     "doctor",
      "cache path",  "cache list",   "cache show",   "cache stats",  "cache verify", "cache gc",
      "cache clear", "cache export", "cache import", "cache keygen", "cache sign",   "completion"};
  for (const std::string& command : commands) {
    std::vector<std::string> words = words_of(command);
    words.push_back("--help");
    const std::string help = run(words).out;
    const std::size_t begin = help.find("Examples:\n");
    ASSERT_NE(begin, std::string::npos) << command;
    std::istringstream lines(help.substr(begin));
    std::string line;
    std::getline(lines, line);
    for (int example = 0; example < 2; ++example) {
      ASSERT_TRUE(std::getline(lines, line));
      const std::vector<std::string> given = words_of(line);
      ASSERT_TRUE(line.starts_with("  attnjit " + command)) << line;
      std::vector<const char*> arguments;
      for (const std::string& word : given) arguments.push_back(word.c_str());
      const cli::ParsedArguments parsed =
          cli::parse_arguments(static_cast<int>(arguments.size()), arguments.data());
      EXPECT_FALSE(parsed.error) << line << ": " << parsed.error->to_string();
    }
  }
}

TEST_F(Usage, TheProgressLineFitsItsTerminal) {
  using namespace std::chrono_literals;
  const cli::ProgressState state{3, 12, 60s, "model sm_90a {}"};
  EXPECT_EQ(cli::progress_line(state, 100),
            "[#####...............] 3 of 12  1 min 00 s, about 3 min 00 s left  model sm_90a {}");
  EXPECT_EQ(cli::progress_line(state, 41), "[#####...............] 3 of 12  1 min 00");
  EXPECT_EQ(cli::progress_line({0, 2, 500ms, ""}, 80), "[....................] 0 of 2  0 s");
  EXPECT_EQ(cli::progress_line({2, 2, 3725s, ""}, 80), "[####################] 2 of 2  1 h 02 min");
}

TEST_F(Usage, ColoursAreOfWordsAlone) {
  EXPECT_EQ(cli::coloured("passed\nFAILED: compiled_by x-failed"),
            "\033[32mpassed\033[0m\n\033[31mFAILED\033[0m: compiled_by x-failed");
  EXPECT_EQ(cli::coloured("1 failed, 0 unsupported"), "1 \033[31mfailed\033[0m, 0 unsupported");
  EXPECT_EQ(cli::coloured_message("attnjit plan: arch: is bad"),
            "\033[31mattnjit plan\033[0m: arch: is bad");
  // Neither a pipe nor a file is a terminal.
  EXPECT_EQ(run(hopper("plan")).out.find('\033'), std::string::npos);
  EXPECT_EQ(run({"nonsense"}).err.find('\033'), std::string::npos);
}

TEST_F(Usage, BadUsage) {
  expect_bad({});
  expect_bad({"nonsense"}, "nonsense");
  expect_bad({"compile", "--nonsense"});
  expect_bad({"compile", "extra", "--num-q-heads", "8", "--qk-depth", "64"});
  expect_bad({"plan", "--qk-depth"});
  expect_bad({"plan", "--num-q-heads", "8", "--num-q-heads", "8", "--qk-depth", "64"});
  expect_bad({"cache"});
  expect_bad({"cache", "nonsense"}, "nonsense");
  expect_bad({"cache", "export"});
  expect_bad({"prewarm"});
  expect_bad({"emulate", "x.ptx"});
  expect_bad(hopper("plan", {"--config", "nonsense"}), "config");
  expect_bad(hopper("verify", {"--backend", "nonsense"}), "backend");
  expect_bad(hopper("verify", {"--seed", "-1"}), "seed");
  expect_bad(hopper("bench", {"--repeats", "0"}), "repeats");
}

// What is wrong, of which flag, what is allowed, and whose help says more.
TEST_F(Usage, BadUsageNamesItsFlag) {
  struct Case {
    std::vector<std::string> words;
    std::string field, message, hint;
  };
  const std::string verify = "see attnjit verify --help";
  for (const Case& one : {
           Case{{"verify", "--window", "1.5"},
                "window",
                "is \"1.5\"; allowed: an integer of 64 bits",
                verify},
           Case{{"verify", "--seeds", "99999999999999999999"}, "seeds", "an integer of 64", verify},
           Case{{"verify", "--timed-sms", "010"}, "timed_sms", "is \"010\"", verify},
           Case{{"verify", "--scale", "x"}, "scale", "is \"x\"; allowed: a number", verify},
           Case{{"bench", "--warmup", "9999999999"}, "warmup", "is 9999999999; allowed: 0 to", ""},
           Case{{"prewarm", "m", "--arch", "sm_90a", "--jobs", "9999999999"},
                "jobs",
                "is 9999999999; allowed: 0",
                ""},
           Case{{"verify", "--window"}, "window", "has no value", verify},
           Case{{"verify", "--window", "--seed", "3"}, "window", "has no value: --seed", verify},
           Case{{"generate", "-o", "--json"}, "output", "has no value: --json", ""},
           Case{{"verify", "--seed", "1", "--seed", "1"}, "seed", "is given twice", verify},
           Case{{"emulate", "x.ptx"}, "launch", "is missing", "see attnjit emulate --help"},
           Case{{"emulate"}, "ptx", "is missing", "see attnjit emulate --help"},
           Case{
               {"verify", "--qk-dept", "64"}, "", "no option --qk-dept", "did you mean --qk-depth"},
           Case{{"verify", "--xyz=5"}, "", "attnjit verify has no option --xyz", verify},
           Case{{"cache", "gc", "now", "x"},
                "",
                "attnjit cache gc takes no \"now\"",
                "see attnjit cache gc --help"},
           Case{{"verfy", "--seed", "1"}, "", "no command 'verfy'", "did you mean verify?"},
           Case{{"cache", "lst"}, "", "'lst' of attnjit cache", "did you mean list?"},
           Case{{"completion", "tcsh"}, "shell", "tcsh not in", "see attnjit completion --help"},
       }) {
    const Json error = run_json(one.words, 2)["error"];
    EXPECT_EQ(error.value("field", ""), one.field) << error;
    EXPECT_NE(error.value("message", "").find(one.message), std::string::npos) << error;
    EXPECT_NE(error.value("hint", "").find(one.hint), std::string::npos) << error;
  }
}

TEST_F(Usage, SpecFilesThatAreNone) {
  write_text(folder_ / "empty.json", "");
  write_text(folder_ / "binary.json", std::string("\x7f"
                                                  "ELF\0\xff\xfe\x80",
                                                  8));
  write_text(folder_ / "list.json", "[1, 2]");
  write_text(folder_ / "cut.json", "{\"num_q_heads\": 8");
  write_text(folder_ / "huge.json",
             "{\"num_q_heads\": 8, \"x\": \"" + std::string(3 << 20, 'x') + "\"}");
  write_text(folder_ / "deep.json", std::string(200000, '['));
  write_text(folder_ / "unknown.json",
             R"({"num_q_heads": 8, "qk_depth": 64, "head_dimension": 3})");
  for (const std::string& file :
       {folder_ / "empty.json", folder_ / "binary.json", folder_ / "list.json",
        folder_ / "cut.json", folder_ / "huge.json", folder_ / "deep.json",
        folder_ / "unknown.json", folder_ / "missing.json", folder_.path(),
        std::string("/dev/zero"), std::string("/proc/self/mem")}) {
    for (const char* command : {"plan", "generate", "compile", "verify", "bench"}) {
      const Process process = run({command, "--spec", file});
      EXPECT_EQ(process.exit_code, 2) << command << " " << file << ": " << process.err;
      EXPECT_EQ(process.out, "");
      EXPECT_FALSE(process.err.empty());
      EXPECT_LT(process.err.size(), 4000U);
      EXPECT_LT(process.seconds, 20);
    }
  }
  expect_bad({"plan", "--spec", folder_ / "unknown.json"}, "head_dimension");
}

TEST_F(Usage, EveryProblemOfASpecIsTold) {
  const std::vector<std::string> words{"compile",    "--num-q-heads", "7",           "--group", "2",
                                       "--qk-depth", "-64",           "--qkv-dtype", "f64"};
  expect_bad(words, "qk_depth");
  const Process process = run(words);
  EXPECT_NE(process.err.find("qkv_dtype"), std::string::npos) << process.err;
  EXPECT_TRUE(run_json(words, 2)["error"].contains("others"));
}

TEST_F(Usage, FlagsOverrideTheFile) {
  write_text(folder_ / "spec.json",
             R"({"arch": "sm_100a", "num_q_heads": 32, "qk_depth": 128, "qkv_dtype": "fp16",)"
             R"( "mask": "causal"})");
  const Json file = run_json({"plan", "--spec", folder_ / "spec.json"}, 0);
  const Json flags = run_json(
      {"plan", "--spec", folder_ / "spec.json", "--qk-depth", "64", "--qkv-dtype", "bf16"}, 0);
  const Json alone = run_json(
      {"plan", "--arch", "sm_100a", "--num-q-heads", "32", "--qk-depth", "64", "--mask", "causal"},
      0);
  EXPECT_NE(file, flags);
  EXPECT_EQ(flags, alone);
}

TEST_F(Usage, StandardInputAndPipes) {
  options_.input = R"({"arch": "sm_90a", "num_q_heads": 32, "qk_depth": 64})";
  EXPECT_EQ(run_json({"plan", "--spec", "-"}, 0),
            run_json({"plan", "--arch", "sm_90a", "--num-q-heads", "32", "--qk-depth", "64"}, 0));
  EXPECT_EQ(run({"plan", "--spec", "/dev/stdin"}).exit_code, 0);
}

// What is left out is the GPU's at hand, and never one that it cannot run.
TEST_F(Usage, TheArchitectureIsThatOfTheGpuAtHand) {
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  options_.environment["ATTNJIT_NVRTC"] = folder_ / "no.so";  // nothing is compiled
  use_driver(ATTNJIT_FAKE_CUDA);
  const auto plain = [&](const std::string& command, std::vector<std::string> more = {}) {
    std::vector<std::string> words = hopper(command, std::move(more));
    words.erase(words.begin() + 1, words.begin() + 3);  // --arch sm_90a
    return words;
  };
  for (const auto& [gpus, arch] : {std::pair{"9.0", "sm_90a"},
                                   {"10.0", "sm_100a"},
                                   {"10.3", "sm_103a"},
                                   {"12.0,9.0", "sm_90a"}}) {
    options_.environment["ATTNJIT_FAKE_GPUS"] = gpus;
    EXPECT_EQ(run_json(plain("generate"), 0).at("arch"), arch) << gpus;
    EXPECT_EQ(run_json(plain("generate", {"--arch", "native"}), 0).at("arch"), arch) << gpus;
    EXPECT_EQ(run_json(plain("generate", {"--arch", "sm_103a"}), 0).at("arch"), "sm_103a");
    EXPECT_EQ(run_json(plain("plan"), 0), run_json(plain("plan", {"--arch", arch}), 0)) << gpus;
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--arch", "native"}, {"--arch", "native,native"}}) {
      std::vector<std::string> words{"prewarm", folder_ / "manifest.json"};
      words.insert(words.end(), more.begin(), more.end());
      const Json specs = run_json(words, 4).at("specs");
      ASSERT_EQ(specs.size(), 1U);
      EXPECT_EQ(specs[0].at("arch"), arch) << gpus;
    }
  }
}

// A model is of an architecture, which need not be said twice.
TEST_F(Usage, AModelNamesTheArchitectureOfTheSpec) {
  use_driver("");
  options_.environment["ATTNJIT_NVRTC"] = folder_ / "no.so";  // nothing is compiled
  const std::vector<std::string> spec{"--num-q-heads", "8", "--qk-depth", "64"};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"verify", "--timing", "sm_100a"},
        {"tune", "--model", "sm_100a"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), spec.begin(), spec.end());
    EXPECT_EQ(run_json(all, 4).at("error").at("code"), "environment") << words[0];
    all.insert(all.end(), {"--arch", "sm_90a"});
    EXPECT_EQ(run_json(all, 2).at("error").at("message"), "is sm_100a; the spec is for sm_90a");
  }
}

TEST_F(Usage, WithoutAGpuTheArchitectureIsRequired) {
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  const std::vector<std::string> spec{"--num-q-heads", "8", "--qk-depth", "64"};
  std::vector<std::vector<std::string>> commands;
  for (const char* command : {"plan", "generate", "compile", "verify", "bench", "tune"}) {
    std::vector<std::string>& words = commands.emplace_back(spec);
    words.insert(words.begin(), command);
  }
  commands.push_back({"prewarm", folder_ / "manifest.json"});
  struct Machine {
    const char* driver;
    const char* gpus;
    const char* message;
    int native;  // the exit code where it is asked for
  };
  for (const Machine& machine :
       {Machine{"", "", "no GPU is at hand (no CUDA driver", 4},
        Machine{ATTNJIT_FAKE_CUDA, "", "no GPU is at hand (there is no GPU)", 4},
        Machine{ATTNJIT_FAKE_CUDA, "12.0",
                "(GPU of 12.0: sm_120 has neither wgmma nor tcgen05: not served)", 3},
        Machine{ATTNJIT_FAKE_CUDA, "8.0,11.0", "sm_110 is not served", 3}}) {
    use_driver(machine.driver);
    options_.environment["ATTNJIT_FAKE_GPUS"] = machine.gpus;
    for (std::vector<std::string> words : commands) {
      SCOPED_TRACE(words[0] + " " + machine.gpus);
      expect_bad(words, "arch: is missing, and ");
      const Json error = run_json(words, 2).at("error");
      EXPECT_EQ(error.at("field"), "arch");
      const std::string message = error.at("message");
      EXPECT_NE(message.find(machine.message), std::string::npos) << message;
      EXPECT_NE(message.find("allowed: sm_90a, sm_100a, sm_103a"), std::string::npos) << message;
      words.insert(words.end(), {"--arch", "native"});
      EXPECT_EQ(run_json(words, machine.native).at("error").at("field"), "arch");
    }
  }
}

// A kernel of the architecture whose name is nearest does not run there.
TEST_F(Usage, HintsOfArchitecturesAreOfWhatRuns) {
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  for (const auto& [arch, hint] : {std::pair{"sm_90", "did you mean `sm_90a`?"},
                                   {"sm90a", "did you mean `sm_90a`?"},
                                   {"SM_90A", "did you mean `sm_90a`?"},
                                   {"compute_90", "did you mean `sm_90a`?"},
                                   {"9.0", "did you mean `sm_90a`?"},
                                   {"sm_100", "did you mean `sm_100a`?"},
                                   {"sm_100f", "did you mean `sm_100a`?"},
                                   {"sm_103", "did you mean `sm_103a`?"},
                                   {"10.3a", "did you mean `sm_103a`?"},
                                   {"sm_75", "sm_75 has neither wgmma nor tcgen05: not served"},
                                   {"sm_80", "sm_80 has neither wgmma nor tcgen05: not served"},
                                   {"sm_86", "sm_86 has neither wgmma nor tcgen05: not served"},
                                   {"sm_89", "sm_89 has neither wgmma nor tcgen05: not served"},
                                   {"sm_120", "sm_120 has neither wgmma nor tcgen05: not served"},
                                   {"sm_120a", "sm_120 has neither wgmma nor tcgen05: not served"},
                                   {"12.0", "sm_120 has neither wgmma nor tcgen05: not served"},
                                   {"sm_121a", "sm_121 has neither wgmma nor tcgen05: not served"},
                                   {"sm_110", "sm_110 is not served"},
                                   {"sm_101a", "sm_101 is not served"},
                                   {"natvie", "did you mean `native`?"}}) {
    const Json error =
        run_json({"plan", "--arch", arch, "--num-q-heads", "8", "--qk-depth", "64"}, 2).at("error");
    EXPECT_EQ(error.value("hint", ""), hint) << error;
    if (std::string(arch) == "natvie") continue;
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"prewarm", folder_ / "manifest.json", "--arch", arch},
          hopper("verify", {"--timing", arch}), hopper("tune", {"--model", arch})}) {
      EXPECT_EQ(run_json(words, 2).at("error").value("hint", ""), hint) << words[0];
    }
  }
}

TEST_F(Usage, HintsOfElementTypes) {
  for (const auto& [name, meant] : {std::pair{"float16", "fp16"},
                                    {"half", "fp16"},
                                    {"torch.float16", "fp16"},
                                    {"FP16", "fp16"},
                                    {"bfloat16", "bf16"},
                                    {"BF16", "bf16"},
                                    {"fp8", "e4m3"},
                                    {"float8", "e4m3"},
                                    {"fp8_e4m3", "e4m3"},
                                    {"float8_e4m3fn", "e4m3"},
                                    {"torch.float8_e4m3fn", "e4m3"},
                                    {"F8_E4M3", "e4m3"}}) {
    const std::string hint = std::string("did you mean `") + meant + "`?";
    for (const char* flag : {"--qkv-dtype", "--kv-dtype", "--output-dtype"}) {
      EXPECT_EQ(run_json(hopper("plan", {flag, name}), 2).at("error").value("hint", ""), hint)
          << flag << " " << name;
    }
    EXPECT_EQ(
        run_json({"manifest", "config.json", "--kv-dtype", name}, 2).at("error").value("hint", ""),
        hint);
  }
  EXPECT_EQ(run_json({"manifest", "config.json", "--kv-dtype", "fp8_e5m2"}, 2)
                .at("error")
                .value("hint", ""),
            "");
  // What a field does not take is no hint for it.
  for (const char* name : {"float32", "float", "e5m2", "fp8_e5m2", "int8"}) {
    EXPECT_EQ(run_json(hopper("plan", {"--qkv-dtype", name}), 2).at("error").value("hint", ""), "")
        << name;
  }
  EXPECT_EQ(run_json(hopper("plan", {"--output-dtype", "float32"}), 2).at("error").at("hint"),
            "did you mean `f32`?");
}

// SPEC as the first word or the last, after flags that may stand alone, and beside --spec.
TEST_F(Usage, ASpecIsAWordOfEachCommandThatTakesOne) {
  const std::string text =
      R"({"arch": "sm_90a", "num_q_heads": 8, "group": 2, "qk_depth": 64, "mask": "causal"})";
  const std::string spec = folder_ / "spec.json";
  write_text(spec, text);
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 1, "qk_depth": 128}, )" +
                 text + "]}");
  use_driver("");
  const Json plan = run_json(hopper("plan"), 0);
  EXPECT_EQ(run_json({"plan", spec}, 0), plan);
  EXPECT_EQ(run_json({"plan", "--spec", spec}, 0), plan);
  EXPECT_EQ(run_json({"plan", folder_ / "manifest.json#1"}, 0), plan);
  EXPECT_EQ(run_json({"plan", "--spec", folder_ / "manifest.json#1"}, 0), plan);
  EXPECT_EQ(run_json({"plan", spec, "--qk-depth", "128"}, 0),
            run_json({"plan", "--spec", spec, "--qk-depth", "128"}, 0));
  const Json lse = run_json(hopper("plan", {"--return-lse"}), 0);
  EXPECT_EQ(run_json({"plan", "--return-lse", spec}, 0), lse);
  EXPECT_EQ(run_json({"plan", "--return-lse", "true", spec}, 0), lse);
  EXPECT_EQ(run_json({"plan", "--sink", "false", "--return-lse", spec}, 0), lse);
  EXPECT_EQ(run_json({"plan", spec, "--return-lse"}, 0), lse);
  options_.input = text;
  EXPECT_EQ(run_json({"plan", "-"}, 0), plan);
  EXPECT_EQ(run_json({"plan", "--return-lse", "-"}, 0), lse);
  options_.input = "";
  EXPECT_EQ(run_json({"generate", spec}, 0), run_json(hopper("generate"), 0));
  for (const char* command : {"compile", "verify", "bench", "tune"}) {
    options_.environment["ATTNJIT_NVRTC"] = folder_ / "no.so";
    std::vector<std::string> words{command, spec};
    if (std::string(command) == "verify") words.insert(words.begin() + 1, "--given-map");
    EXPECT_EQ(run_json(words, 4).at("error").at("code"), "environment") << command;
  }
  expect_bad({"plan", spec, spec});
  expect_bad({"plan", spec, "--spec", spec});
  expect_bad({"plan", "--spec", spec, spec});
  expect_bad({"plan", folder_ / "missing.json"}, "missing.json");
  expect_bad({"plan", "--return-lse", "yes", spec}, "return_lse");
  expect_bad({"plan", folder_ / "manifest.json"}, "is a manifest of 2 specs");
  expect_bad({"plan", folder_ / "manifest.json#2"}, "there is no spec 2; allowed: 0 to 1");
  expect_bad({"plan", spec + "#0"}, "is no manifest");
  expect_bad({"plan", folder_ / "manifest.json#x"}, "manifest.json#x");
  expect_bad({"plan", folder_ / "missing.json#0"}, "missing.json: cannot be read");
}

// Each takes one value each time, and leaves what follows to the command.
TEST_F(Usage, WhatMayBeRepeatedTakesOneValue) {
  write_text(folder_ / "manifest.json",
             R"({"name": "m", "source": "s", "specs": [{"num_q_heads": 8, "qk_depth": 64}]})");
  const std::string manifest = folder_ / "manifest.json", bundle = folder_ / "none.bundle";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"prewarm", "--from", bundle, manifest, "--arch", "sm_90a"},
        {"prewarm", "--arch", "sm_90a", "--from", bundle, "--from", bundle, manifest},
        {"prewarm", "--arch", "sm_90a", manifest, "--from", bundle}}) {
    const Process process = run(words);
    EXPECT_NE(process.err.find("none.bundle"), std::string::npos) << process.err;
  }
  write_text(folder_ / "spec.json", R"({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64})");
  const std::string spec = folder_ / "spec.json";
  expect_bad({"verify", "--waive", "x", spec}, "waive");
  expect_bad({"verify", "--param", "x=1", spec}, "param x");
  expect_bad({"verify", "--param", "x=1", "--param", "y=1", spec}, "param x");
  expect_bad({"tune", "--shape", "1:2", spec}, "shape");
  expect_bad({"emulate", "--waive", "in-order-mma", folder_ / "no.ptx", "--launch", "l.json"},
             "l.json");
  expect_bad({"emulate", "--waive", "in-order-mma", "--waive", "in-order-mma", folder_ / "no.ptx",
              "--launch", "l.json"},
             "l.json");
  run_json({"cache", "export", "--key", std::string(64, '0'), folder_ / "out.bundle"}, 1);
  EXPECT_EQ(last_.err.find("file: "), std::string::npos) << last_.err;
}

TEST_F(Usage, SizesAreWrittenAsPeopleWriteThem) {
  for (const char* size :
       {"0", "1048576", "500M", "5G", "1k", "512MiB", "2GB", "1T", "10B", "5g", "1m"}) {
    EXPECT_EQ(run({"cache", "gc", "--dry-run", "--max-bytes", size}).exit_code, 0) << size;
  }
  for (const char* size : {"-1", "1.5G", "G", "5 G", "5X", "5GiX", "9999999999G", "1e9"}) {
    expect_bad({"cache", "gc", "--dry-run", "--max-bytes", size}, "max_bytes: is '");
  }
  EXPECT_EQ(byte_size("1M"), 1 << 20);
  EXPECT_EQ(byte_size("1MiB"), 1 << 20);
  EXPECT_EQ(byte_size("1MB"), 1000000);
  EXPECT_EQ(byte_size("5G"), std::int64_t{5} << 30);
  EXPECT_EQ(byte_size("8191P"), std::nullopt);
}

TEST_F(Usage, WhatNumQoCannotBeIsNoAdvice) {
  const Json plan = run_json({"plan", "--arch", "sm_90a", "--num-q-heads", "4", "--group", "4",
                              "--qk-depth", "16", "--qkv-dtype", "e4m3", "--num-qo", "2"},
                             0);
  EXPECT_EQ(plan.at("supported"), false);
  EXPECT_NE(plan.at("reason").get<std::string>().find("leave num_qo out"), std::string::npos)
      << plan.at("reason");
}

TEST_F(Usage, StandardOutputThatCannotBeWritten) {
  for (const Output output : {Output::kClosed, Output::kBrokenPipe, Output::kFull}) {
    options_.output = output;
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"--help"}, hopper("plan"), hopper("plan", {"--json"}), {"cache", "path"}}) {
      const Process process = run(words);
      EXPECT_EQ(process.exit_code, 1) << "signal " << process.signal;
      EXPECT_NE(process.err.find("standard output"), std::string::npos) << process.err;
    }
  }
}

TEST_F(Usage, HostileSnippetsAreRefusedWithAPosition) {
  for (const char* code : {"q_idx; asm(\\\"trap;\\\")", "#include </etc/passwd>", "q_idx == nope",
                           "((((", "1 / 0 == q_idx", "q_idx"}) {
    const std::string mask =
        std::string(R"({"kind": "custom", "name": "evil", "code": ")") + code + "\"}";
    const std::vector<std::string> words{"compile", "--num-q-heads", "8", "--qk-depth",
                                         "64",      "--mask",        mask};
    const Process process = run(words);
    EXPECT_EQ(process.exit_code, 2) << code << process.err;
    EXPECT_LT(process.seconds, 5);
    const Json error = run_json(words, 2)["error"];
    EXPECT_GE(error.value("line", 0), 1) << error;
    EXPECT_GE(error.value("column", 0), 1) << error;
  }
}

TEST_F(Usage, PlanPrintsEvenWhatIsUnsupported) {
  const Json plan =
      run_json({"plan", "--arch", "sm_100a", "--num-q-heads", "8", "--qk-depth", "64"}, 0);
  EXPECT_EQ(plan.at("config"), "fa4");
  EXPECT_TRUE(plan.contains("supported"));
  EXPECT_TRUE(plan.contains("reason"));
  EXPECT_TRUE(plan.contains("kernel"));
  EXPECT_TRUE(plan.at("kernel").contains("deviations"));
  EXPECT_EQ(run_json({"plan", "--arch", "sm_100a", "--num-q-heads", "8", "--qk-depth", "256"}, 0)
                .at("config"),
            "depth512");
  EXPECT_EQ(run_json(hopper("plan"), 0).at("config"), "sm90");
  EXPECT_FALSE(run(hopper("plan")).out.empty());
}

// As a script gives whose variable is not set: what was asked for is not to be left out silently.
TEST_F(Usage, EmptyValuesAreRefused) {
  for (const char* flag : {"--tuning", "--spec", "--arch", "--scale", "--batch", "--seeds",
                           "--timing", "--trace", "--dump", "--mask", "--ragged", "--param"}) {
    const std::vector<std::string> words{"verify", "--num-q-heads", "8", "--qk-depth", "64", flag,
                                         ""};
    expect_bad(words, std::string(flag + 2) + ": is empty");
  }
  expect_bad(hopper("compile", {"-o", ""}), "output: is empty");
  expect_bad(hopper("compile", {"--ptx", ""}), "ptx: is empty");
  expect_bad(hopper("tune", {"--model", ""}), "model: is empty");
  expect_bad({"prewarm", "m.json", "--arch", ""}, "arch: is empty");
  expect_bad({"prewarm", ""}, "manifest: is empty");
  expect_bad({"cache", "verify", "bundle", "--trust", ""}, "trust: is empty");
  expect_bad({"manifest", "config.json", "-o", ""}, "o: is empty");
}

TEST_F(Usage, BadConfigurationsOfModelsAreNamed) {
  write_text(folder_ / "config.json", "");
  expect_bad({"manifest", folder_ / "config.json"}, "config.json: is not valid JSON");
  write_text(folder_ / "config.json", "[]");
  expect_bad({"manifest", folder_ / "config.json"}, "config.json: the configuration is an array");
  write_text(folder_ / "config.json", R"({"model_type": ["llama"]})");
  expect_bad({"manifest", folder_ / "config.json"}, "model_type: is an array");
  write_text(folder_ / "config.json", "{}");
  expect_bad({"manifest", folder_ / "config.json"}, "model_type: is missing");
}

TEST_F(Usage, GenerateWritesWhatItPrints) {
  const Process printed = run(hopper("generate"));
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_NE(printed.out.find("struct Config"), std::string::npos);
  const Json json = run_json(hopper("generate"), 0);
  EXPECT_NE(printed.out.find(json.at("text").get<std::string>()), std::string::npos);
  const Json written = run_json(hopper("generate", {"-o", folder_ / "deep/source"}), 0);
  EXPECT_EQ(written.at("key"), json.at("key"));
  EXPECT_EQ(read_text((folder_ / "deep/source/") + json.at("name").get<std::string>()),
            json.at("text"));
  for (const auto& [name, text] : json.at("headers").items()) {
    EXPECT_EQ(read_text((folder_ / "deep/source/") + name), text);
  }
  std::string options;
  for (const Json& option : json.at("options")) options += option.get<std::string>() + "\n";
  EXPECT_EQ(read_text(folder_ / "deep/source/options.txt"), options);
  EXPECT_EQ(run(hopper("generate", {"-o", "/dev/null/x"})).exit_code, 1);
}

TEST_F(Usage, ProblemsOfVerifyAreTold) {
  expect_bad(hopper("verify", {"--q-len", "-1"}), "q_len");
  expect_bad(hopper("verify", {"--kv-len", "5,x"}), "kv_len");
  expect_bad(hopper("verify", {"--kv-len", "5,"}), "kv_len");
  expect_bad(hopper("verify", {"--q-len", ""}), "q_len");
  expect_bad(hopper("verify", {"--q-len", "99999999999999999999"}), "q_len");
  expect_bad(hopper("verify", {"--q-len", "5,6"}), "ragged");
  expect_bad(hopper("verify", {"--batch", "-3"}), "batch");
  expect_bad(hopper("verify", {"--batch", "3", "--kv-len", "5,6"}), "kv_len");
  expect_bad(hopper("verify", {"--batch", "1000000", "--q-len", "1000"}), "memory");
  expect_bad(hopper("verify", {"--q-len", "500000000", "--kv-len", "500000000"}), "memory");
  expect_bad(hopper("verify", {"--input", "wild"}), "spike");
  expect_bad(hopper("verify", {"--scale", "-1"}), "scale");
  expect_bad(hopper("verify", {"--scale", "nan"}), "scale");
  expect_bad(hopper("verify", {"--scale", "1e300"}), "3.4e38, as an f32");
  expect_bad(hopper("verify", {"--window", "9"}), "window: is 9, but a launch of this spec");
  expect_bad(hopper("verify", {"--cap", "9"}), "cap");
  expect_bad(hopper("verify", {"--pairs", "3"}), "pairs: is 3, but the spec is of no merge");
  expect_bad(hopper("verify", {"--param", "x=1"}), "param x");
  expect_bad(hopper("verify", {"--param", "x"}), "NAME=VALUE");
  const std::string mask =
      R"({"kind": "custom", "name": "m", "code": "p.doc[q_idx] == p.n",)"
      R"( "params": [{"name": "doc", "type": "i32[]"}, {"name": "n", "type": "i32"}]})";
  for (const char* param : {"n=x", "n=1.5", "n=4294967296", "doc=1", "doc=@/dev/zero",
                            "doc=@/nonexistent", "other=1"}) {
    expect_bad({"verify", "--arch", "sm_90a", "--num-q-heads", "8", "--qk-depth", "64", "--mask",
                mask, "--param", param},
               "param");
  }
}

TEST_F(Usage, DoctorTellsWhatIsMissing) {
  options_.environment["ATTNJIT_NVRTC"] = folder_ / "no.so";
  const Json json = run_json({"doctor"}, 4);
  EXPECT_FALSE(json.at("nvrtc").at("found"));
  EXPECT_FALSE(json.at("ok"));
  ASSERT_FALSE(json.at("problems").empty());
  for (const Json& problem : json.at("problems")) {
    EXPECT_FALSE(problem.at("what").get<std::string>().empty());
    EXPECT_FALSE(problem.at("todo").get<std::string>().empty());
  }
  EXPECT_EQ(json.at("cache").at("layers").at(0).at("path"), folder_ / "cache");
  EXPECT_FALSE(run({"doctor"}).out.empty());
}

TEST_F(Usage, DoctorSaysWhyACacheIsNotUsed) {
  const auto layer = [&] { return run_json({"doctor"}, 4).at("cache").at("layers").at(0); };
  EXPECT_EQ(layer(), Json({{"path", folder_ / "cache"},
                           {"usable", true},
                           {"reason", ""},
                           {"entries", 0},
                           {"bytes", 0}}));
  write_text(folder_ / "file", "");
  options_.environment["ATTNJIT_CACHE_DIR"] = folder_ / "file";
  EXPECT_EQ(layer().at("reason"), "Not a directory");
  const Json problems = run_json({"doctor"}, 4).at("problems");
  const std::string what =
      "the cache layer " + (folder_ / "file") + " is not used: Not a directory";
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [&](const Json& problem) {
    return problem.at("what") == what &&
           problem.at("todo").get<std::string>().find("ATTNJIT_CACHE_DIR") != std::string::npos;
  })) << problems;
  EXPECT_EQ(run({"cache", "gc"}).err,
            "attnjit cache: " + (folder_ / "file") + ": Not a directory\n");
}

TEST_F(Usage, DoctorFindsNoNvrtcInOneThatDoesNotCompile) {
  options_.environment["ATTNJIT_NVRTC"] = ATTNJIT_FAKE_NVRTC_INCOMPLETE;
  const Json json = run_json({"doctor"}, 4);
  EXPECT_FALSE(json.at("nvrtc").at("found"));
  EXPECT_NE(json.at("problems").at(0).at("what").get<std::string>().find("libnvrtc-builtins"),
            std::string::npos);
}

}  // namespace
}  // namespace attnjit::testing
