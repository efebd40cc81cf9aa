// A connection's bytes, plain or through TLS. For http_server.cpp alone.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <utility>
#if defined(FOURFOLD_HAS_OPENSSL)
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#endif

#include "base/error.h"
#include "json/parse.h"
#include "server/http_server.h"

namespace fourfold::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class Wire {
 public:
  using Done = std::function<void(error_code, std::size_t)>;
  virtual ~Wire() = default;
  virtual tcp::socket& socket() = 0;
  virtual void handshake(std::function<void(error_code)> done) = 0;
  virtual void read(asio::mutable_buffer into, Done done) = 0;
  virtual void write(asio::const_buffer from, Done done) = 0;
  // No more will be written. `done` is kept until the other side has been told.
  virtual void end_writing(std::function<void()> done) = 0;
  virtual bool has_farewell() const { return false; }  // the end is said before the socket is closed
};

class PlainWire final : public Wire {
 public:
  explicit PlainWire(tcp::socket socket) : socket_(std::move(socket)) {}
  tcp::socket& socket() override { return socket_; }
  void handshake(std::function<void(error_code)> done) override { done({}); }
  void read(asio::mutable_buffer into, Done done) override { socket_.async_read_some(into, std::move(done)); }
  void write(asio::const_buffer from, Done done) override { socket_.async_write_some(from, std::move(done)); }
  void end_writing(std::function<void()>) override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }

 private:
  tcp::socket socket_;
};

#if defined(FOURFOLD_HAS_OPENSSL)
class TlsWire final : public Wire {
 public:
  TlsWire(tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  tcp::socket& socket() override { return stream_.next_layer(); }
  void handshake(std::function<void(error_code)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void read(asio::mutable_buffer into, Done done) override { stream_.async_read_some(into, std::move(done)); }
  void write(asio::const_buffer from, Done done) override { stream_.async_write_some(from, std::move(done)); }
  // close_notify: without it the end looks like a connection that was cut.
  void end_writing(std::function<void()> done) override {
    stream_.async_shutdown([done = std::move(done)](error_code) { done(); });
  }
  bool has_farewell() const override { return true; }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

inline std::unique_ptr<asio::ssl::context> tls_context(const HttpOptions& options) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                       asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1);
  // Read by us: OpenSSL would wait for a pipe that is not a file.
  constexpr std::size_t kPemBytesMax = std::size_t{1} << 20;
  const auto read = [](const char* option, const std::string& path) {
    try {
      return json::read_text_file(path, kPemBytesMax);
    } catch (const Error& error) {
      fail(Code::io, "{} {}", option, error.what());
    }
  };
  const std::string chain = read("--tls-cert", options.tls_certificate),
                    key = read("--tls-key", options.tls_key);
  error_code problem;
  context->use_certificate_chain(asio::buffer(chain), problem);
  if (problem)
    fail(Code::io, "--tls-cert {}: no certificate chain in PEM can be read: {}", options.tls_certificate,
         problem.message());
  context->use_private_key(asio::buffer(key), asio::ssl::context::pem, problem);
  if (problem)
    fail(Code::io, "--tls-key {}: no private key in PEM of that certificate: {}", options.tls_key,
         problem.message());
  return context;
}
#endif

}  // namespace fourfold::server
