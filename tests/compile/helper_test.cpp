// SPDX-License-Identifier: Apache-2.0
// The helper process: right answers, and every way in which it can go wrong. The compiler's own
// weak points are attacked with the real NVRTC; skipped where there is none.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <fstream>
#include <thread>

#include "../temporary_folder.h"
#include "helper_fixture.h"

namespace attnjit {
namespace {

double peak_mib() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// An expression of 2^30 terms.
CompileRequest macro_bomb() {
  std::string body = "#define A0 1 + 1\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "A" + std::to_string(i - 1);
    body += "#define A" + std::to_string(i) + " " + before + " + " + before + "\n";
  }
  return trusted(body + "return A29;");
}

TEST_F(Helper, GivesTheBytesThatThisProcessWouldGive) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    CompileRequest request = request_for(test::kSmallKernel, arch);
    request.want_ptx = true;
    const auto here = make_in_process_compiler()->compile(request, in(kLong));
    const auto there = compile(request);
    ASSERT_TRUE(here.ok()) << here.error().to_string();
    ASSERT_TRUE(there.ok()) << there.error().to_string();
    EXPECT_EQ(here->cubin, there->cubin);
    EXPECT_EQ(here->ptx, there->ptx);
    EXPECT_EQ(here->usage.registers, there->usage.registers);
    EXPECT_EQ(here->nvrtc_version, there->nvrtc_version);
    EXPECT_GT(there->times.frontend_ms + there->times.optimizer_ms + there->times.ptxas_ms, 0);
  }
}

TEST_F(Helper, HasTheBuildIdOfTheInProcessCompiler) {
  EXPECT_EQ(*make_helper_compiler(options_)->build_id(), *make_in_process_compiler()->build_id());
}

TEST_F(Helper, CompilesTrustedCodeAndPointsIntoIt) {
  EXPECT_TRUE(compile(trusted("return q_idx > kv_idx;")).ok());
  const auto image = compile(trusted("int x = 1;\nreturn x + nope;"));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(image.error().field, "mask.code");
  EXPECT_EQ(image.error().line, 2);
  EXPECT_EQ(image.error().column, 12);
}

TEST_F(Helper, ABraceEscapeIsCaughtByItsSecondKernel) {
  const auto image =
      compile(trusted("return true; } };\nextern \"C\" __global__ void evil(int* p) { *p = 1; }\n"
                      "struct Rest { static bool f() { return false;"));
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message.find("evil"), std::string::npos) << image.error().to_string();
}

TEST_F(Helper, NoHostFileIsReadable) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "secret.cuh") << "constexpr bool kSecret = true;\n";
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& file :
       {folder / "secret.cuh", std::string("/etc/passwd"), std::string("/proc/self/environ"),
        std::string("/dev/zero"), folder / "pipe", std::string("secret.cuh")}) {
    const auto image =
        compile(trusted("#include \"" + file + "\"\nreturn true;"), milliseconds(20000));
    ASSERT_FALSE(image.ok()) << file;
    EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed) << image.error().to_string();
    EXPECT_EQ(image.error().to_string().find("kSecret"), std::string::npos);
    EXPECT_EQ(image.error().to_string().find("root:"), std::string::npos);
    EXPECT_NE(image.error().message.find("open source file"), std::string::npos)
        << image.error().to_string();
  }
  // Nor can code ask whether a file exists.
  for (const std::string& file : {folder / "secret.cuh", std::string("/etc/passwd")}) {
    const auto image = compile(
        trusted("#if __has_include(\"" + file + "\")\n#error it exists\n#endif\nreturn true;"));
    EXPECT_TRUE(image.ok()) << file << ": " << image.error().to_string();
  }
}

TEST_F(Helper, ACompileMayTakeTheLongestTime) {
  options_.wall_clock = milliseconds::max();  // more than a clock counts
  const auto image = compile(trusted("return true;"));
  EXPECT_TRUE(image.ok()) << image.error().to_string();
}

TEST_F(Helper, MacroBombEndsInTime) {
  options_.wall_clock = milliseconds(2000);
  options_.memory_bytes = std::int64_t{1} << 30;
  const auto start = std::chrono::steady_clock::now();
  const auto image = compile(macro_bomb());
  ASSERT_FALSE(image.ok());
  EXPECT_TRUE(ended_by_a_bound(image.error())) << image.error().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(7000));
  EXPECT_LT(peak_mib(), kSanitized ? 2048 : 512);
}

TEST_F(Helper, MemoryBoundIsNamed) {
  if (kSanitized) GTEST_SKIP() << "the address space is not limited under a sanitizer";
  options_.memory_bytes = std::int64_t{512} << 20;
  const auto image = compile(macro_bomb());
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(image.error().message.find("512 MiB"), std::string::npos) << image.error().to_string();
}

TEST_F(Helper, CpuBoundIsNamed) {
  options_.cpu_seconds = 1;
  options_.memory_bytes = std::int64_t{8} << 30;
  const auto image = compile(template_bomb());
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kTimeout) << image.error().to_string();
  EXPECT_NE(image.error().message.find("1 s of CPU"), std::string::npos);
}

TEST_F(Helper, TemplateBombEndsInTime) {
  options_.wall_clock = milliseconds(1500);
  const auto start = std::chrono::steady_clock::now();
  const auto image = compile(template_bomb());
  ASSERT_FALSE(image.ok());
  EXPECT_TRUE(ended_by_a_bound(image.error())) << image.error().to_string();
  EXPECT_NE(image.error().message.find("1500 ms"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(6500));
}

TEST_F(Helper, EndlessRecursionEndsInTime) {
  options_.wall_clock = milliseconds(10000);
  const CompileRequest cases[] = {
      escaped("template <int N> static int r() { return r<N + 1>(); }", "r<0>() > 0"),
      escaped("template <class T> struct Pair { using type = typename Pair<Pair<T>>::type; };",
              "sizeof(typename Pair<int>::type) > 0"),
      escaped("static constexpr int r(int n) { return n < 0 ? 0 : r(n + 1); }",
              "[] { constexpr int x = r(0); return x > 0; }()"),
      escaped("static constexpr int r() { int n = 0; for (;;) n ^= 1; return n; }",
              "[] { constexpr int x = r(); return x > 0; }()"),
      trusted("#define F(x) F(F(x)) F(x)\nreturn F(F(F(F(1))));"),
      trusted("#include \"attention.cu\"\nreturn true;"),
  };
  for (const CompileRequest& request : cases) {
    const auto image = compile(request);
    ASSERT_FALSE(image.ok()) << request.source.text;
    EXPECT_TRUE(ended_by_a_bound(image.error())) << image.error().to_string();
    EXPECT_EQ(image.error().message.find("not allowed here"), std::string::npos)
        << "not the code that was meant: " << image.error().to_string();
  }
}

TEST_F(Helper, ACrashOfTheCompilerIsNamed) {
  // ptxas inside NVRTC 13.0 crashes on a constant count of zero; a newer one may not.
  const auto image = compile(trusted(
      "asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 0;\" :: \"r\"(q_idx));\nreturn true;"));
  if (image.ok()) GTEST_SKIP() << "this NVRTC does not crash";
  EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed);
  // A sanitizer catches the signal and exits.
  EXPECT_NE(image.error().message.find(kSanitized ? "exit code" : "crashed (SIGSEGV)"),
            std::string::npos)
      << image.error().to_string();
}

TEST_F(Helper, DeepNestingNeverHarmsTheParent) {
  const auto image =
      compile(trusted("return " + std::string(200000, '(') + "1" + std::string(200000, ')') + ";"));
  if (!image.ok()) {
    EXPECT_TRUE(ended_by_a_bound(image.error())) << image.error().to_string();
  }
}

TEST_F(Helper, ADeadlineIsKeptAndNamed) {
  const auto start = std::chrono::steady_clock::now();
  misbehave("worker-hangs");
  const auto image = compile(request_for(test::kSmallKernel), milliseconds(300));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kTimeout);
  EXPECT_NE(image.error().message.find("deadline"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(2000));
}

TEST_F(Helper, CancelEndsRunningAndFutureCompiles) {
  misbehave("worker-hangs");
  const auto compiler = make_helper_compiler(options_);
  std::vector<std::thread> threads;
  std::vector<ErrorCode> codes(3, ErrorCode::kInternal);
  const auto start = std::chrono::steady_clock::now();
  for (ErrorCode& code : codes) {
    threads.emplace_back([&] {
      const auto image = compiler->compile(request_for(test::kSmallKernel), in(kLong));
      if (!image.ok()) code = image.error().code;
    });
  }
  std::this_thread::sleep_for(milliseconds(200));
  compiler->cancel();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(2000));
  for (const ErrorCode code : codes) EXPECT_EQ(code, ErrorCode::kCancelled);
  const auto later = compiler->compile(request_for(test::kSmallKernel), in(kLong));
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::kCancelled);
}

TEST_F(Helper, WorkersThatAnswerNonsenseAreFailures) {
  for (const char* mode :
       {"worker-exits", "worker-dies-of-11", "worker-dies-of-6", "worker-closes", "worker-babbles",
        "worker-stops-short", "worker-talks-on", "worker-announces-too-much", "worker-lies"}) {
    misbehave(mode);
    const auto image = compile(request_for(test::kSmallKernel), milliseconds(10000));
    ASSERT_FALSE(image.ok()) << mode;
    EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed)
        << mode << ": " << image.error().to_string();
  }
}

TEST_F(Helper, AMissingCommandIsNamed) {
  options_.helper_path = "/nonexistent/attnjit";
  const auto image = compile(request_for(test::kSmallKernel));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(image.error().message.find("/nonexistent/attnjit"), std::string::npos);
}

// It is no fault of the code, so it must not be remembered as one.
TEST_F(Helper, ACommandThatDoesNotStartIsOfTheEnvironment) {
  misbehave("worker-lacks-a-library");
  const auto image = compile(request_for(test::kSmallKernel), milliseconds(10000));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kEnvironment) << image.error().to_string();
  EXPECT_NE(image.error().message.find("worker-lacks-a-library"), std::string::npos);
  EXPECT_NE(image.error().hint.find("--version"), std::string::npos);
}

TEST_F(Helper, AMissingNvrtcIsNamed) {
  options_.nvrtc_path = "/nonexistent/libnvrtc.so";
  const auto image = compile(request_for(test::kSmallKernel));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kEnvironment);
}

TEST_F(Helper, ManyAtOnce) {
  const auto compiler = make_helper_compiler(options_);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::uint8_t>> cubins(6);
  for (auto& cubin : cubins) {
    threads.emplace_back([&] {
      auto image = compiler->compile(request_for(test::kSmallKernel), in(kLong));
      if (image.ok()) cubin = image->cubin;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& cubin : cubins) {
    EXPECT_FALSE(cubin.empty());
    EXPECT_EQ(cubin, cubins[0]);
  }
}

TEST_F(Helper, AForkedChildRefuses) {
  const auto compiler = make_helper_compiler(options_);
  const pid_t child = fork();
  if (child == 0) {
    const auto image = compiler->compile(request_for(test::kSmallKernel), in(kLong));
    _exit(!image.ok() && image.error().code == ErrorCode::kForked ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Helper, AHostThatIgnoresItsChildrenIsServedAllTheSame) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGCHLD, &ignore, &before), 0);
  const auto image = compile(request_for(test::kSmallKernel));
  ASSERT_EQ(sigaction(SIGCHLD, &before, nullptr), 0);
  EXPECT_TRUE(image.ok()) << image.error().to_string();
}

TEST_F(Helper, AHostWithoutStandardDescriptorsIsServedAllTheSame) {
  const pid_t child = fork();
  if (child == 0) {
    close(0);
    close(1);
    close(2);
    const auto image =
        make_helper_compiler(options_)->compile(request_for(test::kSmallKernel), in(kLong));
    _exit(image.ok() && image->times.ptxas_ms > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Helper, DescriptorsOfTheHostDoNotReachIt) {
  // Without close-on-exec, as careless hosts have them; the worker would hang on to the pipe.
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  misbehave("worker-hangs");
  const auto compiler = make_helper_compiler(options_);
  std::thread thread([&] {
    static_cast<void>(compiler->compile(request_for(test::kSmallKernel), in(kLong)).ok());
  });
  std::this_thread::sleep_for(milliseconds(300));
  close(ends[1]);
  char byte = 0;
  // End of file at once, for nobody else has the other end.
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
  compiler->cancel();
  thread.join();
}

TEST_F(Helper, DiesWithItsParent) {
  // The real worker at work on a bomb, started by a process that is killed.
  const pid_t parent = fork();
  if (parent == 0) {
    HelperOptions options = options_;
    options.helper_path = ATTNJIT_TEST_WORKER;
    options.memory_bytes = std::int64_t{8} << 30;
    static_cast<void>(make_helper_compiler(options)->compile(template_bomb(), in(kLong)).ok());
    _exit(0);
  }
  // This process becomes the one that its orphan goes to.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::this_thread::sleep_for(milliseconds(700));
  kill(parent, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  const auto limit = in(milliseconds(3000));
  pid_t orphan = 0;
  while (orphan == 0 && std::chrono::steady_clock::now() < limit) {
    orphan = waitpid(-1, &status, WNOHANG);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GT(orphan, 0) << "the worker outlived its parent, or never started";
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Worker, RefusesToBeStartedByHand) {
  for (const char* arguments : {"", " 0", " x", " 1", " 99999999999999"}) {
    const std::string command =
        std::string(ATTNJIT_TEST_WORKER) + " compile-worker" + arguments + " </dev/null 2>&1";
    FILE* out = popen(command.c_str(), "r");
    std::array<char, 64> text{};
    EXPECT_EQ(fread(text.data(), 1, text.size(), out), 0u) << arguments;
    EXPECT_NE(pclose(out), 0) << arguments;
  }
}

}  // namespace
}  // namespace attnjit
