// SPDX-License-Identifier: Apache-2.0
// MemoryFileSystem: a file system in memory that forgets what was not synced when the power fails.
//
// Thread rules: every method may be called from any thread, except power_loss and the set-up calls.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace attnjit::cache {

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  /// What survives of what was not synced.
  enum class Loss {
    kEverythingUnsynced,  ///< neither names nor data
    kDataCleared,         ///< all names; unsynced data is zeros of the right length
    kDataCut,             ///< all names; unsynced data is missing
    kRandom,              ///< each name and each file by itself, data in part
  };
  /// Closes every handle, releases every lock and brings the durable state back.
  void power_loss(Loss loss, unsigned seed = 0);

  // Set-up and inspection, by absolute path.
  void set_user(std::uint32_t user) { user_ = user; }
  void set_now_s(std::int64_t seconds) { now_ns_ = seconds * 1000000000; }
  void advance_s(std::int64_t seconds) { now_ns_ += seconds * 1000000000; }
  /// Locks fail with this errno (ENOLCK, EOPNOTSUPP).
  void set_lock_error(int error) { lock_error_ = error; }
  void make_path(const std::string& path, std::uint32_t owner = 0, std::uint32_t mode = 0700);
  void put_file(const std::string& path, std::string data);
  void put_symlink(const std::string& path, std::string target, std::uint32_t owner);
  void set_owner(const std::string& path, std::uint32_t owner);
  void set_mode(const std::string& path, std::uint32_t mode);
  void set_read_only(bool read_only) { read_only_ = read_only; }
  void remove_tree(const std::string& path);
  bool exists(const std::string& path);
  std::string data(const std::string& path);
  std::uint32_t mode(const std::string& path);
  std::int64_t modified_s(const std::string& path);
  /// Paths of all files below a folder, sorted.
  std::vector<std::string> files(const std::string& path);
  std::size_t open_handles();

  IoResult<Handle> open_root(bool working_folder) override;
  IoResult<Handle> open(Handle folder, const std::string& name, Open how,
                        std::uint32_t mode) override;
  int close(Handle handle) override;
  IoResult<std::size_t> read(Handle file, void* data, std::size_t size) override;
  IoResult<std::size_t> write(Handle file, const void* data, std::size_t size) override;
  int sync(Handle handle) override;
  IoResult<FileStat> stat(Handle handle) override;
  IoResult<FileStat> stat_at(Handle folder, const std::string& name) override;
  IoResult<std::string> read_link(Handle folder, const std::string& name) override;
  IoResult<std::vector<std::string>> list(Handle folder) override;
  int make_folder(Handle folder, const std::string& name, std::uint32_t mode) override;
  int rename(Handle from, const std::string& name, Handle to, const std::string& new_name) override;
  int link(Handle from, const std::string& name, Handle to, const std::string& new_name) override;
  int remove(Handle folder, const std::string& name, bool is_folder) override;
  int set_modified(Handle file, std::int64_t modified_ns) override;
  int try_lock(Handle file) override;
  int unlock(Handle file) override;
  std::uint32_t user() override { return user_; }
  std::int64_t now_ns() override { return now_ns_; }
  std::uint64_t unique_id() override { return ++ids_; }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Node {
    FileStat::Type type = FileStat::Type::kFile;
    std::uint64_t inode = 0;
    std::uint32_t owner = 0, mode = 0;
    std::int64_t modified_ns = 0;
    std::string data, durable_data;  // a symbolic link: its target
    std::map<std::string, NodePtr> names, durable_names;
    std::weak_ptr<Node> parent;  // of a folder
    bool removed = false;
    int locked_by = -1;
  };
  struct Handed {
    NodePtr node;
    std::size_t position = 0;
    bool writable = false;
  };

  NodePtr make_node(FileStat::Type type, std::uint32_t mode);
  NodePtr find(const std::string& path);
  Handle hand_out(NodePtr node, bool writable);
  Handed* get(Handle handle);
  Node* folder(Handle handle);
  static FileStat describe(const Node& node);

  std::mutex mutex_;
  NodePtr root_;
  std::map<Handle, Handed> handles_;
  Handle next_handle_ = 100;
  std::uint64_t next_inode_ = 1;
  std::atomic<std::uint32_t> user_{1000};
  std::atomic<std::int64_t> now_ns_{std::int64_t{1700000000} * 1000000000};
  std::atomic<std::uint64_t> ids_{0};
  std::atomic<int> lock_error_{0};
  std::atomic<bool> read_only_{false};
};

}  // namespace attnjit::cache
