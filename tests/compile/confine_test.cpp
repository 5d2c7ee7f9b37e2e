// SPDX-License-Identifier: Apache-2.0
// The system call filter of the helper process: every call is tried from inside it.
#include "compile/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "../temporary_folder.h"

namespace attnjit {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// What `calls` answered in a confined process: 0, or the errno; -1: it did not get so far.
template <std::size_t N>
std::array<int, N> inside(const std::function<void(std::array<int, N>&)>& calls) {
  using Answers = std::array<int, N>;
  void* shared =
      mmap(nullptr, sizeof(Answers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* answers = new (shared) Answers;
  answers->fill(-1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    if (confine()) calls(*answers);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const Answers result = *answers;
  munmap(shared, sizeof(Answers));
  return result;
}

int answer(long returned) { return returned == -1 ? errno : 0; }

/// The calls that the filter knows: it lets them pass, or looks at their arguments.
std::set<long> known() {
  const std::vector<long> allowed = allowed_calls();
  std::set<long> calls(allowed.begin(), allowed.end());
  calls.insert({SYS_clone, SYS_clone3, SYS_tgkill, SYS_prlimit64, SYS_sched_getaffinity});
  return calls;
}

TEST(Confine, EveryCallThatIsNotOnTheListIsRefused) {
  constexpr long kCalls = 600;  // Linux 6.18 has fewer than 480
  std::set<long> listed = known();
#if defined(__x86_64__)
  // uretprobe and uprobe: no filter is asked, and they kill whoever is not the kernel's own code.
  listed.insert({335, 336});
#endif
  const auto answers = inside<kCalls>([&](std::array<int, kCalls>& out) {
    for (long call = 0; call < kCalls; ++call) {
      // NOTE: arguments that no call takes, should the filter let one pass.
      if (listed.count(call) == 0) {
        out[static_cast<std::size_t>(call)] = answer(syscall(call, -1, -1, -1, -1, -1, -1));
      }
    }
  });
  for (long call = 0; call < kCalls; ++call) {
    if (listed.count(call) != 0) continue;
    EXPECT_EQ(answers[static_cast<std::size_t>(call)], EACCES) << "system call " << call;
  }
}

TEST(Confine, WhatALeakyFilterLetPassIsRefused) {
  const test::TemporaryFolder folder;
  const std::string file = folder / "file", other = folder / "other";
  ASSERT_GE(close(open(file.c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  const pid_t parent = getpid();
  const auto call = [](auto... arguments) { return answer(syscall(arguments...)); };
  struct stat status {};
  std::array<char, 256> room{};
  struct rlimit limit = {1, 1};
  siginfo_t info{};
  info.si_code = SI_QUEUE;

  struct Attempt {
    const char* what;
    std::function<int()> make;
  };
  const std::vector<Attempt> attempts = {
      {"kill the parent", [&] { return call(SYS_kill, parent, SIGUSR1); }},
      {"kill everybody", [&] { return call(SYS_kill, -1, SIGUSR1); }},
      {"tkill the parent", [&] { return call(SYS_tkill, parent, SIGUSR1); }},
      {"tgkill the parent", [&] { return call(SYS_tgkill, parent, parent, SIGUSR1); }},
      {"queue a signal", [&] { return call(SYS_rt_sigqueueinfo, parent, SIGUSR1, &info); }},
      {"queue a signal to a thread",
       [&] { return call(SYS_rt_tgsigqueueinfo, parent, parent, SIGUSR1, &info); }},
      {"limit the parent",
       [&] { return call(SYS_prlimit64, parent, RLIMIT_NOFILE, &limit, nullptr); }},
      {"limit the parent's stack",
       [&] { return call(SYS_prlimit64, parent, RLIMIT_STACK, &limit, nullptr); }},
      {"raise a limit of its own",
       [&] { return call(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr); }},
      {"be nice to the parent", [&] { return call(SYS_setpriority, PRIO_PROCESS, parent, 5); }},
      {"stat a file", [&] { return call(SYS_newfstatat, AT_FDCWD, file.c_str(), &status, 0); }},
      {"stat a file system", [&] { return call(SYS_statfs, file.c_str(), room.data()); }},
      {"open a file", [&] { return call(SYS_openat, AT_FDCWD, file.c_str(), O_RDONLY); }},
      {"make a file",
       [&] { return call(SYS_openat, AT_FDCWD, other.c_str(), O_CREAT | O_WRONLY, 0600); }},
      {"rename a file",
       [&] { return call(SYS_renameat2, AT_FDCWD, file.c_str(), AT_FDCWD, other.c_str(), 0); }},
#ifdef SYS_renameat
      {"rename a file, the old way",
       [&] { return call(SYS_renameat, AT_FDCWD, file.c_str(), AT_FDCWD, other.c_str()); }},
#endif
      {"change a mode", [&] { return call(SYS_fchmodat, AT_FDCWD, file.c_str(), 0777); }},
      {"change a mode, the new way",
       [&] { return call(452 /* fchmodat2 */, AT_FDCWD, file.c_str(), 0777, 0); }},
      {"set an attribute", [&] { return call(SYS_lsetxattr, file.c_str(), "user.a", "b", 1, 0); }},
      {"remove an attribute", [&] { return call(SYS_removexattr, file.c_str(), "user.a"); }},
#ifdef SYS_futimesat
      {"set a time", [&] { return call(SYS_futimesat, AT_FDCWD, file.c_str(), nullptr); }},
#endif
      {"remove a file", [&] { return call(SYS_unlinkat, AT_FDCWD, file.c_str(), 0); }},
      {"make a socket", [&] { return call(SYS_socket, 1 /* AF_UNIX */, 1 /* SOCK_STREAM */, 0); }},
      {"run a program", [&] { return call(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"trace the parent", [&] { return call(SYS_ptrace, 16 /* PTRACE_ATTACH */, parent, 0, 0); }},
      {"read the parent's memory",
       [&] { return call(SYS_process_vm_readv, parent, nullptr, 0, nullptr, 0, 0); }},
      {"fork", [&] { return call(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0); }},
      {"a thread in a network of its own",
       [&] {
         return call(SYS_clone, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWNET, nullptr,
                     nullptr, nullptr, 0);
       }},
      {"outlive the parent", [&] { return call(SYS_prctl, 1 /* PR_SET_PDEATHSIG */, 0); }},
  };
  constexpr std::size_t kMost = 64;
  ASSERT_LE(attempts.size(), kMost);
  const auto answers = inside<kMost>([&](std::array<int, kMost>& out) {
    for (std::size_t i = 0; i < attempts.size(); ++i) out[i] = attempts[i].make();
  });
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    EXPECT_EQ(answers[i], EACCES) << attempts[i].what;
  }
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
  EXPECT_NE(access(other.c_str(), F_OK), 0);
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Confine, WhatACompilerNeedsIsAllowed) {
  const auto answers = inside<6>([](std::array<int, 6>& out) {
    struct rlimit limit {};
    out[0] = answer(getrlimit(RLIMIT_STACK, &limit));
    out[1] = answer(setrlimit(RLIMIT_STACK, &limit));
    out[2] = answer(syscall(SYS_tgkill, getpid(), gettid(), 0));
    out[3] = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    cpu_set_t cpus;
    out[4] = answer(sched_getaffinity(0, sizeof cpus, &cpus));
    std::array<char, 64> folder{};
    out[5] = getcwd(folder.data(), folder.size()) == nullptr;
  });
  for (const int one : answers) EXPECT_EQ(one, 0);
}

TEST(Confine, ALimitThatIsLowerAlreadyStays) {
  if (kSanitized) GTEST_SKIP() << "the address space is not limited under a sanitizer";
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit low = {rlim_t{1} << 31, rlim_t{1} << 31};
    setrlimit(RLIMIT_AS, &low);
    const auto limits = limit_resources({std::int64_t{1} << 32, 30});
    _exit(limits && limits->memory_bytes == (std::int64_t{1} << 31) && limits->cpu_seconds == 30
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace attnjit
