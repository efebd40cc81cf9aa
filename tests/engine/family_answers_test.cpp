// Latent attention on the CPU: answers that were preempted, that found their prompt in the prefix cache, and
// that drafts were checked for are those of a request alone. One arithmetic for every row is what makes them
// so.
#include <map>

#include "backend/cpu/cpu.h"
#include "engine/batcher.h"
#include "tests/engine/support.h"
#include "tests/model/made_models.h"

namespace fourfold::engine {
namespace {

constexpr backend::Capacity kThreePages{
    .page_count = 3, .page_tokens = 64, .state_slot_count = 2, .row_count = 128, .anchor_count = 2};

struct Made {
  Made() {
    model::make_model(folder.path() / "model", "tiny-deepseek-odd", "nvfp4");
    made.emplace(folder.path() / "model");
  }
  std::unique_ptr<backend::Prepared> prepare() const {
    return backend::make_cpu_backend({.threads = 2})
        ->prepare(made->program(model::Activations::w4a16), kThreePages);
  }
  checkpoint::TempFolder folder;
  std::optional<model::Loaded> made;
};

std::vector<TokenId> prompt_of(TokenId count, TokenId step) {
  std::vector<TokenId> prompt;
  for (TokenId i = 0; i < count; ++i) prompt.push_back(step * i % 480);
  return prompt;
}

std::vector<TokenId> alone(backend::Prepared& prepared, const Request& request) {
  Sequence sequence(prepared.program(), request, {0, {0, 1}});
  Sequence* all[] = {&sequence};
  StepLoop loop(prepared);
  while (!sequence.finished()) loop.step(all);
  return {sequence.answer().begin(), sequence.answer().end()};
}

TEST(LatentAnswers, AreTheSameWithDrafts) {
  const Made model;
  const auto prepared = model.prepare();
  ASSERT_FALSE(prepared->program().draft.empty());
  const auto plain = alone(*prepared, greedy_request(prompt_of(61, 7), 24));
  for (const int drafts : {1, 3, 5})
    EXPECT_EQ(alone(*prepared, greedy_request(prompt_of(61, 7), 24, drafts)), plain) << drafts;
}

// Both need a second page, of which there is one; then the first is asked again.
TEST(LatentAnswers, AreTheSameAfterAPreemptionAndOnAKnownPrefix) {
  const Made model;
  const auto prepared = model.prepare();
  const std::vector<Request> requests{greedy_request(prompt_of(60, 7), 12),
                                      greedy_request(prompt_of(63, 11), 12)};
  const auto again = greedy_request(prompt_of(70, 7), 12);
  std::vector<std::vector<TokenId>> expected;
  for (const Request& request : requests) expected.push_back(alone(*prepared, request));
  expected.push_back(alone(*prepared, again));
  Batcher batcher(*prepared, {.mtp = 0});
  std::map<RequestId, std::vector<TokenId>> answers;
  const auto run = [&] {
    for (std::vector<Delivery> out; batcher.step(out); out.clear())
      for (const Delivery& delivery : out)
        for (const sample::Sampled& token : delivery.tokens) answers[delivery.id].push_back(token.token);
  };
  for (std::size_t i = 0; i < requests.size(); ++i)
    batcher.add(i + 1, {.request = requests[i]}, Batcher::Clock::now());
  run();
  EXPECT_GE(batcher.status().preempted, 1);
  for (const RequestId id : {3, 4}) {  // the second time its first page is there
    batcher.add(id, {.request = again}, Batcher::Clock::now());
    run();
    EXPECT_EQ(answers[id], expected[2]) << id;
  }
  EXPECT_GE(batcher.status().prefix_hits, 1);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[i + 1], expected[i]) << i;
}

}  // namespace
}  // namespace fourfold::engine
