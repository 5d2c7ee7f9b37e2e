// SPDX-License-Identifier: Apache-2.0
// HttpServer: a small store over HTTP on the loopback, which can be slow, stall, cut, lie and be
// full.
//
// Thread rules: every method may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace attnjit::cache {

/// Where servers of tests listen: the loopback, or what ATTNJIT_SERVER_ADDRESS says.
std::string server_address();

class HttpServer {
 public:
  /// What it does to those who ask; changed at any time.
  struct Manner {
    std::chrono::milliseconds delay{0};      ///< before each answer
    std::chrono::milliseconds put_delay{0};  ///< before a PUT takes effect, besides
    bool stall = false;                      ///< never answer, and keep the connection
    bool hang_up = false;                    ///< close the connection in place of an answer
    bool cut = false;                        ///< close it in the middle of a body
    int get_status = 0;                      ///< answer every GET and HEAD so; 0: as it should be
    int put_status = 0;                      ///< answer every PUT so
    std::function<void(const std::string& path, std::string& body)> lie =
        nullptr;  ///< changes GET's answer
  };

  /// Listens on a port of its own, or on `port`.
  explicit HttpServer(std::uint16_t port = 0);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://" + server_address() + ":" + std::to_string(port_); }
  std::uint16_t port() const { return port_; }
  void behave(Manner manner);

  std::map<std::string, std::string> objects();
  void put(const std::string& path, std::string body);

  /// A request that arrived: "GET", "/ac/..", its headers as they came.
  struct Seen {
    std::string method, path, headers;
    std::size_t bytes = 0;
  };
  std::vector<Seen> seen();
  std::size_t count(const std::string& method);

 private:
  void serve(int connection);
  /// False where the connection is to be closed.
  bool answer(int connection, const Seen& request, std::string body);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;

  std::mutex mutex_;  // guards what follows
  Manner manner_;
  std::map<std::string, std::string> objects_;
  std::vector<Seen> seen_;
  std::vector<std::thread> connections_;
};

}  // namespace attnjit::cache
