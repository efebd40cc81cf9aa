#include "kernels/all_reduce/meets.h"

#include <gtest/gtest.h>

#include "kernels/all_reduce/nccl_exchange.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::all_reduce {
namespace {

constexpr std::int64_t kRowBytes = 64 * 4;
MeetingSize size_of(int ranks, int rows) {
  return {.ranks = ranks, .columns = 64, .rows = rows, .gathered = 24};
}

// A place for each rank's part, twice; no larger for steps that go in pieces.
TEST(Meets, AMailboxHoldsAPieceOfEachRankTwice) {
  EXPECT_EQ(meeting_bytes(Meets::bridged, size_of(3, 10)), 2 * 3 * 10 * kRowBytes);
  EXPECT_EQ(meeting_bytes(Meets::bridged, size_of(3, 256)), 2 * 3 * 256 * kRowBytes);
  EXPECT_EQ(meeting_bytes(Meets::bridged, size_of(3, 2000)), 2 * 3 * 256 * kRowBytes);
}

// What is gathered into, as it is taken, and NCCL's own, which is a matter of hundreds of megabytes.
TEST(Meets, NcclHasBuffersOfItsOwnBesideOurs) {
  const std::int64_t one = meeting_bytes(Meets::nccl, size_of(2, 1)),
                     many = meeting_bytes(Meets::nccl, size_of(2, 256));
  EXPECT_EQ(many - one, 2 * 255 * kRowBytes);
  EXPECT_GT(one, 100 << 20);
  EXPECT_LT(one, 1 << 30);

  sim::Device device({.memory_bytes = 1 << 24, .peers = std::make_shared<sim::PeerMemory>(2), .rank = 0});
  const auto machine = kernels::make_sim_machine(device);
  NcclExchange exchange({.ranks = 2, .rank = 0, .blocks = 2, .is_staged = true},
                        std::make_unique<NcclMember>(FOURFOLD_FAKE_NCCL), {});
  EXPECT_EQ(exchange.meets(), Meets::nccl);
  exchange.join(0, *machine, 64, 256, 24);
  const std::int64_t taken = machine->memory().counts().bytes;
  EXPECT_GE(taken, many - one) << "the gathered parts are on the device";
  EXPECT_LE(taken, many);
}

}  // namespace
}  // namespace fourfold::all_reduce
