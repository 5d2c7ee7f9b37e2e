// SPDX-License-Identifier: Apache-2.0
// Runs the helper process: it reads one request, confines itself, says so, and compiles.
#include "compile/worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>

#include "compile/confine.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"
#include "compile/worker_protocol.h"

namespace attnjit {
namespace {

enum ExitCode : int { kServed = 0, kBadUsage = 2, kNoParent = 3, kNoRequest = 4, kNoReply = 5 };

bool read_exactly(int fd, char* out, std::size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, out, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_exactly(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

Result<WorkerRequest> receive() {
  std::string head(kFrameHeadBytes, '\0');
  const auto gone = [] { return make_error(ErrorCode::kIo, "the parent sent no request"); };
  if (!read_exactly(kWorkerSocket, head.data(), head.size())) return gone();
  const Result<std::uint64_t> size = decode_head(head, WorkerFrame::kRequest);
  if (!size) return size.error();
  std::string payload(*size, '\0');
  if (!read_exactly(kWorkerSocket, payload.data(), payload.size())) return gone();
  return decode_request(payload);
}

/// All that can go wrong through no fault of the code. @param nvrtc null if there is a problem
WorkerReady prepare(const WorkerRequest& request, std::shared_ptr<const Nvrtc>& nvrtc) {
  WorkerReady ready;
  const auto problem = [&ready](std::string what) {
    ready.problem = std::move(what);
    return ready;
  };
  const auto limits = limit_resources({request.memory_bytes, request.cpu_seconds});
  if (!limits) return problem("the kernel takes no resource limits");
  ready.memory_bytes = limits->memory_bytes;
  ready.cpu_seconds = limits->cpu_seconds;
  const Result<std::string> build_id = library_build_id(request.nvrtc_path);
  if (!build_id || *build_id != request.build_id) {
    return problem(fmt::format("{} is not the library that it was", request.nvrtc_path));
  }
  Result<std::shared_ptr<const Nvrtc>> opened = Nvrtc::open(request.nvrtc_path);
  if (!opened) return problem(opened.error().message);
  if (const Status supported = (*opened)->supports(request.compile.source.arch); !supported) {
    return problem(supported.error().message);
  }
  ready.nvrtc_major = (*opened)->major();
  ready.nvrtc_minor = (*opened)->minor();
  ready.confined = confine();
  nvrtc = *std::move(opened);
  return ready;
}

}  // namespace

int run_compile_worker(int argc, const char* const* argv) {
  pid_t parent = 0;
  if (argc != 3) return kBadUsage;
  const char* end = argv[2] + std::strlen(argv[2]);
  if (std::from_chars(argv[2], end, parent).ptr != end || parent <= 0) return kBadUsage;
  if (!die_with_parent(parent)) return kNoParent;
  // NOTE: a terminal's Ctrl-C goes to the parent too, and is the parent's to judge: if it ends, so
  // does this process. NVRTC sets handlers of its own where it finds these not ignored.
  for (const int number : {SIGINT, SIGQUIT, SIGHUP}) (void)std::signal(number, SIG_IGN);
  // NOTE: a folder that exists: where getcwd fails, NVRTC reads a buffer that it never wrote.
  if (chdir("/") != 0) return kNoParent;
  const Result<WorkerRequest> request = receive();
  if (!request) return kNoRequest;
  std::shared_ptr<const Nvrtc> nvrtc;
  const WorkerReady ready = prepare(*request, nvrtc);
  if (!write_exactly(kWorkerSocket, encode(ready))) return kNoReply;
  if (!ready.problem.empty() || (request->must_confine && !ready.confined)) _exit(kServed);
  CompileOutput output = nvrtc->compile(request->compile, nullptr);
  if (output.log.size() > kMaxLogBytes) output.log.resize(kMaxLogBytes);
  const bool sent = write_exactly(kWorkerSocket, encode(output));
  // NOTE: no destructor or exit handler runs after hostile code did.
  _exit(sent ? kServed : kNoReply);
}

}  // namespace attnjit
