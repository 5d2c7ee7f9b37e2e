// SPDX-License-Identifier: Apache-2.0
// The templates that generate renders: those embedded at build, or a folder in their place.
//
// Thread rules: a TemplateSet is immutable once made, but for what its includes were found to be.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>

#include "attnjit/source.h"
#include "base/sha256.h"
#include "codegen/embedded.h"
#include "codegen/include_closure.h"
#include "codegen/source_digest.h"

namespace attnjit {
namespace {

constexpr std::uintmax_t kMaxFileBytes = 4u << 20;
constexpr std::size_t kMaxFiles = 1024;

bool is_template(const std::filesystem::path& path) {
  return path.extension() == ".cuh" || path.extension() == ".tmpl";
}

Error bad_folder(const std::string& folder, std::string message) {
  return make_error(ErrorCode::kEnvironment, std::move(message), folder,
                    "the folder must hold what the project's templates/ holds; unset "
                    "ATTNJIT_TEMPLATES to use the embedded ones");
}

}  // namespace

std::string source_digest(const std::vector<SourceFile>& files) {
  std::string material;
  for (const SourceFile& file : files) {
    material += fmt::format("{}:{}{}:", file.name.size(), file.name, file.text.size());
    material += file.text;
  }
  return to_hex(sha256(material));
}

struct TemplateSet::Found {
  std::mutex mutex;
  std::map<std::string, HeaderSet, std::less<>> sets;  ///< by the text that includes them
};

TemplateSet::TemplateSet(std::vector<SourceFile> files)
    : files_(std::move(files)), found_(std::make_shared<Found>()) {
  std::sort(files_.begin(), files_.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  digest_ = source_digest(files_);
}

const SourceFile* TemplateSet::find(std::string_view name) const {
  const auto at = std::lower_bound(
      files_.begin(), files_.end(), name,
      [](const SourceFile& file, std::string_view key) { return file.name < key; });
  return at != files_.end() && at->name == name ? &*at : nullptr;
}

Result<HeaderSet> TemplateSet::included_by(std::string_view name, std::string_view text) const {
  // NOTE: tried: after a fork the lock may be held for ever by a thread that stayed in the parent.
  std::unique_lock lock(found_->mutex, std::try_to_lock);
  if (lock.owns_lock()) {
    const auto known = found_->sets.find(text);
    if (known != found_->sets.end()) return known->second;
  }
  Result<std::vector<SourceFile>> files = include_closure(*this, name, text);
  if (!files) return std::move(files).error();
  HeaderSet set(*std::move(files));
  if (lock.owns_lock()) found_->sets.emplace(text, set);
  return set;
}

const TemplateSet& TemplateSet::embedded() {
  // Constant data: made once, shared by all, never changed.
  static const TemplateSet set = [] {
    std::vector<SourceFile> files;
    for (const EmbeddedFile& file : embedded_files()) {
      files.push_back({std::string(file.name), std::string(file.text)});
    }
    return TemplateSet(std::move(files));
  }();
  return set;
}

Result<TemplateSet> TemplateSet::from_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failure;
  std::vector<SourceFile> files;
  const fs::path root(folder);
  fs::recursive_directory_iterator at(root, failure);
  if (failure) return bad_folder(folder, "cannot read the template folder: " + failure.message());
  for (; at != fs::recursive_directory_iterator(); at.increment(failure)) {
    const fs::path& path = at->path();
    if (!is_template(path)) continue;
    const fs::file_status status = at->status(failure);
    // NOTE: only regular files: a FIFO of this name would block for ever.
    if (failure || !fs::is_regular_file(status)) continue;
    if (files.size() == kMaxFiles) {
      return bad_folder(folder, fmt::format("more than {} template files", kMaxFiles));
    }
    const std::uintmax_t size = fs::file_size(path, failure);
    if (failure || size > kMaxFileBytes) {
      return bad_folder(folder, fmt::format("{} cannot be read or exceeds {} bytes", path.string(),
                                            kMaxFileBytes));
    }
    std::string text(static_cast<std::size_t>(size), '\0');
    std::ifstream stream(path, std::ios::binary);
    stream.read(text.data(), static_cast<std::streamsize>(size));
    if (!stream) return bad_folder(folder, fmt::format("cannot read {}", path.string()));
    files.push_back({path.lexically_relative(root).generic_string(), std::move(text)});
  }
  if (failure) return bad_folder(folder, "cannot read the template folder: " + failure.message());
  TemplateSet set(std::move(files));
  if (set.find("attention.cu.tmpl") == nullptr) {
    return bad_folder(folder, "the template folder has no attention.cu.tmpl");
  }
  return set;
}

}  // namespace attnjit
