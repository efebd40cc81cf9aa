#include "engine/sequence.h"

#include "tests/engine/support.h"

namespace fourfold::engine {
namespace {

using checkpoint::expect_error;

TEST(CutPrompt, AtMultiplesOf64WhereTheyFit) {
  EXPECT_EQ(cut_prompt(0, 50, 64), 50);
  EXPECT_EQ(cut_prompt(0, 150, 100), 64);
  EXPECT_EQ(cut_prompt(64, 150, 100), 150);
  EXPECT_EQ(cut_prompt(0, 1000, 256), 256);
  EXPECT_EQ(cut_prompt(10, 1000, 256), 256);
  EXPECT_EQ(cut_prompt(0, 150, 7), 7);
  EXPECT_EQ(cut_prompt(63, 150, 7), 64);
  EXPECT_EQ(cut_prompt(64, 150, 7), 71);
}

TEST(Sequence, RefusesWhatCannotBeServed) {
  ThreeWords words;
  const backend::Program& program = words.program();
  const auto refuse = [&](const std::vector<std::string>& parts, Request request) {
    return expect_error(Code::invalid_request, parts, [&] { Sequence(program, request, home(0)); });
  };
  refuse({"the prompt is empty"}, greedy_request({}, 4));
  refuse({"token 1 of the prompt has id 3", "vocabulary has 3"}, greedy_request({0, 3}, 4));
  refuse({"token 0", "-1"}, greedy_request({-1}, 4));
  refuse({"64 tokens", "limit is 64"}, greedy_request(std::vector<TokenId>(64), 1));
  refuse({"max_tokens is 0"}, greedy_request({0}, 0));
  EXPECT_EQ(refuse({"60 tokens", "max_tokens 5", "64"}, greedy_request(std::vector<TokenId>(60), 5)),
            "Ask for at most 4 tokens.");
  Request cached = greedy_request({0, 1}, 4);
  cached.cached_count = 2;
  refuse({"2 tokens of a prompt of 2"}, cached);
  refuse({"6 drafts", "at most 5"}, greedy_request({0}, 4, 6));
  refuse({"-1 drafts"}, greedy_request({0}, 4, -1));
  Request hot = greedy_request({0}, 4);
  hot.params.temperature = -1;
  refuse({"temperature is -1"}, hot);
  backend::Program without = program;
  without.draft.clear();
  expect_error(Code::invalid_request, {"2 drafts", "no MTP layer"},
               [&] { Sequence(without, greedy_request({0}, 4, 2), home(0)); });
}

TEST(ReusableCount, IsWhatIsCommonAndCanBeGoneBackTo) {
  const auto count = [](std::vector<TokenId> cached, std::int64_t from, std::vector<TokenId> prompt) {
    const auto end = std::ssize(cached);
    return reusable_count({std::move(cached), end, 0, from}, greedy_request(std::move(prompt), 1));
  };
  EXPECT_EQ(count({1, 2, 3}, 0, {1, 2, 3, 4}), 3);
  EXPECT_EQ(count({1, 2, 3}, 0, {1, 2, 3}), 2) << "the last token is always run";
  EXPECT_EQ(count({1, 2, 3}, 0, {1, 9, 3, 4}), 1);
  EXPECT_EQ(count({}, 0, {1}), 0);
  EXPECT_EQ(count({5}, 0, {1}), 0);
  const std::vector<TokenId> long_one(200, 1);
  std::vector<TokenId> other = long_one;
  other[128] = 2;
  EXPECT_EQ(count(long_one, 128, other), 128);
  other[127] = 2;
  EXPECT_EQ(count(long_one, 128, other), 0) << "further back than the home can go";
  EXPECT_EQ(reusable_count({{1, 2, 3}, 3, 2, 0}, greedy_request({1, 2, 3, 4}, 1, 1)), 2);
  EXPECT_EQ(reusable_count({{1, 2, 3}, 3, 0, 0}, greedy_request({1, 2, 3, 4}, 1, 1)), 0);
}

TEST(Sequence, WaitsWhenItsRowsDoNotFit) {
  ThreeWords words;
  Sequence sequence(words.program(), greedy_request({0, 1}, 8, 3), home(0));
  EXPECT_TRUE(sequence.main_rows(0).tokens.empty());
  EXPECT_EQ(sequence.main_rows(1).tokens.size(), 1u);
  Sequence* all[] = {&sequence};
  StepLoop loop(words);
  loop.step(all);
  EXPECT_TRUE(sequence.main_rows(3).tokens.empty()) << "a token and three drafts are four rows";
  const PassRows rows = sequence.main_rows(4);
  EXPECT_EQ(rows.tokens.size(), 4u);
  EXPECT_EQ(rows.draft_row_count, 3);
  EXPECT_EQ(rows.role, backend::Role::decode);
  EXPECT_EQ(rows.logits_row_count, 4);
}

TEST(Sequence, CancelEndsIt) {
  ThreeWords words;
  Sequence sequence(words.program(), greedy_request({0}, 8), home(0));
  sequence.cancel();
  EXPECT_TRUE(sequence.finished());
  Sequence* all[] = {&sequence};
  EXPECT_EQ(StepLoop(words).step(all), 0);
}

}  // namespace
}  // namespace fourfold::engine
