// SPDX-License-Identifier: Apache-2.0
// Runs the helper process: it reads one request, confines itself, compiles and replies.
#include "compile/worker.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
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

/// NVRTC opens its builtins when it first compiles; no file can be opened by then.
void preload_builtins(const std::string& nvrtc_path) {
  const std::string pattern =
      nvrtc_path.substr(0, nvrtc_path.rfind('/') + 1) + "libnvrtc-builtins.so.*";
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      dlopen(found.gl_pathv[i], RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE);
    }
  }
  globfree(&found);
}

WorkerReply serve(const WorkerRequest& request) {
  WorkerReply reply;
  if (!limit_resources(request.memory_bytes, request.cpu_seconds)) {
    reply.problem = "the kernel takes no resource limits";
    return reply;
  }
  const Result<std::string> build_id = library_build_id(request.nvrtc_path);
  if (!build_id || *build_id != request.build_id) {
    reply.problem = fmt::format("{} is not the library that it was", request.nvrtc_path);
    return reply;
  }
  preload_builtins(request.nvrtc_path);
  const Result<std::shared_ptr<const Nvrtc>> nvrtc = Nvrtc::open(request.nvrtc_path);
  if (!nvrtc) {
    reply.problem = nvrtc.error().message;
    return reply;
  }
  if (const Status supported = (*nvrtc)->supports(request.compile.source.arch); !supported) {
    reply.problem = supported.error().message;
    return reply;
  }
  reply.nvrtc_major = (*nvrtc)->major();
  reply.nvrtc_minor = (*nvrtc)->minor();
  reply.confined = confine();
  reply.output = (*nvrtc)->compile(request.compile, nullptr);
  if (reply.output.log.size() > kMaxLogBytes) reply.output.log.resize(kMaxLogBytes);
  return reply;
}

}  // namespace

int run_compile_worker(int argc, const char* const* argv) {
  pid_t parent = 0;
  if (argc != 3) return kBadUsage;
  const char* end = argv[2] + std::strlen(argv[2]);
  if (std::from_chars(argv[2], end, parent).ptr != end || parent <= 0) return kBadUsage;
  if (!die_with_parent(parent)) return kNoParent;
  // NOTE: a folder that exists: where getcwd fails, NVRTC reads a buffer that it never wrote.
  if (chdir("/") != 0) return kNoParent;
  const Result<WorkerRequest> request = receive();
  if (!request) return kNoRequest;
  const WorkerReply reply = serve(*request);
  const bool sent = write_exactly(kWorkerSocket, encode(reply));
  // NOTE: no destructor or exit handler runs after hostile code did.
  _exit(sent ? kServed : kNoReply);
}

}  // namespace attnjit
