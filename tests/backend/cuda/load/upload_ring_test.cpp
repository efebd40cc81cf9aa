#include "backend/cuda/load/upload_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::backend::cuda {
namespace {

constexpr std::size_t kSlot = 4096;

struct OnSimulator {
  sim::Device device;
  std::unique_ptr<kernels::Machine> machine = kernels::make_sim_machine(device);
  kernels::Memory& memory = machine->memory();
};

// A hundred slots' worth through a ring of four: every byte at its place, launches in the order given.
TEST(UploadRing, CarriesEveryByteInOrder) {
  OnSimulator on;
  constexpr std::size_t kPieces = 400, kPiece = 1000;
  auto* to = static_cast<unsigned char*>(on.memory.allocate(kPieces * kPiece, "target"));
  std::vector<std::size_t> order;
  {
    UploadRing uploads(on.memory, kSlot);
    for (std::size_t i = 0; i < kPieces; ++i) {
      if (uploads.room() < kPiece) uploads.next_slot();
      const UploadRing::Place place = uploads.reserve(kPiece);
      EXPECT_EQ(place.offset % UploadRing::kAlignment, 0u);
      EXPECT_LE(place.offset + kPiece, kSlot);
      // Two tasks a piece.
      for (const std::size_t half : {0u, 1u})
        uploads.fill([=] {
          for (std::size_t at = half * kPiece / 2; at < (half + 1) * kPiece / 2; ++at)
            place.host[at] = static_cast<std::byte>(i * 7 + at);
        });
      uploads.then([&, i, place] {
        order.push_back(i);
        on.memory.send(to + i * kPiece, place.host, kPiece);
      });
    }
    uploads.finish();
  }
  ASSERT_EQ(order.size(), kPieces);
  for (std::size_t i = 0; i < kPieces; ++i) EXPECT_EQ(order[i], i);
  std::vector<unsigned char> got(kPieces * kPiece);
  on.memory.read(got.data(), to, got.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], static_cast<unsigned char>(i / kPiece * 7 + i % kPiece)) << i;
  on.memory.release(to);
}

// Whatever fails first in time, the first in order is what the caller hears, and nothing behind it is sent.
TEST(UploadRing, ThrowsTheFirstErrorOfTheFirstSlot) {
  OnSimulator on;
  UploadRing uploads(on.memory, kSlot);
  int launched = 0;
  std::string heard;
  try {
    for (int i = 0; i < 20; ++i) {
      uploads.reserve(kSlot);
      for (int task = 0; task < 8; ++task)
        uploads.fill([=] {
          if (i >= 3 && task % 4 == 2) throw Error(Code::io, std::to_string(i) + "." + std::to_string(task));
        });
      uploads.then([&] { ++launched; });
      uploads.next_slot();
    }
    uploads.finish();
  } catch (const Error& error) {
    heard = error.what();
  }
  EXPECT_EQ(heard, "3.2");
  EXPECT_EQ(launched, 3);
}

// An error elsewhere: the uploads goes without finish(), with work still waiting.
TEST(UploadRing, CanBeDroppedWithWorkWaiting) {
  OnSimulator on;
  std::atomic<int> done{0};
  {
    UploadRing uploads(on.memory, kSlot);
    uploads.reserve(kSlot);
    for (int i = 0; i < 1000; ++i) uploads.fill([&] { ++done; });
  }
  EXPECT_LE(done, 1000);
}

TEST(UploadRing, MayHaveNothingToDoAndGoesOnAfterFinish) {
  OnSimulator on;
  UploadRing uploads(on.memory, kSlot);
  uploads.finish();
  int launched = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      uploads.then([&] { ++launched; });
      uploads.next_slot();
    }
    uploads.finish();
    EXPECT_EQ(launched, 5 * (round + 1));
  }
}

}  // namespace
}  // namespace fourfold::backend::cuda
