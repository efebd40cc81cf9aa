// What the ranks of one model do together (tensor parallelism): sums and rows put side by side. This is the
// form for backends whose values are in host memory; a GPU backend has kernels of its own for the same two
// ops, with the same sums in the same order.
//
// Every rank makes the same calls in the same order, each from its own thread. A call returns when all ranks
// have made it, or throws: once a rank has failed no other waits for it, in this call or in a later one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace fourfold::backend {

// For RankLost: all are there, and what they meet in has failed.
inline constexpr int kNoRank = -1;

// A rank failed or stopped coming: what all the others get.
class RankLost : public Error {
 public:
  RankLost(int rank, const std::string& message)
      : Error(Code::device_lost, message, "Start again; if it happens again, look at that rank's device."),
        rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank_count() const = 0;

  // out[i] = ((in_0[i] + in_1[i]) + in_2[i]) + ..., in f32: the same bits on every rank, each time. `where`
  // names the value, for whoever has to say which rank did not come. in and out may be the same memory.
  virtual void all_reduce(int rank, std::string_view where, std::span<const float> in,
                          std::span<float> out) = 0;

  // in: [row_count, columns]; out: [row_count, rank_count * columns], rank 0's columns first.
  virtual void all_gather(int rank, std::string_view where, std::int64_t row_count, std::span<const float> in,
                          std::span<float> out) = 0;

  // A rank will not come any more. All who wait, and all who call from now on, throw RankLost with these
  // words; of several failures the first one stays.
  virtual void give_up(int rank, const std::string& why) = 0;

  // Begins anew behind a failure. No rank may be in a call.
  virtual void mend() = 0;

  // For ranks that also meet by other means, which know nothing of a rank that has gone. Throws as a call
  // would, without one; from any thread. And a number that changes when the ranks begin anew.
  virtual void require_all_there(int /*rank*/) {}
  virtual std::uint64_t generation() const { return 0; }
};

}  // namespace fourfold::backend
