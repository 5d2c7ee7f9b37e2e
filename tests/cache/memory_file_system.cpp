// SPDX-License-Identifier: Apache-2.0
// Implements the file system in memory: nodes, handles, and what a power failure keeps.
#include "memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>

namespace attnjit::cache {
namespace {

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : path + "/") {
    if (c != '/') {
      part.push_back(c);
    } else if (!part.empty()) {
      parts.push_back(part);
      part.clear();
    }
  }
  return parts;
}

}  // namespace

MemoryFileSystem::MemoryFileSystem() {
  root_ = make_node(FileStat::Type::kFolder, 0755);
  root_->owner = 0;
}

MemoryFileSystem::NodePtr MemoryFileSystem::make_node(FileStat::Type type, std::uint32_t mode) {
  auto node = std::make_shared<Node>();
  node->type = type;
  node->inode = next_inode_++;
  node->owner = user_;
  node->mode = mode;
  node->modified_ns = now_ns_;
  return node;
}

MemoryFileSystem::NodePtr MemoryFileSystem::find(const std::string& path) {
  NodePtr node = root_;
  for (const std::string& part : split_path(path)) {
    const auto found = node->names.find(part);
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

void MemoryFileSystem::make_path(const std::string& path, std::uint32_t owner, std::uint32_t mode) {
  const std::lock_guard lock(mutex_);
  NodePtr node = root_;
  for (const std::string& part : split_path(path)) {
    auto& child = node->names[part];
    if (!child) {
      child = make_node(FileStat::Type::kFolder, mode);
      child->owner = owner;
      child->parent = node;
    }
    node->durable_names = node->names;
    node = child;
  }
}

void MemoryFileSystem::put_file(const std::string& path, std::string data) {
  const std::lock_guard lock(mutex_);
  const std::size_t slash = path.rfind('/');
  const NodePtr parent = find(path.substr(0, slash));
  auto node = make_node(FileStat::Type::kFile, 0600);
  node->data = node->durable_data = std::move(data);
  parent->names[path.substr(slash + 1)] = node;
  parent->durable_names = parent->names;
}

void MemoryFileSystem::put_symlink(const std::string& path, std::string target,
                                   std::uint32_t owner) {
  const std::lock_guard lock(mutex_);
  const std::size_t slash = path.rfind('/');
  auto node = make_node(FileStat::Type::kSymlink, 0777);
  node->owner = owner;
  node->data = node->durable_data = std::move(target);
  find(path.substr(0, slash))->names[path.substr(slash + 1)] = node;
}

void MemoryFileSystem::set_owner(const std::string& path, std::uint32_t owner) {
  const std::lock_guard lock(mutex_);
  find(path)->owner = owner;
}
void MemoryFileSystem::set_mode(const std::string& path, std::uint32_t mode) {
  const std::lock_guard lock(mutex_);
  find(path)->mode = mode;
}

void MemoryFileSystem::remove_tree(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::size_t slash = path.rfind('/');
  const std::function<void(Node&)> mark = [&](Node& node) {
    for (auto& [name, child] : node.names) mark(*child);
    node.names.clear();
    node.durable_names.clear();
    node.removed = true;
  };
  mark(*find(path));
  const NodePtr parent = find(path.substr(0, slash));
  parent->names.erase(path.substr(slash + 1));
  parent->durable_names = parent->names;
}

bool MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return find(path) != nullptr;
}
std::string MemoryFileSystem::data(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return find(path)->data;
}
std::uint32_t MemoryFileSystem::mode(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return find(path)->mode;
}
std::int64_t MemoryFileSystem::modified_s(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return find(path)->modified_ns / 1000000000;
}

std::vector<std::string> MemoryFileSystem::files(const std::string& path) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> paths;
  const std::function<void(const std::string&, const Node&)> walk = [&](const std::string& at,
                                                                        const Node& node) {
    for (const auto& [name, child] : node.names) {
      if (child->type == FileStat::Type::kFolder) {
        walk(at + "/" + name, *child);
      } else {
        paths.push_back(at + "/" + name);
      }
    }
  };
  if (const NodePtr node = find(path)) walk(path == "/" ? "" : path, *node);
  return paths;
}

std::size_t MemoryFileSystem::open_handles() {
  const std::lock_guard lock(mutex_);
  return handles_.size();
}

void MemoryFileSystem::power_loss(Loss loss, unsigned seed) {
  const std::lock_guard lock(mutex_);
  handles_.clear();
  std::mt19937 random(seed);
  std::set<Node*> visited;
  const std::function<void(Node&)> settle = [&](Node& node) {
    if (!visited.insert(&node).second) return;
    node.locked_by = -1;
    if (node.type == FileStat::Type::kFile) {
      if (node.data != node.durable_data) {
        switch (loss) {
          case Loss::kEverythingUnsynced:
            node.data = node.durable_data;
            break;
          case Loss::kDataCleared:
            node.data.assign(node.data.size(), '\0');
            break;
          case Loss::kDataCut:
            node.data.clear();
            break;
          case Loss::kRandom:
            switch (random() % 4) {
              case 0:
                break;  // it was written in time
              case 1:
                node.data = node.durable_data;
                break;
              case 2:
                node.data.resize(random() % (node.data.size() + 1));
                break;
              default:
                for (std::size_t block = 0; block < node.data.size(); block += 512) {
                  if (random() % 2 != 0) continue;
                  const std::size_t size = std::min<std::size_t>(512, node.data.size() - block);
                  std::memset(node.data.data() + block, 0, size);
                }
            }
        }
        node.durable_data = node.data;
      }
      return;
    }
    if (loss == Loss::kEverythingUnsynced) {
      node.names = node.durable_names;
    } else if (loss == Loss::kRandom) {
      std::set<std::string> all;
      for (const auto& [name, child] : node.names) all.insert(name);
      for (const auto& [name, child] : node.durable_names) all.insert(name);
      std::map<std::string, NodePtr> kept;
      for (const std::string& name : all) {
        const auto& from = random() % 2 != 0 ? node.names : node.durable_names;
        const auto found = from.find(name);
        if (found != from.end()) kept[name] = found->second;
      }
      node.names = kept;
    }
    node.durable_names = node.names;
    for (auto& [name, child] : node.names) {
      child->removed = false;
      settle(*child);
    }
  };
  settle(*root_);
}

MemoryFileSystem::Handle MemoryFileSystem::hand_out(NodePtr node, bool writable) {
  const Handle handle = next_handle_++;
  handles_[handle] = {std::move(node), 0, writable};
  return handle;
}

MemoryFileSystem::Handed* MemoryFileSystem::get(Handle handle) {
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : &found->second;
}

MemoryFileSystem::Node* MemoryFileSystem::folder(Handle handle) {
  Handed* handed = get(handle);
  if (handed == nullptr || handed->node->type != FileStat::Type::kFolder) return nullptr;
  return handed->node.get();
}

FileStat MemoryFileSystem::describe(const Node& node) {
  FileStat stat;
  stat.type = node.type;
  stat.device = 1;
  stat.inode = node.inode;
  stat.owner = node.owner;
  stat.mode = node.mode;
  stat.size = static_cast<std::int64_t>(node.data.size());
  stat.allocated = (stat.size + 511) / 512 * 512;
  stat.modified_ns = node.modified_ns;
  return stat;
}

IoResult<FileSystem::Handle> MemoryFileSystem::open_root(bool) {
  const std::lock_guard lock(mutex_);
  return {hand_out(root_, false)};
}

IoResult<FileSystem::Handle> MemoryFileSystem::open(Handle at, const std::string& name, Open how,
                                                    std::uint32_t mode) {
  const std::lock_guard lock(mutex_);
  Handed* base = get(at);
  if (base == nullptr) return {-1, EBADF};
  if (base->node->type != FileStat::Type::kFolder) return {-1, ENOTDIR};
  const NodePtr parent = base->node;
  const bool wants_folder = how == Open::kFolder || how == Open::kFolderPath;
  NodePtr node;
  if (name == ".") {
    node = parent;
  } else if (name == "..") {
    node = parent->parent.lock();
    if (!node) node = root_;
  } else if (const auto found = parent->names.find(name); found != parent->names.end()) {
    node = found->second;
  }
  if (!node) {
    if (how != Open::kCreate && how != Open::kLock) return {-1, ENOENT};
    if (parent->removed) return {-1, ENOENT};
    if (read_only_) return {-1, EROFS};
    if (parent->owner != user_ && user_ != 0 && (parent->mode & 0002) == 0) return {-1, EACCES};
    node = make_node(FileStat::Type::kFile, mode);
    parent->names[name] = node;
    return {hand_out(node, true)};
  }
  if (how == Open::kCreate) return {-1, EEXIST};
  if (node->type == FileStat::Type::kSymlink) return {-1, wants_folder ? ENOTDIR : ELOOP};
  if (wants_folder && node->type != FileStat::Type::kFolder) return {-1, ENOTDIR};
  if (how == Open::kFolder || how == Open::kRead) {
    const std::uint32_t read_bit = node->owner == user_ ? 0400 : 0004;
    if (user_ != 0 && (node->mode & read_bit) == 0) return {-1, EACCES};
  }
  return {hand_out(node, how == Open::kLock)};
}

int MemoryFileSystem::close(Handle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return EBADF;
  if (found->second.node->locked_by == handle) found->second.node->locked_by = -1;
  handles_.erase(found);
  return 0;
}

IoResult<std::size_t> MemoryFileSystem::read(Handle file, void* to, std::size_t size) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(file);
  if (handed == nullptr) return {0, EBADF};
  if (handed->node->type == FileStat::Type::kFolder) return {0, EISDIR};
  const std::string& data = handed->node->data;
  const std::size_t left = handed->position < data.size() ? data.size() - handed->position : 0;
  const std::size_t count = std::min(size, left);
  std::memcpy(to, data.data() + handed->position, count);
  handed->position += count;
  return {count};
}

IoResult<std::size_t> MemoryFileSystem::write(Handle file, const void* from, std::size_t size) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(file);
  if (handed == nullptr || !handed->writable) return {0, EBADF};
  std::string& data = handed->node->data;
  data.resize(std::max(data.size(), handed->position + size));
  std::memcpy(data.data() + handed->position, from, size);
  handed->position += size;
  handed->node->modified_ns = now_ns_;
  return {size};
}

int MemoryFileSystem::sync(Handle handle) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(handle);
  if (handed == nullptr) return EBADF;
  handed->node->durable_data = handed->node->data;
  handed->node->durable_names = handed->node->names;
  return 0;
}

IoResult<FileStat> MemoryFileSystem::stat(Handle handle) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(handle);
  if (handed == nullptr) return {{}, EBADF};
  return {describe(*handed->node)};
}

IoResult<FileStat> MemoryFileSystem::stat_at(Handle at, const std::string& name) {
  const std::lock_guard lock(mutex_);
  Node* parent = folder(at);
  if (parent == nullptr) return {{}, EBADF};
  if (name == ".") return {describe(*parent)};
  if (name == "..") {
    const NodePtr above = parent->parent.lock();
    return {describe(above ? *above : *root_)};
  }
  const auto found = parent->names.find(name);
  if (found == parent->names.end()) return {{}, ENOENT};
  return {describe(*found->second)};
}

IoResult<std::string> MemoryFileSystem::read_link(Handle at, const std::string& name) {
  const std::lock_guard lock(mutex_);
  Node* parent = folder(at);
  if (parent == nullptr) return {{}, EBADF};
  const auto found = parent->names.find(name);
  if (found == parent->names.end()) return {{}, ENOENT};
  if (found->second->type != FileStat::Type::kSymlink) return {{}, EINVAL};
  return {found->second->data};
}

IoResult<std::vector<std::string>> MemoryFileSystem::list(Handle at) {
  const std::lock_guard lock(mutex_);
  Node* parent = folder(at);
  if (parent == nullptr) return {{}, EBADF};
  IoResult<std::vector<std::string>> names;
  for (const auto& [name, child] : parent->names) names.value.push_back(name);
  return names;
}

int MemoryFileSystem::make_folder(Handle at, const std::string& name, std::uint32_t mode) {
  const std::lock_guard lock(mutex_);
  Handed* base = get(at);
  if (base == nullptr) return EBADF;
  if (base->node->names.contains(name)) return EEXIST;
  if (base->node->removed) return ENOENT;
  if (read_only_) return EROFS;
  if (user_ != 0 && base->node->owner != user_ && (base->node->mode & 0002) == 0) return EACCES;
  auto node = make_node(FileStat::Type::kFolder, mode);
  node->parent = base->node;
  base->node->names[name] = node;
  return 0;
}

int MemoryFileSystem::rename(Handle from, const std::string& name, Handle to,
                             const std::string& new_name) {
  const std::lock_guard lock(mutex_);
  Node* source = folder(from);
  Node* target = folder(to);
  if (source == nullptr || target == nullptr) return EBADF;
  const auto found = source->names.find(name);
  if (found == source->names.end() || target->removed) return ENOENT;
  if (read_only_) return EROFS;
  const NodePtr node = found->second;
  const auto replaced = target->names.find(new_name);
  if (replaced != target->names.end() && replaced->second->type == FileStat::Type::kFolder) {
    return EISDIR;
  }
  source->names.erase(found);
  target->names[new_name] = node;
  return 0;
}

int MemoryFileSystem::link(Handle from, const std::string& name, Handle to,
                           const std::string& new_name) {
  const std::lock_guard lock(mutex_);
  Node* source = folder(from);
  Node* target = folder(to);
  if (source == nullptr || target == nullptr) return EBADF;
  const auto found = source->names.find(name);
  if (found == source->names.end() || target->removed) return ENOENT;
  if (target->names.contains(new_name)) return EEXIST;
  target->names[new_name] = found->second;
  return 0;
}

int MemoryFileSystem::remove(Handle at, const std::string& name, bool is_folder) {
  const std::lock_guard lock(mutex_);
  Node* parent = folder(at);
  if (parent == nullptr) return EBADF;
  const auto found = parent->names.find(name);
  if (found == parent->names.end()) return ENOENT;
  if (read_only_) return EROFS;
  if ((found->second->type == FileStat::Type::kFolder) != is_folder) {
    return is_folder ? ENOTDIR : EISDIR;
  }
  if (is_folder && !found->second->names.empty()) return ENOTEMPTY;
  if (is_folder) found->second->removed = true;
  parent->names.erase(found);
  return 0;
}

int MemoryFileSystem::set_modified(Handle file, std::int64_t modified_ns) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(file);
  if (handed == nullptr) return EBADF;
  if (read_only_) return EROFS;
  if (user_ != 0 && handed->node->owner != user_) return EPERM;
  handed->node->modified_ns = modified_ns;
  return 0;
}

int MemoryFileSystem::try_lock(Handle file) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(file);
  if (handed == nullptr) return EBADF;
  if (lock_error_ != 0) return lock_error_;
  if (handed->node->locked_by == -1) handed->node->locked_by = file;
  return handed->node->locked_by == file ? 0 : EWOULDBLOCK;
}

int MemoryFileSystem::unlock(Handle file) {
  const std::lock_guard lock(mutex_);
  Handed* handed = get(file);
  if (handed == nullptr) return EBADF;
  if (handed->node->locked_by == file) handed->node->locked_by = -1;
  return 0;
}

}  // namespace attnjit::cache
