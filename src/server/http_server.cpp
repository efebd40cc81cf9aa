// The only file that includes Asio, Beast and OpenSSL, by way of its two headers. Beast parses requests;
// answers are written by us.
#include "server/http_server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <ctime>

#include "server/http_connection.h"
#include "server/metrics.h"

namespace fourfold::server {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kCrowdPause = std::chrono::nanoseconds(300);  // for each connection
constexpr int kTurnedAwayAtOnce = 64;
constexpr std::size_t kDescriptorsKept = 16;
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
  explicit Body(HttpOptions options)
      : shared(std::move(options)), acceptor(shared.io), timer(shared.io), signals(shared.io) {
    const HttpOptions& o = shared.options;
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
    endpoint = resolve(shared.io, shared.options);
    error_code problem;
    acceptor.open(endpoint.protocol(), problem);
    if (!problem) acceptor.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem && endpoint.address().is_v6())
      acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), problem);
    if (!problem) acceptor.bind(endpoint, problem);
    if (problem == asio::error::address_in_use)
      fail_with_hint(Code::io,
                     "Choose another with --port N, or stop the program that has it (ss -ltnp shows it).",
                     "port {} of {} is in use", shared.options.port, shared.options.host);
    if (problem == asio::error::access_denied)
      fail_with_hint(Code::io, "Choose a port above 1023 with --port N.",
                     "port {} of {} is not allowed to this user", shared.options.port, shared.options.host);
    if (problem)
      fail(Code::io, "cannot listen on {} port {}: {}", shared.options.host, shared.options.port,
           problem.message());
    endpoint = acceptor.local_endpoint();
  }

  void accept() {
    acceptor.async_accept([this](error_code problem, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      accepting = !problem;  // else the tick tries again
      if (problem == asio::error::no_descriptors ||
          problem == boost::system::errc::too_many_files_open_in_system)
        turn_away();
      if (!problem) take(std::move(socket));
      if (accepting) accept();
    });
  }

  // A connection there is no room for is told so, as far as that can be done without waiting.
  void refuse(int socket) {
    ++shared.counts.connections_refused;
    if (!is_tls) (void)!::send(socket, kTooMany.data(), kTooMany.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(socket, SHUT_WR);
    // Closing with bytes unread would reset the connection under the answer.
    char bytes[4096];
    for (int i = 0; i < 16 && ::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0; ++i) {
    }
  }

  // Without a descriptor not even a refusal could be sent, and clients would wait: one is kept for that.
  void turn_away() {
    for (int i = 0; i < kTurnedAwayAtOnce && spare >= 0; ++i) {
      ::close(std::exchange(spare, -1));
      const int socket = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket >= 0) {
        ++shared.counts.connections;
        refuse(socket);
        ::close(socket);
      }
      spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (socket < 0) return;
    }
  }

  // Closes connections of whoever has the most for which no work is done, unless that is who asks.
  void make_room(const std::string& network) {
    const std::string largest = shared.crowd.largest();
    const std::size_t size = shared.crowd.of(largest);
    if (size <= 1 + shared.crowd.of(network)) return;
    const auto now = Clock::now();
    // It looks at all of them: among many that is not for every newcomer.
    if (now - last_crowd < kCrowdPause * static_cast<std::int64_t>(shared.connections.size())) return;
    last_crowd = now;
    struct Yielding {
      int rank;
      Clock::time_point since;
      std::shared_ptr<Connection> connection;
    };
    std::vector<Yielding> yielding;
    for (const auto& connection : shared.connections)
      if (connection->network() == largest)
        if (const auto rank = connection->yields(now))
          yielding.push_back({*rank, connection->since(), connection});
    const std::size_t count = std::min(yielding.size(), std::max<std::size_t>(1, size / 16));
    std::ranges::partial_sort(yielding, yielding.begin() + static_cast<std::ptrdiff_t>(count), {},
                              [](const Yielding& one) { return std::pair(one.rank, one.since); });
    for (std::size_t i = 0; i < count; ++i) yielding[i].connection->close();
    shared.counts.connections_crowded_out += static_cast<std::int64_t>(count);
  }

  void take(tcp::socket socket) {
    ++shared.counts.connections;
    if (shared.connections.size() >= connections_max) {
      error_code unknown;
      const tcp::endpoint peer = socket.remote_endpoint(unknown);
      if (!unknown) make_room(network_of(peer.address()));
    }
    if (shared.connections.size() >= connections_max) return refuse(socket.native_handle());
    std::unique_ptr<Wire> wire;
#if defined(FOURFOLD_HAS_OPENSSL)
    if (tls) wire = std::make_unique<TlsWire>(std::move(socket), *tls);
#endif
    if (!wire) wire = std::make_unique<PlainWire>(std::move(socket));
    const auto connection = std::make_shared<Connection>(shared, std::move(wire));
    shared.connections.insert(connection);
    shared.crowd.enter(connection->network());
    connection->start();
  }

  // Files, libraries and pipes of the process have descriptors too, and more while it runs.
  void count_descriptors() {
    spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    connections_max = shared.options.limits.connections_max;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const auto used = static_cast<std::size_t>(open_descriptors()) + kDescriptorsKept;
    const std::size_t left = limit.rlim_cur > used ? limit.rlim_cur - used : 1;
    connections_max = std::min(connections_max, left);
  }

  void tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](error_code problem) {
      if (problem) return;
      shared.date = http_date(std::time(nullptr));
      const auto now = Clock::now();
      const std::vector<std::shared_ptr<Connection>> all(shared.connections.begin(),
                                                         shared.connections.end());
      for (const auto& connection : all) connection->check_time(now);
      if (!accepting && acceptor.is_open()) {
        accepting = true;
        accept();
      }
      shared.handler->tick();
      tick();
    });
  }

  void await_signal() {
    signals.async_wait([this](error_code problem, int number) {
      if (problem) return;
      shared.handler->signal(number);
      await_signal();
    });
  }

  // Connections hold sockets of the context: they go first.
  ~Body() {
    const std::vector<std::shared_ptr<Connection>> all(shared.connections.begin(), shared.connections.end());
    for (const auto& connection : all) connection->close();
    if (spare >= 0) ::close(spare);
  }

  ServerState shared;
#if defined(FOURFOLD_HAS_OPENSSL)
  std::unique_ptr<asio::ssl::context> tls;
#endif
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  asio::signal_set signals;
  tcp::endpoint endpoint;
  bool accepting = true;
  bool is_tls = false;
  int spare = -1;                   // a descriptor
  std::size_t connections_max = 0;  // as many as there are descriptors for
  Clock::time_point last_crowd{};
};

HttpServer::HttpServer(HttpOptions options) : body_(std::make_unique<Body>(std::move(options))) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return body_->endpoint.port(); }
bool HttpServer::is_loopback() const { return body_->endpoint.address().is_loopback(); }
bool HttpServer::is_tls() const { return body_->is_tls; }
const HttpCounts& HttpServer::counts() const {
  body_->shared.counts.connections_open = static_cast<std::int64_t>(body_->shared.connections.size());
  return body_->shared.counts;
}

void HttpServer::listen() {
  error_code problem;
  body_->acceptor.listen(asio::socket_base::max_listen_connections, problem);
  if (problem)
    fail(Code::io, "cannot listen on {} port {}: {}", body_->shared.options.host, port(), problem.message());
}

void HttpServer::run(HttpHandler& handler) {
  Body& body = *body_;
  body.shared.handler = &handler;
  body.shared.date = http_date(std::time(nullptr));
  if (body.shared.options.take_signals) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) body.signals.add(number);
    body.await_signal();
  }
  body.count_descriptors();
  body.accept();
  body.tick();
  body.shared.io.run();
}

void HttpServer::post(std::function<void()> job) { asio::post(body_->shared.io, std::move(job)); }

void HttpServer::drain() {
  ServerState& shared = body_->shared;
  shared.draining = true;
  error_code ignored;
  body_->acceptor.close(ignored);
  const std::vector<std::shared_ptr<Connection>> all(shared.connections.begin(), shared.connections.end());
  for (const auto& connection : all)
    if (connection->idle()) connection->end();
}

bool HttpServer::idle() const { return body_->shared.connections.empty(); }
void HttpServer::stop() { body_->shared.io.stop(); }

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
