// SPDX-License-Identifier: Apache-2.0
// TcpProxy: stands before a server on the loopback, and delays, stalls and resets what passes.
//
// Thread rules: every method may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace attnjit::cache {

class TcpProxy {
 public:
  /// What it does to every connection; changed at any time.
  struct Manner {
    std::chrono::milliseconds delay{0};  ///< of all that the server says
    bool stall = false;                  ///< nothing passes, in either direction
    std::size_t cut_after = 0;           ///< bytes of answers, then a reset; 0: never
  };

  /// Connects to `to` of server_address() for whoever connects to port().
  explicit TcpProxy(std::uint16_t to);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::uint16_t port() const { return port_; }
  void behave(Manner manner);
  std::size_t cuts() const { return cuts_; }

 private:
  struct Connection;
  void run();
  /// False where the connection is over.
  bool pass(Connection& connection, const Manner& manner, bool from_client, bool from_server);

  const std::uint16_t to_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> cuts_{0};
  std::mutex mutex_;  // guards what follows
  Manner manner_;
  std::thread thread_;
};

}  // namespace attnjit::cache
