// SPDX-License-Identifier: Apache-2.0
// Faults that are not the code's: each is kEnvironment, which is never remembered of the code.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <functional>
#include <thread>

#include "../temporary_folder.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"
#include "helper_fixture.h"

namespace attnjit {
namespace {

/// Makes the kernel refuse every further filter of this process and its children, as a sandbox may.
bool refuse_filters() {
  const auto deny = SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(EINVAL) & SECCOMP_RET_DATA);
  const std::array<sock_filter, 8> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, deny),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, deny),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program = {filter.size(), const_cast<sock_filter*>(filter.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Whether `holds` is true in a fork of this process.
bool in_a_fork(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The one child of this process; 0: there is none yet.
pid_t child_of_this_process() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    pid_t child = 0;
    if (std::ifstream(task.path() / "children") >> child) return child;
  }
  return 0;
}

TEST_F(Helper, AWorkerEndedFromOutsideIsNoFaultOfTheCode) {
  for (const int signal : {SIGKILL, SIGTERM, SIGHUP, SIGINT, SIGUSR1}) {
    misbehave("worker-dies-of-" + std::to_string(signal));
    const auto image = compile(trusted("return true;"), milliseconds(10000));
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.error().code, ErrorCode::kEnvironment) << image.error().to_string();
    EXPECT_NE(image.error().message.find("from outside"), std::string::npos);
  }
}

TEST_F(Helper, WhatAWorkerDoesBeforeItIsReadyIsNoFaultOfTheCode) {
  for (const char* mode : {"worker-early-exits", "worker-early-dies-of-11",
                           "worker-early-dies-of-9", "worker-early-babbles", "worker-early-lies"}) {
    misbehave(mode);
    const auto image = compile(trusted("return true;"), milliseconds(10000));
    ASSERT_FALSE(image.ok()) << mode;
    EXPECT_EQ(image.error().code, ErrorCode::kEnvironment)
        << mode << ": " << image.error().to_string();
  }
}

TEST_F(Helper, AWorkerThatWasGivenNoProcessorTimeIsNoFaultOfTheCode) {
  options_.wall_clock = milliseconds(300);
  for (const char* mode : {"worker-hangs", "worker-early-hangs"}) {
    misbehave(mode);
    const auto image = compile(trusted("return true;"));
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.error().code, ErrorCode::kEnvironment) << image.error().to_string();
    EXPECT_NE(image.error().message.find("300 ms"), std::string::npos);
  }
}

// Ctrl-C reaches every process of the terminal; only the parent knows what it means.
TEST_F(Helper, AnInterruptOfTheTerminalIsTheParentsToJudge) {
  options_.wall_clock = milliseconds(1500);
  Result<KernelImage> image = make_error(ErrorCode::kInternal, "not compiled");
  std::thread compiling([&] { image = compile(template_bomb()); });
  pid_t worker = 0;
  while ((worker = child_of_this_process()) == 0) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(600));
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP}) kill(worker, signal);
  compiling.join();
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message.find("1500 ms"), std::string::npos) << image.error().to_string();
}

TEST_F(Helper, AnIncompleteNvrtcIsNoFaultOfTheCode) {
  options_.nvrtc_path = ATTNJIT_FAKE_NVRTC_INCOMPLETE;
  const auto image = compile(trusted("return true;"));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kEnvironment) << image.error().to_string();
  EXPECT_NE(image.error().message.find("libnvrtc-builtins.so.99.9"), std::string::npos);
}

TEST_F(Helper, ABoundThatIsTheHostsOwnIsNoFaultOfTheCode) {
  if (kSanitized) GTEST_SKIP() << "the address space is not limited under a sanitizer";
  EXPECT_TRUE(in_a_fork([&] {
    const struct rlimit limit = {rlim_t{4} << 30, rlim_t{4} << 30};
    HelperOptions options = options_;
    options.memory_bytes = std::int64_t{8} << 30;
    options.nvrtc_path = ATTNJIT_FAKE_NVRTC_NO_MEMORY;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    const auto image = make_helper_compiler(options)->compile(trusted("return true;"), in(kLong));
    return !image.ok() && image.error().code == ErrorCode::kEnvironment &&
           image.error().message.find("4096 MiB") != std::string::npos;
  }));
}

TEST_F(Helper, TrustedCodeIsRefusedWhereSystemCallsCannotBeFiltered) {
  EXPECT_TRUE(in_a_fork([&] {
    if (!refuse_filters()) return false;
    const auto compiler = make_helper_compiler(options_);
    const auto image = compiler->compile(trusted("return true;"), in(kLong));
    return !image.ok() && image.error().code == ErrorCode::kEnvironment &&
           image.error().field == "accept_unconfined_helper";
  }));
  // What attnjit printed itself is compiled: in this process it would have no filter either.
  EXPECT_TRUE(in_a_fork([&] {
    return refuse_filters() &&
           make_helper_compiler(options_)->compile(request_for(test::kSmallKernel), in(kLong)).ok();
  }));
}

TEST_F(Helper, TrustedCodeWithoutAFilterCanBeAccepted) {
  options_.accept_unconfined = true;
  EXPECT_TRUE(in_a_fork([&] {
    return refuse_filters() &&
           make_helper_compiler(options_)->compile(trusted("return true;"), in(kLong)).ok();
  }));
}

TEST_F(Helper, TrustedCodeGivesTheSameBytesFromRunToRun) {
  const CompileRequest request = trusted("return q_idx > kv_idx && kv_idx % 7 != 3;");
  const auto first = compile(request);
  const auto second = compile(request);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->cubin, second->cubin);
}

TEST(InProcess, AnIncompleteNvrtcIsNoFaultOfTheCode) {
  for (const char* path : {ATTNJIT_FAKE_NVRTC_INCOMPLETE, ATTNJIT_FAKE_NVRTC_NO_MEMORY}) {
    const auto image =
        make_in_process_compiler(path)->compile(request_for(test::kSmallKernel), in(kLong));
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.error().code, ErrorCode::kEnvironment) << image.error().to_string();
  }
}

// 12.8 knows sm_90a and sm_100a, and its kernels do not pass the gate.
TEST_F(Helper, AnNvrtcThatIsTooOldIsNoFaultOfTheCode) {
  options_.nvrtc_path = ATTNJIT_FAKE_NVRTC_OLD;
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a}) {
    const CompileRequest request = request_for(test::kSmallKernel, arch);
    const auto in_process = make_in_process_compiler(ATTNJIT_FAKE_NVRTC_OLD);
    const std::array images{compile(request), in_process->compile(request, in(kLong))};
    for (const Result<KernelImage>& image : images) {
      ASSERT_FALSE(image.ok());
      EXPECT_EQ(image.error().code, ErrorCode::kEnvironment) << image.error().to_string();
      const std::string said = image.error().to_string();
      EXPECT_NE(said.find("NVRTC 12.8 at "), std::string::npos) << said;
      EXPECT_NE(said.find("needs NVRTC 12.9"), std::string::npos) << said;
    }
  }
}

/// Copies `from` to FOLDER/NAME, and returns that path.
std::string laid(const std::string& from, const std::filesystem::path& folder,
                 const std::string& name) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(from, folder / name);
  return (folder / name).string();
}

/// What an NVRTC says when it is tried out, in a process of its own: libraries are never unloaded.
::testing::AssertionResult works(const std::string& nvrtc) {
  const bool fine = in_a_fork([&] {
    const auto opened = Nvrtc::open(nvrtc);
    return opened.ok() && (*opened)->try_out().ok();
  });
  return fine ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << nvrtc;
}

class Builtins : public ::testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_{temporary_.path()};
};

// None of these folders is one of the dynamic linker's, as with NVRTC's wheel.
TEST_F(Builtins, ThoseBesideTheLibraryAreLoadedWithIt) {
  const std::string nvrtc = laid(ATTNJIT_FAKE_NVRTC, folder_, "libnvrtc.so.99");
  EXPECT_FALSE(works(nvrtc));
  laid(ATTNJIT_FAKE_BUILTINS, folder_, "libnvrtc-builtins.so.99.9");
  EXPECT_TRUE(works(nvrtc));
  const std::string alt = laid(ATTNJIT_FAKE_NVRTC_ALT, folder_, "libnvrtc.alt.so.99");
  EXPECT_FALSE(works(alt));
  laid(ATTNJIT_FAKE_BUILTINS_ALT, folder_, "libnvrtc-builtins.alt.so.99.9");
  EXPECT_TRUE(works(alt));
  std::filesystem::create_directories(folder_ / "linked");
  const std::string link = (folder_ / "linked" / "libnvrtc.so").string();
  std::filesystem::create_symlink(nvrtc, link);
  EXPECT_TRUE(works(link));
}

TEST_F(Builtins, ThoseBesideALinkAreLoadedWhereTheFileHasNone) {
  const std::string nvrtc = laid(ATTNJIT_FAKE_NVRTC, folder_ / "store", "libnvrtc.so.99");
  laid(ATTNJIT_FAKE_BUILTINS, folder_ / "farm", "libnvrtc-builtins.so.99.9");
  const std::string link = (folder_ / "farm" / "libnvrtc.so").string();
  std::filesystem::create_symlink(nvrtc, link);
  EXPECT_TRUE(works(link));
  NvrtcSearch search;
  search.given = {link, "the test says so"};
  const auto found = find_nvrtc(search);
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  EXPECT_EQ(found->why, "the test says so");
  EXPECT_TRUE(works(found->path)) << "a search loses the link";
}

TEST_F(Builtins, ThoseThatAreMissingOrBrokenAreNamed) {
  const std::string nvrtc = laid(ATTNJIT_FAKE_NVRTC, folder_, "libnvrtc.so.99");
  const std::string builtins = (folder_ / "libnvrtc-builtins.so.99.9").string();
  for (const bool broken : {false, true}) {
    if (broken) std::ofstream(builtins) << "no library";
    EXPECT_TRUE(in_a_fork([&] {
      const auto image =
          make_in_process_compiler(nvrtc)->compile(request_for(test::kSmallKernel), in(kLong));
      return !image.ok() && image.error().code == ErrorCode::kEnvironment &&
             image.error().message.find(builtins) != std::string::npos;
    })) << broken;
  }
}

}  // namespace
}  // namespace attnjit
