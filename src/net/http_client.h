// SPDX-License-Identifier: Apache-2.0
// HttpClient: requests over HTTP and HTTPS, one at a time, over connections that stay open.
//
// Thread rules: perform belongs to one thread; cancel may be called from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/curl.h"

namespace attnjit::net {

struct HttpRequest {
  enum class Method : std::uint8_t { kGet, kHead, kPut };
  Method method = Method::kGet;
  std::string url;
  std::vector<std::string> headers;  ///< "Name: value"
  std::string_view body;             ///< kPut
  std::chrono::milliseconds timeout{10000};
  std::chrono::milliseconds connect_timeout{2000};
  std::size_t max_bytes = std::size_t{64} << 20;  ///< of the answer; a longer one is an error
};

std::string_view to_string(HttpRequest::Method method);

struct HttpResponse {
  int status = 0;
  std::string etag;  ///< as sent, with its quotes; empty: none
  std::string body;
};

class HttpClient {
 public:
  /// ca_file: the certificates that are believed; empty: libcurl's.
  HttpClient(std::shared_ptr<const Curl> curl, std::string ca_file);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Any answer of the server is a value, whatever its status; redirections are not followed.
  /// Errors: kIo where there was none or it was cut off, kTimeout, kCancelled.
  Result<HttpResponse> perform(const HttpRequest& request);

  /// Ends what runs, and whatever is begun later, with kCancelled.
  void cancel();

 private:
  const std::shared_ptr<const Curl> curl_;
  const std::string ca_file_;
  void* const easy_;
  void* const multi_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace attnjit::net
