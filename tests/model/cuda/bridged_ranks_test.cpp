// Ranks on simulated GPUs that share no memory, as those of several machines: their kernels meet through the
// collective of the host, and give the bits of ranks in one process. One that is lost inside a step comes
// back.
#include <atomic>

#include "kernels/all_reduce/bridged_exchange.h"
#include "tests/model/support.h"
#include "tests/support/ranks.h"
#include "tests/support/sim_ranks.h"

namespace fourfold::model {
namespace {

using backend::Pass;
using backend::Role;

constexpr int kRanks = 2;
constexpr backend::Capacity kRoom{.page_count = 4, .page_tokens = 64, .state_slot_count = 2, .row_count = 16};

// A rank as its process has it.
class LonelyRank final : public backend::Backend {
 public:
  LonelyRank(int rank, const std::shared_ptr<backend::Collective>& collective) {
    device_ =
        std::make_unique<sim::Device>(sim::DeviceOptions{.memory_bytes = std::size_t{1} << 28,
                                                         .peers = std::make_shared<sim::PeerMemory>(kRanks),
                                                         .rank = rank});
    machine_ = kernels::make_sim_machine(*device_);
    exchange_ = std::make_shared<all_reduce::BridgedExchange>(
        all_reduce::BridgeOptions{.ranks = kRanks, .rank = rank, .blocks = 2, .overlaps = true},
        [collective, rank](std::string_view where, std::span<const float> part, std::span<float> all) {
          collective->all_gather(rank, where, 1, part, all);
        });
    inner_ = backend::make_gpu_backend(*machine_, {.exchange = exchange_});
  }
  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<backend::Prepared> prepare(backend::Program program,
                                             const backend::Capacity& capacity) override {
    return inner_->prepare(std::move(program), capacity);
  }

 private:
  std::unique_ptr<sim::Device> device_;
  std::unique_ptr<kernels::Machine> machine_;
  std::shared_ptr<all_reduce::BridgedExchange> exchange_;
  std::unique_ptr<backend::Backend> inner_;
};

std::unique_ptr<backend::Prepared> prepare_apart(const Loaded& golden,
                                                 const std::shared_ptr<backend::Collective>& collective) {
  std::vector<backend::Rank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto part = std::make_shared<const ModelShard>(
        shard_model(golden.config, golden.model.weights, {rank, kRanks}, ExpertSharding::automatic));
    backend::Program program = build_program(*part, Activations::w4a16);
    ranks.push_back({std::make_shared<LonelyRank>(rank, collective), std::move(program), std::move(part)});
  }
  return backend::prepare_ranks(
      std::move(ranks), kRoom,
      {.give_up = [collective](int rank, const std::string& why) { collective->give_up(rank, why); },
       .away = [] { return std::string(); },
       .mend =
           [collective] {
             collective->mend();
             return true;
           }});
}

struct Steps {
  std::vector<std::vector<float>> logits;
  std::vector<std::int32_t> tokens;
  bool operator==(const Steps&) const = default;
};

// A prompt whose logits nobody asks for, one row a step (the third of them is replayed), tokens that are
// chosen there, and a draft.
Steps run_steps(backend::Prepared& prepared) {
  Steps out;
  const std::vector<std::int32_t> pages{0, 1, 2, 3};
  const auto vocab = static_cast<std::size_t>(prepared.program().vocab_size);
  const auto step = [&](std::vector<std::int32_t> tokens, std::int64_t position, Role role,
                        std::vector<std::int32_t> asked) {
    const backend::SequenceRows rows{static_cast<std::int32_t>(tokens.size()), position, 0, 0, 1, role, 0};
    out.logits.emplace_back(asked.size() * vocab);
    prepared.run(Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, out.logits.back());
  };
  step({1, 2, 3, 4, 5}, 0, Role::prefill, {});
  for (std::int32_t i = 0; i < 3; ++i) step({10 + i}, 5 + i, Role::decode, {0});
  const std::vector<backend::Choice> greedy(1);
  const std::int32_t asked = 0;
  for (std::int32_t i = 0; i < 3; ++i) {
    const std::int32_t token = 20 + i;
    const backend::SequenceRows rows{1, 8 + i, 0, 0, 1, Role::decode, 0};
    out.tokens.push_back(backend::kNoToken);
    EXPECT_TRUE(prepared.run_sampled(Pass::main, {{&token, 1}, {&rows, 1}, pages, {&asked, 1}, {}},
                                     {static_cast<std::int64_t>(vocab), greedy},
                                     {{&out.tokens.back(), 1}, {}}));
  }
  const std::int32_t token = 30;
  const backend::SequenceRows rows{1, 10, 0, 0, 1, Role::decode, 0};
  const int count = 2;
  std::vector<std::int32_t> drafts(2, backend::kNoToken);
  EXPECT_TRUE(prepared.run_drafts({{&token, 1}, {&rows, 1}, pages, {&asked, 1}, {&asked, 1}},
                                  {static_cast<std::int64_t>(vocab), greedy}, {&count, 1}, drafts));
  out.tokens.insert(out.tokens.end(), drafts.begin(), drafts.end());
  return out;
}

Steps wanted_steps(const Golden& golden) {
  const auto all = std::make_shared<backend::SimRanks>(
      kRanks, all_reduce::ExchangeOptions{.blocks = 2, .wait_seconds = 600});
  return run_steps(*backend::prepare_sim(golden, all, kRoom));
}

// What they meet in is the mailbox, not the buffers of GPUs that write into each other's memory: a place for
// the 16 rows of each rank, twice.
TEST(BridgedRanks, TheMailboxIsPlannedFor) {
  const Golden golden("bf16");
  const auto prepared = prepare_apart(golden, backend::make_host_collective(kRanks, std::chrono::minutes(1)));
  const auto use =
      std::ranges::find(prepared->memory(), "rank 1 exchange of ranks", &backend::MemoryUse::what);
  ASSERT_NE(use, prepared->memory().end());
  EXPECT_EQ(use->bytes, 2 * kRanks * kRoom.row_count * prepared->program().hidden_size * 4);
}

TEST(BridgedRanks, TheBitsOfOneProcessAndOneThatIsLostComesBack) {
  const Golden golden("bf16");
  const Steps wanted = wanted_steps(golden);
  ASSERT_NE(wanted.logits[1], wanted.logits[2]);
  // Where a rank is lost: in a prompt's first sum, in the logits of a step, in a step whose tokens are chosen
  // there. Never: the bits alone.
  std::atomic<int> lost_at = -1;
  const auto collective = std::make_shared<backend::WatchedCollective>(
      kRanks, std::chrono::seconds(600), [&](int rank, int call, std::string_view where) {
        if (rank == 1 && call == lost_at) throw std::runtime_error("switched off at " + std::string(where));
      });
  const auto prepared = prepare_apart(golden, collective);
  EXPECT_EQ(run_steps(*prepared), wanted);
  int calls = 8 + 3 * 9 + 3 * 9 + 2 * 3;  // two a layer, the logits of those that asked, and two drafts
  for (const auto& [call, where] :
       {std::pair{0, "layers.0.mixer_sum"}, {8 + 8, "logits"}, {8 + 3 * 9 + 4, "layers.2.mixer_sum"}}) {
    lost_at = calls + call;
    try {
      run_steps(*prepared);
      ADD_FAILURE() << "nobody was missed at " << where;
    } catch (const backend::RankLost& lost) {
      EXPECT_EQ(lost.rank(), 1);
      EXPECT_NE(std::string(lost.what()).find(format("switched off at {}", where)), std::string::npos)
          << lost.what();
    }
    EXPECT_TRUE(prepared->restore());
    EXPECT_EQ(run_steps(*prepared), wanted) << "behind " << where;
    calls += call + 1 + 8 + 3 * 9 + 3 * 9 + 2 * 3;
  }
}

}  // namespace
}  // namespace fourfold::model
