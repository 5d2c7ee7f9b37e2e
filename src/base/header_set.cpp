// SPDX-License-Identifier: Apache-2.0
// Sorts and digests the files of a HeaderSet.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "attnjit/source.h"
#include "base/sha256.h"

namespace attnjit {
namespace {

void append(std::string& out, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(size >> (8 * i)));
  out += text;
}

std::string digest_of(const std::vector<SourceFile>& files) {
  std::size_t bytes = 0;
  for (const SourceFile& file : files) bytes += file.name.size() + file.text.size() + 8;
  std::string material;
  material.reserve(bytes);
  for (const SourceFile& file : files) {
    append(material, file.name);
    append(material, file.text);
  }
  return to_hex(sha256(material));
}

}  // namespace

HeaderSet::HeaderSet(std::vector<SourceFile> files) {
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  std::string digest = digest_of(files);
  shared_ = std::make_shared<const Shared>(Shared{std::move(files), std::move(digest)});
}

}  // namespace attnjit
