// Answers with FP4 or FP8 activations on the simulated GPU, where a prompt's rows and generated rows differ:
// computed again after a preemption, and drafted by a layer that is quantised itself.
#include <map>

#include "backend/cuda/cuda.h"
#include "engine/batcher.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/support.h"
#include "tests/model/made_models.h"
#include "tests/support/long_test.h"

namespace fourfold::engine {
namespace {

using model::Activations;

class Simulated {
 public:
  Simulated(const model::Loaded& model, const backend::Capacity& capacity, Activations activations)
      : machine_(kernels::make_sim_machine(
            device_, {.arch = activations == Activations::w8a8 ? &plan::kSm90 : &plan::kSm120})),
        prepared_(backend::make_gpu_backend(*machine_, {})->prepare(model.program(activations), capacity)) {}
  backend::Prepared& operator*() { return *prepared_; }

 private:
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_;
  std::unique_ptr<backend::Prepared> prepared_;
};

std::vector<TokenId> alone(backend::Prepared& prepared, const Request& request) {
  Sequence sequence(prepared.program(), request, {0, {0, 1}});
  Sequence* all[] = {&sequence};
  StepLoop loop(prepared);
  while (!sequence.finished()) loop.step(all);
  return {sequence.answer().begin(), sequence.answer().end()};
}

// Two answers that both need a second page, of which there is one. The younger one takes it first and is
// preempted for the older; its prompt and what it had answered are computed again, each in its role.
void expect_same_after_preemption(const model::Golden& golden, Activations activations) {
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(60);
  std::vector<Request> requests{greedy_request(prompt, 12), greedy_request(prompt, 12)};
  requests[1].prompt.insert(requests[1].prompt.begin(), {3, 1, 4});
  Simulated gpu(
      golden,
      {.page_count = 3, .page_tokens = 64, .state_slot_count = 2, .row_count = 128, .anchor_count = 2},
      activations);
  std::vector<std::vector<TokenId>> expected;
  for (const Request& request : requests) expected.push_back(alone(*gpu, request));
  Batcher batcher(*gpu, {.mtp = 0});
  std::map<RequestId, std::vector<TokenId>> answers;
  for (std::size_t i = 0; i < requests.size(); ++i)
    batcher.add(i + 1, {.request = requests[i]}, Batcher::Clock::now());
  for (std::vector<Delivery> out; batcher.step(out); out.clear())
    for (const Delivery& delivery : out)
      for (const sample::Sampled& token : delivery.tokens) answers[delivery.id].push_back(token.token);
  EXPECT_GE(batcher.status().preempted, 1);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[i + 1], expected[i]) << i;
}
// What a chip with FP4 tensor cores serves with; --long also generated rows in FP4.
TEST(Fp4Answers, AreTheSameAfterAPreemption) {
  const model::Golden golden("compressed");
  expect_same_after_preemption(golden, Activations::w4a4_prefill);
  if (test::wants_all()) expect_same_after_preemption(golden, Activations::w4a4);
}
// As FP4 ones, whose kernels have more to lose.
TEST(Fp8Answers, AreTheSameAfterAPreemption) {
  if (!test::wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  expect_same_after_preemption(model::Golden("modelopt_mixed"), Activations::w8a8);
}

// The layer that drafts has FP8 matrices: the last one stands in for it.
TEST(Fp8Answers, AreTheSameWithDraftsOfAnFp8Layer) {
  model::Golden golden("modelopt_mixed");
  golden.model.weights.mtp->layers = {golden.model.weights.layers.back()};
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(61);
  Simulated gpu(golden, {.page_count = 4, .page_tokens = 64, .state_slot_count = 1, .row_count = 128},
                Activations::w8a8);
  const backend::Program& program = (*gpu).program();
  int fp8 = 0;
  for (const backend::Op& op : program.ops(backend::Pass::draft))
    if (const auto* linear = std::get_if<backend::Linear>(&op); linear != nullptr)
      fp8 += program.matrix(linear->weight).input == backend::InputFormat::fp8_prefill ? 1 : 0;
  EXPECT_EQ(fp8, 4) << "attention";
  const auto plain = alone(*gpu, greedy_request(prompt, 8));
  for (const int drafts : {3, 5})
    if (drafts == 5 || test::wants_all()) {
      EXPECT_EQ(alone(*gpu, greedy_request(prompt, 8, drafts)), plain) << drafts;
    }
}

// Every large matrix is NVFP4 with an input scale. A made-up MTP layer is bf16, as releases have it, so the
// last layer stands in for it, and its output projection for what leads to it.
TEST(Fp4Answers, AreTheSameWithDraftsOfAnFp4Layer) {
  const checkpoint::TempFolder folder;
  model::make_model(folder.path() / "model", "tiny", "nvfp4");
  model::Loaded made(folder.path() / "model");
  const checkpoint::LayerWeights& last = made.model.weights.layers.back();
  made.model.weights.mtp->layers = {last};
  made.model.weights.mtp->combine = std::get<checkpoint::AttentionWeights>(last.mixer).output;
  std::vector<TokenId> prompt;
  for (TokenId i = 0; i < 61; ++i) prompt.push_back(7 * i % 600);
  for (const Activations activations : {Activations::w4a4_prefill, Activations::w4a4}) {
    if (activations == Activations::w4a4 && !test::wants_all()) continue;
    Simulated gpu(made, {.page_count = 4, .page_tokens = 64, .state_slot_count = 1, .row_count = 128},
                  activations);
    int fp4 = 0;
    const auto plain = alone(*gpu, greedy_request(prompt, 8));
    const backend::Program& program = (*gpu).program();
    for (const backend::Op& op : program.ops(backend::Pass::draft))
      if (const auto* linear = std::get_if<backend::Linear>(&op); linear != nullptr) {
        const checkpoint::Matrix& matrix = *program.matrix(linear->weight).matrix;
        EXPECT_EQ(backend::quantises(program.matrix(linear->weight).input),
                  checkpoint::format_of(matrix) == checkpoint::MatrixFormat::nvfp4)
            << matrix.name;
        fp4 += backend::quantises(program.matrix(linear->weight).input) ? 1 : 0;
      }
    EXPECT_EQ(fp4, 1 + 4 + 3 + 1) << "what leads to it, attention, shared expert, head";
    for (const int drafts : {1, 5})
      EXPECT_EQ(alone(*gpu, greedy_request(prompt, 8, drafts)), plain) << drafts;
  }
}

}  // namespace
}  // namespace fourfold::engine
