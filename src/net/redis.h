// SPDX-License-Identifier: Apache-2.0
// Redis: commands to a Redis server through hiredis, which is opened at run time.
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

/// redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]
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

  /// Opens hiredis; connects at the first command. Errors: kEnvironment where there is none.
  static Result<std::unique_ptr<Redis>> open(RedisUrl url, std::chrono::milliseconds timeout);
  ~Redis();
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  /// Connects where it is not connected. Errors: kIo; the next command connects anew.
  Result<Reply> command(const std::vector<std::string>& words);

 private:
  Redis(std::shared_ptr<const Hiredis> library, RedisUrl url, std::chrono::milliseconds timeout);
  Status connect();
  Result<Reply> ask(const std::vector<std::string>& words);
  void disconnect();

  const std::shared_ptr<const Hiredis> library_;
  const RedisUrl url_;
  const std::chrono::milliseconds timeout_;
  void* context_ = nullptr;
};

}  // namespace attnjit::net
