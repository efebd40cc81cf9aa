#include "doctor/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.h"

namespace fourfold::doctor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kHeadBytesMax = 64 << 10;

class Socket {
 public:
  Socket(const Url& url, Clock::time_point deadline) : deadline_(deadline) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &wanted, &found); error != 0)
      fail(Code::io, "{} has no address: {}", url.host, gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
    int error = 0;
    for (const addrinfo* at = found; at != nullptr && descriptor_ < 0; at = at->ai_next)
      error = connect_to(*at);
    if (descriptor_ < 0)
      fail(Code::io, "{}:{} cannot be reached: {}", url.host, url.port, std::strerror(error));
  }
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void send(std::string_view text) {
    while (!text.empty()) {
      wait(descriptor_, POLLOUT);
      const ssize_t sent = ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR)
        fail(Code::io, "the server closed the connection: {}", std::strerror(errno));
      text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    }
  }

  // Nothing at the end of the stream.
  std::string receive() {
    char buffer[16 << 10];
    for (;;) {
      wait(descriptor_, POLLIN);
      const ssize_t got = recv(descriptor_, buffer, sizeof buffer, 0);
      if (got >= 0) return {buffer, static_cast<std::size_t>(got)};
      if (errno != EAGAIN && errno != EINTR) fail(Code::io, "the connection broke: {}", std::strerror(errno));
    }
  }

 private:
  // 0, or why not.
  int connect_to(const addrinfo& address) {
    const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) return errno;
    int error = connect(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      try {
        wait(socket, POLLOUT);
      } catch (const Error&) {
        close(socket);
        return ETIMEDOUT;
      }
      socklen_t size = sizeof error;
      getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0)
      descriptor_ = socket;
    else
      close(socket);
    return error;
  }

  void wait(int descriptor, short events) {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      pollfd watched{descriptor, events, 0};
      const int ready = left > 0 ? poll(&watched, 1, static_cast<int>(left)) : 0;
      if (ready > 0) return;
      if (ready == 0) fail(Code::io, "the server took too long to answer");
      if (errno != EINTR) fail(Code::io, "waiting for the server failed: {}", std::strerror(errno));
    }
  }

  int descriptor_ = -1;
  Clock::time_point deadline_;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& letter : out) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return out;
}

struct Head {
  int status = 0;
  bool is_chunked = false;
  std::optional<std::size_t> body_bytes;
};

Head parse_head(const std::string& text) {
  Head head;
  if (!text.starts_with("HTTP/1.") || text.size() < 12) fail(Code::io, "the answer is not HTTP/1.1");
  std::from_chars(text.data() + 9, text.data() + 12, head.status);
  const std::string all = lower(text);
  head.is_chunked = all.find("\r\ntransfer-encoding: chunked") != std::string::npos;
  constexpr std::string_view length = "\r\ncontent-length:";
  if (const auto at = all.find(length); at != std::string::npos) {
    const auto digits = all.find_first_of("0123456789", at + length.size());
    std::size_t bytes = 0;
    if (digits != std::string::npos) std::from_chars(all.data() + digits, all.data() + all.size(), bytes);
    head.body_bytes = bytes;
  }
  return head;
}

// "1a4\r\n" bytes "\r\n" ... "0\r\n\r\n"; hands out what is complete and keeps the rest.
class Chunks {
 public:
  // False when the body has ended or the receiver has enough.
  bool take(std::string_view text, const BodyPart& part) {
    buffer_ += text;
    for (;;) {
      if (left_ > 0) {
        const std::size_t size = std::min(left_, buffer_.size());
        if (size == 0) return true;
        left_ -= size;
        const bool more = part(std::string_view(buffer_).substr(0, size));
        buffer_.erase(0, size);
        if (!more) return false;
        continue;
      }
      if (buffer_.starts_with("\r\n")) buffer_.erase(0, 2);
      const auto end = buffer_.find("\r\n");
      if (end == std::string::npos) return true;
      const auto [stop, error] = std::from_chars(buffer_.data(), buffer_.data() + end, left_, 16);
      if (error != std::errc() || stop == buffer_.data())
        fail(Code::io, "a chunk of the answer has no length");
      buffer_.erase(0, end + 2);
      if (left_ == 0) return false;
    }
  }

 private:
  std::string buffer_;
  std::size_t left_ = 0;
};

void receive_body(Socket& socket, const Head& head, std::string text, const BodyPart& part) {
  Chunks chunks;
  std::size_t received = 0;
  for (;;) {
    received += text.size();
    if (head.is_chunked) {
      if (!text.empty() && !chunks.take(text, part)) return;
    } else {
      if (!text.empty() && !part(text)) return;
      if (head.body_bytes && received >= *head.body_bytes) return;
    }
    text = socket.receive();
    if (text.empty()) return;  // the server closed: the end of a body without a length
  }
}

}  // namespace

Url parse_url(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  const auto refuse = [&](const char* why) {
    fail_with_hint(Code::invalid_request, "For example: --url http://127.0.0.1:8000", "'{}' {}", text, why);
  };
  if (text.starts_with("https://")) refuse("is https; doctor measures servers over plain http");
  if (!text.starts_with(scheme)) refuse("is no http:// address");
  std::string_view rest = text.substr(scheme.size());
  Url url;
  const auto slash = std::min(rest.find('/'), rest.size());
  url.path = std::string(rest.substr(slash));
  while (url.path.ends_with('/')) url.path.pop_back();
  // People paste the base of an OpenAI client, which ends in /v1.
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  rest = rest.substr(0, slash);
  const auto bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const auto colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  url.host = std::string(rest.substr(0, colon));
  if (bracket != std::string_view::npos) url.host = std::string(rest.substr(1, bracket - 1));
  url.port = colon == std::string_view::npos ? "80" : std::string(rest.substr(colon + 1));
  if (url.host.empty()) refuse("names no host");
  if (url.port.empty() || url.port.size() > 5 ||
      url.port.find_first_not_of("0123456789") != std::string::npos)
    refuse("has no port number after the colon");
  return url;
}

int http_ask(const Url& url, const HttpRequest& request, const BodyPart& part) {
  Socket socket(url, Clock::now() + request.limit);
  std::string text =
      fourfold::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nAccept: */*\r\n",
                       request.method, url.path, request.path, url.host, url.port);
  if (!request.body.empty())
    text += fourfold::format("Content-Type: application/json\r\nContent-Length: {}\r\n", request.body.size());
  socket.send(text + "\r\n" + request.body);
  std::string answer;
  std::size_t end = std::string::npos;
  while ((end = answer.find("\r\n\r\n")) == std::string::npos) {
    const std::string more = socket.receive();
    if (more.empty()) fail(Code::io, "the server closed the connection without an answer");
    answer += more;
    if (answer.size() > kHeadBytesMax) fail(Code::io, "the answer's head is over {} bytes", kHeadBytesMax);
  }
  const Head head = parse_head(answer.substr(0, end + 2));
  receive_body(socket, head, answer.substr(end + 4), part);
  return head.status;
}

}  // namespace fourfold::doctor
