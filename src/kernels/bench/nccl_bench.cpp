#include "kernels/bench/nccl_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "base/random.h"
#include "kernels/launch/arena.h"

namespace fourfold::bench {
namespace {

using Clock = std::chrono::steady_clock;

float number(std::size_t rank, std::size_t at) {
  return static_cast<float>(static_cast<std::int32_t>(random_bits(rank + 1, at))) * 0x1p-20f;
}

// How far a sum in another order of additions may be from the one in the order of ranks.
double share_of_bound(float got, std::size_t ranks, std::size_t at) {
  float wanted = number(0, at);
  double sizes = std::abs(static_cast<double>(wanted));
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    wanted += number(rank, at);
    sizes += std::abs(static_cast<double>(number(rank, at)));
  }
  const double bound = 2 * static_cast<double>(ranks - 1) * 0x1p-24 * sizes;
  return std::abs(static_cast<double>(got) - static_cast<double>(wanted)) / (bound + 0x1p-149);
}

}  // namespace

std::vector<NcclTime> bench_nccl(all_reduce::Nccl& nccl, const std::vector<kernels::Machine*>& machines,
                                 const std::vector<void*>& streams, const AllReduceBenchOptions& options,
                                 const std::function<void(int rank)>& enter) {
  const auto most =
      static_cast<std::size_t>(*std::max_element(options.rows.begin(), options.rows.end()) * options.columns);
  std::vector<std::unique_ptr<kernels::Arena>> arenas;
  std::vector<all_reduce::Nccl::Member> members;
  std::vector<float> values(most);
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    enter(static_cast<int>(rank));
    arenas.push_back(std::make_unique<kernels::Arena>(machines[rank]->memory()));
    for (std::size_t i = 0; i < most; ++i) values[i] = number(rank, i);
    auto* out = arenas.back()->take<float>(most, "NCCL's sums");
    machines[rank]->memory().clear(out, most * 4);
    members.push_back({arenas.back()->upload(values, "parts"), out, streams[rank]});
  }
  const auto wait = [&] {
    for (std::size_t rank = 0; rank < machines.size(); ++rank) {
      enter(static_cast<int>(rank));
      machines[rank]->memory().wait();
    }
  };
  std::vector<NcclTime> times;
  for (const int rows : options.rows) {
    const auto count = static_cast<std::size_t>(rows * options.columns);
    NcclTime& time = times.emplace_back(NcclTime{.rows = rows});
    std::vector<double> seconds;
    for (int round = 0; round < options.rounds + 1; ++round) {  // the first one warms up
      wait();
      const auto start = Clock::now();
      for (int call = 0; call < options.calls; ++call) nccl.all_reduce(members, count);
      wait();
      if (round > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    const double scale = 1e6 / options.calls;
    time.median_us = scale * seconds[seconds.size() / 2];
    time.best_us = scale * seconds.front(), time.worst_us = scale * seconds.back();
    for (std::size_t rank = 0; rank < machines.size(); ++rank) {
      enter(static_cast<int>(rank));
      machines[rank]->memory().read(values.data(), members[rank].out, count * 4);
      for (std::size_t i = 0; i < count; ++i) {
        time.difference = std::max(time.difference, share_of_bound(values[i], machines.size(), i));
        if (!(time.difference <= 1))
          fail(Code::device_lost, "rank {}: {} from NCCL as number {} of {}; no order of the parts gives it",
               rank, values[i], i, count);
      }
    }
  }
  return times;
}

}  // namespace fourfold::bench
