// SPDX-License-Identifier: Apache-2.0
// Child: a helper process that is ours to end; it never outlives the object, never stays a zombie.
//
// Thread rules: for one thread at a time.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "attnjit/result.h"

namespace attnjit {

/// A file descriptor that is closed with the object.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

class Child {
 public:
  /// How a child ended, and what it had used by then.
  struct End {
    bool known = false;  ///< false: somebody else in this process reaped it; nothing below counts
    bool by_us = false;  ///< it still ran and was killed here
    int status = 0;      ///< as from wait
    double cpu_seconds = 0;
    std::int64_t peak_bytes = 0;

    int signal() const;     ///< that killed it; 0: none, or ours
    int exit_code() const;  ///< -1: it did not exit by itself
  };

  /// Starts a compile worker with `socket` as its only connection, and without environment. Errors:
  /// kEnvironment, kIo.
  static Result<Child> start(const std::string& command, int socket);

  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&&) = delete;
  ~Child();

  /// Kills it if it still runs, and reaps it.
  End end();

  /// Gives a process whose socket closed the time to die of what it is dying of.
  End end_after(std::chrono::milliseconds grace);

 private:
  Child() = default;
  bool has_ended() const;
  void kill_now() const;
  End reap();

  pid_t pid_ = -1;
  Fd pidfd_;  ///< readable once it has ended; may be -1
};

}  // namespace attnjit
