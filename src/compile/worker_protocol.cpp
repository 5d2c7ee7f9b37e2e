// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes what the helper process and its parent send each other.
#include "compile/worker_protocol.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "base/architectures.h"

namespace attnjit {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr std::uint32_t kMagic = 0x334a5441;  // "ATJ3"
constexpr std::uint64_t kMaxItems = 4096;

Error corrupt(const char* what) { return make_error(ErrorCode::kCorrupt, what, "compile-worker"); }

class Writer {
 public:
  explicit Writer(WorkerFrame kind) {
    number(kMagic);
    number(static_cast<std::uint32_t>(kind));
    number(std::uint64_t{0});
  }
  template <class T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    out_ += value;
  }
  std::string frame() && {
    const std::uint64_t size = out_.size() - kFrameHeadBytes;
    std::memcpy(out_.data() + 8, &size, sizeof size);
    return std::move(out_);
  }

 private:
  std::string out_;
};

/// Reads fields; once one did not fit, everything after it is empty and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    if (!ok_ || bytes_.size() < sizeof value) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view text() {
    const auto size = number<std::uint64_t>();
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
  }
  bool boolean() {
    const auto value = number<std::uint8_t>();
    if (value > 1) ok_ = false;
    return ok_ && value == 1;
  }
  /// A count of items to follow, each at least 8 bytes long.
  std::uint64_t count() {
    const auto value = number<std::uint64_t>();
    if (value > kMaxItems || value * 8 > bytes_.size()) ok_ = false;
    return ok_ ? value : 0;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

std::string encode(const WorkerRequest& request) {
  Writer out(WorkerFrame::kRequest);
  const KernelSource& source = request.compile.source;
  out.text(request.nvrtc_path);
  out.text(request.build_id);
  out.number(request.memory_bytes);
  out.number(static_cast<std::int32_t>(request.cpu_seconds));
  out.number(static_cast<std::uint8_t>(request.must_confine));
  out.number(static_cast<std::uint8_t>(request.compile.line_info));
  out.number(static_cast<std::uint8_t>(request.compile.ptx_only));
  out.number(static_cast<std::uint8_t>(source.arch));
  out.text(source.name);
  out.text(source.text);
  out.number(static_cast<std::uint64_t>(source.headers.size()));
  for (const SourceFile& header : source.headers) {
    out.text(header.name);
    out.text(header.text);
  }
  out.number(static_cast<std::uint64_t>(source.options.size()));
  for (const std::string& option : source.options) out.text(option);
  return std::move(out).frame();
}

std::string encode(const WorkerReady& ready) {
  Writer out(WorkerFrame::kReady);
  out.text(ready.problem);
  out.number(static_cast<std::int32_t>(ready.nvrtc_major));
  out.number(static_cast<std::int32_t>(ready.nvrtc_minor));
  out.number(static_cast<std::uint8_t>(ready.confined));
  out.number(ready.memory_bytes);
  out.number(static_cast<std::int32_t>(ready.cpu_seconds));
  return std::move(out).frame();
}

std::string encode(const CompileOutput& output) {
  Writer out(WorkerFrame::kOutput);
  out.number(static_cast<std::int32_t>(output.result));
  out.text(output.result_name);
  out.text(output.log);
  out.text({reinterpret_cast<const char*>(output.cubin.data()), output.cubin.size()});
  out.text(output.ptx);
  return std::move(out).frame();
}

Result<std::uint64_t> decode_head(std::string_view head, WorkerFrame expected) {
  Reader in(head);
  const auto magic = in.number<std::uint32_t>();
  const auto kind = in.number<std::uint32_t>();
  const auto size = in.number<std::uint64_t>();
  if (!in.done() || magic != kMagic) return corrupt("not a frame of the compile worker");
  if (kind != static_cast<std::uint32_t>(expected)) return corrupt("a frame of another kind");
  if (size > kMaxPayloadBytes) return corrupt("a frame beyond its bound");
  return size;
}

Result<WorkerRequest> decode_request(std::string_view payload) {
  Reader in(payload);
  WorkerRequest request;
  KernelSource& source = request.compile.source;
  request.nvrtc_path = in.text();
  request.build_id = in.text();
  request.memory_bytes = in.number<std::int64_t>();
  request.cpu_seconds = in.number<std::int32_t>();
  request.must_confine = in.boolean();
  request.compile.line_info = in.boolean();
  request.compile.ptx_only = in.boolean();
  const auto arch = in.number<std::uint8_t>();
  source.name = in.text();
  source.text = in.text();
  std::vector<SourceFile> headers;
  for (std::uint64_t i = in.count(); i > 0 && in.ok(); --i) {
    SourceFile header;
    header.name = in.text();
    header.text = in.text();
    headers.push_back(std::move(header));
  }
  source.headers = HeaderSet(std::move(headers));
  for (std::uint64_t i = in.count(); i > 0 && in.ok(); --i) source.options.emplace_back(in.text());
  if (!in.done()) return corrupt("a frame that its fields do not fill");
  if (arch >= architectures().size()) return corrupt("an unknown architecture");
  if (request.memory_bytes <= 0 || request.cpu_seconds <= 0) return corrupt("no limits");
  source.arch = static_cast<Arch>(arch);
  return request;
}

Result<WorkerReady> decode_ready(std::string_view payload) {
  Reader in(payload);
  WorkerReady ready;
  ready.problem = in.text();
  ready.nvrtc_major = in.number<std::int32_t>();
  ready.nvrtc_minor = in.number<std::int32_t>();
  ready.confined = in.boolean();
  ready.memory_bytes = in.number<std::int64_t>();
  ready.cpu_seconds = in.number<std::int32_t>();
  if (!in.done()) return corrupt("a frame that its fields do not fill");
  return ready;
}

Result<CompileOutput> decode_output(std::string_view payload) {
  Reader in(payload);
  CompileOutput output;
  output.result = in.number<std::int32_t>();
  output.result_name = in.text();
  output.log = in.text();
  const std::string_view cubin = in.text();
  output.cubin.assign(cubin.begin(), cubin.end());
  output.ptx = in.text();
  if (!in.done()) return corrupt("a frame that its fields do not fill");
  return output;
}

}  // namespace attnjit
