#include "http/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "http/answer_reader.h"

namespace fourfold::http {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kBodyBytesMax = std::size_t{64} << 20;

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

}  // namespace

std::string request_text(const Url& url, const Request& request) {
  std::string text = fourfold::format(
      "{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nAccept: */*\r\n", request.method, url.path,
      request.path, url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]", url.port);
  if (!request.key.empty()) text += fourfold::format("Authorization: Bearer {}\r\n", request.key);
  if (!request.body.empty())
    text += fourfold::format("Content-Type: application/json\r\nContent-Length: {}\r\n", request.body.size());
  return text + "\r\n" + request.body;
}

int ask(const Url& url, const Request& request, const BodyPart& part) {
  Socket socket(url, Clock::now() + request.limit);
  socket.send(request_text(url, request));
  AnswerReader reader;
  std::string body;
  while (!reader.done()) {
    const std::string bytes = socket.receive();
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
