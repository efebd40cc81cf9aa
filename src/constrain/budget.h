// How much work and memory a request's schema or expression may cost. Counted in steps, not in seconds, so
// that the same schema is refused on every machine or on none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace fourfold::constrain {

struct Limits {
  std::size_t text_bytes_max = std::size_t{1} << 20;  // of the schema or the expression
  std::int64_t work_max = 40'000'000;                 // steps, each a few nanoseconds: well below a second
  std::int64_t bytes_max = std::int64_t{64} << 20;    // of the automata
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  void spend(std::int64_t steps) {
    work_ += steps;
    if (work_ > limits_.work_max)
      fail_with_hint(Code::invalid_request, "ask for less: shorter counted repeats, fewer alternatives",
                     "compiling the form of the answer takes more than {} steps", limits_.work_max);
  }
  void hold(std::int64_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.bytes_max)
      fail_with_hint(Code::invalid_request, "ask for less: shorter counted repeats, fewer alternatives",
                     "compiling the form of the answer takes more than {} MiB", limits_.bytes_max >> 20);
  }
  void release(std::int64_t bytes) { bytes_ -= bytes; }

  std::int64_t work() const { return work_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  Limits limits_;
  std::int64_t work_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace fourfold::constrain
