// SPDX-License-Identifier: Apache-2.0
// Hosts as network namespaces: each has an address of its own behind a bridge, and reaches the
// others' loopback as little as another machine does. They end with the process that made them.
//
// Thread rules: made before other threads are.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace attnjit::cache {

class HostNamespaces {
 public:
  /// Where the servers are to listen: the bridge's address.
  static constexpr const char* kServers = "10.77.0.1";

  /// Moves this process to a namespace with a bridge, and makes `hosts` beside it.
  explicit HostNamespaces(int hosts) {
    made_ = ::unshare(CLONE_NEWNET) == 0 && run("ip link set lo up") &&
            run("ip link add bridge0 type bridge") &&
            run("ip addr add " + std::string(kServers) + "/24 dev bridge0") &&
            run("ip link set bridge0 up");
    for (int host = 0; host < hosts && made_; ++host) made_ = add(host);
  }
  ~HostNamespaces() {
    for (const pid_t holder : holders_) {
      ::kill(holder, SIGKILL);
      ::waitpid(holder, nullptr, 0);
    }
  }
  HostNamespaces(const HostNamespaces&) = delete;
  HostNamespaces& operator=(const HostNamespaces&) = delete;

  /// False: it takes root's rights and `ip`.
  bool made() const { return made_; }
  /// What enter() is told of a host.
  std::string path(int host) const {
    return "/proc/" + std::to_string(holders_.at(static_cast<std::size_t>(host))) + "/ns/net";
  }

  /// Moves the calling process to a host.
  static bool enter(const std::string& path) {
    const int space = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0) return false;
    const bool entered = ::setns(space, CLONE_NEWNET) == 0;
    ::close(space);
    return entered;
  }

 private:
  static bool run(const std::string& command) { return std::system(command.c_str()) == 0; }

  bool add(int host) {
    const std::string number = std::to_string(host);
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return false;
    const pid_t holder = ::fork();
    if (holder == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char moved = ::unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      if (::write(ready[1], &moved, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char moved = 'n';
    const bool told = holder > 0 && ::read(ready[0], &moved, 1) == 1 && moved == 'y';
    ::close(ready[0]);
    if (holder > 0) holders_.push_back(holder);
    if (!told) return false;
    const std::string pid = std::to_string(holder);
    const std::string inside = "nsenter -t " + pid + " -n ip ";
    return run("ip link add port" + number + " type veth peer name eth0 netns " + pid) &&
           run("ip link set port" + number + " master bridge0 up") &&
           run(inside + "link set lo up") &&
           run(inside + "addr add 10.77.0." + std::to_string(host + 2) + "/24 dev eth0") &&
           run(inside + "link set eth0 up");
  }

  bool made_ = false;
  std::vector<pid_t> holders_;
};

}  // namespace attnjit::cache
