// What goes over a connection: frames of a kind and so many bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "nodes/bytes.h"
#include "nodes/socket.h"

namespace fourfold::nodes {

// Counts up with every change of what goes over the wire.
inline constexpr std::uint32_t kProtocol = 6;

enum class Frame : std::uint32_t {
  hello = 1,  // leader: a challenge
  join,       // rank: who it is, its challenge, its proof
  welcome,    // leader: its proof, which part is whose
  refuse,     // leader: why not
  opened,     // rank: the checksums of its model
  sum,        // leader: as far as they tell it is the same one; every byte is to be summed
  summed,     // rank: the checksum of each tensor
  load,       // leader: it is the same one
  loaded,     // rank: it has its part
  failed,     // rank: it cannot load it
  call,       // leader: a step, or what else is asked of a prepared program
  part,       // rank: its part of a sum or of rows
  result,     // leader: the sum, or the rows
  give_up,    // leader: another rank failed, the step ends
  answer,     // rank: how the call ended
  beat,       // both, all the time: somebody is there
  bye,        // leader: it ends, and so do the ranks
  anew,       // leader: a rank was lost and all are there again: the group begins anew
};

struct Message {
  Frame kind = Frame::beat;
  Bytes bytes;
};

// Before anybody has proved anything, and afterwards: a step's rows.
inline constexpr std::uint64_t kStrangerBytes = 4096;
inline constexpr std::uint64_t kMemberBytes = std::uint64_t{4} << 30;

void send_frame(Socket& socket, Frame kind, std::span<const std::byte> head, std::span<const std::byte> body,
                std::chrono::milliseconds patience);

// How long a frame may take: silence is between two of its bytes, until is for all of it.
struct Patience {
  std::chrono::milliseconds silence = std::chrono::milliseconds(4000);
  Clock::time_point until = Clock::time_point::max();
};
// Throws LinkLost, also for bytes that are no frame, and for one that is too large: memory is taken as bytes
// come, not as they are announced.
Message receive_frame(Socket& socket, std::uint64_t bytes_max, const Patience& patience);

}  // namespace fourfold::nodes
