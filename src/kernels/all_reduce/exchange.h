// The ranks' side of the all-reduce on the host: the buffers every rank lends to the others, which way a call
// goes, and the watch over ranks that do not answer.
//
// Each rank joins with its machine and launches from its own thread; nothing here waits. Launches can be
// recorded: what changes from call to call (epochs) is kept in the device's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/all_reduce/all_reduce_params.h"
#include "kernels/all_reduce/ways.h"
#include "kernels/launch/machine.h"

namespace fourfold::all_reduce {

struct ExchangeOptions {
  int ranks = 1;
  // Whether ranks may write into each other's memory: only where values have been checked (check_values).
  bool peers = true;
  std::optional<Way> way = {};  // this one always
  int blocks = 8;               // of a rank
  double wait_seconds = 10;     // for another rank's part, then it is given up
};

class Exchange {
 public:
  explicit Exchange(const ExchangeOptions& options);
  ~Exchange();  // the machines are still there
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank_count() const { return options_.ranks; }
  // Buffers for calls of up to `rows` rows; more go in pieces. gathered: the columns of a rank's part that
  // are put side by side (gather), at most. Once a rank, before any of them launches.
  void join(int rank, kernels::Machine& machine, int columns, int rows, int gathered = 0);
  // Bytes of device memory that join takes.
  static std::int64_t device_bytes(const ExchangeOptions& options, int columns, int rows, int gathered);

  Way way_for(int rows) const;
  // x += the sum of all ranks' parts, in the order of ranks; part is zero behind it. Asynchronous.
  void launch(int rank, float* x, float* part, int rows);
  struct Norm {
    const float* weight;
    float epsilon;
    std::uint16_t* out;  // [rows, columns]
  };
  // The same, and the norm of the new x. Not for calls that go two_shot or in pieces.
  bool can_norm(int rows) const { return way_for(rows) != Way::two_shot && rows <= piece_rows(rows); }
  void launch_norm(int rank, float* x, float* part, int rows, const Norm& norm);

  // out[row] = the ranks' columns of that row side by side, rank 0's first. part: [rows, stride].
  struct Gathered {
    float* part;
    int stride;   // a multiple of 4
    int columns;  // of a rank
    float* out;
    int out_stride;
  };
  void gather(int rank, int rows, const Gathered& gathered);

  // All waits end, now and later; from any thread.
  void stop();
  // After a machine's work has been waited for: whom this rank gave up.
  struct Unanswered {
    int source;
    std::string why;
  };
  std::optional<Unanswered> unanswered(int rank) const;
  // The same as an error, device_lost.
  void require_answers(int rank) const;

 private:
  struct Shared {
    kernels::Machine* machine = nullptr;
    kernels::Memory::Place place{};
    void* pointer = nullptr;
  };
  struct Member {
    kernels::Machine* machine = nullptr;
    device::F32x4 *received = nullptr, *slices = nullptr, *sums = nullptr;
    std::uint32_t *flags = nullptr, *epochs = nullptr, *report = nullptr;
  };
  template <class T>
  T* take(kernels::Machine& machine, std::size_t count, kernels::Memory::Place place, const char* name);
  void take_common(kernels::Machine& machine);
  int piece_rows(int rows) const;
  AllReduceParams params_for(int rank, Way way, float* x, float* part, int rows) const;
  void launch_piece(int rank, const std::string& row, const AllReduceParams& params);

  ExchangeOptions options_;
  mutable std::mutex mutex_;
  std::int64_t capacity_for(Way way) const;

  int columns_ = 0;
  int gathered_ = 0;
  int rows_ = 0;
  std::vector<Member> members_;
  std::vector<Shared> taken_;
  kernels::Machine* first_ = nullptr;  // whose memory holds what is common
  device::F32x4* box_ = nullptr;
  std::uint32_t* box_flags_ = nullptr;
  std::uint32_t* stop_ = nullptr;
};

// Sums of known numbers through the exchange, again and again, with copies between them: what is wrong
// with them, or empty. The machines must have joined; each gets a thread, which calls enter(rank) first.
std::string check_values(Exchange& exchange, const std::vector<kernels::Machine*>& machines, int columns,
                         int rounds, const std::function<void(int rank)>& enter);

}  // namespace fourfold::all_reduce
