// SPDX-License-Identifier: Apache-2.0
// The compiler in a helper process: hostile code can kill the process, and nothing else.
#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include "base/longest_time.h"
#include "compile/check_output.h"
#include "compile/child.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"
#include "compile/worker.h"
#include "compile/worker_protocol.h"

namespace attnjit {
namespace {

using Clock = std::chrono::steady_clock;

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

/// Signals by which a compiler dies of the code that it compiles. Every other one was sent to it.
bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL ||
         signal == SIGFPE || signal == SIGTRAP || signal == SIGSYS || signal == SIGXFSZ;
}

std::string name_of(int signal) {
  const char* name = sigabbrev_np(signal);
  return fmt::format("SIG{}", name != nullptr ? name : "?");
}

/// A worker at work, and how far the talk with it is.
struct Worker {
  Child child;
  Fd socket;
  std::string_view unsent;           ///< of the request
  std::string received;              ///< not taken yet
  std::optional<WorkerReady> ready;  ///< empty: the code has not reached the compiler
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
    const Clock::time_point start_time = Clock::now();
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
    message.must_confine = request.source.trusted && !options_.accept_unconfined;
    const std::string frame = encode(message);
    if (frame.size() > kMaxPayloadBytes) {
      return make_error(ErrorCode::kInvalid, "the source is too long", "source");
    }
    Result<Worker> worker = start(*command, frame);
    if (!worker) return std::move(worker).error();
    const Talk talk{*worker, *command,
                    std::min(deadline, start_time + bounded(options_.wall_clock)), deadline};
    Result<std::string> first = receive(talk, WorkerFrame::kReady);
    if (!first) return std::move(first).error();
    Result<WorkerReady> ready = decode_ready(*first);
    if (!ready) return broken(talk, ready.error());
    if (!ready->problem.empty()) {
      return make_error(ErrorCode::kEnvironment, std::move(ready->problem), nvrtc->path);
    }
    if (message.must_confine && !ready->confined) return unconfined();
    worker->ready = *std::move(ready);
    Result<std::string> second = receive(talk, WorkerFrame::kOutput);
    if (!second) return std::move(second).error();
    Result<CompileOutput> output = decode_output(*second);
    if (!output) return broken(talk, output.error());

    if (ran_out_of_memory(*output)) return out_of_memory(*worker->ready);
    Result<KernelImage> image = check_output(request, *std::move(output));
    if (!image) return image;
    if (image->nvrtc_version.empty()) {
      image->nvrtc_version =
          fmt::format("{}.{}", worker->ready->nvrtc_major, worker->ready->nvrtc_minor);
    }
    image->times.total_ms =
        std::chrono::duration<double, std::milli>(Clock::now() - start_time).count();
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

  /// A worker and the times of one compile.
  struct Talk {
    Worker& worker;
    const std::string& command;
    Clock::time_point limit;  ///< the deadline, or the helper's own wall clock
    Deadline deadline;
  };

  /// Starts a worker that will be sent `frame`.
  static Result<Worker> start(const std::string& command, std::string_view frame) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return make_error(ErrorCode::kIo,
                        fmt::format("cannot make a socket: {}", std::strerror(errno)));
    }
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    Result<Child> child = Child::start(command, theirs.get());
    if (!child) return std::move(child).error();
    return Worker{*std::move(child), std::move(ours), frame, {}, {}};
  }

  /// Sends what is left of the request, and receives the payload of the next frame.
  Result<std::string> receive(const Talk& talk, WorkerFrame kind) {
    Worker& worker = talk.worker;
    std::array<char, 64 << 10> buffer;
    for (;;) {
      if (worker.received.size() >= kFrameHeadBytes) {
        const Result<std::uint64_t> size =
            decode_head(std::string_view(worker.received).substr(0, kFrameHeadBytes), kind);
        if (!size) return broken(talk, size.error());
        if (worker.received.size() >= kFrameHeadBytes + *size) {
          std::string payload = worker.received.substr(kFrameHeadBytes, *size);
          worker.received.erase(0, kFrameHeadBytes + *size);
          if (kind == WorkerFrame::kOutput && !worker.received.empty()) {
            return broken(talk, make_error(ErrorCode::kCorrupt, "more bytes than it announced"));
          }
          return payload;
        }
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(talk.limit - Clock::now()).count();
      if (left <= 0) return too_late(talk);
      std::array<pollfd, 2> events = {
          pollfd{worker.socket.get(),
                 static_cast<short>(POLLIN | (worker.unsent.empty() ? 0 : POLLOUT)), 0},
          pollfd{cancel_event_.get(), POLLIN, 0}};
      const int timeout = static_cast<int>(std::min<std::int64_t>(left + 1, 60000));
      if (poll(events.data(), events.size(), timeout) < 0 && errno != EINTR) {
        return make_error(ErrorCode::kIo, fmt::format("poll: {}", std::strerror(errno)));
      }
      if (cancelled_) return cancelled();
      if (!worker.unsent.empty() && (events[0].revents & POLLOUT) != 0) {
        const ssize_t put = send(worker.socket.get(), worker.unsent.data(), worker.unsent.size(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) worker.unsent.remove_prefix(static_cast<std::size_t>(put));
        // A worker that reads no more may have said why: that is read to its end.
        if (put < 0 && errno != EINTR && errno != EAGAIN) worker.unsent = {};
      }
      if ((events[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      const ssize_t got = recv(worker.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return ended(talk);
      worker.received.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

  // --- What went wrong. What is not the code's fault is kEnvironment, which nobody remembers.
  // -----

  Error unconfined() const {
    return make_error(
        ErrorCode::kEnvironment,
        "this system takes no system call filter (seccomp), so trusted code could do in the helper "
        "process all that its user may do; it was not compiled",
        "accept_unconfined_helper",
        "allow seccomp filters for this process, or accept the risk: "
        "ServiceOptions::accept_unconfined_helper, --accept-unconfined-helper");
  }

  static Error broken(const Talk& talk, const Error& why) {
    if (!talk.worker.ready) {
      return make_error(
          ErrorCode::kEnvironment,
          fmt::format("{} is no compile worker of this version: {}", talk.command, why.message),
          "helper_path", "install the attnjit command of this library's version");
    }
    return make_error(ErrorCode::kCompileFailed,
                      "the helper process sent a malformed answer: " + why.message);
  }

  Error too_late(const Talk& talk) const {
    Worker& worker = talk.worker;
    const Child::End end = worker.child.end();
    if (talk.limit == talk.deadline) {
      return make_error(ErrorCode::kTimeout, "the deadline passed before the compile ended");
    }
    const auto limit_ms = options_.wall_clock.count();
    // The compiler computes and waits for nothing.
    if (!worker.ready || end.cpu_seconds * 4000 < static_cast<double>(limit_ms)) {
      return make_error(
          ErrorCode::kEnvironment,
          fmt::format(
              "the compile did not end within {} ms, of which it had {:.1f} s of processor time",
              limit_ms, end.cpu_seconds),
          {}, "the machine is too busy, or the helper process was stopped: try again");
    }
    return make_error(ErrorCode::kTimeout,
                      fmt::format("the compile took longer than {} ms and was ended", limit_ms), {},
                      "the code is too costly to compile");
  }

  Error out_of_memory(const WorkerReady& ready) const {
    const bool ours = ready.memory_bytes >= options_.memory_bytes;
    return make_error(ours ? ErrorCode::kCompileFailed : ErrorCode::kEnvironment,
                      fmt::format("the compile needed more than the {} MiB that it may have",
                                  ready.memory_bytes >> 20),
                      {},
                      ours ? "the code is too costly to compile"
                           : "the limit is this process's own (ulimit -v): raise it");
  }

  Error out_of_cpu(const WorkerReady& ready) const {
    const bool ours = ready.cpu_seconds >= options_.cpu_seconds;
    return make_error(
        ours ? ErrorCode::kTimeout : ErrorCode::kEnvironment,
        fmt::format("the compile used more than {} s of CPU time and was ended", ready.cpu_seconds),
        {},
        ours ? "the code is too costly to compile"
             : "the limit is this process's own (ulimit -t): raise it");
  }

  /// Why a worker ended before it was ready.
  static Error not_started(const Child::End& end, const std::string& command) {
    if (end.exit_code() == kNotStarted) {
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
    std::string how = "ended";
    if (end.signal() != 0) how = fmt::format("was ended by {}", name_of(end.signal()));
    if (end.exit_code() >= 0) how = fmt::format("ended with exit code {}", end.exit_code());
    return make_error(
        ErrorCode::kEnvironment,
        fmt::format("the helper process {} {} before it reached the code", command, how),
        "helper_path",
        "it has to be the attnjit command of this library's version, and to have the memory and "
        "the processor time to start");
  }

  /// Why a worker ended without an answer.
  Error ended(const Talk& talk) const {
    const Child::End end = talk.worker.child.end_after(std::chrono::milliseconds(1000));
    if (!talk.worker.ready) return not_started(end, talk.command);
    const WorkerReady& ready = *talk.worker.ready;
    const int signal = end.signal();
    // NOTE: the kernel counts in ticks, so a process may die of its limit a little before it.
    if (signal == SIGXCPU || signal == SIGKILL) {
      if (end.cpu_seconds + 0.5 >= ready.cpu_seconds) return out_of_cpu(ready);
    }
    if (!end.known || (signal != 0 && !is_crash(signal))) {
      const std::string how = signal != 0 ? "was ended from outside by " + name_of(signal)
                                          : "ended, and another part of this process reaped it";
      return make_error(ErrorCode::kEnvironment, "the helper process " + how, {},
                        "try again; where it was SIGKILL the machine may be out of memory");
    }
    // An allocation that fails inside the compiler ends it in one way or another.
    if (end.peak_bytes > ready.memory_bytes / 2) return out_of_memory(ready);
    std::string what = "ended without an answer";
    if (signal != 0) what = fmt::format("crashed ({})", name_of(signal));
    if (end.exit_code() >= 0) what = fmt::format("ended with exit code {}", end.exit_code());
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
