// SPDX-License-Identifier: Apache-2.0
// Searches the usual places for NVRTC, and reads the build id of its ELF file.
#include "compile/nvrtc_find.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/environment.h"
#include "base/sha256.h"

namespace attnjit {
namespace {

constexpr std::array<const char*, 3> kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~ReadOnlyFile() {
    if (fd_ >= 0) close(fd_);
  }
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;

  bool read(void* out, std::size_t size, std::uint64_t offset) const {
    auto* at = static_cast<char*>(out);
    while (size > 0) {
      const ssize_t got = pread(fd_, at, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      offset += static_cast<std::uint64_t>(got);
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }
  /// The size of a regular file; 0 for anything else.
  std::uint64_t size() const {
    struct stat status {};
    if (fd_ < 0 || fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    return static_cast<std::uint64_t>(status.st_size);
  }

 private:
  int fd_;
};

std::uint64_t align4(std::uint64_t value) { return (value + 3) & ~std::uint64_t{3}; }

/// The description of the NT_GNU_BUILD_ID note, in hex; empty: none.
std::string find_build_id(const std::vector<std::uint8_t>& notes) {
  std::uint64_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    at += sizeof note;
    const std::uint64_t name = at;
    const std::uint64_t description = name + align4(note.n_namesz);
    const std::uint64_t end = description + align4(note.n_descsz);
    if (end > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz >= 8 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0) {
      return to_hex(notes.data() + description, note.n_descsz);
    }
    at = end;
  }
  return {};
}

std::string build_id_note(const ReadOnlyFile& file) {
  Elf64_Ehdr header;
  if (!file.read(&header, sizeof header, 0)) return {};
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return {};
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!file.read(&segment, sizeof segment, header.e_phoff + i * sizeof segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > (64u << 10)) continue;
    std::vector<std::uint8_t> notes(segment.p_filesz);
    if (!file.read(notes.data(), notes.size(), segment.p_offset)) return {};
    if (std::string id = find_build_id(notes); !id.empty()) return id;
  }
  return {};
}

std::string absolute_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : std::string();
}

/// The folder of this library or executable.
std::string library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  const std::string path = absolute_path(info.dli_fname);
  return path.empty() ? path : path.substr(0, path.rfind('/'));
}

/// A library that the dynamic linker finds by a bare name.
std::string system_library(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return {};
  void* symbol = dlsym(library, "nvrtcVersion");
  Dl_info info{};
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  return absolute_path(info.dli_fname);
}

Result<NvrtcLocation> at(const NvrtcPlace& place) {
  const std::string& path = place.path;
  Result<std::string> id = library_build_id(path);
  if (!id) return std::move(id).error();
  // NOTE: no link is resolved: the builtins library may lie beside a link, and not beside the file.
  std::error_code ignored;
  return NvrtcLocation{std::filesystem::absolute(path, ignored).string(), *std::move(id),
                       place.why};
}

constexpr const char* kHint =
    "install the CUDA toolkit or the wheel nvidia-cuda-nvrtc (12.9 or newer), or set ATTNJIT_NVRTC "
    "to the path of libnvrtc.so";

}  // namespace

Result<std::string> library_build_id(const std::string& path) {
  const ReadOnlyFile file(path);
  const std::uint64_t size = file.size();
  if (size == 0) {
    return make_error(ErrorCode::kEnvironment, fmt::format("cannot read a library at {}", path),
                      path, kHint);
  }
  std::array<unsigned char, SELFMAG> magic{};
  if (!file.read(magic.data(), magic.size(), 0) ||
      std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0) {
    return make_error(ErrorCode::kEnvironment, fmt::format("{} is no shared library", path), path,
                      kHint);
  }
  if (std::string id = build_id_note(file); !id.empty()) return id;
  std::vector<std::uint8_t> bytes(size);
  if (!file.read(bytes.data(), bytes.size(), 0)) {
    return make_error(ErrorCode::kEnvironment, fmt::format("cannot read {}", path), path, kHint);
  }
  return to_hex(sha256(bytes.data(), bytes.size()));
}

NvrtcSearch default_nvrtc_search(std::string explicit_path) {
  NvrtcSearch search;
  const Environment environment = read_environment();
  search.given = explicit_path.empty()
                     ? NvrtcPlace{environment.nvrtc.value_or(""), "ATTNJIT_NVRTC names it"}
                     : NvrtcPlace{std::move(explicit_path), "the caller names it"};
  if (environment.cuda_home) {
    for (const char* folder : {"/lib64", "/lib"}) {
      search.folders.push_back(
          {*environment.cuda_home + folder, "CUDA_HOME or CUDA_PATH names its folder"});
    }
  }
#ifdef ATTNJIT_NVRTC_HINT
  if (*ATTNJIT_NVRTC_HINT != '\0') {
    search.paths.push_back({ATTNJIT_NVRTC_HINT, "this build of attnjit was given it"});
  }
#endif
  // As wheels lie when attnjit is installed beside them: <site-packages>/nvidia/.../lib.
  const std::string own = library_folder();
  if (!own.empty()) {
    for (const char* wheel : {"cu13", "cuda_nvrtc"}) {
      for (const char* up : {"", "/.."}) {
        search.folders.push_back({fmt::format("{}{}/nvidia/{}/lib", own, up, wheel),
                                  "it is the wheel's beside this library"});
      }
    }
  }
  search.folders.push_back({"/usr/local/cuda/lib64", "it is the CUDA toolkit's"});
  return search;
}

Result<NvrtcLocation> find_nvrtc(const NvrtcSearch& search) {
  if (!search.given.path.empty()) return at(search.given);
  std::string looked;
  const auto note = [&looked](const std::string& place) {
    looked += looked.empty() ? "" : ", ";
    looked += place;
  };
  const auto from_folder = [&](const std::string& folder) -> std::string {
    for (const char* name : kNames) {
      std::string path = folder + "/" + name;
      if (access(path.c_str(), R_OK) == 0) return path;
    }
    note(folder);
    return {};
  };
  std::vector<NvrtcPlace> found;
  for (const NvrtcPlace& folder : search.folders) {
    if (std::string path = from_folder(folder.path); !path.empty()) {
      found.push_back({std::move(path), folder.why});
    }
  }
  for (const NvrtcPlace& place : search.paths) {
    if (access(place.path.c_str(), R_OK) == 0) {
      found.push_back(place);
    } else {
      note(place.path);
    }
  }
  for (const NvrtcPlace& place : found) {
    if (Result<NvrtcLocation> location = at(place); location.ok()) return location;
    note(place.path);
  }
  if (search.system_names) {
    for (const char* name : kNames) {
      const std::string path = system_library(name);
      if (path.empty()) {
        note(name);
        continue;
      }
      const NvrtcPlace place{path, "the dynamic linker finds it"};
      if (Result<NvrtcLocation> location = at(place); location.ok()) return location;
    }
  }
  return make_error(ErrorCode::kEnvironment,
                    fmt::format("NVRTC was not found; looked for {}", looked), "nvrtc", kHint);
}

Result<NvrtcLocation> NvrtcLocator::locate() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!location_.path.empty()) {
    struct stat now {};
    if (stat(location_.path.c_str(), &now) == 0 && now.st_dev == seen_.st_dev &&
        now.st_ino == seen_.st_ino && now.st_size == seen_.st_size &&
        now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec) {
      return location_;
    }
    location_ = {};
  }
  Result<NvrtcLocation> found = find_nvrtc(search_);
  if (!found) return found;
  struct stat status {};
  if (stat(found->path.c_str(), &status) == 0) {
    location_ = *found;
    seen_ = status;
  }
  return found;
}

}  // namespace attnjit
