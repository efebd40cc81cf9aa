// Ranks whose steps meet without the leader, as those of NCCL: what the leader still has to say.
#include "tests/checkpoint/support.h"
#include "tests/nodes/house.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

// The words of a lost device; "" when it went well.
std::string why_refused(backend::Prepared& prepared, std::int32_t token) {
  try {
    logits_of(prepared, token);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device_lost);
    return error.what();
  }
  return {};
}

// Ranks in a step that the leader takes no part in (NCCL's): those that wait for the lost one are told, and
// stay. All hear that the group begins anew, whether they had noticed anything or not.
TEST(Leader, RanksThatMeetElsewhereAreToldAndStay) {
  House house(3, {}, 60s, true);
  Wire& wire = house.add_wire();
  house.start(worker_options(wire.address(), 1));
  house.start(worker_options(house.address(), 2));
  house.prepare();
  std::vector<float> numbers = logits_of(*house.prepared, ToyPart::kTellsGeneration);
  for (const bool in_a_step : {true, false}) {
    std::jthread cuts([&] {
      std::this_thread::sleep_for(100ms);
      wire.cut();
    });
    if (in_a_step)
      checkpoint::expect_error(Code::device_lost, {"rank 1 of 3 was lost"},
                               [&] { logits_of(*house.prepared, ToyPart::kWaitsElsewhere); });
    ASSERT_TRUE(comes_true([&] { return !house.prepared->away().empty(); }));
    wait_until_restored(*house.prepared);
    const std::vector<float> before =
        std::exchange(numbers, logits_of(*house.prepared, ToyPart::kTellsGeneration));
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_NE(numbers[rank * ToyPart::kColumns], before[rank * ToyPart::kColumns]) << rank;
    EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(3), 3));
  }
  EXPECT_EQ(house.said().find("rank 2 of 3 (127.0.0.1"), house.said().rfind("rank 2 of 3 (127.0.0.1"))
      << "it was ready once, and never gone: " << house.said();
}

// What they meet in has failed, and all are there: the step ends for all, nobody leaves, and the group begins
// anew at once, whoever met the failure.
TEST(Leader, WhatTheRanksMeetInMayFail) {
  House house(3, {}, 60s, true);
  house.start_all();
  house.prepare();
  for (const std::int32_t token : {ToyPart::kGroupFails, ToyPart::kGroupFailsElsewhere}) {
    const std::vector<float> before = logits_of(*house.prepared, ToyPart::kTellsGeneration);
    EXPECT_EQ(why_refused(*house.prepared, token), "NCCL is out of order");
    wait_until_restored(*house.prepared);
    const std::vector<float> numbers = logits_of(*house.prepared, ToyPart::kTellsGeneration);
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_NE(numbers[rank * ToyPart::kColumns], before[rank * ToyPart::kColumns]) << rank;
    EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(3), 3));
    EXPECT_EQ(house.said().find("is gone"), std::string::npos) << house.said();
  }
}

// Whoever looks after a step of NCCL's has a thread of its own, and looks also when the leader has just been
// lost, or is back.
TEST(Worker, IsAskedFromAnotherThreadWhileTheLeaderIsLost) {
  House house(2, {}, 60s, true);
  Wire& wire = house.add_wire();
  std::shared_ptr<backend::Collective> collective;
  std::atomic<bool> is_loaded = false, ends = false;
  RankModel model = toy_model();
  const auto load = model.load;
  model.load = [&](const Settings& settings, std::shared_ptr<backend::Collective> given) {
    collective = given;
    is_loaded = true;
    return load(settings, std::move(given));
  };
  house.start(worker_options(wire.address(), 1), model);
  house.prepare();
  ASSERT_TRUE(comes_true([&] { return is_loaded.load(); }));
  std::atomic<int> losses = 0;
  std::jthread looks([&] {
    while (!ends) {
      try {
        collective->require_all_there(1);
      } catch (const LinkLost&) {
        ++losses;
      } catch (const backend::RankLost&) {
      }
    }
  });
  for (int round = 0; round < 3; ++round) {
    wire.cut();
    ASSERT_TRUE(comes_true([&] { return !house.prepared->away().empty(); }));
    wait_until_restored(*house.prepared);
  }
  ends = true;
  looks.join();
  EXPECT_GT(losses, 0);
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(2), 3));
}

}  // namespace
}  // namespace fourfold::nodes
