// SPDX-License-Identifier: Apache-2.0
// FileSystem: the one door from the cache to the file system, so that tests can stand in for it.
//
// Thread rules: implementations are safe to call from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnjit::cache {

/// Nanoseconds of a second: times of files are nanoseconds since the epoch.
inline constexpr std::int64_t kSecondNs = 1000000000;

/// What a call gave: a value, or the errno (0: success).
template <typename T>
struct IoResult {
  T value{};
  int error = 0;
  bool ok() const { return error == 0; }
};

struct FileStat {
  enum class Type : std::uint8_t { kFile, kFolder, kSymlink, kOther };
  Type type = Type::kOther;
  std::uint64_t device = 0, inode = 0;
  std::uint32_t owner = 0;
  std::uint32_t mode = 0;  ///< permission bits, 07777
  std::int64_t size = 0;
  std::int64_t allocated = 0;    ///< bytes on disk
  std::int64_t modified_ns = 0;  ///< since the epoch

  bool same_file(const FileStat& other) const {
    return device == other.device && inode == other.inode;
  }
};

/// The calls have the meaning of the system calls they are named after. Names are relative to an
/// open folder; nothing but open_root takes a path, and nothing follows a symbolic link. A call may
/// be interrupted (EINTR), a read or a write may be short: io.h deals with both.
class FileSystem {
 public:
  using Handle = int;

  enum class Open : std::uint8_t {
    kRead,        ///< a file, to read it and to set its time
    kCreate,      ///< a new file, to write; EEXIST where the name is taken
    kLock,        ///< a file to lock, made where it is missing
    kFolder,      ///< a folder, to list, to sync and to open names in
    kFolderPath,  ///< a folder, only to open names in: needs no read permission
  };

  virtual ~FileSystem() = default;

  /// "/" or the working folder, as kFolderPath.
  virtual IoResult<Handle> open_root(bool working_folder) = 0;
  /// A new file (kCreate) has `mode`, as a new folder has, whatever the umask.
  virtual IoResult<Handle> open(Handle folder, const std::string& name, Open how,
                                std::uint32_t mode = 0600) = 0;
  /// Closes whatever it returns.
  virtual int close(Handle handle) = 0;

  virtual IoResult<std::size_t> read(Handle file, void* data, std::size_t size) = 0;
  virtual IoResult<std::size_t> write(Handle file, const void* data, std::size_t size) = 0;
  virtual int sync(Handle file_or_folder) = 0;

  virtual IoResult<FileStat> stat(Handle handle) = 0;
  virtual IoResult<FileStat> stat_at(Handle folder, const std::string& name) = 0;
  virtual IoResult<std::string> read_link(Handle folder, const std::string& name) = 0;
  /// Names but . and .., in no particular order.
  virtual IoResult<std::vector<std::string>> list(Handle folder) = 0;

  virtual int make_folder(Handle folder, const std::string& name, std::uint32_t mode) = 0;
  virtual int rename(Handle from, const std::string& name, Handle to,
                     const std::string& new_name) = 0;
  virtual int link(Handle from, const std::string& name, Handle to,
                   const std::string& new_name) = 0;
  virtual int remove(Handle folder, const std::string& name, bool is_folder) = 0;
  virtual int set_modified(Handle file, std::int64_t modified_ns) = 0;

  /// An exclusive lock of the open file, without waiting: EWOULDBLOCK where another one holds it.
  virtual int try_lock(Handle file) = 0;
  virtual int unlock(Handle file) = 0;

  virtual std::uint32_t user() = 0;       ///< the effective one
  virtual std::int64_t now_ns() = 0;      ///< wall clock, since the epoch
  virtual std::uint64_t unique_id() = 0;  ///< differs between processes and calls
};

/// The operating system's. One for the whole program: it has no state.
FileSystem& posix_file_system();

/// Closes its handle.
class File {
 public:
  File() = default;
  File(FileSystem& fs, FileSystem::Handle handle) : fs_(&fs), handle_(handle) {}
  File(File&& other) noexcept
      : fs_(std::exchange(other.fs_, nullptr)), handle_(std::exchange(other.handle_, -1)) {}
  File& operator=(File&& other) noexcept {
    if (this != &other) {
      reset();
      fs_ = std::exchange(other.fs_, nullptr);
      handle_ = std::exchange(other.handle_, -1);
    }
    return *this;
  }
  ~File() { reset(); }

  void reset() {
    if (fs_ != nullptr) fs_->close(handle_);
    fs_ = nullptr;
    handle_ = -1;
  }
  FileSystem::Handle get() const { return handle_; }
  explicit operator bool() const { return fs_ != nullptr; }

 private:
  FileSystem* fs_ = nullptr;
  FileSystem::Handle handle_ = -1;
};

}  // namespace attnjit::cache
