// TCP sockets that never wait longer than they are told.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace fourfold::nodes {

using Clock = std::chrono::steady_clock;

// The other side is gone, silent or does not speak as it should: why.
class LinkLost : public Error {
 public:
  explicit LinkLost(const std::string& why) : Error(Code::device_lost, why) {}
};

struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string text() const;
};
// host:port, [v6]:port. Throws invalid_request with the option's name.
Address parse_address(const std::string& text, const std::string& option);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  // Throws LinkLost: nobody is there, or not within this time.
  static Socket connect(const Address& address, std::chrono::milliseconds patience);

  // Of at least one byte; how many came. Throws LinkLost at the end of the stream, and when `until` is past.
  std::size_t receive(std::span<std::byte> into, Clock::time_point until);
  // All of it. Throws LinkLost when nothing was taken for so long.
  void send(std::span<const std::byte> head, std::span<const std::byte> body,
            std::chrono::milliseconds patience);
  // Both sides' waits end, from any thread.
  void shut();
  // The other side's address, for the log.
  std::string peer() const;

 private:
  int descriptor_ = -1;
};

class ListeningSocket {
 public:
  // Throws io when the address cannot be had.
  explicit ListeningSocket(const Address& address);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  std::uint16_t port() const { return port_; }
  // One that has come within this time.
  std::optional<Socket> accept(std::chrono::milliseconds patience);

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace fourfold::nodes
