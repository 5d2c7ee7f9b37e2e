// SPDX-License-Identifier: Apache-2.0
// Starting, ending and reaping a compile worker.
#include "compile/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "compile/worker.h"

namespace attnjit {
namespace {

Error out_of(const char* what) {
  return make_error(ErrorCode::kIo, fmt::format("out of {}", what));
}

}  // namespace

int Child::End::signal() const {
  return known && !by_us && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int Child::End::exit_code() const { return known && WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

Result<Child> Child::start(const std::string& command, int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&actions) != 0) return out_of("memory");
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return out_of("memory");
  }
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int failed = 0;
  const auto require = [&failed](int result) { failed = failed != 0 ? failed : result; };
  // NOTE: first, for a host that closed its standard descriptors has `socket` among them.
  require(posix_spawn_file_actions_adddup2(&actions, socket, kWorkerSocket));
  require(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0));
  require(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0));
  require(posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0));
  require(posix_spawn_file_actions_addclosefrom_np(&actions, kWorkerSocket + 1));
  require(posix_spawnattr_setsigdefault(&attributes, &all));
  require(posix_spawnattr_setsigmask(&attributes, &none));
  require(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
  std::string parent = std::to_string(getpid());
  std::string name = kCompileWorkerCommand;
  std::string path = command;
  const std::array<char*, 4> argv = {path.data(), name.data(), parent.data(), nullptr};
  const std::array<char*, 1> environment = {nullptr};
  Child child;
  if (failed == 0) {
    failed = posix_spawn(&child.pid_, command.c_str(), &actions, &attributes, argv.data(),
                         environment.data());
    if (failed != 0) child.pid_ = -1;
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return make_error(ErrorCode::kEnvironment,
                      fmt::format("cannot start {}: {}", command, std::strerror(failed)),
                      "helper_path");
  }
  child.pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0)));
  return child;
}

Child::~Child() {
  if (pid_ > 0) end();
}

Child::End Child::end() {
  const bool by_us = !has_ended();
  kill_now();
  End end = reap();
  end.by_us = by_us;
  return end;
}

Child::End Child::end_after(std::chrono::milliseconds grace) {
  const auto limit = std::chrono::steady_clock::now() + grace;
  while (!has_ended() && std::chrono::steady_clock::now() < limit) {
    // Without a descriptor of the process (Linux before 5.3) it is asked again and again.
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    poll(&ended, pidfd_.get() >= 0 ? 1 : 0, 5);
  }
  return end();
}

bool Child::has_ended() const {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
  return info.si_pid == pid_;
}

void Child::kill_now() const {
  // NOTE: by descriptor where possible: a host that reaps our child lets its number be reused.
  if (pidfd_.get() >= 0) {
    syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  } else {
    kill(pid_, SIGKILL);
  }
}

Child::End Child::reap() {
  End end;
  struct rusage usage {};
  pid_t got = -1;
  do {
    got = wait4(pid_, &end.status, 0, &usage);
  } while (got < 0 && errno == EINTR);
  end.known = got == pid_;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  end.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  end.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  pid_ = -1;
  pidfd_.reset();
  return end;
}

}  // namespace attnjit
