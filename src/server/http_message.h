// HTTP requests and answers as values, and the parts of the protocol that need no socket: what a target
// means, what a head looks like, which hosts and origins are whose.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fourfold::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, byte for byte as it was sent: nothing is decoded, nothing is merged
  std::string query;   // behind its '?'
  std::string peer;    // the client's address, without port
  // Who it counts for, where clients have their share of something: the network, or "key N" once that is
  // known.
  std::string client = {};
  Headers headers;  // names in lower case
  std::string body;
  // Whoever admits it notes here when it came, who asks and what the request is called; 0: no one in
  // particular.
  std::chrono::steady_clock::time_point begun = {};
  std::uint64_t tenant = 0;
  std::string id = {};

  // The first of this name; empty when there is none.
  std::string_view header(std::string_view name) const;
  std::size_t count(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers = {};
  std::string body = {};
  bool close = false;  // the connection ends with it
  // Of an answer that is long: gives the next piece once the last has been taken; empty: that was all. The
  // server's thread.
  std::function<std::string()> more = {};
};

std::string_view reason(int status);

// Whether there is something of a request behind the empty lines that some clients end a body with
// (RFC 9112, 2.2), which are taken away.
bool begins_request(std::string& received);

// Path and query of a target. Origin form and absolute form of http and https are understood, so that both
// spellings of one resource are one path; anything else (authority form, "*", control characters, a fragment)
// is nothing.
struct Target {
  std::string path;
  std::string query;
  std::string authority;  // of the absolute form; empty otherwise
};
std::optional<Target> parse_target(std::string_view target);

// "[::1]:8000" -> "::1"; nothing unless it is a host name or an address, with or without a port.
std::optional<std::string> host_name(std::string_view authority);
bool is_address(std::string_view host);

// A value that came from outside and goes into an answer's head or a log line: letters, digits, "-_.:" only.
bool is_plain_id(std::string_view text, std::size_t bytes_max = 128);

// Status line and header lines with the empty line. length: of the body; nothing: chunked, or to the end of
// the connection for a client of HTTP/1.0.
struct HeadOptions {
  std::optional<std::size_t> length;
  bool keep_alive = true;
  bool chunked = false;
  std::string_view date = {};
};
std::string response_head(const HttpResponse& response, const HeadOptions& options);

// One chunk of a chunked body. An empty one would be the end: nothing comes of no bytes.
void append_chunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::int64_t unix_seconds);

// Whose errors clients of a path expect: Anthropic's below /v1/messages, OpenAI's elsewhere.
enum class ErrorShape { openai, anthropic };
ErrorShape error_shape(std::string_view path);
// The one table of what a status is called in an error's "type".
std::string_view error_type(ErrorShape shape, int status);
// code is OpenAI's `code` and Anthropic's `details.error_code`; param is OpenAI's alone.
std::string error_body(ErrorShape shape, int status, std::string_view message, std::string_view code = {},
                       std::string_view param = {});

// An answer that says no, in the shape clients of the path expect.
HttpResponse refusal(std::string_view path, int status, std::string_view code, std::string_view message);

}  // namespace fourfold::server
