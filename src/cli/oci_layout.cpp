// SPDX-License-Identifier: Apache-2.0
// Writes the entries of a bundle as a tar archive, with the manifest, configuration and index that
// make it an OCI image.
#include "cli/oci_layout.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "cache/bundle.h"
#include "cache/file_hash.h"
#include "cli/json.h"

namespace attnjit::cli {
namespace {

namespace stdfs = std::filesystem;

constexpr std::size_t kBlock = 512;
#if defined(__aarch64__)
constexpr const char* kArchitecture = "arm64";
#else
constexpr const char* kArchitecture = "amd64";
#endif

/// A file whose bytes are digested as they are written.
class Blob {
 public:
  explicit Blob(const stdfs::path& path) : out_(path, std::ios::binary) {}
  void write(std::string_view bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    hash_.add(bytes);
    size_ += bytes.size();
  }
  bool close() {
    out_.close();
    return !out_.fail();
  }
  std::uint64_t size() const { return size_; }
  std::string digest() {
    const std::string bytes = hash_.finish();
    return to_hex(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }

 private:
  std::ofstream out_;
  cache::FileHash hash_{cache::FileHash::Kind::kSha256};
  std::uint64_t size_ = 0;
};

// POSIX ustar: root's, of 1970, so that the same entries give the same bytes.
std::string tar_header(std::string_view name, char type, std::uint64_t size) {
  std::string block(kBlock, '\0');
  const auto put = [&](std::size_t at, std::string_view text) {
    block.replace(at, text.size(), text);
  };
  put(0, name.substr(0, 100));
  put(100, type == '5' ? "0000755" : "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, "00000000000");
  put(148, "        ");
  put(156, std::string_view(&type, 1));
  put(257, "ustar");
  put(263, "00");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  return block;
}

std::string padding(std::uint64_t size) {
  return std::string((kBlock - size % kBlock) % kBlock, '\0');
}

// A pax record, for the names of entries are longer than ustar's 100 bytes.
std::string pax_path(const std::string& path) {
  const std::string rest = " path=" + path + "\n";
  std::size_t size = rest.size() + 1;
  while (std::to_string(size).size() + rest.size() != size) ++size;
  const std::string record = std::to_string(size) + rest;
  return tar_header("pax", 'x', record.size()) + record + padding(record.size());
}

Error io_error(const std::string& folder) {
  return make_error(ErrorCode::kIo, "cannot write the image layout", folder);
}

Json descriptor(const char* type, const std::string& digest, std::uint64_t size) {
  return {{"mediaType", type}, {"digest", "sha256:" + digest}, {"size", size}};
}

}  // namespace

Status write_oci_layout(const std::string& bundle, const std::string& folder) {
  std::error_code failed;
  if (stdfs::exists(folder, failed) &&
      (!stdfs::is_directory(folder, failed) || !stdfs::is_empty(folder, failed))) {
    return make_error(ErrorCode::kInvalid, "it is there already and not an empty folder", folder);
  }
  const stdfs::path blobs = stdfs::path(folder) / "blobs" / "sha256";
  stdfs::create_directories(blobs, failed);
  if (failed) return make_error(ErrorCode::kIo, failed.message(), folder);

  std::ifstream in(bundle, std::ios::binary);
  const std::uint64_t bundle_size = stdfs::file_size(bundle, failed);
  std::string head(cache::kBundleHeaderBytes, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  const auto header = cache::decode_bundle_header(head, bundle_size);
  if (!header) return header.error();
  head.resize(head.size() + header->entries * cache::kBundleRowBytes);
  in.read(head.data() + cache::kBundleHeaderBytes,
          static_cast<std::streamsize>(head.size() - cache::kBundleHeaderBytes));
  const auto rows = cache::decode_bundle_manifest(*header, head);
  if (!rows) return rows.error();

  const stdfs::path unnamed = blobs / ".layer";
  Blob layer(unnamed);
  std::set<std::string> made;
  const auto make_folder = [&](const std::string& name) {
    if (made.insert(name).second) layer.write(tar_header(name, '5', 0));
  };
  const std::string root = cache::version_folder() + "/";
  make_folder(root);
  make_folder(root + "entries/");
  for (const cache::BundleRow& row : *rows) {
    const std::string name = cache::file_name(row.id);
    const std::string shard = root + "entries/" + name.substr(0, 2) + "/";
    make_folder(shard);
    std::string bytes(static_cast<std::size_t>(row.size), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!in || sha256(bytes) != row.digest) {
      return make_error(ErrorCode::kCorrupt, "an entry does not match the manifest", bundle);
    }
    layer.write(pax_path(shard + name));
    layer.write(tar_header(name, '0', bytes.size()));
    layer.write(bytes);
    layer.write(padding(bytes.size()));
  }
  layer.write(std::string(2 * kBlock, '\0'));
  if (!layer.close()) return io_error(folder);
  const std::string layer_digest = layer.digest();
  stdfs::rename(unnamed, blobs / layer_digest, failed);
  if (failed) return io_error(folder);

  bool written = true;
  const auto write = [&](const stdfs::path& path, const std::string& text) {
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.close();
    written = written && !out.fail();
  };
  const auto write_blob = [&](const Json& json, const char* type) {
    const std::string text = to_text(json);
    const std::string digest = to_hex(sha256(text));
    write(blobs / digest, text);
    return descriptor(type, digest, text.size());
  };
  Json config;
  config["created"] = "1970-01-01T00:00:00Z";
  config["architecture"] = kArchitecture;
  config["os"] = "linux";
  config["config"] = Json::object();
  config["rootfs"] = {{"type", "layers"}, {"diff_ids", {"sha256:" + layer_digest}}};
  config["history"] = {
      {{"created", "1970-01-01T00:00:00Z"}, {"created_by", "attnjit cache export --oci"}}};
  Json manifest;
  manifest["schemaVersion"] = 2;
  manifest["mediaType"] = "application/vnd.oci.image.manifest.v1+json";
  manifest["config"] = write_blob(config, "application/vnd.oci.image.config.v1+json");
  manifest["layers"] = Json::array(
      {descriptor("application/vnd.oci.image.layer.v1.tar", layer_digest, layer.size())});
  Json image = write_blob(manifest, "application/vnd.oci.image.manifest.v1+json");
  image["platform"] = {{"architecture", kArchitecture}, {"os", "linux"}};
  image["annotations"] = {{"org.opencontainers.image.ref.name", "latest"}};
  Json index;
  index["schemaVersion"] = 2;
  index["manifests"] = Json::array({image});
  write(stdfs::path(folder) / "index.json", to_text(index));
  write(stdfs::path(folder) / "oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}\n");
  if (!written) return io_error(folder);
  return {};
}

}  // namespace attnjit::cli
