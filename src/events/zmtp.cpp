#include "events/zmtp.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fourfold::events {
namespace {

constexpr std::size_t kGreetingBytes = 64, kSignatureBytes = 10, kMechanismAt = 12, kMechanismBytes = 20;
constexpr std::uint8_t kMore = 1, kLong = 2, kCommand = 4;

void append_size(std::string& out, std::uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

std::uint64_t read_size(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<std::uint8_t>(c);
  return value;
}

void append_any_frame(std::string& out, std::uint8_t flags, std::string_view body) {
  const bool is_long = body.size() > 255;
  out += static_cast<char>(flags | (is_long ? kLong : 0));
  append_size(out, body.size(), is_long ? 8 : 1);
  out += body;
}

// A command's body: its name behind the name's length, then its own.
std::string command(std::string_view name, std::string_view rest) {
  std::string body(1, static_cast<char>(name.size()));
  body += name;
  body += rest;
  return body;
}

}  // namespace

void append_frame(std::string& out, std::string_view body, bool more) {
  append_any_frame(out, more ? kMore : 0, body);
}

std::string ZmtpPeer::greeting() {
  std::string out(kGreetingBytes, '\0');
  out[0] = '\xff';  // the signature: ff, eight zeros, 7f
  out[kSignatureBytes - 1] = '\x7f';
  out[kSignatureBytes] = 3;  // the version: 3.0
  out.replace(kMechanismAt, 4, "NULL");
  return out;
}

void ZmtpPeer::take(std::string_view bytes, std::string& out) {
  buffer_ += bytes;
  while (stage_ == Stage::greeting ? take_greeting(out) : take_frame(out)) {
  }
}

bool ZmtpPeer::take_greeting(std::string& out) {
  // Whoever speaks something else is told apart by its first bytes, however few come.
  if ((!buffer_.empty() && buffer_[0] != '\xff') ||
      (buffer_.size() >= kSignatureBytes && buffer_[kSignatureBytes - 1] != '\x7f'))
    fail(Code::io, "the peer does not speak ZMTP");
  if (buffer_.size() > kSignatureBytes && buffer_[kSignatureBytes] < 3)
    fail(Code::io, "the peer speaks ZMTP {}; 3 or later is needed",
         static_cast<int>(buffer_[kSignatureBytes]));
  if (buffer_.size() < kGreetingBytes) return false;
  std::string mechanism = buffer_.substr(kMechanismAt, kMechanismBytes);
  mechanism.resize(std::min(mechanism.find('\0'), mechanism.size()));
  if (mechanism != "NULL")
    fail(Code::io, "the peer asks for the mechanism {}; there is NULL alone",
         mechanism.size() <= 8 ? mechanism : "?");
  buffer_.erase(0, kGreetingBytes);
  stage_ = Stage::handshake;
  const std::string_view type = role_ == Role::publisher ? "PUB" : "ROUTER";
  std::string property = command("Socket-Type", {});
  append_size(property, type.size(), 4);
  append_any_frame(out, kCommand, command("READY", property + std::string(type)));
  return true;
}

bool ZmtpPeer::take_frame(std::string& out) {
  if (buffer_.empty()) return false;
  const auto flags = static_cast<std::uint8_t>(buffer_[0]);
  if ((flags & ~(kMore | kLong | kCommand)) != 0)
    fail(Code::io, "a frame has the flags {}", static_cast<int>(flags));
  const std::size_t head = (flags & kLong) != 0 ? 9 : 2;
  if (buffer_.size() < head) return false;
  const std::uint64_t size = read_size(std::string_view(buffer_).substr(1, head - 1));
  if (size > kFrameBytesMax) fail(Code::io, "a frame of {} bytes; at most {}", size, kFrameBytesMax);
  if (buffer_.size() < head + size) return false;
  const std::string body = buffer_.substr(head, size);
  buffer_.erase(0, head + size);
  if ((flags & kCommand) != 0)
    take_command(body, out);
  else if (stage_ == Stage::ready)
    take_part(body, (flags & kMore) != 0);
  else
    fail(Code::io, "a message before the handshake's end");
  return true;
}

void ZmtpPeer::take_command(std::string_view body, std::string& out) {
  const std::size_t name_bytes = body.empty() ? 0 : static_cast<std::uint8_t>(body[0]);
  if (name_bytes == 0 || body.size() < 1 + name_bytes) fail(Code::io, "a command without a name");
  const std::string_view name = body.substr(1, name_bytes), rest = body.substr(1 + name_bytes);
  if (name == "READY" && stage_ == Stage::handshake) return take_ready(rest);
  if (name == "ERROR" || stage_ != Stage::ready) fail(Code::io, "the handshake has failed");
  if (name == "SUBSCRIBE" && role_ == Role::publisher) return subscribe(rest);
  if (name == "CANCEL" && role_ == Role::publisher) return unsubscribe(rest);
  // A time to live of two bytes, then what is to be sent back: 16 bytes at most, says the protocol.
  if (name == "PING" && rest.size() > 2 + 16) fail(Code::io, "a PING of {} bytes", rest.size());
  if (name == "PING" && rest.size() >= 2) append_any_frame(out, kCommand, command("PONG", rest.substr(2)));
}

void ZmtpPeer::take_ready(std::string_view properties) {
  std::string type;
  while (!properties.empty()) {
    const std::size_t name_bytes = static_cast<std::uint8_t>(properties[0]);
    if (properties.size() < 1 + name_bytes + 4) fail(Code::io, "READY is cut short");
    const std::string_view name = properties.substr(1, name_bytes);
    const std::uint64_t value_bytes = read_size(properties.substr(1 + name_bytes, 4));
    properties.remove_prefix(1 + name_bytes + 4);
    if (properties.size() < value_bytes) fail(Code::io, "READY is cut short");
    if (name == "Socket-Type") type = properties.substr(0, value_bytes);
    properties.remove_prefix(value_bytes);
  }
  const bool fits = role_ == Role::publisher ? type == "SUB" || type == "XSUB"
                                             : type == "REQ" || type == "DEALER" || type == "ROUTER";
  if (!fits)
    fail(Code::io, "the peer is a {} socket; {} is needed", type.size() <= 8 ? type : "?",
         role_ == Role::publisher ? "SUB" : "DEALER");
  stage_ = Stage::ready;
}

void ZmtpPeer::take_part(std::string_view body, bool more) {
  if (role_ == Role::publisher) {
    if (!more && body.starts_with('\1')) return subscribe(body.substr(1));
    if (!more && body.starts_with('\0')) return unsubscribe(body.substr(1));
    return;  // a SUB socket has nothing else to say
  }
  if (parts_.size() == kFramesMax) fail(Code::io, "a message of more than {} frames", kFramesMax);
  parts_.emplace_back(body);
  if (more) return;
  if (messages_.size() == kFramesMax) fail(Code::io, "more than {} questions at once", kFramesMax);
  messages_.push_back(std::exchange(parts_, {}));
}

void ZmtpPeer::subscribe(std::string_view topic) {
  if (topics_.size() == kTopicsMax || topic.size() > 255)
    fail(Code::io, "a peer subscribes to more than {} topics, or to a long one", kTopicsMax);
  topics_.emplace_back(topic);
}

void ZmtpPeer::unsubscribe(std::string_view topic) {
  if (const auto found = std::ranges::find(topics_, topic); found != topics_.end()) topics_.erase(found);
}

bool ZmtpPeer::wants(std::string_view topic) const {
  return std::ranges::any_of(topics_, [&](const std::string& one) { return topic.starts_with(one); });
}

std::vector<ZmtpPeer::Message> ZmtpPeer::take_messages() { return std::exchange(messages_, {}); }

}  // namespace fourfold::events
