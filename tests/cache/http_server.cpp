// SPDX-License-Identifier: Apache-2.0
// Serves objects over HTTP/1.1 with a thread per connection.
#include "http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/sha256.h"

namespace attnjit::cache {

std::string server_address() {
  const char* const given = std::getenv("ATTNJIT_SERVER_ADDRESS");
  return given == nullptr ? "127.0.0.1" : given;
}
namespace {

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string header_of(const std::string& headers, const std::string& name) {
  const std::size_t at = headers.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 4;
  return headers.substr(begin, headers.find("\r\n", begin) - begin);
}

std::string etag_of(const std::string& body) {
  return '"' + to_hex(sha256(body)).substr(0, 32) + '"';
}

}  // namespace

HttpServer::HttpServer(std::uint16_t port) {
  // libcurl heeds the proxy that a machine names, also for the loopback.
  ::setenv("no_proxy", server_address().c_str(), 1);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  static constexpr int kYes = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof kYes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = ::inet_addr(server_address().c_str());
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 128) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] {
    while (!stopping_) {
      pollfd waits{listener_, POLLIN, 0};
      if (::poll(&waits, 1, 20) <= 0) continue;
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &kYes, sizeof kYes);
      const std::lock_guard lock(mutex_);
      connections_.emplace_back([this, connection] {
        serve(connection);
        ::close(connection);
      });
    }
  });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  acceptor_.join();
  ::close(listener_);
  for (std::thread& connection : connections_) connection.join();
}

void HttpServer::behave(Manner manner) {
  const std::lock_guard lock(mutex_);
  manner_ = std::move(manner);
}

std::map<std::string, std::string> HttpServer::objects() {
  const std::lock_guard lock(mutex_);
  return objects_;
}

void HttpServer::put(const std::string& path, std::string body) {
  const std::lock_guard lock(mutex_);
  objects_[path] = std::move(body);
}

std::vector<HttpServer::Seen> HttpServer::seen() {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::size_t HttpServer::count(const std::string& method) {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      seen_.begin(), seen_.end(), [&](const Seen& request) { return request.method == method; }));
}

void HttpServer::serve(int connection) {
  std::string buffer;
  const auto receive = [&] {
    while (!stopping_) {
      pollfd waits{connection, POLLIN, 0};
      if (::poll(&waits, 1, 20) <= 0) continue;
      char bytes[65536];
      const ssize_t got = ::recv(connection, bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      buffer.append(bytes, static_cast<std::size_t>(got));
      return true;
    }
    return false;
  };
  while (true) {
    std::size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return;
    }
    Seen request;
    request.headers = buffer.substr(0, end + 2);
    const std::size_t space = buffer.find(' ');
    request.method = buffer.substr(0, space);
    request.path = buffer.substr(space + 1, buffer.find(' ', space + 1) - space - 1);
    buffer.erase(0, end + 4);
    const std::string length = header_of(request.headers, "Content-Length");
    request.bytes = length.empty() ? 0 : std::stoul(length);
    while (buffer.size() < request.bytes) {
      if (!receive()) return;
    }
    std::string body = buffer.substr(0, request.bytes);
    buffer.erase(0, request.bytes);
    if (!answer(connection, request, std::move(body))) return;
  }
}

bool HttpServer::answer(int connection, const Seen& request, std::string body) {
  Manner manner;
  {
    const std::lock_guard lock(mutex_);
    manner = manner_;
    seen_.push_back(request);
  }
  auto until = std::chrono::steady_clock::now() + manner.delay;
  if (request.method == "PUT") until += manner.put_delay;
  while (!stopping_ && (manner.stall || std::chrono::steady_clock::now() < until)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (stopping_ || manner.hang_up) return false;

  int status = 404;
  std::string content, etag;
  {
    const std::lock_guard lock(mutex_);
    const auto known = objects_.find(request.path);
    const bool there = known != objects_.end();
    if (request.method == "PUT") {
      const std::string match = header_of(request.headers, "If-Match");
      const bool may = manner.put_status == 0 &&
                       (header_of(request.headers, "If-None-Match") != "*" || !there) &&
                       (match.empty() || (there && match == etag_of(known->second)));
      status = manner.put_status != 0 ? manner.put_status : may ? (there ? 204 : 201) : 412;
      if (may) {
        etag = etag_of(body);
        objects_[request.path] = std::move(body);
      }
    } else if (manner.get_status != 0) {
      status = manner.get_status;
    } else if (there) {
      status = 200;
      content = known->second;
      etag = etag_of(content);
    }
  }
  if (status == 200 && manner.lie) manner.lie(request.path, content);
  const std::string head = "HTTP/1.1 " + std::to_string(status) +
                           " X\r\nContent-Length: " + std::to_string(content.size()) +
                           (etag.empty() ? "" : "\r\nETag: " + etag) + "\r\n\r\n";
  if (request.method == "HEAD") return send_all(connection, head);
  if (manner.cut) {
    send_all(connection, head + content.substr(0, content.size() / 2));
    return false;
  }
  return send_all(connection, head + content);
}

}  // namespace attnjit::cache
