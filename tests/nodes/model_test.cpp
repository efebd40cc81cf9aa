// A real model cut over workers: the logits of ranks that are threads, to the last bit.
#include "tests/model/support.h"
#include "tests/nodes/support.h"
#include "tests/support/ranks.h"

namespace fourfold::nodes {
namespace {

using backend::Pass;

constexpr int kRanks = 4;
constexpr backend::Capacity kRoom{
    .page_count = 4, .page_tokens = 16, .state_slot_count = 2, .row_count = 16, .anchor_count = 2};

std::pair<std::shared_ptr<const model::ModelShard>, backend::Program> part_of(const model::Golden& golden,
                                                                              int rank) {
  auto part = std::make_shared<const model::ModelShard>(model::shard_model(
      golden.config, golden.model.weights, {rank, kRanks}, model::ExpertSharding::automatic));
  backend::Program program = model::build_program(*part, model::Activations::f32);
  return {std::move(part), std::move(program)};
}

// Two sequences side by side, a prompt and then generated rows, and the draft layer behind them.
std::vector<std::vector<backend::LogitsRow>> steps_of(backend::Prepared& prepared) {
  std::vector<std::vector<backend::LogitsRow>> out;
  out.push_back(step(prepared, Pass::main,
                     {{.slot = 0, .pages = {0}, .position = 0, .tokens = {1, 2, 3}},
                      {.slot = 1, .pages = {1}, .position = 0, .tokens = {9, 8, 7, 6, 5}}}));
  out.push_back(
      step(prepared, Pass::draft,
           {{.slot = 0, .pages = {0}, .position = 0, .tokens = {2, 3, 4}, .hidden_rows = {0, 1, 2}}}));
  for (std::int32_t i = 0; i < 5; ++i)
    out.push_back(step(prepared, Pass::main,
                       {{.slot = 1, .pages = {1}, .position = 5 + i, .tokens = {10 + i}},
                        {.slot = 0, .pages = {0}, .position = 3 + i, .tokens = {20 + i}}}));
  return out;
}

TEST(NodesModel, TheLogitsOfOneProcess) {
  const model::Golden golden("bf16");
  const auto collective = backend::make_host_collective(kRanks, std::chrono::seconds(60));
  LeaderOptions options = leader_options(kRanks, collective);
  options.settings.capacity = kRoom;
  std::vector<std::unique_ptr<WorkerThread>> workers;  // end when the leader does
  Leader leader(std::move(options));
  RankModel real = toy_model();
  real.load = [&](const Settings& settings, std::shared_ptr<backend::Collective> meets) {
    auto [part, program] = part_of(golden, settings.rank);
    const auto made = backend::make_cpu_backend({.threads = 1, .collective = std::move(meets)});
    std::shared_ptr<backend::Prepared> prepared = made->prepare(std::move(program), settings.capacity);
    return std::shared_ptr<backend::Prepared>(prepared.get(), [prepared, part = part](backend::Prepared*) {});
  };
  std::vector<backend::Rank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto [part, program] = part_of(golden, rank);
    std::shared_ptr<backend::Backend> made =
        rank == 0 ? std::shared_ptr<backend::Backend>(
                        backend::make_cpu_backend({.threads = 1, .collective = collective}))
                  : leader.rank(rank);
    ranks.push_back({std::move(made), std::move(program), std::move(part)});
    if (rank > 0)
      workers.push_back(
          std::make_unique<WorkerThread>(worker_options({"127.0.0.1", leader.port()}, rank), real));
  }
  const auto together = backend::prepare_ranks(
      std::move(ranks), kRoom,
      {.give_up = [&](int rank, const std::string& why) { leader.give_up(rank, why); }});
  const auto threads = backend::prepare_sharded(golden, {.count = kRanks}, kRoom);
  EXPECT_EQ(steps_of(*together), steps_of(*threads));
}

}  // namespace
}  // namespace fourfold::nodes
