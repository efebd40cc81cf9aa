// Answers of the GPU backend, on the simulated GPU: the same tokens with 0 to 5 drafts, alone and in a batch.
#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "backend/cuda/cuda.h"
#include "engine/engine.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/support.h"
#include "tests/support/long_test.h"
#include "tests/support/sim_ranks.h"

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

class Simulated {
 public:
  explicit Simulated(const model::Golden& golden, const backend::Capacity& capacity = kThreeSequences,
                     model::Activations activations = model::Activations::w4a16)
      : prepared_(backend::make_gpu_backend(*machine_, {})->prepare(golden.program(activations), capacity)) {}
  backend::Prepared& operator*() { return *prepared_; }

 private:
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ = kernels::make_sim_machine(device_);
  std::unique_ptr<backend::Prepared> prepared_;
};

// The same backend with little room for histories, or without its own choice of tokens: logits come to the
// host.
class Narrow final : public backend::Prepared {
 public:
  Narrow(backend::Prepared& under, std::int64_t history_limit) : under_(under), limit_(history_limit) {}
  const backend::Program& program() const override { return under_.program(); }
  const backend::Capacity& capacity() const override { return under_.capacity(); }
  void run(backend::Pass pass, const backend::Batch& batch, std::span<float> logits) override {
    under_.run(pass, batch, logits);
  }
  bool run_sampled(backend::Pass pass, const backend::Batch& batch, const backend::Choices& choices,
                   const backend::Chosen& chosen) override {
    return limit_ > 0 && under_.run_sampled(pass, batch, choices, chosen);
  }
  std::int64_t history_limit() const override { return limit_; }
  void set_history(std::int32_t slot, std::span<const backend::SeenToken> entries) override {
    under_.set_history(slot, entries);
  }
  std::span<const float> value(backend::ValueId id) const override { return under_.value(id); }
  std::int64_t resumable_from(std::int32_t slot) const override { return under_.resumable_from(slot); }

 private:
  backend::Prepared& under_;
  std::int64_t limit_;
};

TEST(GpuAnswers, AreTheSameWithDraftsAndInABatch) {
  const model::Golden golden("compressed");
  Simulated gpu(golden);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(57);  // the answer crosses position 64
  const auto other = golden.ids("short.input_ids");
  const auto plain = answers_of(*gpu, {greedy_request(prompt, 14)}).front();
  EXPECT_EQ(answers_of(*gpu, {greedy_request(prompt, 14, 5)}).front(), plain);
  // Some at once whose steps drift apart, then others between them.
  std::vector<Request> drifting{greedy_request(prompt, 14, 1), greedy_request(prompt, 14, 4)};
  if (test::wants_all()) drifting.push_back(greedy_request(prompt, 14, 3));
  for (const auto& answer : answers_of(*gpu, drifting)) EXPECT_EQ(answer, plain);
  // One with logits asked for (a log-probability) between others: the host chooses its tokens, the same.
  Request measured = greedy_request(prompt, 6, 2);
  measured.params.logprob_count = 1;
  const auto batch = answers_of(*gpu, {greedy_request(other, 9, 2), measured, greedy_request(other, 5)});
  EXPECT_TRUE(std::ranges::equal(batch[1], std::span(plain).first(6)));
  EXPECT_TRUE(std::equal(batch[2].begin(), batch[2].end(), batch[0].begin()));
}

Request sampled_request(std::vector<TokenId> prompt, std::uint64_t seed, int drafts) {
  Request request = greedy_request(std::move(prompt), 6, drafts);
  sample::Params& params = request.params;
  params.seed = seed;
  params.temperature = 0.7;
  if (seed % 2 == 0) params.top_k = 20;
  if (seed % 3 != 0) params.top_p = 0.95;
  if (seed % 4 == 1) params.min_p = 0.02;
  if (seed % 3 != 2) {
    params.repetition_penalty = 1.1;
    params.presence_penalty = 0.5;
    params.frequency_penalty = 0.2;
    params.logit_bias = {{3, 1.5}, {5, -2}};
  }
  return request;
}

// Tokens drawn on the GPU are those the host draws from its logits, with every kind of filter and penalty;
// and drafts, however many, change none of them, alone or in a batch with others.
TEST(GpuAnswers, SampledOnesAreTheHostsWithDraftsAndInABatch) {
  const model::Golden golden("compressed");
  Simulated gpu(golden);
  Narrow host(*gpu, 0);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(9);
  const auto other = golden.ids("short.input_ids");
  std::vector<std::vector<TokenId>> alone;
  for (const std::uint64_t seed : {4, 5, 6}) {
    alone.push_back(answers_of(host, {sampled_request(prompt, seed, 0)}).front());
    const int drafts = seed == 4 ? 1 : seed == 5 ? 2 : 0;
    EXPECT_EQ(answers_of(*gpu, {sampled_request(prompt, seed, drafts)}).front(), alone.back()) << seed;
  }
  EXPECT_NE(alone[0], alone[1]);
  const auto batch = answers_of(
      *gpu, {sampled_request(prompt, 6, 5), greedy_request(other, 4, 1), sampled_request(prompt, 5, 4)});
  EXPECT_EQ(batch[0], alone[2]);
  EXPECT_EQ(batch[2], alone[1]);
  // One that wants logits among others that do not, and drafts that are drawn: pass by pass.
  Request measured = sampled_request(prompt, 4, 2);
  measured.params.logprob_count = 2;
  Request drawn = sampled_request(other, 7, 2);
  drawn.draw_drafts = true;
  const auto mixed = answers_of(*gpu, {measured, sampled_request(prompt, 5, 3), drawn});
  EXPECT_EQ(mixed[0], alone[0]);
  EXPECT_EQ(mixed[1], alone[1]);
  EXPECT_EQ(mixed[2], answers_of(host, {drawn}).front());
}

// Two tokens that biases put far above all others, each worth less the more often it came: most drafts stand,
// and every one that does has to be counted before the next is chosen.
TEST(GpuAnswers, PenaltiesCountDraftsThatStand) {
  const model::Golden golden("compressed");
  Simulated gpu(golden);
  Narrow host(*gpu, 0);
  Request request = greedy_request(golden.ids("short.input_ids"), 12, 0);
  request.params.temperature = 0.4;
  request.params.seed = 9;
  request.params.frequency_penalty = 1.5;
  request.params.repetition_penalty = 1.05;
  request.params.logit_bias = {{3, 40}, {5, 37}};
  const auto expected = answers_of(host, {request}).front();
  EXPECT_GE(std::ranges::count(expected, 3), 3);
  EXPECT_GE(std::ranges::count(expected, 5), 3);
  request.draft_count = 4;
  Sequence sequence((*gpu).program(), request, home_of(2));
  Sequence* all[] = {&sequence};
  StepLoop loop(*gpu);
  while (loop.step(all) > 0) {
  }
  EXPECT_TRUE(std::ranges::equal(sequence.answer(), expected));
  EXPECT_GE(sequence.drafts().accepted, 4);
  EXPECT_GT(sequence.drafts().verified, sequence.drafts().accepted) << "and some do not";
}

// A history that outgrows its room in the middle of an answer: the host goes on, with the same tokens.
TEST(GpuAnswers, AreTheSameWhenAHistoryOutgrowsItsRoom) {
  const model::Golden golden("compressed");
  Simulated gpu(golden);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(9);
  const Request request = sampled_request(prompt, 4, 0);
  Narrow host(*gpu, 0);
  const auto expected = answers_of(host, {request}).front();
  const std::set<TokenId> distinct(prompt.begin(), prompt.end());
  // Two biases, and room for the drafts a step may have: enough for two tokens more.
  Narrow narrow(*gpu, std::ssize(distinct) + 2 + kDraftCountMax + 1 + 1);
  Sequence sequence((*gpu).program(), request, home_of(0));
  Sequence* all[] = {&sequence};
  StepLoop loop(narrow);
  while (loop.step(all) > 0) {
  }
  EXPECT_TRUE(std::ranges::equal(sequence.answer(), expected));
  EXPECT_GE(loop.choices().there, 2);
  EXPECT_GE(loop.choices().here, 1);
}

// More rows of one pass than have logits at a time, each with a wish of its own, some for logits: what
// crosses is what was asked.
TEST(GpuAnswers, EveryRowIsChosenAsTheHostWould) {
  const model::Golden golden("bf16");
  Simulated gpu(golden, {.page_count = 3, .page_tokens = 64, .state_slot_count = 1, .row_count = 130});
  auto tokens = golden.ids("long.input_ids");
  tokens.resize(130);
  const auto vocab = static_cast<std::size_t>(golden.config.vocab_size);
  constexpr std::int64_t limit = 250;
  const std::vector<std::int32_t> pages{2, 0, 1};
  const backend::SequenceRows rows{130, 0, 0, 0, 3, backend::Role::prefill, 0};
  std::vector<std::int32_t> asked(130), chosen(130, -1);
  std::iota(asked.begin(), asked.end(), 0);
  const backend::Batch batch{tokens, {&rows, 1}, pages, asked, {}};
  std::vector<float> logits(130 * vocab), crossed(26 * vocab);
  (*gpu).run(backend::Pass::main, batch, logits);
  std::vector<backend::Choice> choices(130);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    backend::Choice& choice = choices[i];
    choice.wants_logits = i % 5 == 4;
    choice.seed = i;
    choice.temperature = i % 5 == 0 ? 0 : 0.5 + 0.02 * static_cast<double>(i);
    choice.top_k = std::vector<std::int64_t>{0, 20, 1000, 3}[i % 4];
    choice.top_p = i % 3 == 0 ? 0.9 : 1;
    choice.min_p = i % 7 == 0 ? 0.05 : 0;
  }
  ASSERT_TRUE((*gpu).run_sampled(backend::Pass::main, batch, {limit, choices}, {chosen, crossed}));
  std::size_t crossing = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto row = std::span(logits).subspan(i * vocab, vocab);
    if (choices[i].wants_logits) {
      EXPECT_EQ(chosen[i], -1);
      EXPECT_TRUE(std::ranges::equal(row, std::span(crossed).subspan(vocab * crossing++, vocab))) << i;
      continue;
    }
    sample::Params params;
    params.seed = choices[i].seed;
    params.temperature = choices[i].temperature;
    params.top_k = choices[i].top_k;
    params.top_p = choices[i].top_p;
    params.min_p = choices[i].min_p;
    sample::Sampler sampler(params, golden.config.vocab_size, limit);
    EXPECT_EQ(chosen[i], sampler.sample(row, static_cast<std::int64_t>(i) + 1).token) << i;
  }
}

// The tokens verified next are the same whether drafts were made in one call or pass by pass.
TEST(GpuAnswers, ChainedDraftsAreThoseOfSinglePasses) {
  const model::Golden golden("compressed");
  Simulated gpu(golden);
  Narrow host(*gpu, 0);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(62);  // drafts cross a page
  const auto next_rows = [&](backend::Prepared& prepared, const Request& first) {
    Sequence one(prepared.program(), first, home_of(1));
    Sequence two(prepared.program(), sampled_request(golden.ids("short.input_ids"), 3, 2), home_of(0));
    Sequence* all[] = {&two, &one};
    StepLoop loop(prepared);
    std::vector<TokenId> rows;
    for (int step = 0; step < 3; ++step) {
      loop.step(all);
      for (Sequence* sequence : all)
        if (const auto tokens = sequence->main_rows(8).tokens; !tokens.empty())
          rows.insert(rows.end(), tokens.begin(), tokens.end());
    }
    EXPECT_EQ(loop.choices().here == 0, &prepared == &*gpu);
    return rows;
  };
  const auto chained = next_rows(*gpu, greedy_request(prompt, 20, 5));
  EXPECT_GE(chained.size(), 3u * (6 + 3));
  EXPECT_EQ(chained, next_rows(host, greedy_request(prompt, 20, 5)));
}

// FP4 activations, of prompts or of all rows: the same answer with drafts and in a batch.
TEST(GpuAnswers, WithFp4ActivationsAreTheSameWithDraftsAndInABatch) {
  const model::Golden golden("compressed");
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(60);
  const auto other = golden.ids("short.input_ids");
  for (const model::Activations activations : {model::Activations::w4a4, model::Activations::w4a4_prefill}) {
    // The test below has these on two ranks: fewer tokens, 3 drafts, two in a batch.
    if (activations == model::Activations::w4a4_prefill && !test::wants_all()) continue;
    Simulated gpu(golden, kThreeSequences, activations);
    const auto plain = answers_of(*gpu, {greedy_request(prompt, 10)}).front();
    EXPECT_EQ(answers_of(*gpu, {greedy_request(prompt, 10, 5)}).front(), plain);
    const auto batch = answers_of(
        *gpu, {greedy_request(other, 5, 1), greedy_request(prompt, 10, 2), greedy_request(prompt, 10, 4)});
    EXPECT_EQ(batch[1], plain);
    EXPECT_EQ(batch[2], plain);
  }
}

// The same of two ranks, each on a chip of its own, with FP8 activations of prompts, too.
TEST(GpuAnswers, OfTwoRanksWithQuantisedActivationsAreTheSameWithDraftsAndInABatch) {
  using model::Activations;
  for (const auto& [name, activations] :
       {std::pair{"compressed", Activations::w4a4_prefill}, std::pair{"compressed", Activations::w4a4},
        std::pair{"modelopt_mixed", Activations::w8a8}}) {
    const model::Golden golden(name);
    const auto all =
        std::make_shared<backend::SimRanks>(2, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = 3600},
                                            activations == Activations::w8a8 ? plan::kSm90 : plan::kSm120);
    const auto prepared = backend::prepare_sim(golden, all, kThreeSequences, activations);
    auto prompt = golden.ids("long.input_ids");
    prompt.resize(20);
    const auto plain = answers_of(*prepared, {greedy_request(prompt, 5)}).front();
    const auto batch = answers_of(
        *prepared, {greedy_request(golden.ids("short.input_ids"), 3), greedy_request(prompt, 5, 3)});
    EXPECT_EQ(batch[1], plain) << name << ", activations " << static_cast<int>(activations);
  }
}

// Keys and values in fp8: another answer may come, and it is the same with drafts and in a batch.
TEST(GpuAnswers, WithFp8KvAreTheSameWithDraftsAndInABatch) {
  const model::Golden golden("compressed");
  backend::Program program = golden.program(model::Activations::w4a16);
  for (backend::KvCache& cache : program.kv_caches) cache.format = backend::KvFormat::fp8;
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared = backend::make_gpu_backend(*machine, {})->prepare(program, kThreeSequences);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(60);
  const auto other = golden.ids("short.input_ids");
  const auto plain = answers_of(*prepared, {greedy_request(prompt, 8)}).front();
  const auto batch = answers_of(*prepared, {greedy_request(other, 5), greedy_request(prompt, 8, 3)});
  EXPECT_EQ(batch[1], plain);
}

// Two ranks, one of which fails in the middle of a step: what comes out are the tokens of the steps before,
// and the error that names it; from then on the engine takes nothing.
TEST(GpuAnswers, NoTokenComesOutOfAStepThatLostARank) {
  const model::Golden golden("bf16");
  const auto prompt = golden.ids("short.input_ids");
  std::vector<std::vector<TokenId>> answers;
  for (const bool kills : {false, true}) {
    const auto all = std::make_shared<backend::SimRanks>(
        2, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = 3600, .overlaps = true});
    const auto prepared = backend::prepare_sim(golden, all, kThreeSequences);
    // The prompt has nine exchanges, two a layer and the logits, and so has the step behind it.
    all->machines[1]->listen([kills, call = 0](std::string_view kernel) mutable {
      if (kernel.starts_with("all_") && ++call == 9 + 4 && kills) throw std::runtime_error("killed");
    });
    std::mutex mutex;
    std::vector<TokenId> tokens;
    std::string error;
    bool has_ended = false;
    Engine engine(*prepared, {.mtp = 0}, [&](std::vector<Delivery>&& deliveries) {
      const std::lock_guard lock(mutex);
      for (const Delivery& delivery : deliveries) {
        for (const sample::Sampled& sampled : delivery.tokens) tokens.push_back(sampled.token);
        error = delivery.error;
        has_ended = has_ended || delivery.finish != Finish::running;
      }
    });
    engine.submit({.request = greedy_request(prompt, 4)});
    const auto ended = [&] {
      const std::lock_guard lock(mutex);
      return has_ended;
    };
    while (!ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine.status().fault, kills ? "rank 1 of 2 failed: killed" : "");
    if (kills)
      checkpoint::expect_error(Code::device_lost, {"rank 1 of 2 failed: killed"},
                               [&] { engine.submit({.request = greedy_request(prompt, 4)}); });
    engine.stop(std::chrono::milliseconds(0));
    EXPECT_EQ(error, kills ? "rank 1 of 2 failed: killed" : "");
    answers.push_back(tokens);
  }
  EXPECT_EQ(answers[0].size(), 4u);
  EXPECT_EQ(answers[1], std::vector<TokenId>{answers[0].front()}) << "the prompt's token alone";
}

}  // namespace
}  // namespace fourfold::engine
