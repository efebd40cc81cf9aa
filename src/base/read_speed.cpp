#include "base/read_speed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>

#include "base/parallel.h"

namespace fourfold {
namespace {

constexpr std::int64_t kGrainWords = 1 << 17;  // 1 MiB

// Eight sums, so that additions never wait for each other.
std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t sums[8] = {};
  for (std::int64_t i = 0; i + 8 <= count; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += words[i + k];
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double measure_read_gb_per_s(std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(std::uint64_t));
  const std::unique_ptr<std::uint64_t[]> words(new (std::nothrow)
                                                   std::uint64_t[static_cast<std::size_t>(count)]);
  if (words == nullptr || count == 0) return 0;
  parallel_for(count, kGrainWords, [&](std::int64_t begin, std::int64_t end) {
    std::fill(words.get() + begin, words.get() + end, std::uint64_t{1});
  });
  double best = 0;
  std::atomic<std::uint64_t> total{0};  // the sums are used, so they are computed
  for (int round = 0; round < 3; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(count, kGrainWords, [&](std::int64_t begin, std::int64_t end) {
      total += sum_of(words.get() + begin, end - begin);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(bytes) / seconds / 1e9);
  }
  return total > 0 ? best : 0;
}

}  // namespace fourfold
