// A client of raw sockets, for tests of servers: it sends what it is told, also what no library would send.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace fourfold::server {

struct Reply {
  int status = 0;  // 0: the connection ended before an answer
  std::string head;
  std::string body;  // chunks put together
  bool whole = false;

  // Of a header, by its name in any case; empty when it is not there.
  std::string header(std::string name) const {
    const auto low = [](std::string text) {
      for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      return text;
    };
    const std::string all = low(head);
    const std::size_t at = all.find("\r\n" + low(std::move(name)) + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = head.find(": ", at) + 2;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class Client {
 public:
  // from: another address of this machine, 127.0.0.2 and so on.
  explicit Client(std::uint16_t port, int receive_bytes = 0, const char* from = nullptr)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (from != nullptr) {
      inet_pton(AF_INET, from, &address.sin_addr);
      if (bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        close();
        return;
      }
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), buffer_(std::move(other.buffer_)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return socket_ >= 0; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void end_sending() { shutdown(socket_, SHUT_WR); }

  // False when the other side has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // One more piece of what comes; false at the end of the connection, or of the time.
  bool receive(int wait_ms = 10'000) {
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, wait_ms) <= 0) return false;
    char bytes[65536];
    const auto got = recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  bool receive_bytes(std::size_t most) {
    char bytes[4096];
    return recv(socket_, bytes, std::min(most, sizeof bytes), 0) > 0;
  }
  bool receive_until(std::string_view text, int wait_ms = 10'000) {
    while (buffer_.find(text) == std::string::npos)
      if (!receive(wait_ms)) return false;
    return true;
  }
  // Whether the other side closes within the time, whatever it sends before.
  bool sees_end(int wait_ms = 10'000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    while (std::chrono::steady_clock::now() < end) {
      pollfd ready{socket_, POLLIN, 0};
      char bytes[65536];
      if (poll(&ready, 1, 50) <= 0) continue;
      const auto got = recv(socket_, bytes, sizeof bytes, 0);
      if (got <= 0) return true;
      buffer_.append(bytes, static_cast<std::size_t>(got));
    }
    return false;
  }
  std::string& buffer() { return buffer_; }

  // The next answer; interim ones (100) are skipped. is_head: of a HEAD request, which has no body.
  Reply reply(int wait_ms = 10'000, bool is_head = false) {
    Reply out;
    while (true) {
      while (buffer_.find("\r\n\r\n") == std::string::npos)
        if (!receive(wait_ms)) return out;
      const std::size_t end = buffer_.find("\r\n\r\n");
      out.head = buffer_.substr(0, end + 2);
      buffer_.erase(0, end + 4);
      out.status = std::atoi(out.head.c_str() + std::strlen("HTTP/1.1 "));
      if (out.status != 100) break;
    }
    if (is_head || out.status == 204 || out.status == 304) {
      out.whole = true;
    } else if (out.header("Transfer-Encoding") == "chunked") {
      out.whole = read_chunks(out.body, wait_ms);
    } else if (const std::string length = out.header("Content-Length"); !length.empty()) {
      const std::size_t size = std::strtoull(length.c_str(), nullptr, 10);
      while (buffer_.size() < size)
        if (!receive(wait_ms)) break;
      out.whole = buffer_.size() >= size;
      out.body = buffer_.substr(0, size);
      buffer_.erase(0, out.body.size());
    } else {
      while (receive(wait_ms)) {
      }
      out.body = std::exchange(buffer_, {});
      out.whole = true;
    }
    return out;
  }

 private:
  bool read_chunks(std::string& body, int wait_ms) {
    while (true) {
      std::size_t line;
      while ((line = buffer_.find("\r\n")) == std::string::npos)
        if (!receive(wait_ms)) return false;
      const std::size_t size = std::strtoull(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2)
        if (!receive(wait_ms)) return false;
      body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) return true;
    }
  }

  int socket_;
  std::string buffer_;
};

inline std::string get(std::string_view path, std::string_view more = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(more) + "\r\n";
}

inline std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         std::string(more) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

// One request on a connection of its own.
inline Reply ask(std::uint16_t port, std::string_view request, int wait_ms = 20'000) {
  Client client(port);
  client.send(request);
  return client.reply(wait_ms, request.starts_with("HEAD"));
}

// Waits until something is so; false when it does not become so.
template <class Condition>
bool eventually(const Condition& condition, int wait_ms = 5'000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(2'000);
  }
  return true;
}

}  // namespace fourfold::server
