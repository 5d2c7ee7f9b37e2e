// SPDX-License-Identifier: Apache-2.0
// Connects to a Redis server, authenticates and asks; hiredis writes the commands and reads the
// answers.
#include "net/redis.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>

#include "net/shared_library.h"
#include "net/url.h"

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
                    "give redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]");
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
    if (library == nullptr || !load(library, "redisFormatCommandArgv", api->format) ||
        !load(library, "redisFreeCommand", api->free_command) ||
        !load(library, "redisReaderCreate", api->make_reader) ||
        !load(library, "redisReaderFeed", api->feed) ||
        !load(library, "redisReaderGetReply", api->get_reply) ||
        !load(library, "redisReaderFree", api->free_reader) ||
        !load(library, "freeReplyObject", api->free_reply)) {
      return make_error(ErrorCode::kEnvironment, "there is no hiredis (libhiredis.so)", "lease",
                        "install libhiredis0.14, or what your system calls it");
    }
    return std::shared_ptr<const Hiredis>(std::move(api));
  }

  // NOTE: newer versions give a long long, whose lower half this is.
  int (*format)(char** text, int count, const char** words, const std::size_t* sizes) = nullptr;
  void (*free_command)(char* text) = nullptr;
  void* (*make_reader)() = nullptr;
  int (*feed)(void* reader, const char* bytes, std::size_t size) = nullptr;
  int (*get_reply)(void* reader, void** reply) = nullptr;
  void (*free_reader)(void* reader) = nullptr;
  void (*free_reply)(void* reply) = nullptr;
};

Result<RedisUrl> RedisUrl::parse(std::string_view url) {
  constexpr std::string_view kScheme = "redis://";
  if (!url.starts_with(kScheme)) return bad_url("it is no URL of a Redis server");
  url.remove_prefix(kScheme.size());
  if (std::any_of(url.begin(), url.end(), [](unsigned char c) { return c <= ' ' || c > '~'; })) {
    return bad_url("the URL has a character that is not allowed");
  }
  RedisUrl parsed;
  const std::optional<UrlParts> parts = split_user(url);
  if (!parts) return bad_url(std::string(kBadUser));
  // Redis knows passwords without a user: PASSWORD@HOST is one.
  const bool password_alone =
      parts->has_user && url.substr(0, url.rfind('@')).find(':') == std::string_view::npos;
  parsed.password = password_alone ? parts->user : parts->password;
  if (!password_alone) parsed.user = parts->user;
  url = parts->rest;
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
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

Error Redis::failed(const std::string& what) const {
  return make_error(ErrorCode::kIo, "the Redis server " + url_.shown + " " + what);
}

bool Redis::wait(short events) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{socket_, events, 0};
    const int count = ::poll(
        &ready, 1, static_cast<int>(std::min<std::int64_t>(left.count(), std::int64_t{1} << 30)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

Status Redis::connect() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(url_.host.c_str(), std::to_string(url_.port).c_str(), &hints, &first) != 0) {
    return failed("has no address");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(first, ::freeaddrinfo);
  for (const addrinfo* to = first; to != nullptr && socket_ < 0; to = to->ai_next) {
    socket_ =
        ::socket(to->ai_family, to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to->ai_protocol);
    if (socket_ < 0) continue;
    const int one = 1;
    (void)::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int error = ::connect(socket_, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!wait(POLLOUT) || ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = ETIMEDOUT;
      }
    }
    if (error != 0) disconnect();
  }
  if (socket_ < 0) return failed("does not answer");
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

Status Redis::send(const std::vector<std::string>& words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const std::string& word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const int size =
      library_->format(&text, static_cast<int>(words.size()), texts.data(), sizes.data());
  if (size < 0) return make_error(ErrorCode::kIo, "hiredis has no memory");
  const std::unique_ptr<char, void (*)(char*)> owner(text, library_->free_command);
  for (std::size_t sent = 0; sent < static_cast<std::size_t>(size);) {
    const ssize_t part =
        ::send(socket_, text + sent, static_cast<std::size_t>(size) - sent, MSG_NOSIGNAL);
    if (part > 0) {
      sent += static_cast<std::size_t>(part);
    } else if (!(part < 0 && (errno == EINTR || (errno == EAGAIN && wait(POLLOUT))))) {
      return failed("does not answer");
    }
  }
  return {};
}

Result<Redis::Reply> Redis::receive(const std::string& command) {
  const std::unique_ptr<void, void (*)(void*)> reader(library_->make_reader(),
                                                      library_->free_reader);
  if (reader == nullptr) return make_error(ErrorCode::kIo, "hiredis has no memory");
  std::array<char, 1024> bytes{};
  std::size_t received = 0;
  void* answer = nullptr;
  while (answer == nullptr) {
    const ssize_t part = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (part < 0 && (errno == EINTR || (errno == EAGAIN && wait(POLLIN)))) continue;
    if (part <= 0) return failed("does not answer");
    // NOTE: what is asked is answered by a line, a number, or nothing. An array would be given
    // memory for as many members as it says.
    if (received == 0 && std::string_view("+-:$_").find(bytes[0]) == std::string_view::npos) {
      return failed("gives an answer that is none to " + command);
    }
    received += static_cast<std::size_t>(part);
    if (received > kMaxReplyBytes || Clock::now() >= deadline_) {
      return failed(received > kMaxReplyBytes ? "gives an answer that is too long"
                                              : "does not answer");
    }
    if (library_->feed(reader.get(), bytes.data(), static_cast<std::size_t>(part)) != 0 ||
        library_->get_reply(reader.get(), &answer) != 0) {
      return failed("gives an answer that is none of Redis");
    }
  }
  const ReplyHead head = *static_cast<const ReplyHead*>(answer);
  library_->free_reply(answer);
  if (head.type == kReplyError) return failed("refuses " + command);
  Reply reply;
  if (head.type == kReplyNil) reply.kind = Kind::kNil;
  if (head.type == kReplyInteger) {
    reply.kind = Kind::kInteger;
    reply.integer = head.integer;
  }
  return reply;
}

Result<Redis::Reply> Redis::ask(const std::vector<std::string>& words) {
  const Status sent = send(words);
  Result<Reply> reply = sent ? receive(words.front()) : Result<Reply>(sent.error());
  if (!reply) disconnect();
  return reply;
}

Result<Redis::Reply> Redis::command(const std::vector<std::string>& words) {
  deadline_ = Clock::now() + timeout_;
  if (socket_ < 0) {
    if (Status connected = connect(); !connected) {
      disconnect();
      return std::move(connected).error();
    }
  }
  return ask(words);
}

}  // namespace attnjit::net
