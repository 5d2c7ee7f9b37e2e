// SPDX-License-Identifier: Apache-2.0
// Opens libcurl and resolves its functions.
#include "net/curl.h"

#include <mutex>

#include "net/shared_library.h"

namespace attnjit::net {
namespace {

// Debian has the second one beside the first, or alone: the same ABI over another TLS library.
constexpr const char* kCurlNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

}  // namespace

Result<std::shared_ptr<const Curl>> Curl::open() {
  void* const library = open_first(kCurlNames);
  if (library == nullptr) {
    return make_error(ErrorCode::kEnvironment, "there is no libcurl (libcurl.so.4)", "remote",
                      "install libcurl4 for the remote tier of the cache");
  }
  std::shared_ptr<Curl> curl(new Curl);
  int (*global_init)(long) = nullptr;
  char* (*version)() = nullptr;
  const bool complete = load(library, "curl_global_init", global_init) &&
                        load(library, "curl_version", version) &&
                        load(library, "curl_easy_init", curl->easy_init) &&
                        load(library, "curl_easy_cleanup", curl->easy_cleanup) &&
                        load(library, "curl_easy_reset", curl->easy_reset) &&
                        load(library, "curl_easy_setopt", curl->easy_setopt) &&
                        load(library, "curl_easy_getinfo", curl->easy_getinfo) &&
                        load(library, "curl_easy_strerror", curl->easy_strerror) &&
                        load(library, "curl_slist_append", curl->list_append) &&
                        load(library, "curl_slist_free_all", curl->list_free) &&
                        load(library, "curl_multi_init", curl->multi_init) &&
                        load(library, "curl_multi_cleanup", curl->multi_cleanup) &&
                        load(library, "curl_multi_add_handle", curl->multi_add) &&
                        load(library, "curl_multi_remove_handle", curl->multi_remove) &&
                        load(library, "curl_multi_perform", curl->multi_perform) &&
                        load(library, "curl_multi_poll", curl->multi_poll) &&
                        load(library, "curl_multi_wakeup", curl->multi_wakeup) &&
                        load(library, "curl_multi_info_read", curl->multi_info_read);
  if (!complete) {
    return make_error(ErrorCode::kEnvironment, "libcurl is older than 7.68", "remote",
                      "install a newer libcurl for the remote tier of the cache");
  }
  {
    // NOTE: the library's own state is the process's, and before 7.84 its set-up is not safe among
    // threads. It is the one thing that two Services share here.
    static std::mutex once;
    const std::lock_guard lock(once);
    if (global_init(curl::kGlobalDefault) != curl::kOk) {
      return make_error(ErrorCode::kEnvironment, "libcurl does not start", "remote");
    }
  }
  curl->version_ = version();
  return std::shared_ptr<const Curl>(std::move(curl));
}

}  // namespace attnjit::net
