// SPDX-License-Identifier: Apache-2.0
// RemoteStore: where a remote tier is, and the requests to it.
//
// Thread rules: immutable; any thread may use it.
#pragma once

#include <string>
#include <string_view>

#include "attnjit/cache.h"
#include "net/http_client.h"
#include "net/sigv4.h"

namespace attnjit::cache {

class RemoteStore {
 public:
  /// Errors: kInvalid, with the field "remote".
  static Result<RemoteStore> make(const RemoteOptions& options);

  /// A request for {base}/<path>. `unix_s` is the time that S3's signature holds.
  net::HttpRequest request(net::HttpRequest::Method method, std::string_view path,
                           std::string_view body, std::int64_t unix_s) const;

  /// For people: without user and password.
  const std::string& shown() const { return shown_; }

 private:
  bool s3_ = false;
  std::string base_;  ///< for libcurl: without a slash at its end
  std::string host_, path_, shown_;
  net::S3Credentials credentials_;
  std::chrono::milliseconds timeout_{};
  std::size_t max_bytes_ = 0;
};

}  // namespace attnjit::cache
