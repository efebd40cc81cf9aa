// Ranks whose steps meet without the leader, as those of NCCL: what the leader still has to say.
#include "tests/checkpoint/support.h"
#include "tests/nodes/house.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace fourfold::nodes
