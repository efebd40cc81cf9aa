// The table of drafts on the simulated GPU: the times mean nothing, the page and what it computes must.
#include "cli/bench_mtp.h"

#include <fstream>

#include "backend/cuda/cuda.h"
#include "cli/bench_model_weights.h"
#include "kernels/launch/sim_machine.h"
#include "model/forward.h"
#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

TEST(BenchMtp, TokensOfAStepAreThoseOfAGeometricRun) {
  EXPECT_DOUBLE_EQ(plan::tokens_of_step(0.5, 0), 1);
  EXPECT_DOUBLE_EQ(plan::tokens_of_step(0.5, 3), 1.875);
  EXPECT_DOUBLE_EQ(plan::tokens_of_step(1, 5), 6);
  EXPECT_NEAR(acceptance_for(1.875, 3), 0.5, 1e-9);
  EXPECT_GT(acceptance_for(4.5, 3), 1);
  EXPECT_EQ(parse_drafts("0..3"), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(parse_drafts("2,5"), (std::vector<int>{2, 5}));
  checkpoint::expect_error(Code::invalid_request, {"--mtp", "'6'"}, [] { parse_drafts("0..6"); });
}

TEST(BenchMtp, RunsTheMtpLayerOfRandomWeights) {
  const checkpoint::ModelShape& shape = checkpoint::find_shape("tiny");
  const checkpoint::ModelConfig config = config_of(shape, 1);
  const RandomWeights random(config, WeightFormat::bf16, true);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared =
      backend::make_gpu_backend(*machine, {})
          ->prepare(model::build_program(config, random.weights(), model::Activations::w4a16),
                    {.page_count = 4, .page_tokens = 64, .state_slot_count = 2, .row_count = 8});
  Captured captured;
  const checkpoint::TempFolder folder;
  const std::string csv = folder.path() / "mtp.csv";
  bench_mtp(*prepared,
            {.users = {2}, .drafts = {0, 2}, .contexts = {60}, .tokens = 1, .room = 128, .bytes_per_s = 1e12},
            csv, "a test", captured.console);
  const std::string page = captured.out.str();
  EXPECT_TRUE(contains(page, "verify, ms")) << page;
  std::ifstream file(csv);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 6u) << "a comment, commit, date, names, two lines";
  EXPECT_EQ(lines[0], "# a test");
  EXPECT_EQ(lines[1].substr(0, 10), "# commit: ");
  EXPECT_EQ(lines[2].substr(0, 10), "# date: 20");
  EXPECT_EQ(lines[4].substr(0, 7), "2,60,0,");
  EXPECT_EQ(lines[5].substr(0, 7), "2,60,2,");
}

}  // namespace
}  // namespace fourfold::cli
