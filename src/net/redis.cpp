// SPDX-License-Identifier: Apache-2.0
// Opens hiredis, and connects, authenticates and asks with it.
#include "net/redis.h"

#include <sys/time.h>

#include <algorithm>
#include <charconv>

#include "net/shared_library.h"

namespace attnjit::net {
namespace {

// Each is another ABI by its number, but what is used of it here is the same in all of them.
constexpr const char* kHiredisNames[] = {"libhiredis.so.1.1.0", "libhiredis.so.1.0.0",
                                         "libhiredis.so.0.14", "libhiredis.so.1", "libhiredis.so"};

/// How every redisReply begins. NOTE: what follows differs between 0.14 and 1.0.
struct ReplyHead {
  int type;
  long long integer;
};
constexpr int kReplyInteger = 3, kReplyNil = 4, kReplyError = 6;  // REDIS_REPLY_..

Error bad_url(std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), "lease",
                    "give redis://[PASSWORD@]HOST[:PORT][/DATABASE]");
}

bool read_number(std::string_view text, int least, int most, int& out) {
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  return status == std::errc{} && stop == text.data() + text.size() && out >= least && out <= most;
}

}  // namespace

class Hiredis {
 public:
  static Result<std::shared_ptr<const Hiredis>> open() {
    void* const library = open_first(kHiredisNames);
    auto api = std::make_shared<Hiredis>();
    if (library == nullptr || !load(library, "redisConnectWithTimeout", api->connect) ||
        !load(library, "redisSetTimeout", api->set_timeout) ||
        !load(library, "redisCommandArgv", api->command) ||
        !load(library, "freeReplyObject", api->free_reply) ||
        !load(library, "redisFree", api->free_context)) {
      return make_error(ErrorCode::kEnvironment, "there is no hiredis (libhiredis.so)", "lease",
                        "install libhiredis0.14, or what your system calls it");
    }
    return std::shared_ptr<const Hiredis>(std::move(api));
  }

  void* (*connect)(const char* host, int port, timeval timeout) = nullptr;
  int (*set_timeout)(void* context, timeval timeout) = nullptr;
  void* (*command)(void* context, int count, const char** words,
                   const std::size_t* sizes) = nullptr;
  void (*free_reply)(void* reply) = nullptr;
  void (*free_context)(void* context) = nullptr;
};

Result<RedisUrl> RedisUrl::parse(std::string_view url) {
  constexpr std::string_view kScheme = "redis://";
  if (!url.starts_with(kScheme)) return bad_url("it is no URL of a Redis server");
  url.remove_prefix(kScheme.size());
  if (std::any_of(url.begin(), url.end(), [](unsigned char c) { return c <= ' ' || c > '~'; })) {
    return bad_url("the URL has a character that is not allowed");
  }
  RedisUrl parsed;
  const std::size_t at = url.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view who = url.substr(0, at);
    const std::size_t colon = who.find(':');
    parsed.password = who.substr(colon == std::string_view::npos ? 0 : colon + 1);
    if (colon != std::string_view::npos) parsed.user = who.substr(0, colon);
    url.remove_prefix(at + 1);
  }
  parsed.shown = std::string(kScheme) + std::string(url);
  const std::size_t slash = std::min(url.find('/'), url.size());
  const std::string_view database = url.substr(std::min(slash + 1, url.size()));
  if (!database.empty() && !read_number(database, 0, 65535, parsed.database)) {
    return bad_url("the database is no number");
  }
  url = url.substr(0, slash);
  const std::size_t colon = url.rfind(':');
  if (colon != std::string_view::npos) {
    if (!read_number(url.substr(colon + 1), 1, 65535, parsed.port)) {
      return bad_url("the port is no number");
    }
    url = url.substr(0, colon);
  }
  parsed.host = url;
  if (parsed.host.empty()) return bad_url("the URL has no host");
  return parsed;
}

Redis::Redis(std::shared_ptr<const Hiredis> library, RedisUrl url,
             std::chrono::milliseconds timeout)
    : library_(std::move(library)), url_(std::move(url)), timeout_(timeout) {}

Redis::~Redis() { disconnect(); }

Result<std::unique_ptr<Redis>> Redis::open(RedisUrl url, std::chrono::milliseconds timeout) {
  auto library = Hiredis::open();
  if (!library) return std::move(library).error();
  return std::unique_ptr<Redis>(new Redis(*std::move(library), std::move(url), timeout));
}

void Redis::disconnect() {
  if (context_ != nullptr) library_->free_context(context_);
  context_ = nullptr;
}

Status Redis::connect() {
  const timeval limit{timeout_.count() / 1000, timeout_.count() % 1000 * 1000};
  context_ = library_->connect(url_.host.c_str(), url_.port, limit);
  if (context_ == nullptr) return make_error(ErrorCode::kIo, "hiredis has no memory");
  // NOTE: whether it is connected shows at the first command: where a context keeps its error
  // differs between versions.
  library_->set_timeout(context_, limit);
  std::vector<std::vector<std::string>> greetings;
  if (!url_.password.empty()) {
    greetings.push_back({"AUTH"});
    if (!url_.user.empty()) greetings.back().push_back(url_.user);
    greetings.back().push_back(url_.password);
  }
  if (url_.database != 0) greetings.push_back({"SELECT", std::to_string(url_.database)});
  for (const auto& words : greetings) {
    if (auto reply = ask(words); !reply) return std::move(reply).error();
  }
  return {};
}

Result<Redis::Reply> Redis::ask(const std::vector<std::string>& words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const std::string& word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  void* answer =
      library_->command(context_, static_cast<int>(words.size()), texts.data(), sizes.data());
  if (answer == nullptr) {
    disconnect();
    return make_error(ErrorCode::kIo, "the Redis server " + url_.shown + " does not answer");
  }
  const ReplyHead head = *static_cast<const ReplyHead*>(answer);
  library_->free_reply(answer);
  if (head.type == kReplyError) {
    disconnect();
    return make_error(ErrorCode::kIo,
                      "the Redis server " + url_.shown + " refuses " + words.front());
  }
  Reply reply;
  if (head.type == kReplyNil) reply.kind = Kind::kNil;
  if (head.type == kReplyInteger) {
    reply.kind = Kind::kInteger;
    reply.integer = head.integer;
  }
  return reply;
}

Result<Redis::Reply> Redis::command(const std::vector<std::string>& words) {
  if (context_ == nullptr) {
    if (Status connected = connect(); !connected) {
      disconnect();
      return std::move(connected).error();
    }
  }
  return ask(words);
}

}  // namespace attnjit::net
