// The ranks' side of the all-reduce on the host: the buffers every rank lends to the others, which way a call
// goes, and the watch over ranks that do not answer.
//
// Each rank joins with its machine and launches from its own thread; nothing but meet() waits. Launches can
// be recorded: what changes from call to call (epochs) is kept in the device's memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/all_reduce/all_reduce_params.h"
#include "kernels/all_reduce/meets.h"
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
  // Every rank has a GPU of its own: the next kernel may come while a sum waits, and fetch its weights.
  bool overlaps = false;
};

class Exchange {
 public:
  explicit Exchange(const ExchangeOptions& options);
  virtual ~Exchange();  // the machines are still there
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank_count() const { return options_.ranks; }
  // Buffers for calls of up to `rows` rows; more go in pieces. gathered: the columns of a rank's part that
  // are put side by side (gather), at most. Once a rank, before any of them launches.
  virtual void join(int rank, kernels::Machine& machine, int columns, int rows, int gathered = 0);
  // Bytes of device memory that join takes.
  static std::int64_t device_bytes(const ExchangeOptions& options, int columns, int rows, int gathered);
  // Of one rank's part of a call that does not go by the GPUs' own memory.
  static std::int64_t host_piece_bytes(const ExchangeOptions& options, int columns, int rows, int gathered);
  virtual Meets meets() const { return Meets::here; }

  Way way_for(int rows) const;
  // x += the sum of all ranks' parts, in the order of ranks; part is zero behind it. Asynchronous. place: the
  // caller's number for this call, to be told where a rank did not answer.
  void launch(int rank, float* x, float* part, int rows, int place = 0);
  struct Norm {
    const float* weight;
    float epsilon;
    std::uint16_t* out;  // [rows, columns]
  };
  // The same, and the norm of the new x. Not for calls that go two_shot or in pieces.
  bool can_norm(int rows) const { return way_for(rows) != Way::two_shot && rows <= piece_rows(rows); }
  // Whether that costs less than a norm of its own behind the sum: while every block has one row. Measured on
  // an H200, two ranks: 8 rows 6.4 us without and 7.8 with it; 16 rows, two a block, 10.2 and 12.8; 32 rows
  // 17.4 and 22.6, where a kernel less saves 3 to 6.
  bool norm_pays(int rows) const { return can_norm(rows) && rows <= options_.blocks; }
  void launch_norm(int rank, float* x, float* part, int rows, const Norm& norm, int place = 0);

  // out[row] = the ranks' columns of that row side by side, rank 0's first. part: [rows, stride].
  struct Gathered {
    float* part;
    int stride;   // a multiple of 4
    int columns;  // of a rank
    float* out;
    int out_stride;
  };
  void gather(int rank, int rows, const Gathered& gathered, int place = 0);

  // ---- ranks of other processes; where all are of this one nothing happens ----
  // What the places of calls are called, in their order: other processes are told.
  virtual void name_places(std::vector<std::string> /*names*/) {}
  // Other ranks run their steps when they can: nothing of this rank may be on its way when a call of the
  // backend ends.
  virtual bool is_carried() const { return false; }
  // A rank launches its calls from here on; and all it launched has been waited for.
  virtual void begin_work() {}
  virtual void end_work() {}
  // Throws what ended the calls between processes, if anything did.
  virtual void rethrow_failure() const {}
  // Whether calls have ended before their time; begin_anew forgets it. The machine has been waited for.
  virtual bool has_failed() const { return false; }
  virtual void begin_anew() {}

  // All waits end, now and later; from any thread.
  void stop();
  // After a machine's work has been waited for: whom this rank gave up.
  struct Unanswered {
    int source;
    int place;
    std::string why;
  };
  std::optional<Unanswered> unanswered(int rank) const;
  // Waits on the host until every rank has come here as often. What may wait for the whole device inside the
  // driver (a graph that is made) comes before it, and whatever waits for other ranks behind it.
  virtual std::optional<Unanswered> meet(int rank);
  // The same as an error, device_lost.
  void require_answers(int rank) const;

 protected:
  struct Member {
    kernels::Machine* machine = nullptr;
    device::F32x4 *received = nullptr, *slices = nullptr, *sums = nullptr;
    std::uint32_t *flags = nullptr, *epochs = nullptr, *report = nullptr;
  };
  // No other rank joins here. Carried: what the kernels leave in the mailbox is taken from there; otherwise
  // there is no mailbox, and launch_piece has another place.
  enum class Elsewhere { no, carried, no_mailbox };
  void meet_elsewhere(Elsewhere elsewhere) { elsewhere_ = elsewhere; }
  virtual void launch_piece(int rank, const std::string& row, const AllReduceParams& params);
  // What one call holds of a rank at most.
  std::int64_t piece_quads() const { return capacity_for(Way::host); }
  const ExchangeOptions& options() const { return options_; }
  const Member& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  // The mailbox in the host's memory.
  device::F32x4* mailbox(int rank, std::uint32_t epoch) const;
  std::uint32_t* mailbox_flag(int rank, int block) const {
    return box_flags_ + rank * options_.blocks + block;
  }
  const CarriedCall* carried(std::uint32_t epoch) const { return carried_ + (epoch & 1u); }
  // As it was when the ranks had joined.
  void reset(int rank);

 private:
  struct Shared {
    kernels::Machine* machine = nullptr;
    kernels::Memory::Place place{};
    void* pointer = nullptr;
  };
  template <class T>
  T* take(kernels::Machine& machine, std::size_t count, kernels::Memory::Place place, const char* name);
  void take_common(kernels::Machine& machine);
  int piece_rows(int rows) const;
  AllReduceParams params_for(int rank, Way way, float* x, float* part, int rows, int place) const;
  std::string why_locked() const;  // a rank was not waited for any longer

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
  Elsewhere elsewhere_ = Elsewhere::no;
  CarriedCall* carried_ = nullptr;
  std::condition_variable came_;
  std::vector<std::int64_t> meetings_;  // by rank: how often it came
  bool stopped_ = false;
};

// Sums of known numbers through the exchange, again and again, and the same numbers gathered where the
// exchange has room for it (join): what is wrong with them, or empty. The machines must have joined; each
// gets a thread, which calls enter(rank) first, and load(rank) in every round, for whoever has work to run
// beside it.
struct ValueCheck {
  int columns = 0;
  int rounds = 0;
  int gathered = 0;  // columns; as given to join
  std::function<void(int rank)> enter = [](int) {};
  std::function<void(int rank)> load = [](int) {};
};
std::string check_values(Exchange& exchange, const std::vector<kernels::Machine*>& machines,
                         const ValueCheck& check);

}  // namespace fourfold::all_reduce
