// The only file that includes Asio, Beast and OpenSSL, by way of its two headers. Beast parses requests;
// answers are written by us.
#include "server/http_server.h"

#include <sys/resource.h>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <ctime>

#include "server/http_connection.h"

namespace fourfold::server {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";

tcp::endpoint resolve(asio::io_context& io, const HttpOptions& options) {
  tcp::resolver resolver(io);
  error_code problem;
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, problem);
  if (problem || found.empty())
    fail_with_hint(Code::io, "Give an address of this machine: --host 127.0.0.1, or 0.0.0.0 for all.",
                   "--host {}: there is no such address: {}", options.host, problem.message());
  for (const auto& entry : found)
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  return found.begin()->endpoint();
}

}  // namespace

struct HttpServer::Body {
  explicit Body(HttpOptions options) : acceptor(hall.io), timer(hall.io), signals(hall.io) {
    hall.options = std::move(options);
    const HttpOptions& o = hall.options;
    if (o.tls_certificate.empty() != o.tls_key.empty())
      fail(Code::invalid_request, "TLS needs both --tls-cert and --tls-key");
    is_tls = !o.tls_certificate.empty();
#if defined(FOURFOLD_HAS_OPENSSL)
    if (is_tls) tls = tls_context(o);
#else
    if (is_tls)
      fail_with_hint(
          Code::invalid_request,
          "Install OpenSSL's headers (Debian: libssl-dev) and build again, or put a proxy before it.",
          "--tls-cert: this fourfold was built without TLS");
#endif
    bind();
  }

  void bind() {
    endpoint = resolve(hall.io, hall.options);
    error_code problem;
    acceptor.open(endpoint.protocol(), problem);
    if (!problem) acceptor.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem && endpoint.address().is_v6())
      acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), problem);
    if (!problem) acceptor.bind(endpoint, problem);
    if (problem == asio::error::address_in_use)
      fail_with_hint(Code::io,
                     "Choose another with --port N, or stop the program that has it (ss -ltnp shows it).",
                     "port {} of {} is in use", hall.options.port, hall.options.host);
    if (problem == asio::error::access_denied)
      fail_with_hint(Code::io, "Choose a port above 1023 with --port N.",
                     "port {} of {} is not allowed to this user", hall.options.port, hall.options.host);
    if (problem)
      fail(Code::io, "cannot listen on {} port {}: {}", hall.options.host, hall.options.port,
           problem.message());
    endpoint = acceptor.local_endpoint();
  }

  void accept() {
    acceptor.async_accept([this](error_code problem, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      // Out of descriptors, most likely: the tick tries again.
      accepting = !problem;
      if (!problem) take(std::move(socket));
      if (accepting) accept();
    });
  }

  void take(tcp::socket socket) {
    ++hall.counts.connections;
    if (hall.connections.size() >= hall.options.limits.connections_max) {
      ++hall.counts.connections_refused;
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kTooMany), ignored);
      return;
    }
    std::unique_ptr<Wire> wire;
#if defined(FOURFOLD_HAS_OPENSSL)
    if (tls) wire = std::make_unique<TlsWire>(std::move(socket), *tls);
#endif
    if (!wire) wire = std::make_unique<PlainWire>(std::move(socket));
    const auto connection = std::make_shared<Connection>(hall, std::move(wire));
    hall.connections.insert(connection);
    connection->start();
  }

  void tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](error_code problem) {
      if (problem) return;
      hall.date = http_date(std::time(nullptr));
      const auto now = Clock::now();
      const std::vector<std::shared_ptr<Connection>> all(hall.connections.begin(), hall.connections.end());
      for (const auto& connection : all) connection->check_time(now);
      if (!accepting && acceptor.is_open()) {
        accepting = true;
        accept();
      }
      hall.handler->tick();
      tick();
    });
  }

  void await_signal() {
    signals.async_wait([this](error_code problem, int number) {
      if (problem) return;
      hall.handler->signal(number);
      await_signal();
    });
  }

  // Connections hold sockets of the context: they go first.
  ~Body() {
    const std::vector<std::shared_ptr<Connection>> all(hall.connections.begin(), hall.connections.end());
    for (const auto& connection : all) connection->close();
  }

  Hall hall;
#if defined(FOURFOLD_HAS_OPENSSL)
  std::unique_ptr<asio::ssl::context> tls;
#endif
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  asio::signal_set signals;
  tcp::endpoint endpoint;
  bool accepting = true;
  bool is_tls = false;
};

HttpServer::HttpServer(HttpOptions options) : body_(std::make_unique<Body>(std::move(options))) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return body_->endpoint.port(); }
bool HttpServer::is_loopback() const { return body_->endpoint.address().is_loopback(); }
bool HttpServer::is_tls() const { return body_->is_tls; }
const HttpCounts& HttpServer::counts() const {
  body_->hall.counts.connections_open = static_cast<std::int64_t>(body_->hall.connections.size());
  return body_->hall.counts;
}

void HttpServer::listen() {
  error_code problem;
  body_->acceptor.listen(asio::socket_base::max_listen_connections, problem);
  if (problem)
    fail(Code::io, "cannot listen on {} port {}: {}", body_->hall.options.host, port(), problem.message());
}

void HttpServer::run(HttpHandler& handler) {
  Body& body = *body_;
  body.hall.handler = &handler;
  body.hall.date = http_date(std::time(nullptr));
  if (body.hall.options.take_signals) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) body.signals.add(number);
    body.await_signal();
  }
  body.accept();
  body.tick();
  body.hall.io.run();
}

void HttpServer::post(std::function<void()> job) { asio::post(body_->hall.io, std::move(job)); }

void HttpServer::drain() {
  Hall& hall = body_->hall;
  hall.draining = true;
  error_code ignored;
  body_->acceptor.close(ignored);
  const std::vector<std::shared_ptr<Connection>> all(hall.connections.begin(), hall.connections.end());
  for (const auto& connection : all)
    if (connection->idle()) connection->close();
}

bool HttpServer::idle() const { return body_->hall.connections.empty(); }
void HttpServer::stop() { body_->hall.io.stop(); }

bool has_tls() {
#if defined(FOURFOLD_HAS_OPENSSL)
  return true;
#else
  return false;
#endif
}

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return limit.rlim_cur;
}

}  // namespace fourfold::server
