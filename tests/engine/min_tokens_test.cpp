// An answer does not end before min_tokens: with any number of drafts, with guides, and where the backend
// chooses tokens itself.
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/support.h"
#include "tests/support/long_test.h"

namespace fourfold::engine {
namespace {

// The tokens a request gives with so many drafts.
std::vector<TokenId> tokens_of(backend::Prepared& prepared, Request request, int drafts) {
  request.draft_count = drafts;
  return answer_of(prepared, std::move(request));
}

bool holds_any(std::span<const TokenId> tokens, std::span<const TokenId> wanted) {
  return std::ranges::find_first_of(tokens, wanted) != tokens.end();
}

TEST(MinTokens, NoStopIdComesBeforeWithAnyDrafts) {
  const model::Golden golden("bf16");
  const auto prepared = golden.prepare(model::Activations::f32, model::kFourSequences);
  Request request = greedy_request(golden.ids("short.input_ids"), 24);
  const std::vector<TokenId> plain = tokens_of(*prepared, request, 0);
  // Stops that the answer would meet at once, and soon again.
  request.stop_ids = {plain[0], plain[1], plain[4], plain[9]};
  ASSERT_EQ(tokens_of(*prepared, request, 0).size(), 1u);
  for (const std::int64_t least : {1, 2, 7, 24}) {
    request.min_tokens = least;
    const std::vector<TokenId> tokens = tokens_of(*prepared, request, 0);
    EXPECT_GE(std::ssize(tokens), least);
    EXPECT_FALSE(holds_any(std::span(tokens).first(static_cast<std::size_t>(least)), request.stop_ids));
    for (int drafts = 1; drafts <= kDraftCountMax; ++drafts)
      EXPECT_EQ(tokens_of(*prepared, request, drafts), tokens) << least << ", drafts " << drafts;
    Request drawn = request;
    drawn.params.temperature = 1.1;
    drawn.params.seed = 5;
    const std::vector<TokenId> draws = tokens_of(*prepared, drawn, 0);
    EXPECT_FALSE(holds_any(std::span(draws).first(static_cast<std::size_t>(least)), request.stop_ids));
    for (int drafts = 1; drafts <= kDraftCountMax; ++drafts)
      EXPECT_EQ(tokens_of(*prepared, drawn, drafts), draws) << least << ", drafts " << drafts;
  }
}

// Three tokens 1, then 0 or 1, then the end, which is 2.
class ShortForm final : public TokenGuide {
 public:
  void allowed(std::span<std::uint64_t> bits) override {
    bits[0] = count_ < 3 ? 0b010 : count_ == 3 ? 0b110 : 0b100;
  }
  void accept(TokenId token) override { count_ += token == 1 ? 1 : 10; }

 private:
  int count_ = 0;
};

TEST(MinTokens, AFormThatLeavesNothingElseEndsTheAnswer) {
  const auto run = [](std::int64_t least, int drafts) {
    ThreeWords words;
    Request request = greedy_request({0}, 20, drafts);
    request.stop_ids = {2};
    request.params.logit_bias = {{2, 100}};
    request.min_tokens = least;
    Sequence sequence(words.program(), request, home(0), std::make_unique<ShortForm>());
    Sequence* all[] = {&sequence};
    StepLoop loop(words);
    while (!sequence.finished()) loop.step(all);
    EXPECT_EQ(sequence.finish(), Finish::stop_id);
    return sequence.answer().size();
  };
  for (int drafts = 0; drafts <= kDraftCountMax; ++drafts) {
    EXPECT_EQ(run(3, drafts), 4u) << drafts;
    EXPECT_EQ(run(4, drafts), 5u) << drafts;  // the end was allowed behind three, and is left out once
    EXPECT_EQ(run(9, drafts), 5u) << drafts;  // then nothing else is left
  }
}

// Until min_tokens the host chooses, then the GPU, whose history has to know what the host chose.
TEST(MinTokens, OnAGpuTheTokensAreTheHosts) {
  const model::Golden golden("compressed");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto gpu =
      backend::make_gpu_backend(*machine, {})
          ->prepare(golden.program(model::Activations::w4a16),
                    {.page_count = 2, .page_tokens = 64, .state_slot_count = 1, .row_count = 64});
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(9);
  const auto run = [&](Request request, int drafts, bool here) {
    request.draft_count = drafts;
    Sequence sequence(gpu->program(), std::move(request), {0, {0, 1}});
    if (here) sequence.choose_here();
    Sequence* all[] = {&sequence};
    StepLoop loop(*gpu);
    while (!sequence.finished()) loop.step(all);
    EXPECT_EQ(loop.choices().there > 0, !here);
    EXPECT_GT(loop.choices().here, 0);
    return std::vector<TokenId>(sequence.answer().begin(), sequence.answer().end());
  };
  Request request = greedy_request(prompt, 9);
  request.params.temperature = 0.8;
  request.params.seed = 4;
  request.params.repetition_penalty = 1.2;
  request.params.presence_penalty = 1.5;
  request.params.logit_bias = {{3, 4}, {5, 4}, {7, 4}};
  request.stop_ids = {3, 5};
  request.min_tokens = 4;
  const std::vector<TokenId> tokens = run(request, 0, true);
  EXPECT_FALSE(holds_any(std::span(tokens).first(4), request.stop_ids));
  for (const int drafts : {0, 2, 5}) EXPECT_EQ(run(request, drafts, false), tokens) << drafts;
  // An end that is all but certain: the first token that the GPU chooses.
  request.params.logit_bias = {{3, 100}};
  for (const int drafts : {0, 2, 5})
    if (drafts != 2 || test::wants_all()) {
      EXPECT_EQ(run(request, drafts, false).size(), 5u) << drafts;
    }
}

TEST(MinTokens, BeyondMaxTokensIsRefused) {
  ThreeWords words;
  Request request = greedy_request({0}, 4);
  request.min_tokens = 5;
  try {
    require_valid(request, limits_of(words.program()));
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("min_tokens is 5"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fourfold::engine
