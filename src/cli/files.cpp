// SPDX-License-Identifier: Apache-2.0
// Reads files that a user names, up to a limit, and writes or replaces files.
#include "cli/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

namespace attnjit::cli {
namespace {

Error unreadable(const std::string& path, const std::string& why) {
  return make_error(ErrorCode::kInvalid, "cannot be read: " + why, path);
}

Result<std::string> read_descriptor(int descriptor, const std::string& path,
                                    std::int64_t max_bytes) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(path, std::strerror(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (static_cast<std::int64_t>(text.size()) > max_bytes) {
      return unreadable(path, fmt::format("it is longer than {} bytes", max_bytes));
    }
  }
}

/// How long a FIFO's other end may take to come.
constexpr std::chrono::milliseconds kFifoPatience{5000};

/// Waits until somebody has written to a FIFO. False: nobody did.
bool await_writer(int descriptor) {
  const auto limit = std::chrono::steady_clock::now() + kFifoPatience;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - std::chrono::steady_clock::now());
    // NOTE: before the first writer came there is no hang-up to be told of.
    pollfd written = {descriptor, POLLIN, 0};
    const int ready =
        ::poll(&written, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// Opens to write without O_NONBLOCK; a FIFO that nobody reads gives ENXIO after a while.
int open_to_write(const std::string& path) {
  const auto limit = std::chrono::steady_clock::now() + kFifoPatience;
  int descriptor = -1;
  for (;;) {
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor >= 0 || errno != ENXIO || std::chrono::steady_clock::now() >= limit) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (descriptor < 0) return descriptor;
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags >= 0) (void)::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK);
  return descriptor;
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::int64_t max_bytes) {
  if (path == "-") return read_descriptor(STDIN_FILENO, "standard input", max_bytes);
  // NOTE: O_NONBLOCK only for the open: a FIFO that nobody writes to must not hang it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return unreadable(path, std::strerror(errno));
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags >= 0) (void)::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK);
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode) && !await_writer(descriptor)) {
    ::close(descriptor);
    return unreadable(path, "it is a FIFO, and nobody writes to it");
  }
  Result<std::string> text = read_descriptor(descriptor, path, max_bytes);
  ::close(descriptor);
  return text;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

Status write_file(const std::string& path, std::string_view bytes) {
  const auto failed = [&] {
    return make_error(ErrorCode::kIo, fmt::format("cannot be written: {}", std::strerror(errno)),
                      path);
  };
  const int descriptor = open_to_write(path);
  if (descriptor < 0) return failed();
  const bool written = write_all(descriptor, bytes);
  const Error error = failed();
  if (::close(descriptor) != 0 || !written) return error;
  return {};
}

namespace {

Error not_written(const std::string& path) {
  return make_error(ErrorCode::kIo, fmt::format("cannot be written: {}", std::strerror(errno)),
                    path);
}

struct Target {
  std::string path;            // without links
  std::optional<mode_t> mode;  // of the file that is there
};

Result<Target> find_target(const std::string& path) {
  Target target{path, std::nullopt};
  if (char* real = ::realpath(path.c_str(), nullptr)) {
    target.path = real;
    std::free(real);
  } else if (errno != ENOENT) {
    return not_written(path);
  }
  struct stat before {};
  if (::stat(target.path.c_str(), &before) != 0) return target;
  if (!S_ISREG(before.st_mode)) {
    return make_error(ErrorCode::kInvalid, "is no regular file: it cannot be replaced", path);
  }
  target.mode = before.st_mode & 0777;
  return target;
}

}  // namespace

Status check_replaceable(const std::string& path) {
  const Result<Target> target = find_target(path);
  if (!target) return target.error();
  const std::size_t slash = target->path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target->path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return not_written(path);
  return {};
}

Status replace_file(const std::string& path, std::string_view bytes) {
  const Result<Target> target = find_target(path);
  if (!target) return target.error();
  const std::string temporary = fmt::format("{}.{}.tmp", target->path, ::getpid());
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) return not_written(path);
  // NOTE: fsync before rename, or a crash may leave the new name with no bytes.
  const bool written = write_all(descriptor, bytes) &&
                       (!target->mode || ::fchmod(descriptor, *target->mode) == 0) &&
                       ::fsync(descriptor) == 0;
  Error error = not_written(path);
  if (::close(descriptor) != 0 && written) error = not_written(path);
  if (written && ::rename(temporary.c_str(), target->path.c_str()) == 0) return {};
  if (written) error = not_written(path);
  (void)::unlink(temporary.c_str());
  return error;
}

}  // namespace attnjit::cli
