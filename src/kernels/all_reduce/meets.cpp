#include "kernels/all_reduce/meets.h"

#include "kernels/all_reduce/exchange.h"

namespace fourfold::all_reduce {
namespace {

// NCCL's buffers of a connection by protocol, as its device code has them since 2.8: LL 512 KiB, LL128
// 120 words of 640 threads in 8 steps, Simple 4 MiB (NCCL_BUFFSIZE).
constexpr std::int64_t kNcclConnection = (512 << 10) + 8ll * 120 * 640 * 8 + (4 << 20);
// A channel has one connection to the next rank of a ring and one from the one before. Between machines it
// takes two channels for a network card and more for fast ones; so many are seldom taken.
constexpr std::int64_t kNcclChannels = 16;

}  // namespace

std::int64_t meeting_bytes(Meets meets, const MeetingSize& size) {
  ExchangeOptions options{.ranks = size.ranks};
  if (meets == Meets::here) return Exchange::device_bytes(options, size.columns, size.rows, size.gathered);
  const std::int64_t pieces =
      size.ranks * Exchange::host_piece_bytes(options, size.columns, size.rows, size.gathered);
  // The mailbox has two halves.
  return meets == Meets::bridged ? 2 * pieces : pieces + 2 * kNcclChannels * kNcclConnection;
}

}  // namespace fourfold::all_reduce
