// Answers of the GPU backend, on the simulated GPU: the same tokens with 0 to 5 drafts, alone and in a batch.
#include <algorithm>
#include <numeric>

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

class Simulated {
 public:
  explicit Simulated(const model::Golden& golden)
      : prepared_(backend::make_gpu_backend(*machine_, {})
                      ->prepare(golden.program(model::Activations::w4a16), kThreeSequences)) {}
  backend::Prepared& operator*() { return *prepared_; }

 private:
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ = kernels::make_sim_machine(device_);
  std::unique_ptr<backend::Prepared> prepared_;
};

// The same backend without its own choice of tokens: logits come to the host.
class LogitsAlone final : public backend::Prepared {
 public:
  explicit LogitsAlone(backend::Prepared& under) : under_(under) {}
  const backend::Program& program() const override { return under_.program(); }
  const backend::Capacity& capacity() const override { return under_.capacity(); }
  void run(backend::Pass pass, const backend::Batch& batch, std::span<float> logits) override {
    under_.run(pass, batch, logits);
  }
  std::span<const float> value(backend::ValueId id) const override { return under_.value(id); }
  std::int64_t resumable_from(std::int32_t slot) const override { return under_.resumable_from(slot); }

 private:
  backend::Prepared& under_;
};

TEST(GpuAnswers, AreTheSameWithDraftsAndInABatch) {
  const model::Golden golden("compressed");
  Simulated gpu(golden);
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(57);  // the answer crosses position 64
  const auto other = golden.ids("short.input_ids");
  const auto plain = answers_of(*gpu, {greedy_request(prompt, 14)}).front();
  EXPECT_EQ(answers_of(*gpu, {greedy_request(prompt, 14, 5)}).front(), plain);
  // Three at once whose steps drift apart, then others between them.
  for (const auto& answer : answers_of(*gpu, {greedy_request(prompt, 14, 1), greedy_request(prompt, 14, 3),
                                              greedy_request(prompt, 14, 4)}))
    EXPECT_EQ(answer, plain);
  const auto batch = answers_of(
      *gpu, {greedy_request(other, 9, 2), greedy_request(prompt, 14, 2), greedy_request(other, 5)});
  EXPECT_EQ(batch[1], plain);
  EXPECT_TRUE(std::equal(batch[2].begin(), batch[2].end(), batch[0].begin()));
  // With logits asked for (a log-probability), the host chooses: the same tokens.
  Request measured = greedy_request(prompt, 4, 2);
  measured.params.logprob_count = 1;
  EXPECT_TRUE(std::ranges::equal(answers_of(*gpu, {measured}).front(), std::span(plain).first(4)));
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
  LogitsAlone host(*gpu);
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

// Seventy rows of one pass, each with a wish of its own, some for logits: what crosses is what was asked.
TEST(GpuAnswers, EveryRowIsChosenAsTheHostWould) {
  const model::Golden golden("bf16");
  Simulated gpu(golden);
  auto tokens = golden.ids("long.input_ids");
  tokens.resize(70);
  const auto vocab = static_cast<std::size_t>(golden.config.vocab_size);
  constexpr std::int64_t limit = 250;
  const Home at = home_of(1);
  const backend::SequenceRows rows{70, 0, 1, 0, 4, backend::Role::prompt, 0};
  std::vector<std::int32_t> asked(70), chosen(70, -1);
  std::iota(asked.begin(), asked.end(), 0);
  const backend::Batch batch{tokens, {&rows, 1}, at.pages, asked, {}};
  std::vector<float> logits(70 * vocab), crossed(14 * vocab);
  (*gpu).run(backend::Pass::main, batch, logits);
  std::vector<backend::Choice> choices(70);
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
  LogitsAlone host(*gpu);
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

}  // namespace
}  // namespace fourfold::engine
