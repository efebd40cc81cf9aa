// Latent and windowed attention on the CPU: answers that were preempted, that found their prompt in the
// prefix cache, and that drafts were checked for are those of a request alone. One arithmetic for every row
// is what makes them so.
#include <map>

#include "backend/cpu/cpu.h"
#include "backend/window_pages.h"
#include "engine/batcher.h"
#include "engine/cache_room.h"
#include "tests/engine/support.h"
#include "tests/model/made_models.h"

namespace fourfold::engine {
namespace {

constexpr backend::Capacity kThreePages{
    .page_count = 3, .page_tokens = 64, .state_slot_count = 2, .row_count = 128, .anchor_count = 2};

constexpr const char* kLatent = "tiny-deepseek-odd";
constexpr const char* kWindowed = "tiny-gpt-oss-odd";  // 37 positions, which every prompt here is beyond

struct Made {
  explicit Made(const std::string& shape) {
    model::make_model(folder.path() / "model", shape, "nvfp4");
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

// With log-probabilities: a wrong position that is attended to moves them all, and the best token seldom.
Request request_of(std::vector<TokenId> prompt, std::int64_t max_tokens, int draft_count = 0) {
  Request request = greedy_request(std::move(prompt), max_tokens, draft_count);
  request.params.logprob_count = 2;
  return request;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<sample::Logprobs> logprobs;
  void take(std::span<const sample::Sampled> more) {
    for (const sample::Sampled& token : more) {
      tokens.push_back(token.token);
      logprobs.push_back(token.logprobs.value());
    }
  }
};
void expect_same(const Answer& found, const Answer& wanted) {
  EXPECT_EQ(found.tokens, wanted.tokens);
  EXPECT_TRUE(same_logprobs(found.logprobs, wanted.logprobs));
}

Answer alone(backend::Prepared& prepared, const Request& request, DraftCounts* counts = nullptr) {
  Sequence sequence(prepared.program(), request, {0, {0, 1, 2}});
  Sequence* all[] = {&sequence};
  StepLoop loop(prepared);
  Answer answer;
  while (!sequence.finished()) {
    loop.step(all);
    answer.take(sequence.newest());
  }
  if (counts != nullptr) *counts = sequence.drafts();
  return answer;
}

// A model with a draft layer that it has not: drafts are the tokens of an answer known before, every third
// one another. Of one sequence.
class Foretold final : public backend::Prepared {
 public:
  Foretold(backend::Prepared& inner, std::vector<TokenId> all)
      : inner_(inner), program_(inner.program()), all_(std::move(all)) {
    program_.draft.resize(1);
  }
  const backend::Program& program() const override { return program_; }
  const backend::Capacity& capacity() const override { return inner_.capacity(); }
  std::span<const float> value(backend::ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t slot) const override { return inner_.resumable_from(slot); }
  void run(backend::Pass pass, const backend::Batch& batch, std::span<float> logits) override {
    if (pass == backend::Pass::main) return inner_.run(pass, batch, logits);
    // A row of a draft pass has the token behind its position, and gives the one behind that.
    const backend::SequenceRows& rows = batch.sequences.front();
    std::ranges::fill(logits, 0.0f);
    if (batch.logits_rows.empty()) return;
    ASSERT_EQ(batch.logits_rows.size(), 1u);
    const std::int64_t next = rows.position + batch.logits_rows.front() + 2;
    const TokenId token = next < std::ssize(all_) ? all_[static_cast<std::size_t>(next)] : 0;
    logits[static_cast<std::size_t>(next % 3 == 0 ? (token + 1) % 480 : token)] = 1;
  }

 private:
  backend::Prepared& inner_;
  backend::Program program_;
  std::vector<TokenId> all_;
};

class FamilyAnswers : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, FamilyAnswers, testing::Values(kLatent, kWindowed));

// Those of its own layer, and some that stand beside some that do not.
TEST_P(FamilyAnswers, AreTheSameWithDrafts) {
  const Made model(GetParam());
  const auto prepared = model.prepare();
  const auto prompt = prompt_of(61, 7);
  const Answer plain = alone(*prepared, request_of(prompt, 24));
  std::vector<TokenId> all = prompt;
  all.insert(all.end(), plain.tokens.begin(), plain.tokens.end());
  Foretold foretold(*prepared, all);
  for (const int drafts : {1, 3, 5}) {
    SCOPED_TRACE(drafts);
    DraftCounts counts;
    expect_same(alone(foretold, request_of(prompt, 24, drafts), &counts), plain);
    EXPECT_GT(counts.accepted, 0);
    EXPECT_LT(counts.accepted, counts.verified);
    if (!prepared->program().draft.empty())
      expect_same(alone(*prepared, request_of(prompt, 24, drafts)), plain);
  }
}

// Both need a second page, of which there is one; then the first is asked again.
TEST_P(FamilyAnswers, AreTheSameAfterAPreemptionAndOnAKnownPrefix) {
  const Made model(GetParam());
  ASSERT_NE(model.made->config.latent.has_value(), model.made->config.layers[0].window == 37);
  const auto prepared = model.prepare();
  const std::vector<Request> requests{request_of(prompt_of(60, 7), 12), request_of(prompt_of(63, 11), 12)};
  const auto again = request_of(prompt_of(70, 7), 12);
  std::vector<Answer> expected;
  for (const Request& request : requests) expected.push_back(alone(*prepared, request));
  expected.push_back(alone(*prepared, again));
  Batcher batcher(*prepared, {.mtp = 0});
  std::map<RequestId, Answer> answers;
  const auto run = [&] {
    for (std::vector<Delivery> out; batcher.step(out); out.clear())
      for (const Delivery& delivery : out) answers[delivery.id].take(delivery.tokens);
  };
  for (std::size_t i = 0; i < requests.size(); ++i)
    batcher.add(i + 1, {.request = requests[i]}, Batcher::Clock::now());
  run();
  EXPECT_GE(batcher.status().preempted, 1);
  const bool has_windows = std::string_view(GetParam()) == kWindowed;
  EXPECT_EQ(batcher.status().window_pages,
            has_windows ? backend::WindowPages::count_of(prepared->program(), prepared->capacity()) : 0);
  EXPECT_EQ(batcher.status().window_pages > 0, has_windows);
  EXPECT_EQ(batcher.status().window_bytes, window_bytes(prepared->program(), prepared->capacity()));
  for (const RequestId id : {3, 4}) {  // the second time its first page is there
    batcher.add(id, {.request = again}, Batcher::Clock::now());
    run();
    SCOPED_TRACE(id);
    expect_same(answers[id], expected[2]);
  }
  EXPECT_GE(batcher.status().prefix_hits, 1);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_same(answers[i + 1], expected[i]);
}

// Latent attention has no state to be kept first: whatever whole page two prompts share is taken up. Windows
// have one; it is there at the end of a prompt.
TEST_P(FamilyAnswers, AreTheSameBehindABeginningThatWasSeenOnce) {
  const Made model(GetParam());
  const bool latent = model.made->config.latent.has_value();
  const auto prepared = model.prepare();
  std::vector<TokenId> other = prompt_of(150, 13);
  std::ranges::fill(other.begin() + 100, other.end(), TokenId{9});
  const Request second = request_of(other, 12);
  const Answer expected = alone(*prepared, second);
  Batcher batcher(*prepared, {.mtp = 0});
  for (const RequestId id : {1, 2, 3}) {
    Answer found;
    batcher.add(id, {.request = id == 1 ? request_of(prompt_of(150, 13), 2) : second}, Batcher::Clock::now());
    for (std::vector<Delivery> out; batcher.step(out); out.clear())
      for (const Delivery& delivery : out) {
        if (id == 1) continue;
        found.take(delivery.tokens);
        EXPECT_EQ(delivery.usage.cached_count, id == 3 ? 128 : latent ? 64 : 0);
      }
    if (id > 1) expect_same(found, expected);
  }
  EXPECT_EQ(batcher.status().prefix_hits, latent ? 2 : 1);
  EXPECT_EQ(batcher.status().anchors > 0, !latent);
  EXPECT_TRUE(batcher.status().shares_prefixes);
}

}  // namespace
}  // namespace fourfold::engine
