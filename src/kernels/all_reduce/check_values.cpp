// Some machines return other values over peer access without an error: sums are compared before they are
// believed.
#include <barrier>
#include <bit>
#include <exception>
#include <mutex>
#include <thread>

#include "base/format.h"
#include "base/random.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/arena.h"

namespace fourfold::all_reduce {
namespace {

constexpr std::size_t kLoadBytes = std::size_t{8} << 20;  // copied between calls

float number(int rank, int round, std::size_t at) {
  const std::uint64_t bits = random_bits(static_cast<std::uint64_t>(1 + rank + 64 * round), at);
  return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-20f;
}

// One rank's rounds: empty, or the first value that is not what it must be.
std::string check_rank(Exchange& exchange, kernels::Machine& machine, int rank, int columns, int rounds,
                       std::barrier<>& ready) {
  kernels::Arena arena(machine.memory());
  constexpr int rows_of[] = {1, 8, 3, 64};
  const auto most = static_cast<std::size_t>(64 * columns);
  auto* x = arena.take<float>(most, "checked rows");
  auto* part = arena.take<float>(most, "checked parts");
  const bool loads = machine.memory().free_bytes() > std::int64_t{4} << 30 && machine.sm_count() > 16;
  unsigned char* load = loads ? arena.take<unsigned char>(2 * kLoadBytes, "load") : nullptr;
  if (load != nullptr) machine.memory().clear(load, 2 * kLoadBytes);
  std::vector<float> sent(most), got(most);
  ready.arrive_and_wait();  // an allocation may wait for kernels, and those for this rank
  for (int round = 0; round < rounds; ++round) {
    const int rows = machine.sm_count() > 16 ? rows_of[round % 4] : 1 + round % 3;
    const auto count = static_cast<std::size_t>(rows * columns);
    for (std::size_t i = 0; i < count; ++i) sent[i] = number(rank, round, i);
    machine.memory().write(part, sent.data(), count * 4);
    machine.memory().clear(x, count * 4);
    if (load != nullptr) machine.memory().copy(load, load + kLoadBytes, kLoadBytes);
    exchange.launch(rank, x, part, rows);
    machine.memory().read(got.data(), x, count * 4);
    exchange.require_answers(rank);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = number(0, round, i);
      for (int r = 1; r < exchange.rank_count(); ++r) sum += number(r, round, i);
      sum = 0.0f + sum;
      if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(sum))
        return format("rank {} received {} for {} in round {}, number {} of {}", rank, got[i], sum, round, i,
                      count);
    }
  }
  return {};
}

}  // namespace

std::string check_values(Exchange& exchange, const std::vector<kernels::Machine*>& machines, int columns,
                         int rounds, const std::function<void(int rank)>& enter) {
  std::mutex mutex;
  std::string wrong;
  std::barrier<> ready(static_cast<std::ptrdiff_t>(machines.size()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < machines.size(); ++rank)
    threads.emplace_back([&, rank] {
      std::string mine;
      try {
        enter(static_cast<int>(rank));
        mine = check_rank(exchange, *machines[rank], static_cast<int>(rank), columns, rounds, ready);
      } catch (const std::exception& error) {
        mine = error.what();
        ready.arrive_and_drop();
      }
      if (mine.empty()) return;
      exchange.stop();
      const std::lock_guard lock(mutex);
      if (wrong.empty()) wrong = mine;
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

}  // namespace fourfold::all_reduce
