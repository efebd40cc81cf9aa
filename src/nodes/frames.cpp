#include "nodes/frames.h"

#include <algorithm>

namespace fourfold::nodes {
namespace {

struct FrameHead {
  std::uint32_t mark;
  Frame kind;
  std::uint64_t bytes;
};
static_assert(sizeof(FrameHead) == 16);

constexpr std::uint32_t kMark = 0x5234'4646;  // "FF4R"
constexpr std::size_t kPiece = std::size_t{1} << 20;

void receive_all(Socket& socket, std::span<std::byte> into, const Patience& patience) {
  while (!into.empty()) {
    const auto until = std::min(Clock::now() + patience.silence, patience.until);
    into = into.subspan(socket.receive(into, until));
  }
}

}  // namespace

void send_frame(Socket& socket, Frame kind, std::span<const std::byte> head, std::span<const std::byte> body,
                std::chrono::milliseconds patience) {
  ByteWriter out;
  out.put(FrameHead{kMark, kind, head.size() + body.size()}).raw(head);
  socket.send(out.bytes(), body, patience);
}

Message receive_frame(Socket& socket, std::uint64_t bytes_max, const Patience& patience) {
  FrameHead head{};
  receive_all(socket, std::as_writable_bytes(std::span(&head, 1)), patience);
  if (head.mark != kMark || head.kind < Frame::hello || head.kind > Frame::anew)
    throw LinkLost("what came is not the protocol of ranks");
  if (head.bytes > bytes_max)
    throw LinkLost(format("a message of {} bytes; at most {} are taken", head.bytes, bytes_max));
  Message out{head.kind, {}};
  while (out.bytes.size() < head.bytes) {
    const std::size_t had = out.bytes.size();
    out.bytes.resize(had + std::min<std::size_t>(kPiece, head.bytes - had));
    receive_all(socket, std::span(out.bytes).subspan(had), patience);
  }
  return out;
}

}  // namespace fourfold::nodes
