// SPDX-License-Identifier: Apache-2.0
// Keeps a lease as the object {base}/lease/<name>, whose body says who has it until when.
#include "cache/store_lease.h"

#include <fmt/format.h>

#include <charconv>
#include <ctime>

#include "cache/remote_store.h"

namespace attnjit::cache {
namespace {

using Method = net::HttpRequest::Method;

// What two machines' clocks may differ by.
constexpr std::int64_t kSkewMs = 2000;
constexpr std::size_t kMaxAnswer = std::size_t{64} << 10;  // a lease has less than 100 bytes

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class StoreLeases final : public LeaseKeeper {
 public:
  StoreLeases(RemoteStore store, std::shared_ptr<const net::Curl> curl, std::string ca_file,
              std::chrono::milliseconds timeout)
      : store_(std::move(store)), client_(std::move(curl), std::move(ca_file)), timeout_(timeout) {}

  Result<Answer> take(const std::string& name, const std::string& token,
                      std::chrono::milliseconds ttl) override {
    Result<Answer> fresh = write(name, token, ttl, "If-None-Match: *");
    if (!fresh || *fresh != Answer::kBusy) return fresh;
    const auto there = ask(Method::kGet, name, {}, {});
    if (!there || there->status != 200 || there->etag.empty()) return Answer::kBusy;
    if (until_of(there->body) + kSkewMs > now_ms()) return Answer::kBusy;
    // Its holder is gone. Of all who see that, one replaces this very object.
    return write(name, token, ttl, "If-Match: " + there->etag);
  }

  bool renew(const std::string& name, const std::string& token,
             std::chrono::milliseconds ttl) override {
    const auto there = ask(Method::kGet, name, {}, {});
    if (!there || there->status != 200 || !there->body.starts_with(token + " ")) return false;
    const Result<Answer> written = write(name, token, ttl, "If-Match: " + there->etag);
    return written && *written == Answer::kHeld;
  }

  void release(const std::string& name, const std::string& token) override {
    const auto there = ask(Method::kGet, name, {}, {});
    if (!there || there->status != 200 || !there->body.starts_with(token + " ")) return;
    // NOTE: not by DELETE: S3 gives that no condition. What has expired is as good as gone.
    static_cast<void>(write_until(name, token, 0, "If-Match: " + there->etag));
  }

 private:
  static std::int64_t until_of(const std::string& body) {
    std::int64_t until = 0;
    const std::size_t space = body.find(' ');
    if (space != std::string::npos) {
      std::from_chars(body.data() + space + 1, body.data() + body.size(), until);
    }
    return until;
  }

  Result<net::HttpResponse> ask(Method method, const std::string& name, std::string_view body,
                                const std::string& condition) {
    net::HttpRequest request = store_.request(method, "lease/" + name, body,
                                              static_cast<std::int64_t>(std::time(nullptr)));
    request.timeout = timeout_;
    request.max_bytes = kMaxAnswer;
    if (!condition.empty()) request.headers.push_back(condition);
    return client_.perform(request);
  }

  Result<Answer> write(const std::string& name, const std::string& token,
                       std::chrono::milliseconds ttl, const std::string& condition) {
    return write_until(name, token, now_ms() + ttl.count(), condition);
  }
  Result<Answer> write_until(const std::string& name, const std::string& token, std::int64_t until,
                             const std::string& condition) {
    const auto answer = ask(Method::kPut, name, fmt::format("{} {}", token, until), condition);
    if (!answer) return answer.error();
    if (answer->status >= 200 && answer->status < 300) return Answer::kHeld;
    if (answer->status == 409 || answer->status == 412) return Answer::kBusy;
    return make_error(ErrorCode::kIo, fmt::format("PUT gives status {}", answer->status));
  }

  const RemoteStore store_;
  net::HttpClient client_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace

Result<std::unique_ptr<LeaseKeeper>> open_store_leases(const RemoteOptions& remote,
                                                       std::chrono::milliseconds timeout) {
  auto store = RemoteStore::make(remote);
  if (!store) return std::move(store).error();
  auto curl = net::Curl::open();
  if (!curl) return std::move(curl).error();
  return std::unique_ptr<LeaseKeeper>(
      std::make_unique<StoreLeases>(*std::move(store), *std::move(curl), remote.ca_file, timeout));
}

}  // namespace attnjit::cache
