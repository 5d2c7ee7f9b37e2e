// SPDX-License-Identifier: Apache-2.0
// S3's signature against AWS's published example, libcurl's numbers against its header, passwords
// in URLs, and servers whose answers do not end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#endif

#include "net/curl.h"
#include "net/http_client.h"
#include "net/redis.h"
#include "net/sigv4.h"
#include "net/url.h"

namespace attnjit::net {
namespace {

// "Example: GET Object" of AWS's "Signature Calculations for the Authorization Header".
TEST(SignV4Test, GivesThePublishedSignature) {
  const S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE",
                                  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1"};
  const auto headers =
      sign_v4(credentials,
              {"GET", "examplebucket.s3.amazonaws.com", "/test.txt", "", {{"range", "bytes=0-9"}}},
              1369353600);  // 2013-05-24 00:00:00
  EXPECT_EQ(headers.back(),
            "Authorization: AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

#if __has_include(<curl/curl.h>)
// What curl.cpp believes of libcurl's ABI, which is all that it takes from its header.
static_assert(curl::kOk == CURLE_OK);
static_assert(curl::kWriteData == CURLOPT_WRITEDATA && curl::kUrl == CURLOPT_URL);
static_assert(curl::kReadData == CURLOPT_READDATA && curl::kErrorBuffer == CURLOPT_ERRORBUFFER);
static_assert(curl::kWriteFunction == CURLOPT_WRITEFUNCTION);
static_assert(curl::kReadFunction == CURLOPT_READFUNCTION);
static_assert(curl::kHttpHeader == CURLOPT_HTTPHEADER && curl::kHeaderData == CURLOPT_HEADERDATA);
static_assert(curl::kNoBody == CURLOPT_NOBODY);
static_assert(curl::kUpload == CURLOPT_UPLOAD && curl::kCaInfo == CURLOPT_CAINFO);
static_assert(curl::kHeaderFunction == CURLOPT_HEADERFUNCTION);
static_assert(curl::kNoSignal == CURLOPT_NOSIGNAL);
static_assert(curl::kInFileSize == CURLOPT_INFILESIZE_LARGE);
static_assert(curl::kTimeoutMs == CURLOPT_TIMEOUT_MS);
static_assert(curl::kConnectTimeoutMs == CURLOPT_CONNECTTIMEOUT_MS);
static_assert(curl::kErrorSize == CURL_ERROR_SIZE);
static_assert(curl::kInfoResponseCode == CURLINFO_RESPONSE_CODE);
static_assert(curl::kMessageDone == CURLMSG_DONE && curl::kGlobalDefault == CURL_GLOBAL_DEFAULT);
static_assert(curl::kProtocolHttp == CURLPROTO_HTTP && curl::kProtocolHttps == CURLPROTO_HTTPS);
static_assert(curl::kTimedOut == CURLE_OPERATION_TIMEDOUT);
static_assert(sizeof(curl::Message) == sizeof(CURLMsg) &&
              offsetof(curl::Message, kind) == offsetof(CURLMsg, msg) &&
              offsetof(curl::Message, data) == offsetof(CURLMsg, data));
static_assert(sizeof(curl_off_t) == sizeof(std::int64_t));
#endif

std::string encoded(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte / 16], kDigits[byte % 16]};
  }
  return out;
}

TEST(UrlTest, WhatIsBeforeTheLastAtIsThePasswordOrBadInput) {
  std::mt19937 random(47);
  for (int i = 0; i < 2000; ++i) {
    std::string password;
    for (std::size_t size = 1 + random() % 12; size > 0; --size) {
      password.push_back(static_cast<char>(' ' + random() % 95));
    }
    const std::string escaped = "bob:" + encoded(password) + "@host:1/x";
    const auto parts = split_user(escaped);
    ASSERT_TRUE(parts.has_value()) << escaped;
    EXPECT_EQ(parts->user, "bob");
    EXPECT_EQ(parts->password, password);
    EXPECT_EQ(parts->rest, "host:1/x");
    // As it is: taken only where it means the same to everyone.
    const std::string plain = "bob:" + password + "@host/x";
    const auto taken = split_user(plain);
    if (password.find_first_of(" \"#%/<>?@[\\]^`{|}") == std::string::npos) {
      ASSERT_TRUE(taken.has_value()) << plain;
      EXPECT_EQ(taken->password, password);
      EXPECT_EQ(taken->rest, "host/x");
    } else if (taken) {  // %XX
      EXPECT_EQ(taken->rest, "host/x");
      EXPECT_EQ(password.find_first_of("/?#@"), std::string::npos) << plain;
    }
    const auto redis = RedisUrl::parse("redis://" + plain);
    ASSERT_FALSE(redis.ok()) << "x is no database";
    EXPECT_EQ(redis.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(redis.error().to_string().find(plain), std::string::npos);
  }
  EXPECT_FALSE(split_user("bob:100%@host").has_value());
  EXPECT_FALSE(split_user("bob:%zz@host").has_value());
  EXPECT_EQ(RedisUrl::parse("redis://p%40ss@host/3")->password, "p@ss");
}

/// Accepts connections, reads a request and then does what it is told until the other end is gone.
class Server {
 public:
  explicit Server(std::function<bool(int connection)> talk) : talk_(std::move(talk)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    (void)::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    (void)::listen(listener_, 8);
    (void)::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int one; (one = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(one)) {
        char request[1024];
        if (::recv(one, request, sizeof request, 0) <= 0) continue;
        while (talk_(one)) {
        }
      }
    });
  }
  ~Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  static bool say(int connection, const std::string& text) {
    return ::send(connection, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  int port = 0;

 private:
  std::function<bool(int)> talk_;
  int listener_ = -1;
  std::thread thread_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(RedisTest, AnAnswerHasABoundAndAWholeTime) {
  struct Case {
    std::string first, more;
    int pause_ms;
    bool ends;  ///< by the bound, and so at once
  };
  for (const Case& wanted :
       {Case{"$400000000000\r\n", std::string(65536, 'x'), 0, true},
        Case{"$5000\r\n", std::string(65536, 'x'), 0, true},
        Case{"+", std::string(65536, 'x'), 0, true}, Case{"-", std::string(65536, 'x'), 0, true},
        Case{":", std::string(65536, '1'), 0, true},
        Case{"*2147483647\r\n", "*2147483647\r\n", 1, true},
        Case{"%1000000\r\n", "+x\r\n", 1, true}, Case{"$1000\r\n", "x", 50, false},
        Case{"+", "x", 50, false}, Case{"", "", 50, false}}) {
    bool begun = false;
    Server server([&](int connection) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wanted.pause_ms));
      const std::string text = begun ? wanted.more : wanted.first;
      begun = true;
      char byte = 0;
      return Server::say(connection, text) &&
             ::recv(connection, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0;
    });
    auto redis = Redis::open(*RedisUrl::parse("redis://127.0.0.1:" + std::to_string(server.port)),
                             std::chrono::milliseconds(wanted.ends ? 20000 : 400));
    if (!redis) GTEST_SKIP() << redis.error().message;
    const auto start = std::chrono::steady_clock::now();
    const auto reply = (*redis)->command({"SET", "a", "b"});
    EXPECT_FALSE(reply.ok()) << wanted.first;
    EXPECT_LT(seconds_since(start), 10) << wanted.first;
    redis->reset();  // the connection, so that the server's thread ends
  }
}

TEST(RedisTest, WhatRedisAnswersIsRead) {
  for (const auto& [text, kind] : {std::pair{"+OK\r\n", Redis::Kind::kOther},
                                   {"$-1\r\n", Redis::Kind::kNil},
                                   {":17\r\n", Redis::Kind::kInteger},
                                   {"$2\r\nab\r\n", Redis::Kind::kOther}}) {
    Server server([&, text = std::string(text)](int connection) {
      for (const char c : text) (void)Server::say(connection, {c});  // in pieces
      return false;
    });
    auto redis = Redis::open(*RedisUrl::parse("redis://localhost:" + std::to_string(server.port)),
                             std::chrono::milliseconds(20000));
    if (!redis) GTEST_SKIP() << redis.error().message;
    const auto reply = (*redis)->command({"SET", "a", "b"});
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->kind, kind);
  }
}

TEST(HttpTest, HeadersAndBodiesHaveABound) {
  const auto curl = Curl::open();
  if (!curl) GTEST_SKIP() << curl.error().message;
  for (const auto& [first, more] :
       {std::pair<std::string, std::string>{"HTTP/1.1 200 OK\r\n",
                                            "a: " + std::string(999, 'x') + "\r\n"},
        {"", "HTTP/1.1 100 Continue\r\n\r\n"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
         "400\r\n" + std::string(1024, 'x') + "\r\n"}}) {
    bool begun = false;
    Server server([&, first = first, more = more](int connection) {
      const bool said = Server::say(connection, begun ? more : first + more);
      begun = true;
      return said;
    });
    HttpClient client(*curl, "");
    HttpRequest request;
    request.url = "http://127.0.0.1:" + std::to_string(server.port) + "/x";
    request.timeout = std::chrono::milliseconds(20000);
    request.max_bytes = 100000;
    const auto start = std::chrono::steady_clock::now();
    const auto answer = client.perform(request);
    ASSERT_FALSE(answer.ok());
    EXPECT_LT(seconds_since(start), 10) << first;
  }
}

}  // namespace
}  // namespace attnjit::net
