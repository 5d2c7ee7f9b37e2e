// SPDX-License-Identifier: Apache-2.0
// Little-endian fields, written to and read from byte strings; the reader never leaves its bounds.
//
// Thread rules: plain values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "attnjit/result.h"
#include "base/sha256.h"

namespace attnjit::cache {

/// What was read is not what was written. kCorrupt.
inline Error corrupt(std::string message) {
  return make_error(ErrorCode::kCorrupt, std::move(message));
}

class ByteWriter {
 public:
  void u32(std::uint32_t value) { integer(value, 4); }
  void u64(std::uint64_t value) { integer(value, 8); }
  void i32(std::int32_t value) { u32(static_cast<std::uint32_t>(value)); }
  void i64(std::int64_t value) { u64(static_cast<std::uint64_t>(value)); }
  void f64(double value) { u64(std::bit_cast<std::uint64_t>(value)); }
  void raw(std::string_view bytes) { bytes_.append(bytes); }
  void digest(const Sha256Digest& digest) {
    bytes_.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  /// A 32-bit length and the bytes.
  void string(std::string_view text) {
    u32(static_cast<std::uint32_t>(text.size()));
    raw(text);
  }

  const std::string& bytes() const& { return bytes_; }
  std::string&& bytes() && { return std::move(bytes_); }

 private:
  void integer(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  std::string bytes_;
};

/// After a read that does not fit, ok() is false and every value is zero or empty.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  std::uint64_t u64() { return integer(8); }
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  double f64() { return std::bit_cast<double>(u64()); }
  std::string_view raw(std::size_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  Sha256Digest digest() {
    Sha256Digest value{};
    const std::string_view bytes = raw(value.size());
    if (ok_) std::memcpy(value.data(), bytes.data(), value.size());
    return value;
  }
  std::string string(std::size_t limit) {
    const std::uint32_t size = u32();
    if (size > limit) ok_ = false;
    return std::string(raw(ok_ ? size : 0));
  }

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  std::uint64_t integer(std::size_t size) {
    const std::string_view bytes = raw(size);
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
    }
    return value;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace attnjit::cache
