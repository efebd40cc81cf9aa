// The tuner's decisions, on a program that is only pretended: what it times, what it refuses, what it takes.
#include "backend/cuda/tune/tune.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels/launch/sim_machine.h"

namespace fourfold::backend::cuda {
namespace {

struct Delay final : kernels::Recording {
  explicit Delay(double us) : Recording(1), microseconds(us) {}
  double microseconds;
};

constexpr const char* kFast = "dense_few 16x8x512 rows bf16 w8";
constexpr const char* kWrong = "dense_many 16x16x512 bf16";

// One matrix, whose default takes 400 us of a step of 1000.
class PretendProgram final : public Prepared, public Tunable {
 public:
  std::map<std::string, double> alone = {{kFast, 200}, {kWrong, 100}};
  std::map<std::string, double> step = {{kFast, 800}};

  const Program& program() const override { return program_; }
  const Capacity& capacity() const override { return capacity_; }
  void run(Pass, const Batch&, std::span<float>) override {}
  std::span<const float> value(ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t) const override { return 0; }

  kernels::Machine& machine() override { return *machine_; }
  std::size_t workspace_bytes() const override { return std::size_t{1} << 24; }
  void set_tuning(std::shared_ptr<const Tuning> tuning) override { tuning_ = std::move(tuning); }
  std::vector<Question> questions() override {
    const dense::DenseCall call{
        9216, 2048, WeightFormat::bf16, dense::TokenSource::norm, 4, machine_->sm_count()};
    return {{"matrix", "9216x2048 bf16 norm", 4, call, 2, {}}};
  }
  std::vector<std::vector<std::uint32_t>> outputs() override {
    return {{1, 2, 3}, {4, row() == kWrong ? 6u : 5u}};
  }
  std::unique_ptr<kernels::Recording> record(unsigned stages) override {
    const auto& times = stages == ~0u ? step : alone;
    const auto found = times.find(row());
    return std::make_unique<Delay>(found != times.end() ? found->second : stages == ~0u ? 1000 : 400);
  }
  double time(kernels::Recording& recording, int) override {
    return dynamic_cast<Delay&>(recording).microseconds;
  }

 private:
  std::string row() const {
    const TunedChoice* choice = tuning_->find("matrix", "9216x2048 bf16 norm", 4);
    return choice == nullptr ? "" : choice->form.row;
  }
  Program program_;
  Capacity capacity_;
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ = kernels::make_sim_machine(device_);
  std::shared_ptr<const Tuning> tuning_;
};

const Measured& find(const MeasuredOp& op, const std::string& row) {
  for (const Measured& candidate : op.candidates)
    if (candidate.form.row == row) return candidate;
  ADD_FAILURE() << row << " is not listed";
  return op.candidates.front();
}

TEST(Tune, TakesTheFastestOfEqualBits) {
  PretendProgram program;
  TuneResult result;
  int shown = 0;
  TuneOptions options;
  options.show = [&](const MeasuredOp&) { ++shown; };
  tune(program, 3, options, result);
  ASSERT_EQ(result.ops.size(), 1u);
  EXPECT_EQ(shown, 1);
  const MeasuredOp& op = result.ops.front();
  ASSERT_TRUE(op.is_tuned());
  EXPECT_EQ(op.candidates[op.chosen].form.row, kFast);
  EXPECT_EQ(op.step_before, 1000);
  EXPECT_EQ(op.step_after, 800);
  EXPECT_EQ(find(op, kWrong).refusal, "other bits: 1 of 2 numbers of output 1");
  EXPECT_EQ(find(op, kWrong).microseconds, 0);
  for (const Measured& candidate : op.candidates)
    EXPECT_TRUE(candidate.microseconds > 0 || !candidate.refusal.empty()) << candidate.form.row;
  ASSERT_EQ(result.tuning.choices().size(), 1u);
  const TunedChoice& choice = result.tuning.choices().front();
  EXPECT_EQ(choice.tokens_from, 3);
  EXPECT_EQ(choice.tokens_to, 4);
  EXPECT_EQ(choice.form.row, kFast);
  EXPECT_EQ(choice.microseconds, 200);
  EXPECT_EQ(choice.default_microseconds, 400);
  tune(program, 3, options, result);
  EXPECT_EQ(shown, 1) << "what was measured is not measured again";
}

TEST(Tune, KeepsTheDefaultWhereTheStepIsNotFaster) {
  PretendProgram program;
  program.step[kFast] = 1200;
  TuneResult result;
  tune(program, 1, {}, result);
  const MeasuredOp& op = result.ops.front();
  EXPECT_FALSE(op.is_tuned());
  EXPECT_TRUE(result.tuning.empty());
  EXPECT_EQ(find(op, kFast).refusal, "not taken: the whole step is not faster with it");
  EXPECT_GT(find(op, kFast).microseconds, 0);
}

TEST(Tune, ListsWhatItHadNoTimeFor) {
  PretendProgram program;
  TuneOptions options;
  options.is_over = [] { return true; };
  TuneResult result;
  tune(program, 1, options, result);
  EXPECT_FALSE(result.ops.front().is_tuned());
  EXPECT_GE(result.ops.front().candidates.size(), 8u);
  for (const Measured& candidate : result.ops.front().candidates)
    EXPECT_FALSE(candidate.refusal.empty()) << candidate.form.row;
  options.ops = "experts*";
  TuneResult none;
  tune(program, 1, options, none);
  EXPECT_TRUE(none.ops.empty());
}

}  // namespace
}  // namespace fourfold::backend::cuda
