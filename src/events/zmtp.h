// ZMTP 3.0, the wire of ZeroMQ, as far as a PUB and a ROUTER socket need it, with the NULL mechanism
// (rfc.zeromq.org/spec/23). Bytes in and bytes out, no sockets here. Peers that speak 3.1 fall back to 3.0 by
// themselves; what they may still send in 3.1's words (SUBSCRIBE and CANCEL as commands, PING) is understood.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::events {

// One frame of a message; `more`: another one follows.
void append_frame(std::string& out, std::string_view body, bool more);

class ZmtpPeer {
 public:
  enum class Role { publisher, router };
  using Message = std::vector<std::string>;  // frames

  static constexpr std::size_t kFrameBytesMax = 65'536;  // of what peers say
  static constexpr std::size_t kTopicsMax = 1'024;
  static constexpr std::size_t kFramesMax = 16;

  explicit ZmtpPeer(Role role) : role_(role) {}

  // What is sent first, whoever has connected to whom.
  static std::string greeting();
  // Bytes of the peer; what must be sent for them is appended to `out`. Throws io for what is no ZMTP 3, asks
  // for another mechanism, is no counterpart of the role, or is beyond the limits.
  void take(std::string_view bytes, std::string& out);
  bool is_ready() const { return stage_ == Stage::ready; }

  // publisher: whether it has subscribed to a beginning of the topic.
  bool wants(std::string_view topic) const;
  // router: what it has asked.
  std::vector<Message> take_messages();

 private:
  enum class Stage { greeting, handshake, ready };
  bool take_greeting(std::string& out);
  bool take_frame(std::string& out);
  void take_command(std::string_view body, std::string& out);
  void take_ready(std::string_view properties);
  void take_part(std::string_view body, bool more);
  void subscribe(std::string_view topic);
  void unsubscribe(std::string_view topic);

  Role role_;
  Stage stage_ = Stage::greeting;
  std::string buffer_;               // not taken yet
  std::vector<std::string> topics_;  // subscribed to; as often as it said so
  Message parts_;                    // of a message that is not whole yet
  std::vector<Message> messages_;
};

}  // namespace fourfold::events
