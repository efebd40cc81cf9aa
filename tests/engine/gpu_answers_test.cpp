// Answers of the GPU backend, on the simulated GPU: the same tokens with 0 to 5 drafts, alone and in a batch.
#include "backend/cuda/cuda.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/support.h"

namespace fourfold::engine {
namespace {

constexpr backend::Capacity kThreeSequences{
    .page_count = 12, .page_tokens = 64, .state_slot_count = 3, .row_count = 128};

Home home_of(std::int32_t slot) { return {slot, {4 * slot, 4 * slot + 1, 4 * slot + 2, 4 * slot + 3}}; }

std::vector<std::vector<TokenId>> answers_of(backend::Prepared& prepared, std::vector<Request> requests) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> all;
  for (Request& request : requests) {
    sequences.push_back(std::make_unique<Sequence>(prepared.program(), std::move(request),
                                                   home_of(static_cast<std::int32_t>(sequences.size()))));
    all.push_back(sequences.back().get());
  }
  StepLoop loop(prepared);
  while (loop.step(all) > 0) {
  }
  std::vector<std::vector<TokenId>> answers;
  for (const Sequence* sequence : all)
    answers.emplace_back(sequence->answer().begin(), sequence->answer().end());
  return answers;
}

TEST(GpuAnswers, AreTheSameWithDraftsAndInABatch) {
  const model::Golden golden("compressed");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared = backend::make_gpu_backend(*machine, {})
                            ->prepare(golden.program(model::Activations::w4a16), kThreeSequences);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(57);  // the answer crosses position 64
  const auto other = golden.ids("short.input_ids");
  const auto plain = answers_of(*prepared, {greedy_request(prompt, 14)}).front();
  for (const int drafts : {1, 3, 5})
    EXPECT_EQ(answers_of(*prepared, {greedy_request(prompt, 14, drafts)}).front(), plain) << drafts;
  const auto batch = answers_of(
      *prepared, {greedy_request(other, 9, 2), greedy_request(prompt, 14, 4), greedy_request(other, 5)});
  EXPECT_EQ(batch[1], plain);
  EXPECT_TRUE(std::equal(batch[2].begin(), batch[2].end(), batch[0].begin()));
  // With logits asked for (a log-probability), the host chooses: the same tokens.
  Request measured = greedy_request(prompt, 14, 2);
  measured.params.logprob_count = 1;
  EXPECT_EQ(answers_of(*prepared, {measured}).front(), plain);
}

}  // namespace
}  // namespace fourfold::engine
