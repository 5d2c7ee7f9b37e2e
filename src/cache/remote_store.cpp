// SPDX-License-Identifier: Apache-2.0
// Reads the URL of a remote tier, takes what it lacks from the environment, and makes requests.
#include "cache/remote_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/environment.h"
#include "net/url.h"

namespace attnjit::cache {
namespace {

constexpr std::size_t kMaxAnswer = std::size_t{64} << 10;  // to what asks for no entry

Error bad_url(std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), "remote",
                    "give http://HOST/PATH, https://HOST/PATH, or s3+https://HOST/BUCKET/PATH");
}

/// Empty, or what of the numbers is out of range.
std::optional<Error> bad_number(const RemoteOptions& options) {
  struct Number {
    const char* name;
    std::int64_t value, least;
  };
  for (const Number& number : {Number{"lookup_budget", options.lookup_budget.count(), 0},
                               {"transfer_timeout", options.transfer_timeout.count(), 1},
                               {"max_entry_bytes", options.max_entry_bytes, 1},
                               {"max_queue_bytes", options.max_queue_bytes, 0}}) {
    if (number.value >= number.least) continue;
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is {}; allowed: {} or more", number.value, number.least),
                      fmt::format("remote.{}", number.name));
  }
  return std::nullopt;
}

}  // namespace

Result<RemoteStore> RemoteStore::make(const RemoteOptions& options) {
  RemoteStore store;
  std::string_view rest = options.url;
  if (rest.starts_with("s3+")) {
    store.s3_ = true;
    rest.remove_prefix(3);
  }
  const std::size_t colon = rest.find("://");
  const std::string scheme(rest.substr(0, std::min(colon, rest.size())));
  if (colon == std::string_view::npos || (scheme != "http" && scheme != "https")) {
    // NOTE: without the text: what lacks a scheme may begin with a password.
    return bad_url("it is no URL of a remote tier");
  }
  rest.remove_prefix(colon + 3);
  const std::optional<net::UrlParts> parts = net::split_user(rest);
  if (!parts) return bad_url(std::string(net::kBadUser));
  if (std::any_of(rest.begin(), rest.end(), [](unsigned char c) { return c <= ' ' || c > '~'; }) ||
      rest.find_first_of("?#\"\\") != std::string_view::npos) {
    return bad_url("the URL has a query, a fragment, or a character that is not allowed");
  }
  while (rest.ends_with('/')) rest.remove_suffix(1);
  std::string_view shown = parts->rest;
  while (shown.ends_with('/')) shown.remove_suffix(1);
  const std::size_t slash = std::min(shown.find('/'), shown.size());
  store.host_ = std::string(shown.substr(0, slash));
  store.path_ = std::string(shown.substr(slash));
  store.base_ = scheme + "://" + std::string(rest);
  store.shown_ = std::string(store.s3_ ? "s3+" : "") + scheme + "://" + store.host_ + store.path_;
  if (store.host_.empty()) return bad_url("the URL has no host");
  if (std::optional<Error> error = bad_number(options)) return *std::move(error);
  store.timeout_ = options.transfer_timeout;
  store.max_bytes_ = static_cast<std::size_t>(options.max_entry_bytes);
  if (!store.s3_) return store;

  if (parts->has_user)
    return bad_url("an S3 store takes its keys from the environment, not from the URL");
  if (store.path_.empty()) return bad_url("an S3 store needs a bucket");
  if (options.access_key.empty() || options.secret_key.empty()) {
    return make_error(ErrorCode::kInvalid, "an S3 store needs an access key and a secret key",
                      "remote", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  }
  store.credentials_ = {options.access_key, options.secret_key, options.session_token,
                        options.region.empty() ? "us-east-1" : options.region};
  return store;
}

net::HttpRequest RemoteStore::request(net::HttpRequest::Method method, std::string_view path,
                                      std::string_view body, std::int64_t unix_s) const {
  net::HttpRequest request;
  request.method = method;
  request.url = fmt::format("{}/{}", base_, path);
  request.body = body;
  request.timeout = timeout_;
  request.max_bytes =
      method == net::HttpRequest::Method::kGet ? max_bytes_ : std::min(max_bytes_, kMaxAnswer);
  if (s3_) {
    const std::string whole = fmt::format("{}/{}", path_, path);
    request.headers =
        net::sign_v4(credentials_, {to_string(method), host_, whole, body, {}}, unix_s);
  }
  if (method == net::HttpRequest::Method::kPut) {
    request.headers.emplace_back("Content-Type: application/octet-stream");
  }
  return request;
}

}  // namespace attnjit::cache

namespace attnjit {

Result<RemoteOptions> with_environment(RemoteOptions given) {
  const Environment environment = read_environment();
  const auto fill = [](std::string& value, const std::optional<std::string>& variable) {
    if (value.empty() && variable) value = *variable;
  };
  fill(given.url, environment.remote);
  if (given.url.empty()) return given;
  fill(given.ca_file, environment.ssl_cert_file);
  if (given.access_key.empty()) {  // NOTE: all three or none: they belong together.
    fill(given.access_key, environment.aws_access_key_id);
    fill(given.secret_key, environment.aws_secret_access_key);
    fill(given.session_token, environment.aws_session_token);
  }
  fill(given.region, environment.aws_region);
  if (const auto store = cache::RemoteStore::make(given); !store) return store.error();
  return given;
}

}  // namespace attnjit
