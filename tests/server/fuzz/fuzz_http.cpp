// Any bytes on a connection: every answer is whole HTTP, no body is larger than allowed, and how the bytes
// were cut on their way changes nothing. The first byte says how they are cut; the rest is what the client
// sends.
#include <boost/asio/post.hpp>
#include <cstdlib>

#include "server/http_connection.h"

namespace {

using namespace fourfold;
using namespace fourfold::server;

constexpr std::size_t kHeaderBytesMax = 512, kBodyBytesMax = 1024;

// A client without a socket. A piece is given when everything before it has been dealt with; the end last.
class ScriptedWire final : public Wire {
 public:
  ScriptedWire(asio::io_context& io, std::string_view input, std::size_t piece, std::string& output)
      : io_(io), socket_(io), input_(input), piece_(piece), output_(output) {}
  tcp::socket& socket() override { return socket_; }
  void handshake(std::function<void(error_code)> done) override { done({}); }
  void read(asio::mutable_buffer into, Done done) override {
    into_ = into;
    reading_ = std::move(done);
  }
  void write(asio::const_buffer from, Done done) override {
    const std::size_t size = std::min<std::size_t>(from.size(), 100);
    output_.append(static_cast<const char*>(from.data()), size);
    asio::post(io_, [done = std::move(done), size] { done({}, size); });
  }
  void end_writing(std::function<void()> done) override { asio::post(io_, std::move(done)); }
  // False when nobody reads any more.
  bool give() {
    const auto done = std::exchange(reading_, nullptr);
    if (!done) return false;
    const std::size_t size = std::min({piece_, input_.size(), into_.size()});
    std::memcpy(into_.data(), input_.data(), size);
    input_.remove_prefix(size);
    done(size == 0 ? error_code(asio::error::eof) : error_code(), size);
    return true;
  }

 private:
  asio::io_context& io_;
  tcp::socket socket_;
  std::string_view input_;
  std::size_t piece_;
  std::string& output_;
  asio::mutable_buffer into_;
  Done reading_;
};

// Refuses some, streams some, answers the others with what they are.
class Echo final : public HttpHandler {
 public:
  std::optional<HttpResponse> admit(HttpRequest& request) override {
    if (request.path == "/no") return refusal(request.path, 403, "no", "not this one");
    return {};
  }
  void serve(std::shared_ptr<HttpCall> call) override {
    const HttpRequest& request = call->request();
    if (request.body.size() > kBodyBytesMax) std::abort();
    const std::string text = request.method + " " + request.path + " " + request.query + " " + request.body;
    served += text + "\n";
    if (request.path != "/stream") return call->answer({.content_type = "text/plain", .body = text});
    call->begin_stream({.content_type = "text/plain"});
    call->send(text);
    call->send(request.body);
    call->finish();
  }
  std::string served;
};

struct Outcome {
  std::string output, served;
};

Outcome run(std::string_view input, std::size_t piece) {
  std::string output;
  Echo echo;
  HttpOptions options;
  options.limits.header_bytes_max = kHeaderBytesMax;
  options.limits.body_bytes_max = kBodyBytesMax;
  ServerState shared(std::move(options));
  shared.handler = &echo;
  auto wire = std::make_unique<ScriptedWire>(shared.io, input, piece, output);
  ScriptedWire& script = *wire;
  const auto connection = std::make_shared<Connection>(shared, std::move(wire));
  shared.connections.insert(connection);
  connection->start();
  do {
    shared.io.restart();
    shared.io.run();
  } while (script.give());
  if (!shared.connections.empty() || shared.bodies.all() != 0)
    std::abort();  // the end was told, and nothing is left
  return {std::move(output), std::move(echo.served)};
}

std::string_view until(std::string_view& text, std::string_view end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) std::abort();
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return out;
}

void skip(std::string_view& text, std::string_view size_text, int base) {
  const std::size_t size = std::strtoull(std::string(size_text).c_str(), nullptr, base);
  if (size > text.size()) std::abort();
  text.remove_prefix(size);
}

// Heads, each with its body behind it, to the last byte. To HEAD and to HTTP/1.0 answers may have another
// end, which only who asked can know.
void require_http(std::string_view text) {
  while (!text.empty()) {
    const std::string_view head = until(text, "\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ")) std::abort();
    if (head.find("\r\nTransfer-Encoding: chunked") != std::string_view::npos) {
      for (bool more = true; more;) {
        const std::string_view size = until(text, "\r\n");
        more = size != "0";
        skip(text, size, 16);
        if (!until(text, "\r\n").empty()) std::abort();
      }
    } else if (const std::size_t at = head.find("\r\nContent-Length: "); at != std::string_view::npos) {
      skip(text, head.substr(at + 18), 10);
    } else if (!head.starts_with("HTTP/1.1 100 ")) {
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = run(input, input.size());
  // In small pieces where that is cheap. A wrong head may be refused at another byte, for another reason.
  const Outcome cut = run(input, size < 4096 ? 1 + data[0] % 16 : 1000 + data[0]);
  if (cut.served != whole.served) std::abort();
  if (input.find("HEAD") != std::string_view::npos) return 0;
  require_http(whole.output);
  require_http(cut.output);
  return 0;
}
