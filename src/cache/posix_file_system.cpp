// SPDX-License-Identifier: Apache-2.0
// PosixFileSystem: the FileSystem seam over the system calls, relative to folder descriptors.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>

#include "cache/file_system.h"

namespace attnjit::cache {
namespace {

int result(int returned) { return returned < 0 ? errno : 0; }

FileStat convert(const struct stat& from) {
  FileStat to;
  to.type = S_ISREG(from.st_mode)   ? FileStat::Type::kFile
            : S_ISDIR(from.st_mode) ? FileStat::Type::kFolder
            : S_ISLNK(from.st_mode) ? FileStat::Type::kSymlink
                                    : FileStat::Type::kOther;
  to.device = from.st_dev;
  to.inode = from.st_ino;
  to.owner = from.st_uid;
  to.mode = from.st_mode & 07777;
  to.size = from.st_size;
  to.allocated = static_cast<std::int64_t>(from.st_blocks) * 512;
  to.modified_ns = from.st_mtim.tv_sec * std::int64_t{1000000000} + from.st_mtim.tv_nsec;
  return to;
}

class PosixFileSystem final : public FileSystem {
 public:
  IoResult<Handle> open_root(bool working_folder) override {
    return opened(::open(working_folder ? "." : "/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }

  IoResult<Handle> open(Handle folder, const std::string& name, Open how,
                        std::uint32_t mode) override {
    // NOTE: O_NONBLOCK, because opening a FIFO that somebody put under a name would block for ever;
    // regular files ignore it.
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
    switch (how) {
      case Open::kRead:  // enough for futimens, which asks for ownership
        flags |= O_RDONLY;
        break;
      case Open::kCreate:
        flags |= O_WRONLY | O_CREAT | O_EXCL;
        break;
      case Open::kLock:
        flags |= O_RDWR | O_CREAT;
        break;
      case Open::kFolder:
        flags |= O_RDONLY | O_DIRECTORY;
        break;
      case Open::kFolderPath:
        flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        break;
    }
    const IoResult<Handle> file =
        opened(::openat(folder, name.c_str(), flags, static_cast<mode_t>(mode)));
    // NOTE: the mode is the layer's, not the umask's: others read a layer that is open to them.
    if (file.ok() && how == Open::kCreate) (void)::fchmod(file.value, static_cast<mode_t>(mode));
    return file;
  }

  int close(Handle handle) override { return result(::close(handle)); }

  IoResult<std::size_t> read(Handle file, void* data, std::size_t size) override {
    return counted(::read(file, data, size));
  }
  IoResult<std::size_t> write(Handle file, const void* data, std::size_t size) override {
    return counted(::write(file, data, size));
  }
  int sync(Handle handle) override { return result(::fsync(handle)); }

  IoResult<FileStat> stat(Handle handle) override {
    struct stat buffer {};
    if (::fstat(handle, &buffer) < 0) return {{}, errno};
    return {convert(buffer)};
  }
  IoResult<FileStat> stat_at(Handle folder, const std::string& name) override {
    struct stat buffer {};
    if (::fstatat(folder, name.c_str(), &buffer, AT_SYMLINK_NOFOLLOW) < 0) return {{}, errno};
    return {convert(buffer)};
  }
  IoResult<std::string> read_link(Handle folder, const std::string& name) override {
    char buffer[PATH_MAX];
    const ssize_t size = ::readlinkat(folder, name.c_str(), buffer, sizeof buffer);
    if (size < 0) return {{}, errno};
    if (size == static_cast<ssize_t>(sizeof buffer)) return {{}, ENAMETOOLONG};
    return {std::string(buffer, static_cast<std::size_t>(size))};
  }

  IoResult<std::vector<std::string>> list(Handle folder) override {
    // NOTE: a descriptor of its own, opened again: fdopendir takes its descriptor over, and dup()
    // would share the position with every other listing of this folder.
    const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) return {{}, errno};
    DIR* stream = ::fdopendir(own);
    if (stream == nullptr) {
      const int error = errno;
      ::close(own);
      return {{}, error};
    }
    IoResult<std::vector<std::string>> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream);  // NOLINT(concurrency-mt-unsafe): own stream
      if (entry == nullptr) break;
      std::string name = entry->d_name;
      if (name != "." && name != "..") names.value.push_back(std::move(name));
    }
    names.error = errno;
    ::closedir(stream);
    return names;
  }

  int make_folder(Handle folder, const std::string& name, std::uint32_t mode) override {
    const int error = result(::mkdirat(folder, name.c_str(), static_cast<mode_t>(mode)));
    if (error != 0) return error;
    // NOTE: as in open; by a descriptor, because fchmodat would follow a link.
    const int made =
        ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made >= 0) {
      (void)::fchmod(made, static_cast<mode_t>(mode));
      (void)::close(made);
    }
    return 0;
  }
  int rename(Handle from, const std::string& name, Handle to,
             const std::string& new_name) override {
    return result(::renameat(from, name.c_str(), to, new_name.c_str()));
  }
  int link(Handle from, const std::string& name, Handle to, const std::string& new_name) override {
    return result(::linkat(from, name.c_str(), to, new_name.c_str(), 0));
  }
  int remove(Handle folder, const std::string& name, bool is_folder) override {
    return result(::unlinkat(folder, name.c_str(), is_folder ? AT_REMOVEDIR : 0));
  }
  int set_modified(Handle file, std::int64_t modified_ns) override {
    timespec times[2] = {};
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = modified_ns / 1000000000;
    times[1].tv_nsec = modified_ns % 1000000000;
    return result(::futimens(file, times));
  }

  int try_lock(Handle file) override { return result(::flock(file, LOCK_EX | LOCK_NB)); }
  int unlock(Handle file) override { return result(::flock(file, LOCK_UN)); }

  std::uint32_t user() override { return ::geteuid(); }
  std::int64_t now_ns() override {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
  }
  std::uint64_t unique_id() override {
    std::uint64_t id = 0;
    if (::getrandom(&id, sizeof id, GRND_NONBLOCK) == static_cast<ssize_t>(sizeof id)) return id;
    static std::atomic<std::uint64_t> counter{0};
    return static_cast<std::uint64_t>(now_ns()) * 1000003 +
           static_cast<std::uint64_t>(::getpid()) * 8191 + counter.fetch_add(1);
  }

 private:
  static IoResult<Handle> opened(int descriptor) {
    if (descriptor < 0) return {-1, errno};
    return {descriptor};
  }
  static IoResult<std::size_t> counted(ssize_t size) {
    if (size < 0) return {0, errno};
    return {static_cast<std::size_t>(size)};
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem file_system;
  return file_system;
}

}  // namespace attnjit::cache
