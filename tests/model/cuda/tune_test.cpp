// Every row that tuning would accept for a model gives the default's bits, on Hopper's rows as on SM120's.
#include "backend/cuda/tune/tune.h"

#include <numeric>

#include "backend/cuda/cuda.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/support.h"
#include "tests/support/long_test.h"

namespace fourfold::model {
namespace {

using backend::cuda::Measured;
using backend::cuda::MeasuredOp;

// The ops of one step; tokens from position 0 on.
std::vector<MeasuredOp> tune_step(const plan::ArchFacts& arch, std::int32_t rows, backend::Role role,
                                  const std::string& ops) {
  const Golden golden("modelopt_mixed");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
  const auto prepared =
      backend::make_gpu_backend(*machine, {})
          ->prepare(golden.program(Activations::w4a16),
                    {.page_count = 2, .page_tokens = 64, .state_slot_count = 1, .row_count = 80});
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows)), chosen(1);
  std::iota(tokens.begin(), tokens.end(), 5);
  const std::vector<std::int32_t> pages{1, 0}, asked{rows - 1};
  const backend::SequenceRows sequence{.row_count = rows, .page_count = 2, .role = role};
  const std::vector<backend::Choice> best(1);
  EXPECT_TRUE(prepared->run_sampled(backend::Pass::main, {tokens, {&sequence, 1}, pages, asked, {}},
                                    {300, best}, {chosen, {}}));
  backend::cuda::TuneOptions options;
  options.ops = ops;
  options.times = false;
  backend::cuda::TuneResult result;
  backend::cuda::tune(*prepared, 1, options, result);
  EXPECT_TRUE(result.tuning.empty()) << "nothing is timed on the simulator";
  return result.ops;
}

void expect_equal_bits(const std::vector<MeasuredOp>& ops, std::size_t least_ops, std::size_t least_run) {
  EXPECT_GE(ops.size(), least_ops);
  for (const MeasuredOp& op : ops) {
    std::size_t run = 0;
    for (const Measured& candidate : op.candidates) {
      run += candidate.refusal.empty();
      EXPECT_EQ(candidate.refusal.find("other bits"), std::string::npos)
          << op.op << " " << op.shape << ": " << candidate.form.row << ": " << candidate.refusal;
    }
    EXPECT_GE(run, least_run) << op.op << " " << op.shape;
  }
}

TEST(TuneBits, GeneratedRows) {
  expect_equal_bits(tune_step(plan::kSm120, 3, backend::Role::decode, "experts*"), 1, 3);
  expect_equal_bits(tune_step(plan::kSm120, 3, backend::Role::decode, "matrix *nvfp4 rows"), 1, 5);
}
// wgmma and mma, tiles of every size.
TEST(TuneBits, PromptRowsOnHopper) {
  if (!test::wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  expect_equal_bits(tune_step(plan::kSm90, 9, backend::Role::prefill, "prompt experts*"), 1, 10);
  expect_equal_bits(tune_step(plan::kSm90, 9, backend::Role::prefill, "attend prompt*"), 1, 2);
}

}  // namespace
}  // namespace fourfold::model
