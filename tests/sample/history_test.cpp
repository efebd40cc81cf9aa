#include "sample/history.h"

#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

TEST(History, RepetitionSeesPromptAndAnswer) {
  History history;
  history.note_prompt(std::vector<TokenId>{0, 1, 1});
  history.note(2);
  Params params;
  params.repetition_penalty = 2;
  std::vector<float> scores{4, -4, 6, 8, 0};
  history.penalise(params, scores);
  EXPECT_EQ(scores, (std::vector<float>{2, -8, 3, 8, 0}));
}

TEST(History, PresenceAndFrequencySeeTheAnswerAlone) {
  History history;
  history.note_prompt(std::vector<TokenId>{0, 1});
  for (const TokenId token : {1, 2, 2, 2}) history.note(token);
  Params params;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  std::vector<float> scores(4, 1);
  history.penalise(params, scores);
  EXPECT_EQ(scores, (std::vector<float>{1, 0.25F, -0.25F, 1}));
}

TEST(History, TokensBeyondTheScoresAreIgnored) {
  History history;
  history.note_prompt(std::vector<TokenId>{7});
  Params params;
  params.repetition_penalty = 2;
  std::vector<float> scores{1, 1};
  history.penalise(params, scores);
  EXPECT_EQ(scores, (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace fourfold::sample
