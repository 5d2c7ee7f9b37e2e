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

#include <cerrno>
#include <csignal>
#include <cstddef>
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

bool limit(__rlimit_resource which, rlim_t soft, rlim_t hard) {
  const struct rlimit both = {soft, hard};
  return setrlimit(which, &both) == 0;
}

bool limit(__rlimit_resource which, rlim_t value) { return limit(which, value, value); }

/// System calls that answer "permission denied".
const std::vector<long>& refused() {
  static const std::vector<long> calls = {
#ifdef SYS_open
      SYS_open,
      SYS_creat,
      SYS_stat,
      SYS_lstat,
      SYS_access,
      SYS_readlink,
      SYS_unlink,
      SYS_rename,
      SYS_link,
      SYS_symlink,
      SYS_mkdir,
      SYS_rmdir,
      SYS_chmod,
      SYS_chown,
      SYS_lchown,
      SYS_mknod,
      SYS_utime,
      SYS_utimes,
      SYS_fork,
      SYS_vfork,
#endif
      SYS_openat,
      SYS_openat2,
      SYS_open_by_handle_at,
      SYS_statx,
      SYS_faccessat,
      SYS_faccessat2,
      SYS_readlinkat,
      SYS_unlinkat,
      SYS_renameat2,
      SYS_linkat,
      SYS_symlinkat,
      SYS_mkdirat,
      SYS_mknodat,
      SYS_fchmodat,
      SYS_fchownat,
      SYS_utimensat,
      SYS_truncate,
      SYS_chdir,
      SYS_chroot,
      SYS_pivot_root,
      SYS_mount,
      SYS_umount2,
      SYS_execve,
      SYS_execveat,
      SYS_ptrace,
      SYS_process_vm_readv,
      SYS_process_vm_writev,
      SYS_kill,
      SYS_pidfd_open,
      SYS_pidfd_send_signal,
      SYS_pidfd_getfd,
      SYS_socket,
      SYS_socketpair,
      SYS_connect,
      SYS_bind,
      SYS_listen,
      SYS_accept,
      SYS_accept4,
      SYS_bpf,
      SYS_perf_event_open,
      SYS_userfaultfd,
      SYS_io_uring_setup,
      SYS_keyctl,
      SYS_add_key,
      SYS_request_key,
      SYS_unshare,
      SYS_setns,
      SYS_memfd_create,
      SYS_inotify_init1,
      SYS_fanotify_init,
      SYS_name_to_handle_at,
      SYS_shmget,
      SYS_msgget,
      SYS_semget,
      SYS_mq_open,
      SYS_setxattr,
      SYS_getxattr,
      SYS_init_module,
      SYS_finit_module,
      SYS_kexec_load,
      SYS_reboot,
  };
  return calls;
}

}  // namespace

bool die_with_parent(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  // NOTE: a parent that ended before the line above sends no signal.
  return getppid() == parent;
}

bool limit_resources(std::int64_t memory_bytes, int cpu_seconds) {
  bool done = limit(RLIMIT_CORE, 0);
  // Its only file is the table of times.
  done = limit(RLIMIT_FSIZE, 1 << 20) && done;
  // NOTE: the hard limit comes later, or the kernel would skip SIGXCPU, which tells the reason.
  const auto cpu = static_cast<rlim_t>(cpu_seconds);
  done = limit(RLIMIT_CPU, cpu, cpu + 1) && done;
  if (!kSanitized) done = limit(RLIMIT_AS, static_cast<rlim_t>(memory_bytes)) && done;
  return done;
}

bool confine() {
  // NOTE: a sanitizer makes pipes of its own to see what memory is there.
  if (!kSanitized) limit(RLIMIT_NOFILE, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  constexpr std::uint32_t kDeny = SECCOMP_RET_ERRNO | (EACCES & SECCOMP_RET_DATA);
  std::vector<sock_filter> filter = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
#if defined(__x86_64__)
    // The x32 calls have numbers of their own.
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
#endif
    // clone3's flags lie in memory, out of the filter's sight; libc falls back to clone.
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(SYS_clone3), 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (ENOSYS & SECCOMP_RET_DATA)),
  };
  for (const long call : refused()) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, kDeny));
  }
  // Threads may be made, processes may not.
  filter.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(SYS_clone), 0, 3));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, kDeny));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace attnjit
