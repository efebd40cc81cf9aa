#include "http/session.h"

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "http/answer_reader.h"
#include "http/connection.h"

namespace fourfold::http {
namespace {

std::string get_text(const Url& url, const Fields& fields) {
  namespace http = boost::beast::http;
  http::request<http::empty_body> out(http::verb::get, url.path, 11);
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  const bool usual = url.port == (url.tls ? "443" : "80");
  out.set(http::field::host, usual ? host : host + ":" + url.port);
  out.set(http::field::accept, "*/*");
  // What was compressed on the way has another length than was promised.
  out.set(http::field::accept_encoding, "identity");
  for (const auto& [name, value] : fields) out.set(name, value);
  std::ostringstream text;
  text << out;
  return std::move(text).str();
}

}  // namespace

int Head::status() const { return reader_.status(); }
std::string Head::field(std::string_view name) const { return reader_.field(name); }

Session::Session() = default;
Session::~Session() = default;

void Session::get(const Url& url, const Fields& fields, const HeadedPart& part) {
  const std::string text = get_text(url, fields);
  if (connection_ != nullptr && same_origin(to_, url) && exchange(text, part, true)) return;
  connection_ = std::make_unique<Connection>(url, Connection::Clock::now() + silence, proxies.way_to(url));
  to_ = url;
  exchange(text, part, false);
}

bool Session::exchange(const std::string& text, const HeadedPart& part, bool was_kept) {
  // Kept only when all went well.
  std::unique_ptr<Connection> connection = std::move(connection_);
  AnswerReader reader;
  const Head head(reader);
  std::string body;
  std::string_view bytes;
  try {
    connection->expire_at(Connection::Clock::now() + silence);
    connection->send(text);
    bytes = connection->receive();
  } catch (const Error&) {
    if (!was_kept) throw;
    return false;
  }
  if (bytes.empty() && was_kept) return false;
  if (bytes.empty()) reader.close();
  bool headed = false;
  for (;;) {
    reader.take(bytes, body);
    const bool first = reader.has_head() && !std::exchange(headed, reader.has_head());
    if ((first || !body.empty()) && !part(head, body)) return true;
    body.clear();
    if (reader.done()) break;
    connection->expire_at(Connection::Clock::now() + silence);
    bytes = connection->receive();
    if (bytes.empty()) {
      reader.close();
      break;
    }
  }
  if (reader.may_ask_again()) connection_ = std::move(connection);
  return true;
}

}  // namespace fourfold::http
