// SPDX-License-Identifier: Apache-2.0
// Reads keyrings and secret keys.
#include "cache/trust.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/environment.h"
#include "cache/io.h"
#include "cache/trusted_folder.h"
#include "net/redis.h"

namespace attnjit::cache {
namespace {

constexpr std::size_t kMaxKeyFileBytes = std::size_t{1} << 20;

/// @param others whether others may read it
Result<std::string> read_key_file(const std::string& path, const char* field, bool others) {
  const auto failed = [&](const std::string& problem, const char* hint = "") {
    return make_error(ErrorCode::kInvalid, fmt::format("cannot use {}: {}", path, problem), field,
                      hint);
  };
  FileSystem& fs = posix_file_system();
  const std::size_t slash = path.rfind('/');
  const OpenedFolder folder = open_any_path(fs, slash == std::string::npos ? "."
                                                : slash == 0               ? "/"
                                                                           : path.substr(0, slash));
  if (folder.state != OpenedFolder::State::kOpen) return failed("its folder cannot be opened");
  const auto file =
      open_file(fs, folder.folder.get(), path.substr(slash + 1), FileSystem::Open::kRead);
  if (!file.ok()) return failed(error_text(file.error));
  const auto stat = uninterrupted([&] { return fs.stat(file.value.get()); });
  if (!stat.ok() || stat.value.type != FileStat::Type::kFile) return failed("it is no file");
  if (stat.value.size > static_cast<std::int64_t>(kMaxKeyFileBytes))
    return failed("it is too long");
  if ((stat.value.mode & 0022) != 0) return failed("others may write to it", "chmod go-w");
  if (!others && (stat.value.mode & 0077) != 0) {
    return failed("others may read this secret key", "chmod 600");
  }
  std::string text(static_cast<std::size_t>(stat.value.size), '\0');
  const auto read = read_up_to(fs, file.value.get(), text.data(), text.size());
  if (!read.ok()) return failed(error_text(read.error));
  text.resize(read.value);
  return text;
}

}  // namespace

Result<SignatureTrust> read_trust(const SignatureOptions& options) {
  SignatureTrust trust;
  trust.require_everywhere = options.require_everywhere;
  if (!options.trust_file.empty()) {
    const auto text = read_key_file(options.trust_file, "trust", true);
    if (!text) return text.error();
    auto ring = Keyring::parse(*text);
    if (!ring) return std::move(ring).error();
    trust.ring = std::make_shared<const Keyring>(*std::move(ring));
  } else if (options.require_everywhere) {
    return make_error(ErrorCode::kInvalid, "signatures are required, and there is no keyring",
                      "trust", "name one in trust_file or ATTNJIT_TRUST");
  }
  if (!options.sign_key_file.empty()) {
    const auto text = read_key_file(options.sign_key_file, "sign_key", false);
    if (!text) return text.error();
    auto key = SecretKey::from_pem(*text);
    if (!key) return std::move(key).error();
    trust.key = *std::move(key);
  }
  return trust;
}

}  // namespace attnjit::cache

namespace attnjit {

Result<SignatureOptions> with_environment(SignatureOptions given) {
  const Environment environment = read_environment();
  if (given.trust_file.empty() && environment.trust) given.trust_file = *environment.trust;
  if (given.sign_key_file.empty() && environment.sign_key) {
    given.sign_key_file = *environment.sign_key;
  }
  if (const auto trust = cache::read_trust(given); !trust) return trust.error();
  return given;
}

Result<LeaseOptions> with_environment(LeaseOptions given) {
  const Environment environment = read_environment();
  if (given.url.empty() && environment.lease) given.url = *environment.lease;
  if (given.url.empty() || given.url == "remote") return given;
  if (const auto url = net::RedisUrl::parse(given.url); !url) return url.error();
  return given;
}

}  // namespace attnjit
