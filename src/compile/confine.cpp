// SPDX-License-Identifier: Apache-2.0
// Limits the resources and the system calls of the helper process (setrlimit, seccomp).
#include "compile/confine.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <vector>

namespace attnjit {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

#if defined(__x86_64__)
constexpr std::uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
#error "attnjit runs on x86-64 and AArch64"
#endif

/// Sets both limits, or keeps a hard limit that is lower: only root could raise it. Returns the
/// hard limit that is in force; nullopt: the kernel refused.
std::optional<rlim_t> lower(__rlimit_resource which, rlim_t soft, rlim_t hard) {
  struct rlimit limit {};
  if (getrlimit(which, &limit) != 0) return std::nullopt;
  limit.rlim_max = std::min(hard, limit.rlim_max);
  limit.rlim_cur = std::min(soft, limit.rlim_max);
  if (setrlimit(which, &limit) != 0) return std::nullopt;
  return limit.rlim_max;
}

std::optional<rlim_t> lower(__rlimit_resource which, rlim_t value) {
  return lower(which, value, value);
}

// The calls that NVRTC 12.9 and 13.0 were seen to make (strace), and their like that libc makes in
// their place on another machine or release.
constexpr long kAllowed[] = {
    // Memory of its own.
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    // Files that are open already: the socket, /dev/null.
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_lseek,
    SYS_fstat,
    SYS_close,
    // Clocks.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    // Itself, and the size of the machine.
    SYS_getpid,
    SYS_gettid,
    SYS_getcwd,
    SYS_getrandom,
    SYS_sysinfo,
    SYS_uname,
    // Threads.
    SYS_futex,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_rseq,
    // Handlers of its own signals.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
};

/// The filter, instruction by instruction.
class Filter {
 public:
  Filter() {
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    jump(BPF_JEQ, kAuditArch, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    // The x32 calls have numbers of their own.
    jump(BPF_JGE, 0x40000000, 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
#endif
  }

  void allow(long call) { answer(call, SECCOMP_RET_ALLOW); }

  void answer(long call, std::uint32_t what) {
    jump(BPF_JEQ, static_cast<std::uint32_t>(call), 0, 1);
    add(BPF_RET | BPF_K, what);
  }

  /// Allows a call if every check holds, and denies it if one does not.
  struct Check {
    unsigned argument;
    enum Kind { kIs, kHas, kHasNoneOf } kind;
    std::uint32_t value;
  };
  void allow_if(long call, const std::vector<Check>& checks) {
    std::vector<sock_filter> body;
    for (const Check& check : checks) {
      // NOTE: the kernel reads process ids, resources and clone's flags from the low half alone.
      const auto low =
          static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * check.argument);
      const auto test = static_cast<unsigned short>(
          BPF_JMP | BPF_K | (check.kind == Check::kIs ? BPF_JEQ : BPF_JSET));
      const bool wanted = check.kind != Check::kHasNoneOf;
      body.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low));
      body.push_back(BPF_JUMP(test, check.value, static_cast<std::uint8_t>(wanted ? 1 : 0),
                              static_cast<std::uint8_t>(wanted ? 0 : 1)));
      body.push_back(BPF_STMT(BPF_RET | BPF_K, kDeny));
    }
    jump(BPF_JEQ, static_cast<std::uint32_t>(call), 0, static_cast<std::uint8_t>(body.size() + 1));
    code_.insert(code_.end(), body.begin(), body.end());
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }

  bool install() {
    add(BPF_RET | BPF_K, kDeny);
    const sock_fprog program = {static_cast<unsigned short>(code_.size()), code_.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

  static constexpr std::uint32_t error(int number) {
    return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(number) & SECCOMP_RET_DATA);
  }

 private:
  static constexpr std::uint32_t kDeny =
      SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(EACCES) & SECCOMP_RET_DATA);

  void add(unsigned code, std::uint32_t value) {
    code_.push_back(BPF_STMT(static_cast<unsigned short>(code), value));
  }
  void jump(unsigned test, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
    code_.push_back(BPF_JUMP(static_cast<unsigned short>(BPF_JMP | BPF_K | test), value, yes, no));
  }

  std::vector<sock_filter> code_;
};

static_assert(std::endian::native == std::endian::little, "the low half of an argument is first");

}  // namespace

bool die_with_parent(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  // NOTE: a parent that ended before the line above sends no signal.
  return getppid() == parent;
}

std::optional<ResourceLimits> limit_resources(const ResourceLimits& wanted) {
  // Its only file is the table of times.
  if (!lower(RLIMIT_CORE, 0) || !lower(RLIMIT_FSIZE, 1 << 20)) return std::nullopt;
  // NOTE: the hard limit comes later, or the kernel would skip SIGXCPU, which tells the reason.
  const auto cpu = static_cast<rlim_t>(wanted.cpu_seconds);
  const auto cpu_given = lower(RLIMIT_CPU, cpu, cpu + 1);
  const auto memory = static_cast<rlim_t>(wanted.memory_bytes);
  const auto memory_given = kSanitized ? memory : lower(RLIMIT_AS, memory);
  if (!cpu_given || !memory_given) return std::nullopt;
  return ResourceLimits{static_cast<std::int64_t>(*memory_given),
                        static_cast<int>(std::min(*cpu_given, cpu))};
}

std::vector<long> allowed_calls() {
  std::vector<long> calls(std::begin(kAllowed), std::end(kAllowed));
  if (kSanitized) {
#ifdef SYS_pipe
    calls.push_back(SYS_pipe);
#endif
    calls.push_back(SYS_pipe2);
  }
  return calls;
}

bool confine() {
  // NOTE: a sanitizer makes pipes of its own to see what memory is there.
  if (!kSanitized) lower(RLIMIT_NOFILE, 0);
  Filter filter;
  for (const long call : allowed_calls()) filter.allow(call);
  using Check = Filter::Check;
  // Threads, made as libc makes them, and no process. clone3's flags lie in memory, out of the
  // filter's sight; where it does not exist, libc uses clone.
  constexpr std::uint32_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM |
                                         CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS |
                                         CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  filter.allow_if(SYS_clone,
                  {{0, Check::kHasNoneOf, ~kThreadFlags}, {0, Check::kHas, CLONE_THREAD}});
  filter.answer(SYS_clone3, Filter::error(ENOSYS));
  // abort and raise.
  filter.allow_if(SYS_tgkill, {{0, Check::kIs, static_cast<std::uint32_t>(getpid())}});
  // NVRTC raises its own stack limit for a compile.
  filter.allow_if(SYS_prlimit64, {{0, Check::kIs, 0}, {1, Check::kIs, RLIMIT_STACK}});
  filter.allow_if(SYS_sched_getaffinity, {{0, Check::kIs, 0}});
  return filter.install();
}

}  // namespace attnjit
