// HTTP/1.1 over TCP or TLS on one thread: connections, limits, time-outs, bytes. What a request means is its
// handler's business. Asio, Beast and OpenSSL are known to http_server.cpp alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http_message.h"

namespace fourfold::server {

struct HttpLimits {
  std::size_t header_bytes_max = std::size_t{32} << 10;
  std::size_t body_bytes_max = std::size_t{32} << 20;
  std::size_t bodies_bytes_max = std::size_t{1} << 30;  // of all requests being read, together
  // Of a stream whose client does not read, beside its largest pieces.
  std::size_t pending_bytes_max = std::size_t{1} << 20;
  // The kernel's, for each connection: left to itself it would keep megabytes for a client that does not
  // read.
  int send_buffer_bytes = 256 << 10;
  std::size_t connections_max = 16384;
  std::chrono::milliseconds header_time{10'000};  // from a request's first byte
  // A body, from its head: so long at most, and not slower than the rate once its start time is over.
  std::chrono::milliseconds body_time{60'000}, body_start_time{10'000};
  std::size_t body_rate_min = 16384;             // bytes a second
  std::chrono::milliseconds idle_time{75'000};   // between requests
  std::chrono::milliseconds write_time{30'000};  // without 16 KB taken, or the rest
  std::chrono::milliseconds linger_time{2'000};  // for a refused client to read why
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;                       // 0: one that is free
  std::string tls_certificate = {}, tls_key = {};  // PEM files; both or none
  HttpLimits limits = {};
  bool take_signals = false;  // SIGINT, SIGTERM and SIGHUP go to the handler
};

// Since the start, but for the first.
struct HttpCounts {
  std::int64_t connections_open = 0;
  std::int64_t connections = 0;
  std::int64_t connections_refused = 0;
  std::int64_t connections_crowded_out = 0;  // closed, with no work done for them, for clients that had fewer
  std::int64_t slow_readers = 0;  // cut off with more pending than is allowed, or by the write time-out
  std::int64_t timed_out = 0;     // heads and bodies that did not come in time
  std::int64_t malformed = 0;     // requests that are no HTTP
  std::int64_t bytes_in = 0, bytes_out = 0;
};

// One request and the way back for its answer. All of it on the server's thread; the answer to a client that
// has gone goes nowhere.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  virtual HttpRequest& request() = 0;
  virtual bool open() const = 0;
  // Either a whole answer,
  virtual void answer(HttpResponse response) = 0;
  // or one in pieces; the head's body is not looked at.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void send(std::string_view bytes) = 0;
  virtual void finish() = 0;
  // A share of something that the answer takes, given back once it is written or its client has gone.
  virtual void hold(std::shared_ptr<const void> share) = 0;
  virtual bool holds() const = 0;
  // The connection ends here, in the middle of what was being sent.
  virtual void abort() = 0;
  // Called at most once, when the client leaves or is cut off before its answer is complete.
  virtual void on_gone(std::function<void()> gone) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // The head is there, the body is not: an answer refuses the request, and its body is never kept.
  virtual std::optional<HttpResponse> admit(HttpRequest& request) = 0;
  virtual void serve(std::shared_ptr<HttpCall> call) = 0;
  // A request that is no HTTP, too large or too slow was answered by the server itself.
  // path: of the request, as far as it is known.
  virtual HttpResponse malformed(int status, std::string_view what, std::string_view path) {
    return refusal(path, status, "bad_http", what);
  }
  virtual void tick() {}  // about ten times a second
  virtual void signal(int /*number*/) {}
};

class HttpServer {
 public:
  // Binds, but does not listen yet: a port in use is known before a model is loaded. Throws io; for TLS also
  // invalid_request when this program was built without OpenSSL or the files are no good.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  bool is_loopback() const;
  bool is_tls() const;
  const HttpCounts& counts() const;  // the server's thread

  // From here on clients can connect; run() answers them, as many at once as open files allow.
  void listen();
  // Until stop(); on the thread that calls.
  void run(HttpHandler& handler);
  // Any thread: run this on the server's.
  void post(std::function<void()> job);

  // The server's thread. No new connections, idle ones closed, the others with their answer.
  void drain();
  bool idle() const;  // no connection is left
  void stop();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

bool has_tls();
// Soft to hard; gives what is in force.
std::uint64_t raise_descriptor_limit();

}  // namespace fourfold::server
