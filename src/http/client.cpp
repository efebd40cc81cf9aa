#include "http/client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sstream>

#include "base/error.h"
#include "http/answer_reader.h"

namespace fourfold::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using beast::error_code;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kBodyBytesMax = std::size_t{64} << 20;

class Connection {
 public:
  Connection(const Url& url, Clock::time_point deadline) : stream_(context_) {
    error_code problem;
    const auto found = tcp::resolver(context_).resolve(url.host, url.port, problem);
    if (problem) fail(Code::io, "{} has no address: {}", url.host, problem.message());
    stream_.expires_at(deadline);
    problem = wait([&](auto done) {
      stream_.async_connect(found, [done](error_code result, const tcp::endpoint&) { done(result, 0); });
    });
    if (problem == beast::error::timeout) problem = asio::error::timed_out;
    if (problem) fail(Code::io, "{}:{} cannot be reached: {}", url.host, url.port, problem.message());
  }

  void send(std::string_view text) {
    const error_code problem = wait([&](auto done) { asio::async_write(stream_, asio::buffer(text), done); });
    require_in_time(problem);
    if (problem) fail(Code::io, "the server closed the connection: {}", problem.message());
  }

  // Nothing at the end of the stream. Valid until the next call.
  std::string_view receive() {
    const error_code problem = wait([&](auto done) { stream_.async_read_some(asio::buffer(buffer_), done); });
    if (problem == asio::error::eof) return {};
    require_in_time(problem);
    if (problem) fail(Code::io, "the connection broke: {}", problem.message());
    return {buffer_, size_};
  }

 private:
  // Beast's deadlines are kept by asynchronous operations alone, so each is started and waited for.
  template <class Start>
  error_code wait(Start start) {
    error_code problem;
    start([this, &problem](error_code result, std::size_t size) {
      problem = result;
      size_ = size;
    });
    context_.restart();
    context_.run();
    return problem;
  }

  static void require_in_time(error_code problem) {
    if (problem == beast::error::timeout) fail(Code::io, "the server took too long to answer");
  }

  asio::io_context context_;
  beast::tcp_stream stream_;
  char buffer_[16 << 10];
  std::size_t size_ = 0;  // what the last operation moved
};

}  // namespace

std::string request_text(const Url& url, const Request& request) {
  using beast::http::field;
  beast::http::request<beast::http::string_body> out;
  out.method_string(request.method);
  out.target(url.path + request.path);
  out.version(11);
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  out.set(field::host, host + ":" + url.port);
  out.set(field::connection, "close");
  out.set(field::accept, "*/*");
  if (!request.key.empty()) out.set(field::authorization, "Bearer " + request.key);
  if (!request.body.empty()) {
    out.set(field::content_type, "application/json");
    out.content_length(request.body.size());
    out.body() = request.body;
  }
  std::ostringstream text;
  text << out;
  return std::move(text).str();
}

int ask(const Url& url, const Request& request, const BodyPart& part) {
  Connection connection(url, Clock::now() + request.limit);
  connection.send(request_text(url, request));
  AnswerReader reader;
  std::string body;
  while (!reader.done()) {
    const std::string_view bytes = connection.receive();
    if (bytes.empty()) {
      reader.close();
      break;
    }
    reader.take(bytes, body);
    if (!body.empty() && !part(body)) break;
    body.clear();
  }
  return reader.status();
}

Answer ask(const Url& url, const Request& request) {
  Answer answer;
  answer.status = ask(url, request, [&](std::string_view part) {
    answer.body += part;
    if (answer.body.size() > kBodyBytesMax) fail(Code::io, "the answer is over {} bytes", kBodyBytesMax);
    return true;
  });
  return answer;
}

}  // namespace fourfold::http
