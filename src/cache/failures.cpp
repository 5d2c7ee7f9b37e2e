// SPDX-License-Identifier: Apache-2.0
// Writes, finds and forgets the notes of compiles that failed a short while ago.
#include "cache/failures.h"

#include <algorithm>
#include <cerrno>

#include "cache/bytes.h"
#include "cache/io.h"

namespace attnjit::cache {
namespace {

constexpr std::string_view kFailureMagic =
    "\x89"
    "ATNF\r\n\x1a";
constexpr std::size_t kMaxFailureBytes = 256 * 1024;
constexpr std::size_t kMaxText = 16 * 1024;
constexpr std::uint32_t kMaxOthers = 8;
constexpr std::int64_t kClockSlackNs = std::int64_t{5} * 1000000000;

std::string note_name(const EntryId& id) { return file_name(id) + ".failed"; }

void write_error(ByteWriter& out, const Error& error) {
  const auto text = [&](const std::string& value) {
    out.string(std::string_view(value).substr(0, kMaxText));
  };
  out.u32(static_cast<std::uint32_t>(error.code));
  text(error.message);
  text(error.field);
  out.i32(error.line);
  out.i32(error.column);
  text(error.hint);
}

bool read_error(ByteReader& in, Error& error) {
  const std::uint32_t code = in.u32();
  if (code > static_cast<std::uint32_t>(ErrorCode::kInternal)) return false;
  error.code = static_cast<ErrorCode>(code);
  error.message = in.string(kMaxText);
  error.field = in.string(kMaxText);
  error.line = in.i32();
  error.column = in.i32();
  error.hint = in.string(kMaxText);
  return in.ok();
}

}  // namespace

std::string encode_failure(const EntryId& id, const Error& error, std::int64_t failed_ns) {
  ByteWriter out;
  out.raw(kFailureMagic);
  out.u32(kFormatVersion);
  out.digest(id.key);
  out.digest(id.build);
  out.i64(failed_ns);
  const auto others = std::min<std::size_t>(error.others.size(), kMaxOthers);
  out.u32(static_cast<std::uint32_t>(others));
  write_error(out, error);
  for (std::size_t i = 0; i < others; ++i) write_error(out, error.others[i]);
  out.digest(sha256(out.bytes()));
  return std::move(out).bytes();
}

std::optional<Failure> decode_failure(std::string_view bytes, const EntryId& id) {
  constexpr std::size_t kDigestBytes = sizeof(Sha256Digest);
  if (bytes.size() < kDigestBytes) return std::nullopt;
  const std::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
  ByteReader tail(bytes.substr(body.size()));
  if (tail.digest() != sha256(body)) return std::nullopt;
  ByteReader in(body);
  if (in.raw(kFailureMagic.size()) != kFailureMagic || in.u32() != kFormatVersion)
    return std::nullopt;
  if (in.digest() != id.key || in.digest() != id.build) return std::nullopt;
  Failure failure;
  failure.failed_ns = in.i64();
  const std::uint32_t others = in.u32();
  if (others > kMaxOthers || !read_error(in, failure.error)) return std::nullopt;
  for (std::uint32_t i = 0; i < others; ++i) {
    if (!read_error(in, failure.error.others.emplace_back())) return std::nullopt;
  }
  if (!in.at_end()) return std::nullopt;
  return failure;
}

bool Failures::fresh(std::int64_t failed_ns) const {
  const std::int64_t age = fs_.now_ns() - failed_ns;
  // A failure from the future was noted before the clock was set back; it would be fresh for ever.
  return age > -kClockSlackNs && age < ttl_ns_;
}

std::optional<Error> Failures::find(const EntryId& id) {
  if (ttl_ns_ <= 0) return std::nullopt;
  const std::string name = note_name(id);
  {
    const std::lock_guard lock(mutex_);
    const auto found = memory_.find(name);
    if (found != memory_.end()) {
      if (fresh(found->second.failed_ns)) return found->second.error;
      memory_.erase(found);
    }
  }
  if (layer_ == nullptr) return std::nullopt;
  const auto bytes = layer_->read_note(Room::kFailures, name, kMaxFailureBytes);
  if (!bytes) return std::nullopt;
  auto failure = decode_failure(*bytes, id);
  if (!failure || !fresh(failure->failed_ns)) return std::nullopt;
  return std::move(failure->error);
}

std::int64_t Failures::remember(const EntryId& id, const Error& error) {
  if (ttl_ns_ <= 0) return 0;
  const std::int64_t now = fs_.now_ns();
  const std::string name = note_name(id);
  {
    const std::lock_guard lock(mutex_);
    if (memory_.size() >= kMaxInMemory) {
      std::erase_if(memory_, [&](const auto& item) { return !fresh(item.second.failed_ns); });
      if (memory_.size() >= kMaxInMemory) memory_.erase(memory_.begin());
    }
    memory_[name] = Failure{error, now};
  }
  if (layer_ == nullptr) return 0;
  // Only saves work; without it the next process compiles, and fails, itself.
  const std::string note = encode_failure(id, error, now);
  if (!layer_->write_note(Room::kFailures, name, note)) return 0;
  return static_cast<std::int64_t>(note.size());
}

void Failures::forget_all_in_memory() {
  const std::lock_guard lock(mutex_);
  memory_.clear();
}

void Failures::forget(const EntryId& id) {
  const std::string name = note_name(id);
  {
    const std::lock_guard lock(mutex_);
    memory_.erase(name);
  }
  if (layer_ == nullptr) return;
  const auto root = layer_->root(false);
  if (!root) return;
  const OpenedFolder folder = layer_->room(*root, Room::kFailures, false);
  if (folder.state != OpenedFolder::State::kOpen) return;
  static_cast<void>(uninterrupted([&] { return fs_.remove(folder.folder.get(), name, false); }));
}

}  // namespace attnjit::cache
