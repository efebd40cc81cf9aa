// The same answer: with and without drafts, however the prompt is cut, alone and in a batch.
#include "engine/step_loop.h"

#include <map>

#include "backend/cpu/cpu.h"
#include "base/random.h"
#include "tests/engine/support.h"
#include "tests/sample/support.h"

namespace fourfold::engine {
namespace {

using model::Activations;
using model::Golden;

backend::Capacity rows_at_most(std::int64_t row_count) {
  backend::Capacity capacity = model::kFourSequences;
  capacity.row_count = row_count;
  return capacity;
}

class GoldenAnswers : public testing::TestWithParam<const char*> {};

TEST_P(GoldenAnswers, GreedyTokensAreTheReferencesWithZeroToFiveDrafts) {
  const Golden golden(GetParam());
  const auto prepared = golden.prepare(Activations::f32, rows_at_most(64));
  for (const std::string prompt : {"long", "short"}) {
    const auto wanted = golden.ids(prompt + ".greedy_ids");
    for (int draft_count = 0; draft_count <= kDraftCountMax; ++draft_count) {
      DraftCounts counts;
      EXPECT_EQ(answer_of(*prepared,
                          greedy_request(golden.ids(prompt + ".input_ids"), std::ssize(wanted), draft_count),
                          &counts),
                wanted)
          << prompt << " with " << draft_count << " drafts";
      EXPECT_EQ(counts.verified > 0, draft_count > 0);
    }
  }
}

// Tokens do not tell whether drafts are any good, so drafts are compared themselves: the rows a sequence
// wants verified next.
std::vector<TokenId> next_rows(Sequence& sequence) {
  const auto tokens = sequence.main_rows(64).tokens;
  return {tokens.begin(), tokens.end()};
}

TEST_P(GoldenAnswers, DraftsAreTheReferences) {
  const Golden golden(GetParam());
  for (const std::int64_t row_count : {64, 256})
    for (const std::string prompt : {"long", "short"}) {
      const auto prepared = golden.prepare(Activations::f32, rows_at_most(row_count));
      Sequence sequence(prepared->program(), greedy_request(golden.ids(prompt + ".input_ids"), 12, 5),
                        home(0));
      Sequence* all[] = {&sequence};
      StepLoop loop(*prepared);
      while (sequence.in_prompt()) loop.step(all);
      std::vector<TokenId> wanted = golden.ids(prompt + ".mtp_draft_ids");
      wanted.insert(wanted.begin(), golden.ids(prompt + ".greedy_ids").front());
      EXPECT_EQ(next_rows(sequence), wanted) << prompt << " in pieces of " << row_count;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenAnswers,
                         testing::Values("bf16", "compressed", "modelopt", "modelopt_mixed"));

// Longer answers that cross positions 64 and 128, with the arithmetic the checkpoint was made for.
TEST(Answers, DraftsMakeNoDifferenceToLongerOnes) {
  const Golden golden("compressed");
  const auto prepared = golden.prepare(Activations::automatic, rows_at_most(64));
  auto prompt = golden.ids("long.input_ids");
  prompt.resize(50);
  const auto plain = answer_of(*prepared, greedy_request(prompt, 90));
  for (const int draft_count : {1, 3, 5})
    EXPECT_EQ(answer_of(*prepared, greedy_request(prompt, 90, draft_count)), plain) << draft_count;
}

Request sampled_request(const Golden& golden, std::uint64_t seed, std::size_t prompt_count, int draft_count) {
  Request request = greedy_request(golden.ids("long.input_ids"), 24, draft_count);
  request.prompt.resize(prompt_count);
  request.params.temperature = 0.8;
  request.params.top_k = 20;
  request.params.top_p = 0.95;
  request.params.repetition_penalty = 1.1;
  request.params.frequency_penalty = 0.2;
  request.params.seed = seed;
  return request;
}

TEST(Answers, TheSameSeedGivesTheSameTokensForEveryCutAndAnyDrafts) {
  const Golden golden("bf16");
  const auto whole = golden.prepare(Activations::f32, rows_at_most(256));
  const auto plain = answer_of(*whole, sampled_request(golden, 5, 140, 0));
  EXPECT_NE(answer_of(*whole, sampled_request(golden, 6, 140, 0)), plain) << "another seed, another answer";
  for (const std::int64_t row_count : {6, 7, 64, 100})
    for (const int draft_count : {0, 2, 5}) {
      const auto prepared = golden.prepare(Activations::f32, rows_at_most(row_count));
      EXPECT_EQ(answer_of(*prepared, sampled_request(golden, 5, 140, draft_count)), plain)
          << row_count << " rows, " << draft_count << " drafts";
    }
}

TEST(Answers, AreTheSameAloneAndInABatch) {
  const Golden golden("bf16");
  const auto prepared = golden.prepare(Activations::f32, rows_at_most(40));
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(sampled_request(golden, 10 + i, 30 + 25 * i, i));
  requests[1].draw_drafts = true;
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) alone.push_back(answer_of(*prepared, request));

  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> all;
  for (int i = 0; i < 4; ++i) {
    sequences.push_back(std::make_unique<Sequence>(prepared->program(), requests[i], home(i)));
    all.push_back(sequences.back().get());
  }
  StepLoop loop(*prepared);
  while (loop.step(all) > 0) {
  }
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(std::vector(all[i]->answer().begin(), all[i]->answer().end()), alone[i]) << i;
}

// A second turn that begins with all, or nearly all, of the first, in the home the first one left.
TEST(Answers, AreTheSameWithTheTurnBeforeReused) {
  const Golden golden("bf16");
  for (const int draft_count : {0, 3})
    for (const bool shorter : {false, true}) {
      const auto prepared = golden.prepare(Activations::f32, rows_at_most(64));
      Sequence first(prepared->program(), sampled_request(golden, 3, 60, draft_count), home(0));
      Sequence* all[] = {&first};
      StepLoop loop(*prepared);
      while (!first.finished()) loop.step(all);

      Request second = sampled_request(golden, 4, 60, draft_count);
      const std::size_t kept = shorter ? 10 : first.answer().size();
      second.prompt.insert(second.prompt.end(), first.answer().begin(), first.answer().begin() + kept);
      for (const TokenId token : {7, 8, 9}) second.prompt.push_back(token);
      const auto fresh = answer_of(*golden.prepare(Activations::f32, rows_at_most(64)), second);
      second.cached_count = reusable_count(first.cached(), second);
      // The last token was never run, and nothing was drafted behind the last step.
      EXPECT_GE(second.cached_count, 60 + std::min<std::int64_t>(kept, 24 - 1 - (draft_count + 1)));
      EXPECT_EQ(answer_of(*prepared, second), fresh) << draft_count << " drafts, kept " << kept;
    }
}

// Three turns in one home, each sharing less with the one before. What the longest one overwrote is gone for
// the third, although the second was short.
TEST(Answers, AreTheSameAfterTwoTurnsThatGoBack) {
  const Golden golden("bf16");
  const backend::Capacity capacity = rows_at_most(64);
  const auto cpu = backend::make_cpu_backend({.threads = 2});
  const auto prepare = [&](bool by_cpu) {
    return by_cpu ? cpu->prepare(golden.program(Activations::f32), capacity)
                  : golden.prepare(Activations::f32, capacity);
  };
  Random random(5);
  std::vector<TokenId> prompt(158);
  const auto change_from = [&](std::size_t first, std::size_t count) {
    prompt.resize(count);
    for (std::size_t i = first; i < count; ++i) prompt[i] = static_cast<TokenId>(random.below(320));
    return greedy_request(prompt, 12);
  };
  std::vector<Request> turns{change_from(0, 158), change_from(68, 80), change_from(20, 30)};
  const std::int64_t reused[] = {0, 68, 0};
  for (const bool by_cpu : {false, true}) {
    const auto prepared = prepare(by_cpu);
    CachedTokens cached;
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      Request request = turns[turn];
      request.cached_count = reusable_count(cached, request);
      EXPECT_EQ(request.cached_count, reused[turn]) << turn;
      Sequence sequence(prepared->program(), request, home(0));
      Sequence* all[] = {&sequence};
      StepLoop loop(*prepared);
      while (!sequence.finished()) loop.step(all);
      EXPECT_EQ(std::vector(sequence.answer().begin(), sequence.answer().end()),
                answer_of(*prepare(by_cpu), turns[turn]))
          << "turn " << turn << (by_cpu ? " on the cpu" : " on the reference");
      cached = sequence.cached();
    }
  }
}

TEST(Answers, ACancelledTurnThatNeverRanKnowsItsHomeNoBetter) {
  ThreeWords words;
  Request request = greedy_request({0, 1, 2, 0}, 4);
  request.cached_count = 3;
  Sequence sequence(words.program(), request, home(0));
  sequence.cancel();
  EXPECT_EQ(reusable_count(sequence.cached(), greedy_request({0, 1, 2, 1}, 4)), 3);
  EXPECT_EQ(reusable_count(sequence.cached(), greedy_request({0, 1, 1, 1}, 4)), 0);
}

// After any number of accepted and rejected drafts the next drafts are those of a sequence that was given the
// whole text as its prompt. Three tokens to choose from let drafts stand now and then.
TEST(Answers, DraftsContinueFromTrueHiddenStates) {
  const Golden golden("bf16");
  Request request = greedy_request(golden.ids("long.input_ids"), 40, 3);
  request.prompt.resize(50);
  request.token_limit = 3;
  const auto prepared = golden.prepare(Activations::f32, rows_at_most(64));
  Sequence sequence(prepared->program(), request, home(0));
  Sequence* all[] = {&sequence};
  StepLoop loop(*prepared);
  while (sequence.answer().size() < 36) {
    loop.step(all);
    Request again = request;
    again.prompt.insert(again.prompt.end(), sequence.answer().begin(), sequence.answer().end() - 1);
    const auto other = golden.prepare(Activations::f32, rows_at_most(256));
    Sequence fresh(other->program(), again, home(1));
    Sequence* one[] = {&fresh};
    StepLoop(*other).step(one);
    ASSERT_EQ(next_rows(sequence), next_rows(fresh)) << "after " << sequence.answer().size() << " tokens";
  }
  EXPECT_GE(sequence.drafts().accepted, 5);
  EXPECT_GE(sequence.drafts().verified - sequence.drafts().accepted, 5);
}

TEST(Answers, EndAtTheStopIdAlsoInsideAcceptedDrafts) {
  ThreeWords words;
  for (int draft_count = 0; draft_count <= kDraftCountMax; ++draft_count)
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      Request request = greedy_request({0}, 12, draft_count);
      request.params.temperature = 1;
      request.params.seed = seed;
      words.begin();
      std::vector<TokenId> plain = answer_of(words, request);
      ASSERT_EQ(plain.size(), 12u);
      const auto stop = std::ranges::find(plain, 2);
      const bool stops = stop != plain.end();
      if (stops) plain.erase(stop + 1, plain.end());
      request.stop_ids = {7, 2};
      words.begin();
      EXPECT_EQ(answer_of(words, request), plain) << draft_count << " drafts, seed " << seed;
    }
}

TEST(Answers, ReportWhyTheyEndedAndWhatIsNew) {
  ThreeWords words;
  Request request = greedy_request({0, 1}, 3);
  request.params.logprob_count = 2;
  Sequence sequence(words.program(), request, home(0));
  Sequence* all[] = {&sequence};
  StepLoop loop(words);
  std::vector<TokenId> seen;
  while (!sequence.finished()) {
    loop.step(all);
    for (const sample::Sampled& token : sequence.newest()) {
      seen.push_back(token.token);
      ASSERT_TRUE(token.logprobs.has_value());
      EXPECT_EQ(token.logprobs->best.front().id, token.token);
    }
  }
  EXPECT_EQ(sequence.finish(), Finish::max_tokens);
  EXPECT_EQ(seen, std::vector(sequence.answer().begin(), sequence.answer().end()));
}

// Whole answers of four tokens, 81 of them possible, against their exact probabilities: a draft that leaks
// into what follows, a number used twice or a token counted twice would show.
TEST(Answers, AreDistributedExactlyWithAnyDrafts) {
  std::vector<double> exact(81);
  std::array<std::vector<double>, 3> next;
  for (int word = 0; word < 3; ++word)
    next[word] = sample::softmax({ThreeWords::kMain[word].begin(), ThreeWords::kMain[word].end()});
  for (int a = 0; a < 81; ++a) {
    int last = 1;
    exact[a] = 1;
    for (int place = 27; place > 0; place /= 3) {
      const int word = a / place % 3;
      exact[a] *= next[last][word];
      last = word;
    }
  }
  ThreeWords words;
  for (const bool draw : {false, true})
    for (int draft_count = draw ? 1 : 0; draft_count <= kDraftCountMax; ++draft_count) {
      std::vector<std::int64_t> counts(81);
      DraftCounts drafts, sum;
      for (int i = 0; i < sample::kDraws; ++i) {
        Request request = greedy_request({2, 1}, 4, draft_count);
        request.params.temperature = 1;
        request.params.seed = i;
        request.draw_drafts = draw;
        words.begin();
        int answer = 0;
        for (const TokenId token : answer_of(words, request, &drafts)) answer = 3 * answer + token;
        ++counts[answer];
        sum.verified += drafts.verified;
        sum.accepted += drafts.accepted;
      }
      const sample::ChiSquare result = sample::chi_square(counts, exact);
      EXPECT_TRUE(result.fits()) << (draw ? "drawn " : "chosen ") << draft_count << ": " << result.value
                                 << ", critical " << sample::chi_square_critical(result.degrees);
      if (draft_count > 0) {
        EXPECT_GT(sum.accepted, 0);
        EXPECT_LT(sum.accepted, sum.verified);
      }
    }
}

}  // namespace
}  // namespace fourfold::engine
