// SPDX-License-Identifier: Apache-2.0
// One thread that polls all connections.
#include "tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <list>
#include <vector>

#include "http_server.h"

namespace attnjit::cache {
namespace {

using Clock = std::chrono::steady_clock;

sockaddr_in server_at(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = ::inet_addr(server_address().c_str());
  return address;
}

void prepare(int socket) {
  static constexpr int kYes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &kYes, sizeof kYes);
  ::fcntl(socket, F_SETFL, O_NONBLOCK);
}

/// Ends a connection as a machine does that lost its state.
void reset(int socket) {
  static constexpr linger kAtOnce{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce);
  ::close(socket);
}

/// What is on its way in one direction.
struct Flow {
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  std::deque<Piece> pieces;

  /// False at the end of what `from` says.
  bool receive(int from, std::chrono::milliseconds delay) {
    char bytes[65536];
    const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    pieces.push_back({Clock::now() + delay, std::string(bytes, static_cast<std::size_t>(got))});
    return true;
  }
  /// What is due, `limit` bytes at most; false where `to` is gone.
  bool send(int to, std::size_t limit, std::size_t& sent) {
    while (!pieces.empty() && pieces.front().due <= Clock::now() && sent < limit) {
      std::string& bytes = pieces.front().bytes;
      const ssize_t count =
          ::send(to, bytes.data(), std::min(bytes.size(), limit - sent), MSG_NOSIGNAL);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      sent += static_cast<std::size_t>(count);
      bytes.erase(0, static_cast<std::size_t>(count));
      if (bytes.empty()) pieces.pop_front();
    }
    return true;
  }
};

}  // namespace

struct TcpProxy::Connection {
  int client = -1, server = -1;
  Flow up, down;
  std::size_t answered = 0;  ///< bytes of answers that passed
};

TcpProxy::TcpProxy(std::uint16_t to) : to_(to) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = server_at(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 1024) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

TcpProxy::~TcpProxy() {
  stopping_ = true;
  thread_.join();
  ::close(listener_);
}

void TcpProxy::behave(Manner manner) {
  const std::lock_guard lock(mutex_);
  manner_ = manner;
}

bool TcpProxy::pass(Connection& connection, const Manner& manner, bool from_client,
                    bool from_server) {
  if (from_client && !connection.up.receive(connection.client, {})) return false;
  if (from_server && !connection.down.receive(connection.server, manner.delay)) return false;
  std::size_t asked = 0;
  if (!connection.up.send(connection.server, SIZE_MAX, asked)) return false;
  const std::size_t limit = manner.cut_after == 0 ? SIZE_MAX : manner.cut_after;
  if (!connection.down.send(connection.client, limit, connection.answered)) return false;
  if (connection.answered < limit) return true;
  ++cuts_;
  return false;
}

void TcpProxy::run() {
  std::list<Connection> connections;
  std::vector<pollfd> waits;
  while (!stopping_) {
    Manner manner;
    {
      const std::lock_guard lock(mutex_);
      manner = manner_;
    }
    waits.assign(1, {listener_, POLLIN, 0});
    if (!manner.stall) {
      for (const Connection& connection : connections) {
        waits.push_back({connection.client, POLLIN, 0});
        waits.push_back({connection.server, POLLIN, 0});
      }
    }
    // What is delayed, or too much for a socket, is tried again soon.
    const bool pending = std::any_of(
        connections.begin(), connections.end(),
        [](const Connection& at) { return !at.up.pieces.empty() || !at.down.pieces.empty(); });
    if (::poll(waits.data(), waits.size(), pending ? 2 : 20) < 0) continue;
    auto connection = connections.begin();
    for (std::size_t at = 1; at < waits.size(); at += 2) {
      if (pass(*connection, manner, waits[at].revents != 0, waits[at + 1].revents != 0)) {
        ++connection;
        continue;
      }
      reset(connection->client);
      ::close(connection->server);
      connection = connections.erase(connection);
    }
    if (waits.front().revents == 0) continue;
    Connection made;
    made.client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (made.client < 0) continue;
    made.server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = server_at(to_);
    if (::connect(made.server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      reset(made.client);
      ::close(made.server);
      continue;
    }
    prepare(made.client);
    prepare(made.server);
    connections.push_back(std::move(made));
  }
  for (const Connection& connection : connections) {
    reset(connection.client);
    ::close(connection.server);
  }
}

}  // namespace attnjit::cache
