// How much work and memory a request's schema or expression may cost. Counted in steps, not in seconds, so
// that the same schema is refused on every machine or on none; the thread's CPU time only catches a machine
// that is far too slow, and not one that is busy with something else.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace fourfold::constrain {

struct Limits {
  std::size_t text_bytes_max = std::size_t{1} << 20;  // of the schema or the expression
  std::int64_t work_max = 40'000'000;               // steps, each some five nanoseconds: a fifth of a second
  std::int64_t bytes_max = std::int64_t{64} << 20;  // of the automata
  std::chrono::milliseconds cpu_time_max{5'000};    // of the thread that compiles
  // Whether the form is no longer wanted; asked now and then. Empty: it is.
  std::function<bool()> cancelled = {};
};

class Budget {
 public:
  explicit Budget(const Limits& limits);

  // Throws invalid_request when the work is spent, over_capacity when the CPU time is up and cancelled when
  // it is not wanted. Every loop over what a request said spends at least a step a round.
  void spend(std::int64_t steps) {
    work_ += steps;
    if (work_ >= next_look_) look();
  }
  // Throws invalid_request when the memory is spent. Memory that is touched first costs time, too.
  void hold(std::int64_t bytes) {
    spend(bytes / 8);
    bytes_ += bytes;
    if (bytes_ > limits_.bytes_max) refuse_bytes();
  }
  void release(std::int64_t bytes) { bytes_ -= bytes; }

  std::int64_t work() const { return work_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void look();
  [[noreturn]] void refuse_bytes() const;

  Limits limits_;
  std::int64_t work_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t next_look_ = 0;
  std::chrono::nanoseconds deadline_;  // of the thread that made the budget
};

}  // namespace fourfold::constrain
