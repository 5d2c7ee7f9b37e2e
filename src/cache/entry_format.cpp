// SPDX-License-Identifier: Apache-2.0
// Encodes, decodes and checks cache entries and the names of their files.
#include "cache/entry_format.h"

#include <algorithm>
#include <cstring>

#include "cache/bytes.h"

namespace attnjit::cache {
namespace {

// 0x89 is no text in any encoding, CR LF and ^Z catch transfers that change line ends or stop
// there.
constexpr std::string_view kEntryMagic =
    "\x89"
    "ATNJ\r\n\x1a";
constexpr std::size_t kDigestOffset = kHeaderBytes - 32;
constexpr std::uint64_t kMaxSection[kSections] = {kMaxMetadataBytes, kMaxKeyMaterialBytes,
                                                  kMaxCubinBytes, kMaxPtxBytes};
constexpr const char* kSectionNames[kSections] = {"metadata", "key material", "cubin", "PTX"};
constexpr std::size_t kMaxEntryNames = 256;
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::string_view kExtension = ".kernel";
constexpr std::size_t kBuildDigits = 32;

Error invalid(std::string message) { return make_error(ErrorCode::kInvalid, std::move(message)); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool from_hex(std::string_view text, std::uint8_t* bytes, std::size_t size) {
  if (text.size() != size * 2) return false;
  for (std::size_t i = 0; i < size; ++i) {
    const int high = hex_digit(text[2 * i]);
    const int low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return true;
}

void encode(const ResourceUsage& usage, ByteWriter& out) {
  out.i32(usage.registers);
  out.i32(usage.spill_bytes);
  out.i32(usage.stack_bytes);
  out.i32(usage.static_smem_bytes);
  out.i32(usage.barriers);
}

ResourceUsage decode_usage(ByteReader& in) {
  ResourceUsage usage;
  usage.registers = in.i32();
  usage.spill_bytes = in.i32();
  usage.stack_bytes = in.i32();
  usage.static_smem_bytes = in.i32();
  usage.barriers = in.i32();
  return usage;
}

std::string encode_metadata(const RequestKey& key, std::string_view build_id,
                            const KernelImage& image) {
  ByteWriter out;
  out.string(build_id);
  out.string(to_string(key.arch));
  out.string(image.nvrtc_version);
  out.u32(static_cast<std::uint32_t>(image.entries.size()));
  for (const std::string& name : image.entries) out.string(name);
  encode(image.usage, out);
  out.u32(static_cast<std::uint32_t>(image.entry_usage.size()));
  for (const ResourceUsage& usage : image.entry_usage) encode(usage, out);
  out.f64(image.times.frontend_ms);
  out.f64(image.times.optimizer_ms);
  out.f64(image.times.ptxas_ms);
  out.f64(image.times.total_ms);
  out.string(std::string_view(image.log).substr(0, kMaxLogBytes));
  return std::move(out).bytes();
}

bool decode_metadata(std::string_view bytes, Entry& entry) {
  ByteReader in(bytes);
  entry.build_id = in.string(kMaxBuildIdBytes);
  const auto arch = arch_from_string(in.string(kMaxNameBytes));
  entry.image.nvrtc_version = in.string(kMaxNameBytes);
  const std::uint32_t names = in.u32();
  if (!in.ok() || !arch || names > kMaxEntryNames) return false;
  entry.arch = *arch;
  for (std::uint32_t i = 0; i < names; ++i) {
    entry.image.entries.push_back(in.string(kMaxNameBytes));
  }
  entry.image.usage = decode_usage(in);
  const std::uint32_t usages = in.u32();
  if (!in.ok() || usages > kMaxEntryNames) return false;
  for (std::uint32_t i = 0; i < usages; ++i) entry.image.entry_usage.push_back(decode_usage(in));
  entry.image.times.frontend_ms = in.f64();
  entry.image.times.optimizer_ms = in.f64();
  entry.image.times.ptxas_ms = in.f64();
  entry.image.times.total_ms = in.f64();
  entry.image.log = in.string(kMaxLogBytes);
  return in.at_end();
}

}  // namespace

std::string version_folder(std::uint32_t version) { return "v" + std::to_string(version); }

std::optional<EntryId> entry_id(const RequestKey& key, std::string_view build_id) {
  EntryId id;
  if (!from_hex(key.hex, id.key.data(), id.key.size())) return std::nullopt;
  id.build = sha256(build_id);
  return id;
}

std::string file_name(const EntryId& id) {
  return to_hex(id.key) + "." + to_hex(id.build.data(), kBuildDigits / 2) + std::string(kExtension);
}

bool ParsedName::matches(const EntryId& id) const {
  return key == id.key && std::equal(build.begin(), build.end(), id.build.begin());
}

std::optional<ParsedName> parse_file_name(std::string_view name) {
  ParsedName parsed;
  const std::size_t key_digits = 2 * parsed.key.size();
  if (name.size() != key_digits + 1 + kBuildDigits + kExtension.size()) return std::nullopt;
  if (name[key_digits] != '.' || !name.ends_with(kExtension)) return std::nullopt;
  if (!from_hex(name.substr(0, key_digits), parsed.key.data(), parsed.key.size()) ||
      !from_hex(name.substr(key_digits + 1, kBuildDigits), parsed.build.data(),
                parsed.build.size())) {
    return std::nullopt;
  }
  return parsed;
}

std::uint64_t EntryHeader::offset(Section section) const {
  std::uint64_t at = kHeaderBytes;
  for (int i = 0; i < static_cast<int>(section); ++i) at += size[i];
  return at;
}

std::uint64_t EntryHeader::extent(Parts parts) const {
  if (parts.ptx) return file_size();
  return offset(parts.cubin ? Section::kPtx : Section::kCubin);
}

std::uint64_t EntryHeader::file_size() const {
  return offset(Section::kPtx) + size[static_cast<int>(Section::kPtx)];
}

Result<std::string> encode_entry(const RequestKey& key, std::string_view build_id,
                                 const KernelImage& image, std::int64_t created_unix_s) {
  const auto id = entry_id(key, build_id);
  if (!id || sha256(key.material) != id->key) {
    return invalid("the key is not the SHA-256 of its material");
  }
  if (image.cubin.empty()) return invalid("the image has no cubin");
  if (build_id.empty() || build_id.size() > kMaxBuildIdBytes) {
    return invalid("the build id has " + std::to_string(build_id.size()) +
                   " bytes; allowed: 1 to " + std::to_string(kMaxBuildIdBytes));
  }
  if (image.entries.size() > kMaxEntryNames || image.nvrtc_version.size() > kMaxNameBytes ||
      std::any_of(image.entries.begin(), image.entries.end(),
                  [](const std::string& name) { return name.size() > kMaxNameBytes; })) {
    return invalid("the image has more entry symbols, or longer names, than an entry can hold");
  }
  const std::string metadata = encode_metadata(key, build_id, image);
  const std::string_view sections[kSections] = {
      metadata, key.material,
      std::string_view(reinterpret_cast<const char*>(image.cubin.data()), image.cubin.size()),
      image.ptx};
  std::uint64_t file_size = kHeaderBytes;
  for (int i = 0; i < kSections; ++i) {
    if (sections[i].size() > kMaxSection[i]) {
      return invalid("the " + std::string(kSectionNames[i]) + " has " +
                     std::to_string(sections[i].size()) +
                     " bytes; allowed: " + std::to_string(kMaxSection[i]));
    }
    file_size += sections[i].size();
  }

  ByteWriter out;
  out.raw(kEntryMagic);
  out.u32(kFormatVersion);
  out.u32(kHeaderBytes);
  out.u64(file_size);
  out.i64(created_unix_s);
  out.digest(id->key);
  out.digest(id->build);
  out.u32(kSections);
  out.u32(0);
  for (int i = 0; i < kSections; ++i) {
    out.u32(static_cast<std::uint32_t>(i + 1));
    out.u32(0);
    out.u64(sections[i].size());
    out.digest(sha256(sections[i]));
  }
  out.digest(sha256(out.bytes()));
  std::string bytes = std::move(out).bytes();
  bytes.reserve(file_size);
  for (const std::string_view section : sections) bytes.append(section);
  return bytes;
}

Result<EntryHeader> decode_header(std::string_view bytes, std::uint64_t file_size) {
  if (bytes.size() < kHeaderBytes || file_size < kHeaderBytes) {
    return corrupt("the file has " + std::to_string(file_size) + " bytes, less than a header");
  }
  bytes = bytes.substr(0, kHeaderBytes);
  ByteReader in(bytes);
  if (in.raw(kEntryMagic.size()) != kEntryMagic) return corrupt("the file is no attnjit entry");
  if (const std::uint32_t version = in.u32(); version != kFormatVersion) {
    return corrupt("format version " + std::to_string(version) + " under version " +
                   std::to_string(kFormatVersion));
  }
  Sha256Digest stored;
  std::memcpy(stored.data(), bytes.data() + kDigestOffset, stored.size());
  if (sha256(bytes.substr(0, kDigestOffset)) != stored) {
    return corrupt("the header does not match its digest");
  }
  // From here on the bytes are what a writer wrote; a hostile writer can still have written
  // nonsense.
  EntryHeader header;
  const std::uint32_t header_bytes = in.u32();
  const std::uint64_t stated_size = in.u64();
  header.created_unix_s = in.i64();
  header.id.key = in.digest();
  header.id.build = in.digest();
  const std::uint32_t sections = in.u32();
  const std::uint32_t reserved = in.u32();
  if (header_bytes != kHeaderBytes || sections != kSections || reserved != 0 ||
      header.created_unix_s < 0) {
    return corrupt("the header holds a value that no writer writes");
  }
  for (int i = 0; i < kSections; ++i) {
    const std::uint32_t kind = in.u32();
    const std::uint32_t zero = in.u32();
    header.size[i] = in.u64();
    header.digest[i] = in.digest();
    if (kind != static_cast<std::uint32_t>(i + 1) || zero != 0 || header.size[i] > kMaxSection[i]) {
      return corrupt("the section table holds a value that no writer writes");
    }
  }
  if (header.digest[static_cast<int>(Section::kKeyMaterial)] != header.id.key) {
    return corrupt("the key is not the digest of its material");
  }
  header.has_trailer = file_size == stated_size + kTrailerBytes;
  if (header.file_size() != stated_size || (stated_size != file_size && !header.has_trailer)) {
    return corrupt("the file has " + std::to_string(file_size) + " bytes, its header says " +
                   std::to_string(stated_size));
  }
  if (header.size[static_cast<int>(Section::kCubin)] == 0) return corrupt("the cubin is empty");
  return header;
}

Result<Entry> decode_sections(const EntryHeader& header, std::string_view bytes,
                              const std::string* material, Parts parts) {
  const auto section = [&](Section which) -> std::optional<std::string_view> {
    const std::uint64_t at = header.offset(which);
    const std::uint64_t size = header.size[static_cast<int>(which)];
    if (at + size > bytes.size()) return std::nullopt;
    return bytes.substr(at, size);
  };
  const auto verified = [&](Section which) -> Result<std::string_view> {
    const auto data = section(which);
    const int index = static_cast<int>(which);
    if (!data) return corrupt("the " + std::string(kSectionNames[index]) + " is cut off");
    if (sha256(*data) != header.digest[index]) {
      return corrupt("the " + std::string(kSectionNames[index]) + " does not match its digest");
    }
    return *data;
  };

  Entry entry;
  entry.id = header.id;
  entry.created_unix_s = header.created_unix_s;
  if (material != nullptr) {
    const auto stored = section(Section::kKeyMaterial);
    if (!stored || *stored != *material) {
      return corrupt("the stored key material is not the request's");
    }
    entry.key_material = *material;
  } else {
    const auto stored = verified(Section::kKeyMaterial);
    if (!stored) return stored.error();
    entry.key_material = std::string(*stored);
  }
  const auto metadata = verified(Section::kMetadata);
  if (!metadata) return metadata.error();
  if (!decode_metadata(*metadata, entry) || entry.build_id.empty() ||
      sha256(entry.build_id) != header.id.build) {
    return corrupt("the metadata holds a value that no writer writes");
  }
  if (parts.cubin) {
    const auto cubin = verified(Section::kCubin);
    if (!cubin) return cubin.error();
    entry.image.cubin.assign(cubin->begin(), cubin->end());
  }
  if (parts.ptx) {
    const auto ptx = verified(Section::kPtx);
    if (!ptx) return ptx.error();
    entry.image.ptx = std::string(*ptx);
  }
  return entry;
}

Result<Entry> decode_entry(std::string_view bytes) {
  const auto header = decode_header(bytes, bytes.size());
  if (!header) return header.error();
  return decode_sections(*header, bytes, nullptr);
}

}  // namespace attnjit::cache
