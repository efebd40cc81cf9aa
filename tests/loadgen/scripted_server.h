// A server in this process that answers as it is told: any bytes, any pauses, many connections at once.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/format.h"
#include "http/url.h"

namespace fourfold::loadgen {

class Connection {
 public:
  explicit Connection(int descriptor) : descriptor_(descriptor) {}

  void send(const std::string& text) { ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL); }
  void answer(int status, const std::string& body) {
    send(fourfold::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body));
  }
  void begin_stream() {
    send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  void event(const std::string& data) {
    char size[16];
    const std::string text = "data: " + data + "\n\n";
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    send(size + text + "\r\n");
  }
  void word(const char* field) {
    event(fourfold::format(R"({"choices": [{"delta": {"{}": "word "}, "finish_reason": null}]})", field));
  }
  void end_stream(int prompt_tokens, int output_tokens) {
    event(R"({"choices": [{"delta": {}, "finish_reason": "length"}]})");
    event(fourfold::format(R"({"choices": [], "usage": {"prompt_tokens": {}, "completion_tokens": {}}})",
                           prompt_tokens, output_tokens));
    event("[DONE]");
    send("0\r\n\r\n");
  }
  static void pause(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  // The peer sees a reset, not an orderly end.
  void cut() {
    const linger now{1, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

 private:
  int descriptor_;
};

// The head's first line, the head, and the body of a request.
struct Asked {
  std::string line, head, body;
};

class ScriptedServer {
 public:
  using Script = std::function<void(Connection& connection, const Asked& asked)>;

  explicit ScriptedServer(Script script)
      : script_(std::move(script)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 512) != 0)
      throw std::runtime_error("no port to listen on");
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  std::string address() const { return fourfold::format("http://127.0.0.1:{}", port_); }
  http::Url url() const { return http::parse_url(address()); }
  int most_at_once() const { return most_; }
  int asked() const { return asked_; }

 private:
  void serve() {
    for (int client; (client = accept(listener_, nullptr, nullptr)) >= 0;)
      threads_.emplace_back([this, client] {
        const int now = ++running_;
        for (int most = most_; most < now && !most_.compare_exchange_weak(most, now);) {
        }
        Connection connection(client);
        script_(connection, read_request(client));
        ++asked_;
        --running_;
        close(client);
      });
  }

  static Asked read_request(int client) {
    std::string text;
    char buffer[16 << 10];
    std::size_t end = std::string::npos, wanted = 0;
    while (end == std::string::npos || text.size() < end + 4 + wanted) {
      const ssize_t got = recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
      end = text.find("\r\n\r\n");
      const auto length = text.find("Content-Length: ");
      if (end != std::string::npos && length < end)
        wanted = static_cast<std::size_t>(std::atoi(text.c_str() + length + 16));
    }
    if (end == std::string::npos) return {};
    return {text.substr(0, text.find("\r\n")), text.substr(0, end), text.substr(end + 4)};
  }

  Script script_;
  int listener_;
  int port_ = 0;
  std::atomic<int> running_ = 0, most_ = 0, asked_ = 0;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace fourfold::loadgen
