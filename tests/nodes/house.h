// A leader with rank 0 and the ranks of a test, behind one door; and the same toys in one process.
#pragma once

#include "tests/nodes/support.h"

namespace fourfold::nodes {

inline constexpr backend::Capacity kCapacity{.page_count = 4, .state_slot_count = 2, .row_count = 8};

inline std::vector<float> logits_of(backend::Prepared& prepared, std::int32_t token) {
  const std::vector<std::int32_t> tokens{token};
  std::vector<float> logits(static_cast<std::size_t>(prepared.program().vocab_size));
  prepared.run(backend::Pass::main,
               {.tokens = tokens, .sequences = {}, .pages = {}, .logits_rows = {}, .hidden_rows = {}},
               logits);
  return logits;
}

// A leader with rank 0, and the ranks of a test, which end when the leader says so.
struct House {
  explicit House(int count, LinkTiming timing = {},
                 std::chrono::milliseconds patience = std::chrono::seconds(60), bool meets_elsewhere = false)
      : rank_count(count), collective(backend::make_host_collective(count, patience)) {
    LeaderOptions options = leader_options(count, collective);
    options.timing = timing;
    options.meets_elsewhere = meets_elsewhere;
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex);
      log += line + "\n";
    };
    leader = std::make_unique<Leader>(std::move(options));
  }
  Address address() const { return {"127.0.0.1", leader->port()}; }
  WorkerThread& start(WorkerOptions options, RankModel model = toy_model()) {
    workers.push_back(std::make_unique<WorkerThread>(std::move(options), std::move(model)));
    return *workers.back();
  }
  void start_all() {
    for (int rank = 1; rank < rank_count; ++rank) start(worker_options(address()));
  }
  Wire& add_wire() {
    wire = std::make_unique<Wire>(leader->port());
    return *wire;
  }
  void prepare() {
    std::vector<backend::Rank> ranks;
    for (int rank = 0; rank < rank_count; ++rank) {
      backend::Program program;
      program.part = {rank, rank_count};
      program.vocab_size = static_cast<std::int64_t>(ToyPart::kColumns) * rank_count;
      const std::shared_ptr<backend::Backend> made =
          rank == 0 ? std::make_shared<ToyBackend>(collective) : leader->rank(rank);
      ranks.push_back({made, std::move(program)});
    }
    prepared = backend::prepare_ranks(
        std::move(ranks), kCapacity,
        {.give_up = [this](int rank, const std::string& why) { leader->give_up(rank, why); },
         .away = [this] { return leader->away(); },
         .mend = [this] { return leader->mend(); }});
  }
  std::string said() {
    const std::lock_guard lock(mutex);
    return log;
  }
  bool says(const std::string& words) {
    return comes_true([&] { return said().find(words) != std::string::npos; });
  }

  // In the order they go, from the last.
  std::vector<std::unique_ptr<WorkerThread>> workers;
  std::unique_ptr<Wire> wire;
  int rank_count;
  std::mutex mutex;
  std::string log;
  std::shared_ptr<backend::Collective> collective;
  std::unique_ptr<Leader> leader;
  std::unique_ptr<backend::Prepared> prepared;
};

// The same toys as threads of one process.
inline std::unique_ptr<backend::Prepared> in_one_process(int count) {
  const auto collective = backend::make_host_collective(count, std::chrono::seconds(60));
  std::vector<backend::Rank> ranks;
  for (int rank = 0; rank < count; ++rank) {
    backend::Program program;
    program.part = {rank, count};
    ranks.push_back({std::make_shared<ToyBackend>(collective), std::move(program)});
  }
  return backend::prepare_ranks(std::move(ranks), kCapacity, {});
}

// What the engine does behind device_lost.
inline void wait_until_restored(backend::Prepared& prepared) {
  ASSERT_TRUE(prepared.comes_back());
  ASSERT_TRUE(comes_true([&] { return prepared.restore(); }));
  EXPECT_EQ(prepared.away(), "");
}

}  // namespace fourfold::nodes
