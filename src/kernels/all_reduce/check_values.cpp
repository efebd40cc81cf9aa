// Some machines return other values over peer access without an error: sums are compared before they are
// believed.
#include <algorithm>
#include <barrier>
#include <bit>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/format.h"
#include "base/random.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/arena.h"

namespace fourfold::all_reduce {
namespace {

constexpr int kRowsMost = 64;

float number(int rank, int round, std::size_t at) {
  const std::uint64_t bits = random_bits(static_cast<std::uint64_t>(1 + rank + 64 * round), at);
  return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-20f;
}

// One rank's rounds.
class RankCheck {
 public:
  RankCheck(Exchange& exchange, kernels::Machine& machine, kernels::Arena& arena, int rank,
            const ValueCheck& check)
      : exchange_(exchange),
        memory_(machine.memory()),
        rank_(rank),
        check_(check),
        is_small_(machine.sm_count() <= 16) {
    const auto most = static_cast<std::size_t>(kRowsMost * std::max(check.columns, check.gathered));
    x_ = arena.take<float>(most * static_cast<std::size_t>(check.gathered > 0 ? exchange.rank_count() : 1),
                           "checked rows");
    part_ = arena.take<float>(most, "checked parts");
  }

  // Empty, or the first value that is not what it must be.
  std::string run() {
    for (int round = 0; round < check_.rounds; ++round) {
      constexpr int rows_of[] = {1, 8, 3, kRowsMost};
      const int rows = is_small_ ? 1 + round % 3 : rows_of[round % 4];
      check_.load(rank_);
      if (std::string wrong = sum(round, rows); !wrong.empty()) return wrong;
      if (check_.gathered == 0) continue;
      if (std::string wrong = gather(round, std::min(rows, 8)); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  void send(int round, std::size_t count) {
    std::vector<float> sent(count);
    for (std::size_t i = 0; i < count; ++i) sent[i] = number(rank_, round, i);
    memory_.write(part_, sent.data(), count * 4);
  }
  std::vector<float> received(std::size_t count) {
    std::vector<float> got(count);
    memory_.read(got.data(), x_, count * 4);
    exchange_.require_answers(rank_);
    return got;
  }
  std::string compare(float got, float wanted, const char* what, int round, std::size_t at) const {
    if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted)) return {};
    return format("rank {} received {} for {} in {} {}, number {}", rank_, got, wanted, what, round, at);
  }

  std::string sum(int round, int rows) {
    const auto count = static_cast<std::size_t>(rows * check_.columns);
    send(round, count);
    memory_.clear(x_, count * 4);
    exchange_.launch(rank_, x_, part_, rows);
    const std::vector<float> got = received(count);
    for (std::size_t i = 0; i < count; ++i) {
      float wanted = number(0, round, i);
      for (int r = 1; r < exchange_.rank_count(); ++r) wanted += number(r, round, i);
      if (std::string wrong = compare(got[i], 0.0f + wanted, "sum", round, i); !wrong.empty()) return wrong;
    }
    return {};
  }

  std::string gather(int round, int rows) {
    const auto columns = static_cast<std::size_t>(check_.gathered),
               wide = columns * static_cast<std::size_t>(exchange_.rank_count());
    send(round, static_cast<std::size_t>(rows) * columns);
    exchange_.gather(rank_, rows, {part_, check_.gathered, check_.gathered, x_, static_cast<int>(wide)});
    const std::vector<float> got = received(static_cast<std::size_t>(rows) * wide);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float wanted =
          number(static_cast<int>(i % wide / columns), round, i / wide * columns + i % columns);
      if (std::string wrong = compare(got[i], wanted, "gathered rows", round, i); !wrong.empty())
        return wrong;
    }
    return {};
  }

  Exchange& exchange_;
  kernels::Memory& memory_;
  int rank_;
  const ValueCheck& check_;
  bool is_small_;  // a simulated device
  float *x_ = nullptr, *part_ = nullptr;
};

}  // namespace

std::string check_values(Exchange& exchange, const std::vector<kernels::Machine*>& machines,
                         const ValueCheck& check) {
  std::mutex mutex;
  std::string wrong;
  std::barrier<> ready(static_cast<std::ptrdiff_t>(machines.size()));
  // A release waits for kernels, and those may wait for a rank that has given up: nothing is given back
  // before all ranks have ended.
  std::vector<std::unique_ptr<kernels::Arena>> arenas;
  for (kernels::Machine* machine : machines)
    arenas.push_back(std::make_unique<kernels::Arena>(machine->memory()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < machines.size(); ++rank)
    threads.emplace_back([&, rank] {
      std::string mine;
      bool is_ready = false;
      try {
        check.enter(static_cast<int>(rank));
        RankCheck rounds(exchange, *machines[rank], *arenas[rank], static_cast<int>(rank), check);
        is_ready = true;
        ready.arrive_and_wait();  // an allocation may wait for kernels, and those for this rank
        mine = rounds.run();
      } catch (const std::exception& error) {
        mine = error.what();
        if (!is_ready) ready.arrive_and_drop();
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
