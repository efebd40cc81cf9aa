#include "http/client.h"

#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sstream>

#include "base/error.h"
#include "http/answer_reader.h"
#include "http/connection.h"

namespace fourfold::http {
namespace {

namespace beast = boost::beast;
constexpr std::size_t kBodyBytesMax = std::size_t{64} << 20;

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
  Connection connection(url, Connection::Clock::now() + request.limit);
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
