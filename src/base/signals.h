// SPDX-License-Identifier: Apache-2.0
// SignalsBlocked: lets a thread start others that take no signals: the handlers are the host's.
//
// Thread rules: an object belongs to the thread that made it.
#pragma once

#include <pthread.h>

#include <csignal>

namespace attnjit {

/// While it lives, no signal is delivered to this thread, nor ever to one that it starts. With
/// SIGPIPE blocked, a peer that is gone is an error of a write, and not the end of the process.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace attnjit
