// SPDX-License-Identifier: Apache-2.0
// Curl: libcurl, opened at run time, as the few functions and numbers that attnjit uses of it.
//
// Thread rules: immutable; any thread may use it. A handle belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "attnjit/result.h"

namespace attnjit::net {

/// libcurl's numbers, which its ABI (libcurl.so.4) fixes. A test compares them with curl/curl.h.
namespace curl {
inline constexpr int kOk = 0;                                 // CURLE_OK
inline constexpr int kTimedOut = 28;                          // CURLE_OPERATION_TIMEDOUT
inline constexpr int kWriteData = 10001;                      // CURLOPT_WRITEDATA
inline constexpr int kUrl = 10002;                            // CURLOPT_URL
inline constexpr int kReadData = 10009;                       // CURLOPT_READDATA
inline constexpr int kErrorBuffer = 10010;                    // CURLOPT_ERRORBUFFER
inline constexpr int kWriteFunction = 20011;                  // CURLOPT_WRITEFUNCTION
inline constexpr int kReadFunction = 20012;                   // CURLOPT_READFUNCTION
inline constexpr int kHttpHeader = 10023;                     // CURLOPT_HTTPHEADER
inline constexpr int kHeaderData = 10029;                     // CURLOPT_HEADERDATA
inline constexpr int kNoBody = 44;                            // CURLOPT_NOBODY
inline constexpr int kUpload = 46;                            // CURLOPT_UPLOAD
inline constexpr int kCaInfo = 10065;                         // CURLOPT_CAINFO
inline constexpr int kHeaderFunction = 20079;                 // CURLOPT_HEADERFUNCTION
inline constexpr int kNoSignal = 99;                          // CURLOPT_NOSIGNAL
inline constexpr int kInFileSize = 30115;                     // CURLOPT_INFILESIZE_LARGE
inline constexpr int kTimeoutMs = 155;                        // CURLOPT_TIMEOUT_MS
inline constexpr int kConnectTimeoutMs = 156;                 // CURLOPT_CONNECTTIMEOUT_MS
inline constexpr int kProtocols = 181;                        // CURLOPT_PROTOCOLS
inline constexpr int kQuickExit = 322;                        // CURLOPT_QUICK_EXIT
inline constexpr long kProtocolHttp = 1, kProtocolHttps = 2;  // CURLPROTO_HTTP, CURLPROTO_HTTPS
inline constexpr std::size_t kErrorSize = 256;                // CURL_ERROR_SIZE
inline constexpr int kInfoResponseCode = 0x200002;            // CURLINFO_RESPONSE_CODE
inline constexpr int kMessageDone = 1;                        // CURLMSG_DONE
inline constexpr long kGlobalDefault = 3;                     // CURL_GLOBAL_DEFAULT

/// CURLMsg.
struct Message {
  int kind;
  void* handle;
  union {
    void* whatever;
    int result;
  } data;
};
}  // namespace curl

class Curl {
 public:
  /// Errors: kEnvironment where there is no libcurl, or one that is too old.
  static Result<std::shared_ptr<const Curl>> open();

  const std::string& version() const { return version_; }  ///< "libcurl/7.88.1 OpenSSL/3.0.19"

  void* (*easy_init)() = nullptr;
  void (*easy_cleanup)(void* easy) = nullptr;
  void (*easy_reset)(void* easy) = nullptr;
  int (*easy_setopt)(void* easy, int option, ...) = nullptr;
  int (*easy_getinfo)(void* easy, int info, ...) = nullptr;
  const char* (*easy_strerror)(int code) = nullptr;
  void* (*list_append)(void* list, const char* text) = nullptr;
  void (*list_free)(void* list) = nullptr;
  void* (*multi_init)() = nullptr;
  int (*multi_cleanup)(void* multi) = nullptr;
  int (*multi_add)(void* multi, void* easy) = nullptr;
  int (*multi_remove)(void* multi, void* easy) = nullptr;
  int (*multi_perform)(void* multi, int* running) = nullptr;
  int (*multi_poll)(void* multi, void* extra, unsigned count, int timeout_ms, int* ready) = nullptr;
  int (*multi_wakeup)(void* multi) = nullptr;
  curl::Message* (*multi_info_read)(void* multi, int* left) = nullptr;

 private:
  Curl() = default;
  std::string version_;
};

}  // namespace attnjit::net
