// SPDX-License-Identifier: Apache-2.0
// The compiler in a helper process: hostile code can kill the process, and nothing else.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "attnjit/compile.h"
#include "compile/check_output.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"
#include "compile/worker.h"
#include "compile/worker_protocol.h"

namespace attnjit {
namespace {

using Clock = std::chrono::steady_clock;

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

/// What the loader of programs, and shells, end with where a program cannot be started.
constexpr int kNotStarted = 127;

Error cancelled() { return make_error(ErrorCode::kCancelled, "the compile was cancelled"); }

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : std::string();
}

bool is_command(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

/// The attnjit command beside this library or executable, installed or in a build folder.
Result<std::string> find_helper(const std::string& given) {
  if (!given.empty()) {
    if (is_command(given)) return given;
    return make_error(ErrorCode::kEnvironment, fmt::format("{} is no command", given),
                      "helper_path");
  }
  std::vector<std::string> folders;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&find_helper), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(real_path(info.dli_fname));
  }
  folders.push_back(real_path("/proc/self/exe"));
  std::string looked;
  for (const std::string& file : folders) {
    if (file.empty()) continue;
    const std::string folder = file.substr(0, file.rfind('/'));
    for (const char* name : {"/attnjit", "/../attnjit", "/../bin/attnjit"}) {
      const std::string path = folder + name;
      if (is_command(path)) return path;
      looked += (looked.empty() ? "" : ", ") + path;
    }
  }
  return make_error(ErrorCode::kEnvironment,
                    fmt::format("the attnjit command was not found; looked for {}", looked),
                    "helper_path", "trusted code compiles in a process of that command");
}

/// A child process that is ours to end: never outlives the object, never left as a zombie.
class Child {
 public:
  struct End {
    bool known = false;  ///< false: somebody else in this process reaped it
    int status = 0;
    double cpu_seconds = 0;
    std::int64_t peak_bytes = 0;
  };

  /// Starts the worker with `socket` as its only connection. Errors: kEnvironment, kIo.
  static Result<Child> start(const std::string& command, int socket) {
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

  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ > 0) end();
  }

  int pidfd() const { return pidfd_.get(); }  ///< readable once it has ended; may be -1

  /// Kills it if it still runs, and reaps it.
  End end() {
    kill_now();
    return reap();
  }

  /// Gives a process whose socket closed the time to die of what it is dying of.
  End end_after(std::chrono::milliseconds grace) {
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    if (pidfd_.get() >= 0) poll(&ended, 1, static_cast<int>(grace.count()));
    return end();
  }

 private:
  Child() = default;
  static Error out_of(const char* what) {
    return make_error(ErrorCode::kIo, fmt::format("out of {}", what));
  }

  void kill_now() const {
    // NOTE: by descriptor where possible: a host that reaps our child lets its number be reused.
    if (pidfd_.get() >= 0) {
      syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    } else {
      kill(pid_, SIGKILL);
    }
  }

  End reap() {
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

  pid_t pid_ = -1;
  Fd pidfd_;
};

class HelperCompiler final : public Compiler {
 public:
  explicit HelperCompiler(HelperOptions options)
      : options_(std::move(options)),
        locator_(default_nvrtc_search(options_.nvrtc_path)),
        cancel_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  Result<std::string> build_id() override {
    if (Status same = same_process(); !same) return std::move(same).error();
    Result<NvrtcLocation> location = locator_.locate();
    if (!location) return std::move(location).error();
    return std::move(location->build_id);
  }

  Result<KernelImage> compile(const CompileRequest& request, Deadline deadline) override {
    const Clock::time_point start = Clock::now();
    if (Status same = same_process(); !same) return std::move(same).error();
    if (Status valid = check_request(request); !valid) return std::move(valid).error();
    if (cancelled_) return cancelled();
    Result<NvrtcLocation> nvrtc = locator_.locate();
    if (!nvrtc) return std::move(nvrtc).error();
    Result<std::string> command = find_helper(options_.helper_path);
    if (!command) return std::move(command).error();

    WorkerRequest message;
    message.compile = request;
    message.nvrtc_path = nvrtc->path;
    message.build_id = nvrtc->build_id;
    message.memory_bytes = std::max<std::int64_t>(options_.memory_bytes, 1);
    message.cpu_seconds = std::max(options_.cpu_seconds, 1);
    const std::string frame = encode(message);
    if (frame.size() > kMaxPayloadBytes) {
      return make_error(ErrorCode::kInvalid, "the source is too long", "source");
    }
    const Clock::time_point limit = std::min(deadline, start + options_.wall_clock);
    Result<std::string> payload = converse(*command, frame, limit, deadline);
    if (!payload) return std::move(payload).error();
    Result<WorkerReply> reply = decode_reply(*payload);
    if (!reply) return broken_reply(reply.error());
    if (!reply->problem.empty()) {
      return make_error(ErrorCode::kEnvironment, std::move(reply->problem), nvrtc->path);
    }
    const std::string version = fmt::format("{}.{}", reply->nvrtc_major, reply->nvrtc_minor);
    // NOTE: an allocation that fails is an error of the source to the front end.
    const bool no_memory = reply->output.result != kNvrtcSuccess &&
                           (reply->output.result == kNvrtcOutOfMemory ||
                            reply->output.log.find(": out of memory") != std::string::npos);
    Result<KernelImage> image = check_output(request, std::move(reply->output));
    if (!image && no_memory) {
      Error error = out_of_memory();
      error.field = image.error().field;
      error.line = image.error().line;
      error.column = image.error().column;
      return error;
    }
    if (!image) return image;
    if (image->nvrtc_version.empty()) image->nvrtc_version = version;
    image->times.total_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return image;
  }

  void cancel() override {
    cancelled_ = true;
    const std::uint64_t one = 1;
    // NOTE: never read back: it wakes every conversation, now and later.
    static_cast<void>(!write(cancel_event_.get(), &one, sizeof one));
  }

 private:
  Status same_process() const {
    if (getpid() == process_) return {};
    return make_error(ErrorCode::kForked,
                      "this process is a fork of the one that made the compiler", {},
                      "make a new one after fork");
  }

  static Error broken_reply(const Error& why) {
    return make_error(ErrorCode::kCompileFailed,
                      "the helper process sent an answer that is none: " + why.message);
  }

  /// Sends the request to a new worker and receives the payload of its reply.
  Result<std::string> converse(const std::string& command, std::string_view frame,
                               Clock::time_point limit, Deadline deadline) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return make_error(ErrorCode::kIo,
                        fmt::format("cannot make a socket: {}", std::strerror(errno)));
    }
    const Fd ours(ends[0]);
    Fd theirs(ends[1]);
    Result<Child> child = Child::start(command, theirs.get());
    if (!child) return std::move(child).error();
    theirs.reset();

    std::string received;
    std::optional<std::uint64_t> size;
    std::array<char, 64 << 10> buffer;
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
      if (left <= 0) {
        child->end();
        return too_late(limit, deadline);
      }
      std::array<pollfd, 2> events = {
          pollfd{ours.get(), static_cast<short>(POLLIN | (frame.empty() ? 0 : POLLOUT)), 0},
          pollfd{cancel_event_.get(), POLLIN, 0}};
      const int timeout = static_cast<int>(std::min<std::int64_t>(left + 1, 60000));
      if (poll(events.data(), events.size(), timeout) < 0 && errno != EINTR) {
        return make_error(ErrorCode::kIo, fmt::format("poll: {}", std::strerror(errno)));
      }
      if (cancelled_) return cancelled();
      if (!frame.empty() && (events[0].revents & POLLOUT) != 0) {
        const ssize_t put =
            send(ours.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) frame.remove_prefix(static_cast<std::size_t>(put));
        if (put < 0 && errno != EINTR && errno != EAGAIN) return ended(*child, command);
      }
      if ((events[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      const ssize_t got = recv(ours.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return ended(*child, command);
      received.append(buffer.data(), static_cast<std::size_t>(got));
      if (!size && received.size() >= kFrameHeadBytes) {
        Result<std::uint64_t> head =
            decode_head(std::string_view(received).substr(0, kFrameHeadBytes), WorkerFrame::kReply);
        if (!head) return broken_reply(head.error());
        size = *head;
      }
      if (size && received.size() > kFrameHeadBytes + *size) {
        return broken_reply(make_error(ErrorCode::kCorrupt, "more bytes than it announced"));
      }
      if (size && received.size() == kFrameHeadBytes + *size) {
        received.erase(0, kFrameHeadBytes);
        return received;
      }
    }
  }

  Error too_late(Clock::time_point limit, Deadline deadline) const {
    if (limit == deadline) {
      return make_error(ErrorCode::kTimeout, "the deadline passed before the compile ended");
    }
    return make_error(ErrorCode::kTimeout,
                      fmt::format("the compile took longer than {} ms and was ended",
                                  options_.wall_clock.count()),
                      {}, "the code is too costly to compile");
  }

  Error out_of_memory() const {
    return make_error(ErrorCode::kCompileFailed,
                      fmt::format("the compile needed more than the {} MiB that it may have",
                                  options_.memory_bytes >> 20),
                      {}, "the code is too costly to compile");
  }

  /// Why a worker ended without an answer.
  Error ended(Child& child, const std::string& command) const {
    const Child::End end = child.end_after(std::chrono::milliseconds(1000));
    const int signal = end.known && WIFSIGNALED(end.status) ? WTERMSIG(end.status) : 0;
    if (signal == SIGXCPU || end.cpu_seconds >= static_cast<double>(options_.cpu_seconds)) {
      return make_error(ErrorCode::kTimeout,
                        fmt::format("the compile used more than {} s of CPU time and was ended",
                                    options_.cpu_seconds),
                        {}, "the code is too costly to compile");
    }
    if (end.known && WIFEXITED(end.status) && WEXITSTATUS(end.status) == kNotStarted) {
      return make_error(
          ErrorCode::kEnvironment,
          fmt::format("the helper process {} does not start: a shared library that it "
                      "needs is missing, or is of another version",
                      command),
          "helper_path",
          fmt::format("run `env -i {} --version`: the helper is started without "
                      "LD_LIBRARY_PATH, so install its libraries, or link them by "
                      "RPATH",
                      command));
    }
    // An allocation that fails inside the compiler ends it in one way or another.
    if (end.peak_bytes > options_.memory_bytes / 2) return out_of_memory();
    const char* name = signal != 0 ? sigabbrev_np(signal) : nullptr;
    std::string what = "ended without an answer";
    if (signal != 0) what = fmt::format("crashed (SIG{})", name != nullptr ? name : "?");
    if (end.known && WIFEXITED(end.status)) {
      what = fmt::format("ended with exit code {}", WEXITSTATUS(end.status));
    }
    return make_error(ErrorCode::kCompileFailed, "the compiler " + what, {},
                      "the code makes NVRTC fail; nothing else is harmed");
  }

  const HelperOptions options_;
  const pid_t process_ = getpid();
  NvrtcLocator locator_;
  std::atomic<bool> cancelled_{false};
  const Fd cancel_event_;
};

}  // namespace

std::unique_ptr<Compiler> make_helper_compiler(HelperOptions options) {
  return std::make_unique<HelperCompiler>(std::move(options));
}

}  // namespace attnjit
