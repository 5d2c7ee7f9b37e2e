// SPDX-License-Identifier: Apache-2.0
// Redis: commands to a Redis server. hiredis, which is opened at run time, knows the protocol; the
// connection is kept here, because hiredis bounds neither an answer's size nor its whole time.
//
// Thread rules: an object belongs to one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"

namespace attnjit::net {

/// redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]; in USER and PASSWORD %XX is decoded.
struct RedisUrl {
  std::string host, user, password;
  int port = 6379, database = 0;
  std::string shown;  ///< for people: without user and password

  /// Errors: kInvalid, with the field "lease".
  static Result<RedisUrl> parse(std::string_view url);
};

class Hiredis;

class Redis {
 public:
  enum class Kind : std::uint8_t { kNil, kInteger, kOther };
  struct Reply {
    Kind kind = Kind::kOther;
    long long integer = 0;
  };

  static constexpr std::size_t kMaxReplyBytes = 4096;

  /// Opens hiredis; connects at the first command. Errors: kEnvironment where there is none.
  static Result<std::unique_ptr<Redis>> open(RedisUrl url, std::chrono::milliseconds timeout);
  ~Redis();
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  /// Connects where it is not connected. All of it takes `timeout` at most, but for the look-up of
  /// the host's name, and an answer has kMaxReplyBytes at most. Errors: kIo; the next command
  /// connects again.
  Result<Reply> command(const std::vector<std::string>& words);

 private:
  using Clock = std::chrono::steady_clock;

  Redis(std::shared_ptr<const Hiredis> library, RedisUrl url, std::chrono::milliseconds timeout);
  Status connect();
  Result<Reply> ask(const std::vector<std::string>& words);
  Status send(const std::vector<std::string>& words);
  Result<Reply> receive(const std::string& command);
  /// Until the socket is ready; false at the deadline.
  bool wait(short events) const;
  void disconnect();
  Error failed(const std::string& what) const;

  const std::shared_ptr<const Hiredis> library_;
  const RedisUrl url_;
  const std::chrono::milliseconds timeout_;
  int socket_ = -1;  ///< -1: not connected
  Clock::time_point deadline_;
};

}  // namespace attnjit::net
