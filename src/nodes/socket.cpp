#include "nodes/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

namespace fourfold::nodes {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses look_up(const Address& address, bool listens, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  const int status = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (status != 0) why = gai_strerror(status);
  return {found, &freeaddrinfo};
}

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

// Whether it is ready before then.
bool wait_for(int descriptor, short what, Clock::time_point until) {
  for (;;) {
    pollfd asked{descriptor, what, 0};
    const int ready = ::poll(&asked, 1, milliseconds_until(until));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= until) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// Sums of a few kilobytes go to and fro: nothing may wait for more to send.
void set_up(int descriptor) {
  const int yes = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

std::string name_of(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  return std::string(host) + ":" + port;
}

// 0: connected, else an errno.
int connect_one(int descriptor, const addrinfo& to, Clock::time_point until) {
  if (::connect(descriptor, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(descriptor, POLLOUT, until)) return ETIMEDOUT;
  int status = 0;
  socklen_t size = sizeof status;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &status, &size) == 0 ? status : errno;
}

}  // namespace

std::string Address::text() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

Address parse_address(const std::string& text, const std::string& option) {
  const std::size_t colon = text.rfind(':');
  Address out;
  int port = -1;
  if (colon != std::string::npos) {
    out.host = text.substr(0, colon);
    if (out.host.size() > 1 && out.host.front() == '[' && out.host.back() == ']')
      out.host = out.host.substr(1, out.host.size() - 2);
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data() + colon + 1, end, port);
    if (status != std::errc{} || stop != end) port = -1;
  }
  if (out.host.empty() || port < 0 || port > 65535)
    fail(Code::invalid_request, "{} {}: an address is host:port, as spark-1:4450 or [fd00::1]:4450", option,
         text);
  out.port = static_cast<std::uint16_t>(port);
  return out;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket Socket::connect(const Address& address, std::chrono::milliseconds patience) {
  std::string why = "it has no address";
  const auto until = Clock::now() + patience;
  const Addresses found = look_up(address, /*listens=*/false, why);
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.descriptor_ < 0) {
      why = std::strerror(errno);
      continue;
    }
    set_up(socket.descriptor_);
    const int status = connect_one(socket.descriptor_, *to, until);
    if (status == 0) return socket;
    why = std::strerror(status);
  }
  throw LinkLost(format("{} cannot be reached: {}", address.text(), why));
}

std::size_t Socket::receive(std::span<std::byte> into, Clock::time_point until) {
  for (;;) {
    const auto got = ::recv(descriptor_, into.data(), into.size(), 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) throw LinkLost("the connection was closed");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      throw LinkLost(format("the connection broke: {}", std::strerror(errno)));
    if (!wait_for(descriptor_, POLLIN, until)) throw LinkLost("nothing was heard for too long");
  }
}

void Socket::send(std::span<const std::byte> head, std::span<const std::byte> body,
                  std::chrono::milliseconds patience) {
  auto until = Clock::now() + patience;
  while (!head.empty() || !body.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                      {const_cast<std::byte*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const auto sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      const auto of_head = std::min(static_cast<std::size_t>(sent), head.size());
      head = head.subspan(of_head);
      body = body.subspan(static_cast<std::size_t>(sent) - of_head);
      until = Clock::now() + patience;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(descriptor_, POLLOUT, until)) throw LinkLost("nothing was taken for too long");
    } else if (errno != EINTR) {
      throw LinkLost(format("the connection broke: {}", std::strerror(errno)));
    }
  }
}

void Socket::shut() { ::shutdown(descriptor_, SHUT_RDWR); }

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return "an unknown address";
  return name_of(address, size);
}

ListeningSocket::ListeningSocket(const Address& address) {
  std::string why = "it has no address";
  const Addresses found = look_up(address, /*listens=*/true, why);
  for (const addrinfo* at = found.get(); at != nullptr && descriptor_ < 0; at = at->ai_next) {
    const int tried = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    if (tried >= 0) ::setsockopt(tried, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (tried >= 0 && ::bind(tried, at->ai_addr, at->ai_addrlen) == 0 && ::listen(tried, 64) == 0) {
      descriptor_ = tried;
      break;
    }
    why = std::strerror(errno);
    if (tried >= 0) ::close(tried);
  }
  if (descriptor_ < 0)
    fail_with_hint(Code::io, "Give another --rank-listen HOST:PORT.", "ranks cannot join at {}: {}",
                   address.text(), why);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&bound), &size) == 0)
    port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                              : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

ListeningSocket::~ListeningSocket() { ::close(descriptor_); }

std::optional<Socket> ListeningSocket::accept(std::chrono::milliseconds patience) {
  if (!wait_for(descriptor_, POLLIN, Clock::now() + patience)) return std::nullopt;
  const int came = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
  if (came < 0) {
    // It left again, or there is no descriptor for it: then it is still there, and asking at once is in vain.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::nullopt;
  }
  set_up(came);
  return Socket(came);
}

}  // namespace fourfold::nodes
