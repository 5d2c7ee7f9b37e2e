// SPDX-License-Identifier: Apache-2.0
// sign_v4: the headers that AWS Signature Version 4 adds to a request to an S3-compatible store.
//
// Thread rules: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnjit::net {

struct S3Credentials {
  std::string access_key, secret_key;
  std::string session_token;  ///< empty: none
  std::string region;
};

struct S3Request {
  std::string_view method;  ///< "GET"
  std::string_view host;    ///< as in the Host header, with a port that is not the scheme's
  std::string_view path;    ///< as in the request line: percent-encoded, beginning with /
  std::string_view body;
  /// Further headers to sign, with lower-case names.
  std::vector<std::pair<std::string, std::string>> headers;
};

/// "Name: value" each: the headers given, x-amz-date, x-amz-content-sha256, Authorization.
std::vector<std::string> sign_v4(const S3Credentials& credentials, const S3Request& request,
                                 std::int64_t unix_s);

}  // namespace attnjit::net
