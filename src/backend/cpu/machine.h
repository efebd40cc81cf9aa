// What every op of the CPU backend works with: kernels, threads, and memory that grows to what the largest
// batch needs and is then used again.
#pragma once

#include <cstdint>

#include "backend/cpu/pool.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/packed_matrix.h"

namespace fourfold::backend::cpu {

namespace kernel = fourfold::cpu;

struct Machine {
  const kernel::Kernels& kernels;
  ThreadPool pool;

  // Calls work(row) for each row, on several threads where the rows are worth it.
  template <class Work>
  void each_row(std::int64_t row_count, std::int64_t columns, const Work& work) {
    // Below this a loop costs more to share out than to run.
    constexpr std::int64_t least_elements = 16384;
    const std::int64_t most = row_count * columns / least_elements;
    const std::int64_t ranges = std::min<std::int64_t>(most, 4 * pool.thread_count());
    const std::int64_t grain = ranges <= 1 ? row_count : (row_count + ranges - 1) / ranges;
    if (row_count == 0) return;
    pool.run_ranges(row_count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) work(row);
    });
  }
};

template <class T>
class Scratch {
 public:
  // Room for `count`; what was there is lost when it grows.
  T* get(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (bytes > bytes_.size()) bytes_ = kernel::AlignedBytes(bytes + bytes / 4);
    return reinterpret_cast<T*>(bytes_.data());
  }

 private:
  kernel::AlignedBytes bytes_;
};

}  // namespace fourfold::backend::cpu
