// SPDX-License-Identifier: Apache-2.0
// AWS Signature Version 4 by OpenSSL's HMAC.
#include "net/sigv4.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <ctime>

#include "base/sha256.h"

namespace attnjit::net {
namespace {

std::string hmac(std::string_view key, std::string_view text) {
  Sha256Digest digest{};
  unsigned size = 0;
  ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::vector<std::string> sign_v4(const S3Credentials& credentials, const S3Request& request,
                                 std::int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  const std::string day =
      fmt::format("{:04}{:02}{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
  const std::string date =
      fmt::format("{}T{:02}{:02}{:02}Z", day, parts.tm_hour, parts.tm_min, parts.tm_sec);
  const std::string body = to_hex(sha256(request.body));

  auto headers = request.headers;
  headers.emplace_back("host", request.host);
  headers.emplace_back("x-amz-content-sha256", body);
  headers.emplace_back("x-amz-date", date);
  if (!credentials.session_token.empty()) {
    headers.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::sort(headers.begin(), headers.end());
  std::string canonical, names;
  for (const auto& [name, value] : headers) {
    canonical += fmt::format("{}:{}\n", name, value);
    names += fmt::format("{}{}", names.empty() ? "" : ";", name);
  }
  const std::string whole =
      fmt::format("{}\n{}\n\n{}\n{}\n{}", request.method, request.path, canonical, names, body);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, credentials.region);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", date, scope, to_hex(sha256(whole)));
  std::string key = hmac("AWS4" + credentials.secret_key, day);
  for (const std::string_view part : {std::string_view(credentials.region), std::string_view("s3"),
                                      std::string_view("aws4_request")}) {
    key = hmac(key, part);
  }
  const std::string signature = hmac(key, to_sign);

  std::vector<std::string> lines;
  for (const auto& [name, value] : headers) {
    if (name != "host")
      lines.push_back(fmt::format("{}: {}", name, value));  // libcurl sends its own
  }
  lines.push_back(fmt::format(
      "Authorization: AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
      credentials.access_key, scope, names,
      to_hex(reinterpret_cast<const std::uint8_t*>(signature.data()), signature.size())));
  return lines;
}

}  // namespace attnjit::net
