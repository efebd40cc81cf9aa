// Log-probabilities of prompts: on every backend those of `fourfold perplexity`, to the last bit; alone, in a
// batch, however the prompt is cut, and after a loss of the home.
#include <memory>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "engine/batcher.h"
#include "evaluate/perplexity.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/support.h"

namespace fourfold::engine {
namespace {

using model::Activations;
using model::Golden;

// A golden model on one of the backends.
class Machine {
 public:
  Machine(const std::string& name, const backend::Capacity& capacity) : golden_("compressed") {
    const bool gpu = name == "sim";
    const auto program = [&] { return golden_.program(gpu ? Activations::w4a16 : Activations::automatic); };
    if (gpu) {
      machine_ = kernels::make_sim_machine(device_);
      prepared_ = backend::make_gpu_backend(*machine_, {})->prepare(program(), capacity);
    } else if (name == "cpu") {
      prepared_ = backend::make_cpu_backend({.threads = 1})->prepare(program(), capacity);
    } else {
      prepared_ = backend::ReferenceBackend().prepare(program(), capacity);
    }
  }
  backend::Prepared& operator*() { return *prepared_; }
  std::vector<TokenId> prompt(std::size_t count) const {
    std::vector<TokenId> ids = golden_.ids("long.input_ids");
    while (ids.size() < count) ids.push_back(static_cast<TokenId>(ids.size() * 7 % 300));
    ids.resize(count);
    return ids;
  }

 private:
  Golden golden_;
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_;
  std::unique_ptr<backend::Prepared> prepared_;
};

Request measured_request(std::vector<TokenId> prompt, std::int64_t max_tokens, int alternatives = 2) {
  Request request = greedy_request(std::move(prompt), max_tokens);
  request.prompt_logprobs = alternatives;
  return request;
}

double surprise_of(const std::vector<sample::Logprobs>& tokens) {
  double sum = 0;
  for (const sample::Logprobs& token : tokens) sum -= token.chosen.logprob;
  return sum;
}

class PromptLogprobs : public testing::TestWithParam<const char*> {};

TEST_P(PromptLogprobs, AreThoseOfPerplexityInABatchAndHoweverCut) {
  constexpr std::int64_t kCount = 70;
  // Room for all rows: this backend's prompts are cut at multiples of 64 alone.
  Machine machine(GetParam(), {.page_count = 6, .page_tokens = 64, .state_slot_count = 3, .row_count = 256});
  const std::vector<TokenId> prompt = machine.prompt(kCount);
  Machine scorer(GetParam(), evaluate::score_capacity(kCount - 1));
  const evaluate::TextScore score = evaluate::score_text(*scorer, prompt, kCount - 1);
  ASSERT_EQ(score.token_count, kCount - 1);

  const auto pages = [](std::int32_t slot) { return Home{slot, {2 * slot, 2 * slot + 1}}; };
  Sequence whole((*machine).program(), measured_request(prompt, 0), pages(0));
  Sequence cut((*machine).program(), measured_request(prompt, 3), pages(1));
  Sequence plain((*machine).program(), greedy_request(prompt, 3), pages(2));
  StepLoop loop(*machine);
  EXPECT_TRUE(whole.take_prompt_logprobs().empty());  // not yet
  // Alone, of which rows the first 64 in one step; then in a batch.
  const Turn first[] = {{&cut, 64}};
  EXPECT_EQ(loop.step(first), 64);
  EXPECT_TRUE(cut.take_prompt_logprobs().empty());
  Sequence* all[] = {&cut, &plain, &whole};
  while (loop.step(all) > 0) {
  }
  EXPECT_EQ(whole.finish(), Finish::max_tokens);
  EXPECT_TRUE(whole.answer().empty());
  const auto got = whole.take_prompt_logprobs();
  ASSERT_EQ(std::ssize(got), kCount - 1);
  EXPECT_EQ(surprise_of(got), score.surprise);  // bit for bit
  std::int64_t best = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].chosen.id, prompt[i + 1]);
    EXPECT_EQ(got[i].best.size(), 2u);
    EXPECT_EQ(got[i].rank == 1, got[i].best[0].id == got[i].chosen.id);
    best += got[i].rank == 1 ? 1 : 0;
  }
  EXPECT_EQ(best, score.best_count);
  EXPECT_TRUE(same_logprobs(cut.take_prompt_logprobs(), got));
  EXPECT_TRUE(cut.take_prompt_logprobs().empty());  // once
  EXPECT_TRUE(plain.take_prompt_logprobs().empty());
  EXPECT_TRUE(std::ranges::equal(cut.answer(), plain.answer()));
}

INSTANTIATE_TEST_SUITE_P(Backends, PromptLogprobs, testing::Values("reference", "cpu", "sim"));

TEST(PromptLogprobsOfOneWhoMoves, AreMeasuredOnce) {
  Machine machine("cpu", {.page_count = 6, .page_tokens = 64, .state_slot_count = 3, .row_count = 128});
  const std::vector<TokenId> prompt = machine.prompt(150);
  const auto run = [&](Sequence& sequence) {
    Sequence* all[] = {&sequence};
    StepLoop loop(*machine);
    while (loop.step(all) > 0) {
    }
    return sequence.take_prompt_logprobs();
  };
  Sequence still((*machine).program(), measured_request(prompt, 2), {0, {0, 1, 2}});
  const auto expected = run(still);
  Sequence moves((*machine).program(), measured_request(prompt, 2), {1, {3, 4, 5}});
  StepLoop loop(*machine);
  const Turn turn[] = {{&moves, 64}};
  loop.step(turn);
  EXPECT_EQ(moves.main_rows(64).logits_row_count, 64);
  moves.move({1, {3, 4, 5}}, 0);
  EXPECT_EQ(moves.main_rows(64).logits_row_count, 0);  // those have been measured
  EXPECT_EQ(moves.main_rows(128).logits_row_count, 64);
  EXPECT_TRUE(same_logprobs(run(moves), expected));
}

// A request of common beginning is in the cache, and the one that is measured runs all the same.
TEST(PromptLogprobsOfACachedPrompt, AreNotLeftOut) {
  Machine machine(
      "cpu",
      {.page_count = 12, .page_tokens = 64, .state_slot_count = 2, .row_count = 256, .anchor_count = 4});
  const std::vector<TokenId> prompt = machine.prompt(150);
  Batcher batcher(*machine, {});
  std::map<RequestId, Delivery> last;
  const auto run = [&](RequestId id, Request request) {
    batcher.add(id, {.request = std::move(request)}, Batcher::Clock::now());
    std::vector<Delivery> out;
    while (batcher.step(out)) {
    }
    EXPECT_EQ(out.back().finish, Finish::max_tokens);
    return out.front();
  };
  const auto first = run(1, measured_request(prompt, 3));
  EXPECT_EQ(run(2, greedy_request(prompt, 1)).usage.cached_count, 128);
  const auto again = run(3, measured_request(prompt, 1));
  EXPECT_EQ(again.usage.cached_count, 0);
  EXPECT_EQ(again.prompt_logprobs.size(), 149u);
  EXPECT_TRUE(same_logprobs(again.prompt_logprobs, first.prompt_logprobs));
  EXPECT_EQ(batcher.status().prefix_lookups, 1);  // they do not look
}

// The youngest is dropped in the middle of its prompt, when the older ones' answers need its pages.
TEST(PromptLogprobsOfADroppedPrompt, AreTheSame) {
  std::vector<sample::Logprobs> expected;
  bool was_dropped = false;
  // With few pages it has to wait, with many all fit: somewhere between lies what is wanted.
  for (std::int64_t page_count = 255; page_count > 190 && !was_dropped; page_count -= 3) {
    Machine machine("cpu", {.page_count = page_count,
                            .page_tokens = 1,
                            .state_slot_count = 7,
                            .row_count = 64,
                            .anchor_count = 8});
    const std::vector<TokenId> prompt = machine.prompt(180);
    if (expected.empty()) {
      Sequence alone((*machine).program(), measured_request(prompt, 1), {0, backend::own_pages(0, 190)});
      Sequence* all[] = {&alone};
      StepLoop loop(*machine);
      while (loop.step(all) > 0) {
      }
      expected = alone.take_prompt_logprobs();
    }
    Batcher batcher(*machine, {.mtp = 0});
    for (RequestId id = 1; id <= 6; ++id)
      batcher.add(id, {.request = greedy_request({static_cast<TokenId>(id), 8, 9}, 40)},
                  Batcher::Clock::now());
    std::vector<Delivery> out;
    while (out.size() < 12) batcher.step(out);
    batcher.add(7, {.request = measured_request(prompt, 1)}, Batcher::Clock::now());
    while (batcher.step(out)) {
    }
    was_dropped = batcher.status().preempted > 0;
    const auto measured = std::ranges::find(out, RequestId{7}, &Delivery::id);
    ASSERT_NE(measured, out.end());
    EXPECT_TRUE(same_logprobs(measured->prompt_logprobs, expected)) << page_count;
  }
  EXPECT_TRUE(was_dropped);
}

TEST(PromptLogprobsOfAnything, AreRefusedWithNumbers) {
  ThreeWords words;
  const ModelLimits limits = limits_of(words.program());
  const auto refused = [&](const Request& request, const std::string& part) {
    try {
      require_valid(request, limits);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(measured_request({0, 1}, 1, 21), "prompt_logprobs is 21");
  refused(measured_request({0, 1}, 1, -1), "prompt_logprobs is -1");
  refused(measured_request({0, 1}, -1), "at least 0");
  refused(greedy_request({0, 1}, 0), "at least 1");
  refused(measured_request(std::vector<TokenId>(65), 0), "65 tokens");
  Request cached = measured_request({0, 1}, 1);
  cached.cached_count = 1;
  refused(cached, "1 tokens of the prompt are cached");
  require_valid(measured_request(std::vector<TokenId>(64), 0), limits);  // no room for an answer is needed
}

}  // namespace
}  // namespace fourfold::engine
