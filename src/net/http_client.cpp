// SPDX-License-Identifier: Apache-2.0
// Drives libcurl's multi interface, which can be woken from another thread.
#include "net/http_client.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace attnjit::net {
namespace {

struct Incoming {
  HttpResponse& response;
  std::size_t max_bytes;
  std::size_t header_bytes = 0;
  bool too_long = false;
};

// Of all headers together, those of interim answers too: libcurl of some versions has no bound.
constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10;

std::size_t take_body(const char* data, std::size_t, std::size_t size, void* to) {
  auto& in = *static_cast<Incoming*>(to);
  if (size > in.max_bytes - in.response.body.size()) {
    in.too_long = true;
    return 0;  // ends the transfer
  }
  in.response.body.append(data, size);
  return size;
}

std::size_t take_header(const char* data, std::size_t, std::size_t size, void* to) {
  constexpr std::string_view kEtag = "etag:";
  auto& in = *static_cast<Incoming*>(to);
  in.header_bytes += size;
  if (in.header_bytes > kMaxHeaderBytes) {
    in.too_long = true;
    return 0;
  }
  const std::string_view line(data, size);
  const bool is_etag =
      line.size() > kEtag.size() &&
      std::equal(kEtag.begin(), kEtag.end(), line.begin(), [](char wanted, char given) {
        return wanted == static_cast<char>(std::tolower(static_cast<unsigned char>(given)));
      });
  if (is_etag) {
    const std::string_view value = line.substr(kEtag.size());
    const std::size_t begin = value.find_first_not_of(" \t");
    const std::size_t end = value.find_last_not_of(" \t\r\n");
    if (begin != std::string_view::npos && end >= begin) {
      in.response.etag = value.substr(begin, end - begin + 1);
    }
  }
  return size;
}

std::size_t give_body(char* to, std::size_t, std::size_t size, void* from) {
  auto& left = *static_cast<std::string_view*>(from);
  const std::size_t count = std::min(size, left.size());
  std::memcpy(to, left.data(), count);
  left.remove_prefix(count);
  return count;
}

class HeaderList {
 public:
  explicit HeaderList(const Curl& curl) : curl_(curl) {}
  ~HeaderList() { curl_.list_free(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& header) {
    if (void* longer = curl_.list_append(list_, header.c_str())) list_ = longer;
  }
  void* get() const { return list_; }

 private:
  const Curl& curl_;
  void* list_ = nullptr;
};

}  // namespace

std::string_view to_string(HttpRequest::Method method) {
  switch (method) {
    case HttpRequest::Method::kGet:
      return "GET";
    case HttpRequest::Method::kHead:
      return "HEAD";
    case HttpRequest::Method::kPut:
      return "PUT";
  }
  return "GET";
}

HttpClient::HttpClient(std::shared_ptr<const Curl> curl, std::string ca_file)
    : curl_(std::move(curl)),
      ca_file_(std::move(ca_file)),
      easy_(curl_->easy_init()),
      multi_(curl_->multi_init()) {}

HttpClient::~HttpClient() {
  if (easy_ != nullptr) curl_->easy_cleanup(easy_);
  if (multi_ != nullptr) curl_->multi_cleanup(multi_);
}

void HttpClient::cancel() {
  cancelled_ = true;
  if (multi_ != nullptr) curl_->multi_wakeup(multi_);
}

Result<HttpResponse> HttpClient::perform(const HttpRequest& request) {
  using Method = HttpRequest::Method;
  if (easy_ == nullptr || multi_ == nullptr) {
    return make_error(ErrorCode::kIo, "libcurl has no memory");
  }
  HttpResponse response;
  Incoming incoming{response, request.max_bytes};
  std::string_view outgoing = request.body;
  std::array<char, curl::kErrorSize> reason{};
  HeaderList headers(*curl_);
  for (const std::string& header : request.headers) headers.add(header);
  // NOTE: without this a PUT of 1 MiB waits a second for servers that do not know it.
  headers.add("Expect:");

  curl_->easy_reset(easy_);
  const auto set = [&](int option, auto value) { curl_->easy_setopt(easy_, option, value); };
  set(curl::kUrl, request.url.c_str());
  set(curl::kProtocols, curl::kProtocolHttp | curl::kProtocolHttps);
  set(curl::kNoSignal, 1L);
  set(curl::kQuickExit, 1L);  // 7.87 and newer: the end does not wait for a name server
  set(curl::kTimeoutMs, static_cast<long>(request.timeout.count()));
  set(curl::kConnectTimeoutMs,
      static_cast<long>(std::min(request.timeout, request.connect_timeout).count()));
  set(curl::kErrorBuffer, reason.data());
  set(curl::kHttpHeader, headers.get());
  set(curl::kWriteFunction, &take_body);
  set(curl::kWriteData, static_cast<void*>(&incoming));
  set(curl::kHeaderFunction, &take_header);
  set(curl::kHeaderData, static_cast<void*>(&incoming));
  if (!ca_file_.empty()) set(curl::kCaInfo, ca_file_.c_str());
  if (request.method == Method::kHead) set(curl::kNoBody, 1L);
  if (request.method == Method::kPut) {
    set(curl::kUpload, 1L);
    set(curl::kReadFunction, &give_body);
    set(curl::kReadData, static_cast<void*>(&outgoing));
    // Not chunked: some stores refuse a body whose length they are not told.
    set(curl::kInFileSize, static_cast<std::int64_t>(request.body.size()));
  }

  if (curl_->multi_add(multi_, easy_) != 0) return make_error(ErrorCode::kIo, "libcurl refuses");
  int running = 1;
  int trouble = 0;
  while (trouble == 0 && !cancelled_) {
    trouble = curl_->multi_perform(multi_, &running);
    if (trouble != 0 || running == 0 || cancelled_) break;
    trouble = curl_->multi_poll(multi_, nullptr, 0, 1000, nullptr);
  }
  int result = -1;
  for (int left = 1; left > 0;) {
    const curl::Message* message = curl_->multi_info_read(multi_, &left);
    if (message == nullptr) break;
    if (message->kind == curl::kMessageDone) result = message->data.result;
  }
  curl_->multi_remove(multi_, easy_);

  if (result == curl::kOk) {
    long status = 0;
    curl_->easy_getinfo(easy_, curl::kInfoResponseCode, &status);
    response.status = static_cast<int>(status);
    return response;
  }
  if (cancelled_) return make_error(ErrorCode::kCancelled, "the request was cancelled");
  if (incoming.too_long) {
    return make_error(
        ErrorCode::kIo,
        incoming.header_bytes > kMaxHeaderBytes
            ? "the answer's headers have more than " + std::to_string(kMaxHeaderBytes) + " bytes"
            : "the answer has more than " + std::to_string(request.max_bytes) + " bytes");
  }
  // NOTE: libcurl quotes URLs, that of a proxy too: what is before an `@` may be a password.
  const bool tells = reason[0] != '\0' && std::strchr(reason.data(), '@') == nullptr;
  return make_error(result == curl::kTimedOut ? ErrorCode::kTimeout : ErrorCode::kIo,
                    tells         ? reason.data()
                    : result >= 0 ? curl_->easy_strerror(result)
                                  : "libcurl gave up");
}

}  // namespace attnjit::net
