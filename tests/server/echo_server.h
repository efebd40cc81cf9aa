// The transport with a handler that says what it was asked, running on a port of its own.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/http_server.h"
#include "tests/server/client.h"

namespace fourfold::server {

// "/echo": method, path, query and body. "/wait": no answer until the test gives one. "/flood": a stream as
// fast as it goes. "/refused": refused by its head. "/pieces": 200 pieces of 64 KB, as they are read.
// "/large": a stream with two pieces of 3 MB.
class EchoHandler final : public HttpHandler {
 public:
  explicit EchoHandler(HttpServer& http) : http_(http) {}

  std::optional<HttpResponse> admit(HttpRequest& request) override {
    if (request.path == "/refused") return refusal("", 401, "no", "refused by its head");
    return std::nullopt;
  }
  void serve(std::shared_ptr<HttpCall> call) override {
    const HttpRequest& r = call->request();
    if (r.path == "/wait") {
      call->on_gone([this] { ++gone; });
      waiting.push_back(std::move(call));
      ++waiting_count;
      return;
    }
    if (r.path == "/stream") {
      call->begin_stream({.content_type = "text/event-stream"});
      for (const char* piece : {"one", "two", "three"}) call->send(piece);
      return call->finish();
    }
    if (r.path == "/pieces") {
      HttpResponse response{.content_type = "text/plain"};
      response.more = [this, left = 200]() mutable {
        if (left == 0) return std::string();
        ++pieces;
        return std::string(65536, static_cast<char>('a' + left-- % 26));
      };
      return call->answer(std::move(response));
    }
    if (r.path == "/large") {
      call->begin_stream({.content_type = "text/event-stream"});
      for (const std::string& piece : {std::string("begin"), std::string(3'000'000, 'x'),
                                       std::string(3'000'000, 'y'), std::string("end")})
        call->send(piece);
      return call->finish();
    }
    if (r.path == "/long")
      return call->answer({.content_type = "text/plain", .body = std::string(20'000'000, 'l')});
    if (r.path == "/flood") {
      call->on_gone([this] { ++gone; });
      call->begin_stream({.content_type = "text/event-stream"});
      flooding = std::move(call);
      return;
    }
    call->answer({.content_type = "text/plain",
                  .body = r.method + " " + r.path + " " + r.query + " " + std::to_string(r.body.size()) +
                          " " + r.body.substr(0, 64)});
  }
  void tick() override {
    counts = http_.counts().connections_open;
    slow_readers = http_.counts().slow_readers;
    for (int i = 0; i < 64 && flooding; ++i) flooding->send(std::string(4096, 'x'));
    if (flooding && !flooding->open()) flooding.reset();
    if (answer_now.exchange(false))
      for (const auto& call : std::exchange(waiting, {})) call->answer({.body = "late"});
    if (drain_now.exchange(false)) http_.drain();
  }

  HttpServer& http_;
  std::vector<std::shared_ptr<HttpCall>> waiting;
  std::shared_ptr<HttpCall> flooding;
  std::atomic<int> gone{0}, waiting_count{0}, pieces{0};
  std::atomic<std::int64_t> counts{0}, slow_readers{0};
  std::atomic<bool> answer_now{false}, drain_now{false};
};

class Running {
 public:
  explicit Running(HttpLimits limits = {}) : http({.port = 0, .limits = limits}), handler(http) {
    http.listen();
    thread_ = std::thread([this] { http.run(handler); });
  }
  ~Running() {
    http.post([this] { http.stop(); });
    thread_.join();
  }
  Reply ask(std::string_view request) { return server::ask(http.port(), request); }
  std::uint16_t port() const { return http.port(); }

  HttpServer http;
  EchoHandler handler;

 private:
  std::thread thread_;
};

}  // namespace fourfold::server
