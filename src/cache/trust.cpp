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

enum class KeyFile : std::uint8_t { kPublic, kSecret };

/// Empty, or who may read a secret key that should not. Of root's file the group may: so a secret
/// of Kubernetes reaches a process that is not root's (mode 0440, the group of fsGroup).
std::string reader_problem(const FileStat& stat) {
  if ((stat.mode & 0007) != 0) return "others may read this secret key";
  if ((stat.mode & 0070) != 0 && stat.owner != 0) return "its group may read this secret key";
  return {};
}

OpenedFile open_key_file(FileSystem& fs, const std::string& path) {
  // NOTE: again, because a folder of Kubernetes is renewed by leading its links elsewhere, and what
  // they led to is removed then.
  constexpr int kAttempts = 3;
  Trust trust;
  trust.user = fs.user();
  OpenedFile opened;
  for (int i = 0; i < kAttempts && opened.state == OpenedFolder::State::kMissing; ++i) {
    opened = open_trusted_file(fs, trust, path);
  }
  return opened;
}

Result<std::string> read_key_file(FileSystem& fs, const std::string& path, const char* field,
                                  KeyFile kind) {
  const auto failed = [&](const std::string& problem, const char* hint = "") {
    return make_error(ErrorCode::kInvalid, fmt::format("cannot use {}: {}", path, problem), field,
                      hint);
  };
  const OpenedFile opened = open_key_file(fs, path);
  if (opened.state != OpenedFolder::State::kOpen) return failed(opened.reason);
  if (opened.stat.size > static_cast<std::int64_t>(kMaxKeyFileBytes)) {
    return failed("it is too long");
  }
  if (std::string problem = reader_problem(opened.stat);
      kind == KeyFile::kSecret && !problem.empty()) {
    return failed(problem, "chmod 600; in Kubernetes defaultMode 0400 and an fsGroup");
  }
  std::string text(static_cast<std::size_t>(opened.stat.size), '\0');
  const auto read = read_up_to(fs, opened.file.get(), text.data(), text.size());
  if (!read.ok()) return failed(error_text(read.error));
  text.resize(read.value);
  return text;
}

}  // namespace

Result<SignatureTrust> read_trust(const SignatureOptions& options, FileSystem& fs) {
  SignatureTrust trust;
  trust.require_everywhere = options.require_everywhere;
  if (!options.trust_file.empty()) {
    const auto text = read_key_file(fs, options.trust_file, "trust", KeyFile::kPublic);
    if (!text) return text.error();
    auto ring = Keyring::parse(*text);
    if (!ring) return std::move(ring).error();
    trust.ring = std::make_shared<const Keyring>(*std::move(ring));
  } else if (options.require_everywhere) {
    return make_error(ErrorCode::kInvalid, "signatures are required, and there is no keyring",
                      "trust", "name one in trust_file or ATTNJIT_TRUST");
  }
  if (!options.sign_key_file.empty()) {
    const auto text = read_key_file(fs, options.sign_key_file, "sign_key", KeyFile::kSecret);
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

Result<BuildPolicy> with_environment(std::optional<BuildPolicy> given) {
  if (given) return *given;
  const std::string policy = read_environment().nvrtc_policy.value_or("exact");
  if (policy == "exact") return BuildPolicy::kExact;
  if (policy == "any") return BuildPolicy::kAny;
  return make_error(ErrorCode::kInvalid,
                    fmt::format("ATTNJIT_NVRTC_POLICY is '{}'; it may be exact or any", policy),
                    "build_policy");
}

Result<LeaseOptions> with_environment(LeaseOptions given) {
  const Environment environment = read_environment();
  if (given.url.empty() && environment.lease) given.url = *environment.lease;
  if (given.url.empty() || given.url == "remote") return given;
  if (const auto url = net::RedisUrl::parse(given.url); !url) return url.error();
  return given;
}

}  // namespace attnjit
