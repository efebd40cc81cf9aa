#include "http/connection.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#if defined(FOURFOLD_HAS_OPENSSL)
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#endif
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"

namespace fourfold::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using beast::error_code;

constexpr std::size_t kProxyAnswerMax = 16 << 10;

std::string as_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < text.size() ? static_cast<unsigned char>(text[i + j]) : 0);
    for (std::size_t j = 0; j < 4; ++j) out += i + j <= text.size() ? digits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

#if defined(FOURFOLD_HAS_OPENSSL)
// OpenSSL's own places honour SSL_CERT_FILE and SSL_CERT_DIR. A program that brings its OpenSSL along was
// told other places than this system has, so where there is no such file the usual ones are tried.
void trust_system(asio::ssl::context& context) {
  context.set_default_verify_paths();
  if (std::getenv("SSL_CERT_FILE") != nullptr || std::getenv("SSL_CERT_DIR") != nullptr) return;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    error_code problem;
    context.load_verify_file(file, problem);
    if (!problem) return;
  }
}

// One for the process: the system's certificates take milliseconds to read.
asio::ssl::context& tls_context() {
  static asio::ssl::context* const context = [] {
    auto* made = new asio::ssl::context(asio::ssl::context::tls_client);
    made->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    trust_system(*made);
    made->set_verify_mode(asio::ssl::verify_peer);
    return made;
  }();
  return *context;
}
#endif

}  // namespace

struct Connection::Body {
  Body(const Url& url, Clock::time_point deadline, const Proxy* proxy) : stream(context) {
    const std::string& host = proxy != nullptr ? proxy->host : url.host;
    const std::string& port = proxy != nullptr ? proxy->port : url.port;
    const std::string_view kind = proxy != nullptr ? "the proxy " : "";
    error_code problem;
    const auto found = tcp::resolver(context).resolve(host, port, problem);
    if (problem) fail(Code::io, "{}{} has no address: {}", kind, host, problem.message());
    stream.expires_at(deadline);
    problem = wait([&](auto done) {
      stream.async_connect(found, [done](error_code result, const tcp::endpoint&) { done(result, 0); });
    });
    if (problem == beast::error::timeout) problem = asio::error::timed_out;
    if (problem) fail(Code::io, "{}{}:{} cannot be reached: {}", kind, host, port, problem.message());
    if (proxy != nullptr) pass_through(*proxy, url);
    if (url.tls) greet(url);
  }

  // Asks the proxy to connect: what follows its answer is the server's.
  void pass_through(const Proxy& proxy, const Url& url) {
    const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
    const std::string target = host + ":" + url.port;
    std::string text = "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n";
    if (!proxy.user.empty()) text += "Proxy-Authorization: Basic " + as_base64(proxy.user) + "\r\n";
    text += "\r\n";
    error_code problem = wait([&](auto done) { asio::async_write(stream, asio::buffer(text), done); });
    std::string answer;
    while (!problem && !answer.ends_with("\r\n\r\n") && answer.size() < kProxyAnswerMax) {
      // Byte by byte: nothing of what comes behind the answer may be taken.
      problem = wait([&](auto done) { stream.async_read_some(asio::buffer(buffer, 1), done); });
      if (!problem) answer += buffer[0];
    }
    require_in_time(problem);
    if (problem)
      fail(Code::io, "the proxy {}:{} closed the connection: {}", proxy.host, proxy.port, problem.message());
    const std::string status = answer.substr(0, answer.find("\r\n"));
    if (status.starts_with("HTTP/1.") && status.size() > 9 && status.substr(8).starts_with(" 2")) return;
    if (status.find(" 407") == 8)
      fail_with_hint(Code::invalid_request,
                     "Write it into the address: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
                     "the proxy {}:{} wants a name and a password ({})", proxy.host, proxy.port, status);
    fail(Code::io, "the proxy {}:{} does not connect to {}: {}", proxy.host, proxy.port, target,
         status.substr(0, 200));
  }

  void greet(const Url& url) {
#if defined(FOURFOLD_HAS_OPENSSL)
    tls.emplace(stream, tls_context());
    if (SSL_set_tlsext_host_name(tls->native_handle(), url.host.c_str()) != 1)
      fail(Code::io, "{}: OpenSSL refuses the host name", url.host);
    tls->set_verify_callback(asio::ssl::host_name_verification(url.host));
    const error_code problem = wait([&](auto done) {
      tls->async_handshake(asio::ssl::stream_base::client, [done](error_code result) { done(result, 0); });
    });
    require_in_time(problem);
    if (problem)
      fail_with_hint(Code::io,
                     "Certificates are those of the system (Debian: ca-certificates), or of SSL_CERT_FILE.",
                     "{}:{}: no TLS connection: {}", url.host, url.port, problem.message());
#else
    fail_with_hint(Code::unsupported_op, "Build with OpenSSL 3 (Debian: libssl-dev).",
                   "{}: this program was built without TLS", link_text(url));
#endif
  }

  // The stream that bytes go through.
  template <class Use>
  void with_stream(const Use& use) {
#if defined(FOURFOLD_HAS_OPENSSL)
    if (tls) return use(*tls);
#endif
    use(stream);
  }

  // Beast's deadlines are kept by asynchronous operations alone, so each is started and waited for.
  template <class Start>
  error_code wait(Start start) {
    error_code problem;
    start([this, &problem](error_code result, std::size_t moved) {
      problem = result;
      size = moved;
    });
    context.restart();
    context.run();
    return problem;
  }

  static void require_in_time(error_code problem) {
    if (problem == beast::error::timeout) fail(Code::io, "the server took too long to answer");
  }

  asio::io_context context;
  beast::tcp_stream stream;
#if defined(FOURFOLD_HAS_OPENSSL)
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls;
#endif
  char buffer[64 << 10];
  std::size_t size = 0;  // what the last operation moved
};

Connection::Connection(const Url& url, Clock::time_point deadline, const Proxy* proxy)
    : body_(std::make_unique<Body>(url, deadline, proxy)) {}
Connection::~Connection() = default;

void Connection::expire_at(Clock::time_point deadline) { body_->stream.expires_at(deadline); }

void Connection::send(std::string_view text) {
  const error_code problem = body_->wait([&](auto done) {
    body_->with_stream([&](auto& stream) { asio::async_write(stream, asio::buffer(text), done); });
  });
  Body::require_in_time(problem);
  if (problem) fail(Code::io, "the server closed the connection: {}", problem.message());
}

std::string_view Connection::receive() {
  const error_code problem = body_->wait([&](auto done) {
    body_->with_stream([&](auto& stream) { stream.async_read_some(asio::buffer(body_->buffer), done); });
  });
  if (problem == asio::error::eof) return {};
#if defined(FOURFOLD_HAS_OPENSSL)
  // A server that hangs up without TLS's goodbye: whether its answer was whole, its length says.
  if (problem == asio::ssl::error::stream_truncated) return {};
#endif
  Body::require_in_time(problem);
  if (problem) fail(Code::io, "the connection broke: {}", problem.message());
  return {body_->buffer, body_->size};
}

}  // namespace fourfold::http
