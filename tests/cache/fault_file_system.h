// SPDX-License-Identifier: Apache-2.0
// FaultFileSystem: another file system, in which chosen calls fail, fall short or end the process.
//
// Thread rules: every method may be called from any thread; the plan is set while nobody calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <string_view>

#include "cache/file_system.h"

namespace attnjit::cache {

class FaultFileSystem final : public FileSystem {
 public:
  explicit FaultFileSystem(FileSystem& base) : base_(base) {}

  static constexpr int kShort = -1;  ///< instead of an errno: read or write one byte only

  /// From now on the call number `first`, counted from 1, and the following `count - 1` fail with
  /// `error`.
  void fail(long first, int error, long count = 1) {
    calls_ = 0;
    first_ = first;
    last_ = first + count - 1;
    error_ = error;
  }
  void fail_nothing() { fail(0, 0, 0); }
  /// Whether calls that change names are done all the same before they fail, as where the answer of
  /// a file server is lost and the call is sent again.
  void do_what_fails(bool done) { done_ = done; }
  long calls() const { return calls_; }
  /// Called before each call with its number and its name.
  std::function<void(long, std::string_view)> before;
  /// Files that cannot be seen for now: a file server's client that remembers that they were not.
  std::function<bool(const std::string& name)> hidden;

  IoResult<Handle> open_root(bool working_folder) override {
    if (const int error = next("open_root")) return {-1, error};
    return base_.open_root(working_folder);
  }
  IoResult<Handle> open(Handle folder, const std::string& name, Open how,
                        std::uint32_t mode) override {
    if (const int error = next("open")) return {-1, error};
    if (hidden && how == Open::kRead && hidden(name)) return {-1, ENOENT};
    return base_.open(folder, name, how, mode);
  }
  int close(Handle handle) override {
    // A close that fails has closed.
    const int error = next("close");
    const int closed = base_.close(handle);
    return error != 0 ? error : closed;
  }
  IoResult<std::size_t> read(Handle file, void* data, std::size_t size) override {
    bool cut = false;
    if (const int error = next("read", &cut)) return {0, error};
    return base_.read(file, data, cut ? std::min<std::size_t>(size, 1) : size);
  }
  IoResult<std::size_t> write(Handle file, const void* data, std::size_t size) override {
    bool cut = false;
    if (const int error = next("write", &cut)) return {0, error};
    return base_.write(file, data, cut ? std::min<std::size_t>(size, 1) : size);
  }
  int sync(Handle handle) override {
    const int error = next("sync");
    return error != 0 ? error : base_.sync(handle);
  }
  IoResult<FileStat> stat(Handle handle) override {
    if (const int error = next("stat")) return {{}, error};
    return base_.stat(handle);
  }
  IoResult<FileStat> stat_at(Handle folder, const std::string& name) override {
    if (const int error = next("stat_at")) return {{}, error};
    return base_.stat_at(folder, name);
  }
  IoResult<std::string> read_link(Handle folder, const std::string& name) override {
    if (const int error = next("read_link")) return {{}, error};
    return base_.read_link(folder, name);
  }
  IoResult<std::vector<std::string>> list(Handle folder) override {
    if (const int error = next("list")) return {{}, error};
    return base_.list(folder);
  }
  int make_folder(Handle folder, const std::string& name, std::uint32_t mode) override {
    const int error = next("make_folder");
    return error != 0 && !done_ ? error : told(error, base_.make_folder(folder, name, mode));
  }
  int rename(Handle from, const std::string& name, Handle to,
             const std::string& new_name) override {
    const int error = next("rename");
    return error != 0 && !done_ ? error : told(error, base_.rename(from, name, to, new_name));
  }
  int link(Handle from, const std::string& name, Handle to, const std::string& new_name) override {
    const int error = next("link");
    return error != 0 && !done_ ? error : told(error, base_.link(from, name, to, new_name));
  }
  int remove(Handle folder, const std::string& name, bool is_folder) override {
    const int error = next("remove");
    return error != 0 && !done_ ? error : told(error, base_.remove(folder, name, is_folder));
  }
  int set_modified(Handle file, std::int64_t modified_ns) override {
    const int error = next("set_modified");
    return error != 0 ? error : base_.set_modified(file, modified_ns);
  }
  int try_lock(Handle file) override {
    const int error = next("try_lock");
    return error != 0 ? error : base_.try_lock(file);
  }
  int unlock(Handle file) override {
    const int error = next("unlock");
    return error != 0 ? error : base_.unlock(file);
  }
  std::uint32_t user() override { return base_.user(); }
  std::int64_t now_ns() override { return base_.now_ns(); }
  std::uint64_t unique_id() override { return base_.unique_id(); }

 private:
  static int told(int error, int result) { return error != 0 ? error : result; }
  int next(std::string_view name, bool* cut = nullptr) {
    const long call = ++calls_;
    if (before) before(call, name);
    if (call < first_ || call > last_) return 0;
    if (error_ != kShort) return error_;
    if (cut != nullptr) *cut = true;
    return 0;
  }

  FileSystem& base_;
  std::atomic<long> calls_{0};
  long first_ = 0, last_ = -1;
  int error_ = 0;
  bool done_ = false;
};

}  // namespace attnjit::cache
