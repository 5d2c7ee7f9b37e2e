// SPDX-License-Identifier: Apache-2.0
// Parses and prints .npy files, and checks every size that a header claims.
#include "verify/npy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "spec/text.h"

namespace attnjit::verify {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kMaxHeader = 1 << 16;
constexpr std::size_t kMaxRank = 8;

struct DescrRow {
  std::string_view descr;
  Dtype dtype;
};
// The first row of a dtype is what is written.
constexpr std::array kDescrs{
    DescrRow{"<f4", Dtype::kF32}, DescrRow{"<f8", Dtype::kF64}, DescrRow{"<f2", Dtype::kFp16},
    DescrRow{"|i1", Dtype::kI8},  DescrRow{"|u1", Dtype::kU8},  DescrRow{"<i2", Dtype::kI16},
    DescrRow{"<u2", Dtype::kU16}, DescrRow{"<i4", Dtype::kI32}, DescrRow{"<u4", Dtype::kU32},
    DescrRow{"<i8", Dtype::kI64}, DescrRow{"<u8", Dtype::kU64}, DescrRow{"|b1", Dtype::kU8}};

Error bad(const std::string& name, std::string what) {
  return make_error(ErrorCode::kInvalid, "not a readable .npy file: " + std::move(what), name);
}

// The header is a Python dict literal with exactly these three keys.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  std::optional<std::string> parse(std::string* descr, bool* fortran,
                                   std::vector<std::int64_t>* shape) {
    bool seen[3] = {false, false, false};
    if (!take('{')) return "the header is not a dict";
    while (!take('}')) {
      std::string key;
      if (!string(&key) || !take(':')) return "the header is not a dict of names";
      int which = 0;
      bool good = false;
      if (key == "descr") {
        good = string(descr);
      } else if (key == "fortran_order") {
        which = 1;
        good = boolean(fortran);
      } else if (key == "shape") {
        which = 2;
        good = tuple(shape);
      } else {
        return fmt::format("unknown key '{}' in the header", spec::printable(key, 32));
      }
      if (!good) return fmt::format("the header's {} cannot be read", key);
      if (seen[which]) return fmt::format("the header names {} twice", key);
      seen[which] = true;
      if (!take(',') && !peek('}')) return "the header is not a dict";
    }
    skip();
    if (at_ != text_.size()) return "the header has text after the dict";
    if (!seen[0] || !seen[1] || !seen[2]) return "the header lacks descr, fortran_order or shape";
    return std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool peek(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }
  bool string(std::string* out) {
    skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return false;
    *out = std::string(text_.substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }
  bool boolean(bool* out) {
    skip();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        *out = value;
        return true;
      }
    }
    return false;
  }
  bool tuple(std::vector<std::int64_t>* out) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip();
      std::int64_t value = 0;
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        if (value > (std::int64_t{1} << 50)) return false;
        value = value * 10 + (text_[at_++] - '0');
      }
      if (at_ == begin || out->size() == kMaxRank) return false;
      out->push_back(value);
      if (!take(',') && !peek(')')) return false;
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

struct Header {
  Tensor tensor;  // no bytes yet
  std::size_t offset = 0;
  std::int64_t data_bytes = 0;
};

Result<Header> parse_header(std::string_view data, const std::string& name) {
  if (data.size() < 10 || data.substr(0, 6) != kMagic) return bad(name, "no NUMPY magic");
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(data[i]));
  };
  const std::size_t major = byte(6);
  if (major < 1 || major > 3) return bad(name, fmt::format("format version {}", major));
  std::size_t begin = 10;
  std::size_t length = byte(8) | (byte(9) << 8);
  if (major >= 2) {
    if (data.size() < 12) return bad(name, "truncated header");
    begin = 12;
    length |= (byte(10) << 16) | (byte(11) << 24);
  }
  if (length > kMaxHeader) return bad(name, fmt::format("a header of {} bytes", length));
  if (data.size() - begin < length) return bad(name, "truncated header");

  Header header;
  std::string descr;
  bool fortran = false;
  HeaderParser parser(data.substr(begin, length));
  if (const auto problem = parser.parse(&descr, &fortran, &header.tensor.shape)) {
    return bad(name, *problem);
  }
  if (fortran && header.tensor.shape.size() > 1) {
    return bad(name, "Fortran order; save numpy.ascontiguousarray(x)");
  }
  bool known = false;
  for (const DescrRow& row : kDescrs) {
    if (row.descr == descr) {
      header.tensor.dtype = row.dtype;
      known = true;
      break;
    }
  }
  if (!known) {
    return bad(name, fmt::format("element type '{}'; little-endian f2, f4, f8, i1 to i8, u1 to u8 "
                                 "and b1 are read",
                                 spec::printable(descr, 32)));
  }
  std::int64_t bytes = size_of(header.tensor.dtype);
  for (const std::int64_t extent : header.tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return bad(name, "an absurd shape");
  }
  header.offset = begin + length;
  header.data_bytes = bytes;
  return header;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

bool read_exactly(int descriptor, void* out, std::size_t size) {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::read(descriptor, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_exactly(int descriptor, const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::write(descriptor, at, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

Result<std::string> header_bytes(const Tensor& tensor) {
  std::string_view descr;
  for (const DescrRow& row : kDescrs) {
    if (row.dtype == tensor.dtype) {
      descr = row.descr;
      break;
    }
  }
  if (descr.empty()) {
    return make_error(ErrorCode::kInternal,
                      fmt::format(".npy has no element type {}", to_string(tensor.dtype)));
  }
  std::string shape;
  for (const std::int64_t extent : tensor.shape) shape += fmt::format("{}, ", extent);
  if (tensor.shape.size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape.size() == 1) shape.resize(shape.size() - 1);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  // NumPy pads so that the data begin at a multiple of 64.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string result{kMagic};
  result += '\x01';
  result += '\0';
  result += static_cast<char>(text.size() & 0xff);
  result += static_cast<char>(text.size() >> 8);
  return result + text;
}

}  // namespace

Result<Tensor> parse_npy(std::string_view data, const std::string& name) {
  Result<Header> header = parse_header(data, name);
  if (!header) return std::move(header).error();
  const std::size_t have = data.size() - header->offset;
  if (static_cast<std::uint64_t>(header->data_bytes) != have) {
    return bad(name, fmt::format("{} bytes of data, its header says {}", have, header->data_bytes));
  }
  Tensor tensor = std::move(header->tensor);
  tensor.bytes.assign(data.begin() + static_cast<std::ptrdiff_t>(header->offset), data.end());
  return tensor;
}

Result<Tensor> read_npy(const std::string& path, std::int64_t max_bytes) {
  // O_NONBLOCK: a FIFO must not hang the open.
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
    return make_error(ErrorCode::kInvalid, fmt::format("cannot be read: {}", std::strerror(errno)),
                      path);
  }
  if (!S_ISREG(info.st_mode)) return bad(path, "not a regular file");
  if (info.st_size > max_bytes) {
    return bad(path, fmt::format("{} bytes; at most {} are read", info.st_size, max_bytes));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string head(std::min(size, kMaxHeader + 12), '\0');
  if (!read_exactly(file.get(), head.data(), head.size())) return bad(path, "it cannot be read");
  Result<Header> header = parse_header(head, path);
  if (!header) return std::move(header).error();
  if (static_cast<std::uint64_t>(header->data_bytes) != size - header->offset) {
    return bad(path, fmt::format("{} bytes of data, its header says {}", size - header->offset,
                                 header->data_bytes));
  }
  Tensor tensor = std::move(header->tensor);
  tensor.bytes.resize(size - header->offset);
  if (::lseek(file.get(), static_cast<off_t>(header->offset), SEEK_SET) < 0 ||
      !read_exactly(file.get(), tensor.bytes.data(), tensor.bytes.size())) {
    return bad(path, "it cannot be read");
  }
  return tensor;
}

Result<std::string> npy_bytes(const Tensor& tensor) {
  Result<std::string> header = header_bytes(tensor);
  if (!header) return header;
  header->append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return header;
}

Status write_npy(const std::string& path, const Tensor& tensor) {
  Result<std::string> header = header_bytes(tensor);
  if (!header) return std::move(header).error();
  File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0 || !write_exactly(file.get(), header->data(), header->size()) ||
      !write_exactly(file.get(), tensor.bytes.data(), tensor.bytes.size()) ||
      ::close(file.release()) != 0) {
    return make_error(ErrorCode::kIo, fmt::format("cannot be written: {}", std::strerror(errno)),
                      path);
  }
  return {};
}

}  // namespace attnjit::verify
