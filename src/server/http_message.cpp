#include "server/http_message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>

#include "base/json_writer.h"

namespace fourfold::server {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::size_t HttpRequest::count(std::string_view name) const {
  return static_cast<std::size_t>(std::count_if(headers.begin(), headers.end(),
                                                [&](const auto& header) { return header.first == name; }));
}

bool begins_request(std::string& received) {
  std::size_t empty = 0;
  while (std::string_view(received).substr(empty).starts_with("\r\n")) empty += 2;
  received.erase(0, empty);
  return !received.empty() && received != "\r";
}

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

std::optional<Target> parse_target(std::string_view target) {
  const auto is_bad = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 127 || c == '#'; };
  if (std::any_of(target.begin(), target.end(), is_bad)) return std::nullopt;
  Target out;
  if (!target.starts_with('/')) {
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos) return std::nullopt;
    const std::string_view name = target.substr(0, scheme);
    if (name != "http" && name != "https") return std::nullopt;
    target.remove_prefix(scheme + 3);
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    out.authority = target.substr(0, end);
    if (!host_name(out.authority)) return std::nullopt;
    target.remove_prefix(end);
  }
  const std::size_t question = std::min(target.find('?'), target.size());
  out.path = target.substr(0, question);
  if (out.path.empty()) out.path = "/";
  if (question < target.size()) out.query = target.substr(question + 1);
  return out;
}

std::optional<std::string> host_name(std::string_view authority) {
  std::string_view host = authority;
  std::string_view port;
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    port = host.substr(end + 1);
    host = host.substr(1, end - 1);
    const auto is_hex = [](char c) {
      return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.';
    };
    if (host.find(':') == std::string_view::npos || !std::all_of(host.begin(), host.end(), is_hex))
      return std::nullopt;
  } else {
    const std::size_t colon = std::min(host.find(':'), host.size());
    port = host.substr(colon);
    host = host.substr(0, colon);
    const auto is_name = [](char c) {
      return is_digit(c) || is_letter(c) || c == '-' || c == '.' || c == '_';
    };
    if (host.empty() || host.size() > 255 || !std::all_of(host.begin(), host.end(), is_name))
      return std::nullopt;
  }
  if (!port.empty()) {
    if (port.front() != ':' || port.size() > 6) return std::nullopt;
    port.remove_prefix(1);
    if (!std::all_of(port.begin(), port.end(), is_digit)) return std::nullopt;
  }
  std::string out(host);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool is_address(std::string_view host) {
  if (host.find(':') != std::string_view::npos) return true;
  return !host.empty() &&
         std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
}

bool is_plain_id(std::string_view text, std::size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max && std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || is_letter(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

std::string response_head(const HttpResponse& response, const HeadOptions& options) {
  std::string out = "HTTP/1.1 ";
  out += std::to_string(response.status);
  out += ' ';
  out += reason(response.status);
  const auto line = [&](std::string_view name, std::string_view value) {
    out += "\r\n";
    out += name;
    out += ": ";
    out += value;
  };
  if (!options.date.empty()) line("Date", options.date);
  const bool has_body = response.status != 204 && response.status != 304;
  if (has_body) line("Content-Type", response.content_type);
  if (options.chunked)
    line("Transfer-Encoding", "chunked");
  else if (options.length && has_body)
    line("Content-Length", std::to_string(*options.length));
  for (const auto& [name, value] : response.headers) line(name, value);
  line("X-Content-Type-Options", "nosniff");
  line("Connection", options.keep_alive ? "keep-alive" : "close");
  out += "\r\n\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, bytes.size(), 16).ptr;
  out.append(digits, end);
  out += "\r\n";
  out += bytes;
  out += "\r\n";
}

std::string http_date(std::int64_t unix_seconds) {
  static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t seconds = unix_seconds;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  // Not by strftime: names of days in an answer's head are English in every locale.
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday % 7], utc.tm_mday,
                kMonths[utc.tm_mon % 12], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text;
}

ErrorShape error_shape(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorShape::anthropic : ErrorShape::openai;
}

std::string_view error_type(ErrorShape shape, int status) {
  const bool anthropic = shape == ErrorShape::anthropic;
  switch (status) {
    case 401: return anthropic ? "authentication_error" : "invalid_request_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return anthropic ? "request_too_large" : "invalid_request_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
  }
}

std::string error_body(ErrorShape shape, int status, std::string_view message, std::string_view code,
                       std::string_view param) {
  JsonWriter json;
  const std::string_view type = error_type(shape, status);
  const auto optional_member = [&](std::string_view name, std::string_view text) {
    json.key(name);
    if (text.empty()) {
      json.value(nullptr);
    } else {
      json.value(text);
    }
  };
  json.begin_object();
  if (shape == ErrorShape::anthropic) {
    json.member("type", "error").key("error").begin_object();
    json.member("type", type).member("message", message);
    if (!code.empty()) json.key("details").begin_object().member("error_code", code).end_object();
  } else {
    json.key("error").begin_object().member("message", message).member("type", type);
    optional_member("param", param);
    optional_member("code", code);
  }
  json.end_object().end_object();
  return json.finish();
}

HttpResponse refusal(std::string_view path, int status, std::string_view code, std::string_view message) {
  HttpResponse out{.status = status, .body = error_body(error_shape(path), status, message, code)};
  if (status == 429 || status == 503) out.headers.emplace_back("Retry-After", "1");
  if (status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace fourfold::server
