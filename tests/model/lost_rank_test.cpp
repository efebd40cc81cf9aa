// Any rank, lost at any all-reduce or all-gather of a step of a real program: the others end, the caller is
// told which one it was, and no logits come back.
#include <future>

#include "tests/model/support.h"
#include "tests/support/ranks.h"

namespace fourfold::model {
namespace {

using backend::Door;
using backend::Pass;
using backend::prepare_sharded;
using backend::RankLost;
using backend::RankSetup;

constexpr int kRanks = 4;
constexpr backend::Capacity kOneSequence{
    .page_count = 1, .page_tokens = 16, .state_slot_count = 1, .row_count = 4};

// A prompt, and a draft behind it: each makes calls of the collective.
void run_step(backend::Prepared& prepared) {
  step(prepared, Pass::main, {{.slot = 0, .pages = {0}, .position = 0, .tokens = {1, 2, 3}}});
  step(prepared, Pass::draft,
       {{.slot = 0, .pages = {0}, .position = 0, .tokens = {2, 3, 4}, .hidden_rows = {0, 1, 2}}});
}

// The calls that one rank makes, by name.
std::vector<std::string> calls_of_a_step(const Golden& golden) {
  std::vector<std::string> names;
  const auto prepared = prepare_sharded(golden,
                                        {.count = kRanks,
                                         .before =
                                             [&](int rank, int, std::string_view where) {
                                               if (rank == 0) names.emplace_back(where);
                                             }},
                                        kOneSequence);
  run_step(*prepared);
  return names;
}

void expect_lost(backend::Prepared& prepared, int rank, const std::string& words) {
  for (const char* when : {"then", "and ever after"}) {
    try {
      run_step(prepared);
      ADD_FAILURE() << "rank " << rank << " was not missed, " << when;
    } catch (const RankLost& lost) {
      EXPECT_EQ(lost.code(), Code::device_lost);
      EXPECT_EQ(lost.rank(), rank) << lost.what();
      EXPECT_NE(std::string(lost.what()).find(words), std::string::npos)
          << words << " is not in " << lost.what();
    }
  }
}

TEST(LostRank, AStepMeetsTwiceALayerAndOnceForItsLogits) {
  const Golden golden("bf16");
  EXPECT_EQ(calls_of_a_step(golden),
            (std::vector<std::string>{"layers.0.mixer_sum", "layers.0.mlp_sum", "layers.1.mixer_sum",
                                      "layers.1.mlp_sum", "layers.2.mixer_sum", "layers.2.mlp_sum",
                                      "layers.3.mixer_sum", "layers.3.mlp_sum", "logits",
                                      "mtp.layers.0.mixer_sum", "mtp.layers.0.mlp_sum", "mtp.logits"}));
}

TEST(LostRank, KilledAnywhere) {
  const Golden golden("bf16");
  const auto calls = static_cast<int>(calls_of_a_step(golden).size());
  for (int rank = 0; rank < kRanks; ++rank)
    for (int call = 0; call < calls; ++call) {
      const auto prepared = prepare_sharded(golden,
                                            {.count = kRanks,
                                             .before =
                                                 [=](int who, int when, std::string_view) {
                                                   if (who == rank && when == call)
                                                     throw std::runtime_error("killed");
                                                 }},
                                            kOneSequence);
      expect_lost(*prepared, rank, format("rank {} of {} failed: killed", rank, kRanks));
    }
}

// All cases at the same time: they do nothing but wait.
TEST(LostRank, StalledAnywhere) {
  constexpr std::chrono::milliseconds patience{1500};
  const Golden golden("bf16");
  const std::vector<std::string> calls = calls_of_a_step(golden);
  std::vector<std::weak_ptr<const ModelShard>> parts;
  std::vector<std::shared_ptr<Door>> doors;
  {
    std::vector<std::future<void>> cases;
    for (int rank = 0; rank < kRanks; rank += kRanks - 1)  // the first and the last
      for (int call = 0; call < static_cast<int>(calls.size()); ++call) {
        doors.push_back(std::make_shared<Door>());
        const auto stall = [=, door = doors.back()](int who, int when, std::string_view) {
          if (who == rank && when == call) door->pass();
        };
        std::shared_ptr<backend::Prepared> prepared = prepare_sharded(
            golden, {.count = kRanks, .patience = patience, .before = stall}, kOneSequence, &parts);
        const std::string where = calls[static_cast<std::size_t>(call)];
        cases.push_back(std::async(std::launch::async, [=] {
          expect_lost(
              *prepared, rank,
              fourfold::format("rank {} of {} has not come to {} within 1500 ms", rank, kRanks, where));
        }));
      }
  }
  // Those who were left behind have kept what they may touch, and let it go when they end.
  EXPECT_TRUE(std::ranges::any_of(parts, [](const auto& part) { return !part.expired(); }));
  for (const auto& door : doors) door->open();
  const auto all_gone = [&] {
    return std::ranges::all_of(parts, [](const auto& part) { return part.expired(); });
  };
  for (int i = 0; i < 1000 && !all_gone(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(all_gone());
}

}  // namespace
}  // namespace fourfold::model
