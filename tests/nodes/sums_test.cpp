// The checksums of all tensors, between a leader and a rank: what samples do not show.
#include "tests/nodes/support.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

TEST(Sums, ARankWithAnotherTensorIsTurnedAwayBeforeItLoads) {
  LeaderOptions options = leader_options(2, backend::make_host_collective(2, 60s));
  Lines lines;
  options.log = lines.writer();
  RankModel model = toy_model();
  model.sum = [] { return TensorSums{{11, 99, 98}}; };
  model.load = [](const Settings&,
                  std::shared_ptr<backend::Collective>) -> std::shared_ptr<backend::Prepared> {
    fail(Code::internal, "it was loaded");
  };
  const std::string why =
      "its weights are not the leader's: tensor 1 in toys differs, and 1 more of 3 tensors";
  {
    Leader leader(std::move(options));
    EXPECT_EQ(WorkerThread(worker_options({"127.0.0.1", leader.port()}), model).join(), why);
  }
  EXPECT_NE(lines.text().find("was refused: " + why), std::string::npos) << lines.text();
}

TEST(Sums, ALeaderEndsWhileItMakesThem) {
  LeaderOptions options = leader_options(2, backend::make_host_collective(2, 60s));
  std::atomic<bool> has_begun = false;
  options.sum_tensors = [&](const std::function<bool()>& stops) -> TensorSums {
    has_begun = true;
    while (!stops()) std::this_thread::sleep_for(1ms);
    fail(Code::cancelled, "not wanted any more");
  };
  auto leader = std::make_unique<Leader>(std::move(options));
  WorkerThread rank(worker_options({"127.0.0.1", leader->port()}), toy_model());
  ASSERT_TRUE(comes_true([&] { return has_begun.load(); }));
  leader = nullptr;
  EXPECT_EQ(rank.join(), "well");
}

}  // namespace
}  // namespace fourfold::nodes
