// Drafting with the MTP layer and verifying in one pass gives the tokens, and the bits, of plain decoding.
#include "base/random.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::argmax;
using backend::LogitsRow;
using backend::Part;
using backend::Pass;

constexpr std::size_t kNewTokens = 30;

// Greedy tokens after the prompt and the logits each came from.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<LogitsRow> logits;
  void add(const LogitsRow& row) {
    logits.push_back(row);
    tokens.push_back(argmax(row));
  }
};

Answer plain_greedy(const Golden& golden, Activations mode, const std::vector<std::int32_t>& prompt) {
  const auto prepared = golden.prepare(mode, kFourSequences);
  Answer answer;
  answer.add(step(*prepared, Pass::main, {part(0, 0, prompt)}).back());
  for (auto at = static_cast<std::int64_t>(prompt.size()); answer.tokens.size() < kNewTokens; ++at)
    answer.add(step(*prepared, Pass::main, {part(0, at, {answer.tokens.back()})}).back());
  return answer;
}

// The draft pass over the rows the last main pass kept (their next tokens given), then k - 1 rows of
// recursion.
std::vector<std::int32_t> draft(backend::Prepared& prepared, std::int64_t first_position,
                                const std::vector<std::int32_t>& next_tokens, int count) {
  Part rows = part(0, first_position, next_tokens);
  for (std::size_t i = 0; i < next_tokens.size(); ++i)
    rows.hidden_rows.push_back(static_cast<std::int32_t>(i));
  rows.all_logits = false;
  std::vector<std::int32_t> drafts{argmax(step(prepared, Pass::draft, {rows}).back())};
  auto hidden_row = static_cast<std::int32_t>(next_tokens.size()) - 1;
  auto position = first_position + static_cast<std::int64_t>(next_tokens.size());
  while (static_cast<int>(drafts.size()) < count) {
    Part one = part(0, position++, {drafts.back()});
    one.hidden_rows = {hidden_row};
    hidden_row = 0;
    drafts.push_back(argmax(step(prepared, Pass::draft, {one}).back()));
  }
  return drafts;
}

// Random weights draft badly, so that now and then a draft is replaced by what plain decoding says:
// acceptances of every length occur.
struct Speculation {
  Answer answer;
  int accepted = 0;
  int rejected = 0;
};
Speculation speculate(const Golden& golden, Activations mode, const std::vector<std::int32_t>& prompt,
                      const Answer& plain, int draft_count) {
  const auto prepared = golden.prepare(mode, kFourSequences);
  Speculation run;
  Random random(draft_count);
  run.answer.add(step(*prepared, Pass::main, {part(0, 0, prompt)}).back());
  std::vector<std::int32_t> next_tokens(prompt.begin() + 1, prompt.end());
  next_tokens.push_back(run.answer.tokens.back());
  std::int64_t kept_from = 0;
  auto position = static_cast<std::int64_t>(prompt.size());
  while (run.answer.tokens.size() < kNewTokens) {
    std::vector<std::int32_t> tokens{run.answer.tokens.back()};
    for (const std::int32_t guess : draft(*prepared, kept_from, next_tokens, draft_count)) {
      const std::size_t place = run.answer.tokens.size() + tokens.size() - 1;
      tokens.push_back(place < plain.tokens.size() && random.below(3) > 0 ? plain.tokens[place] : guess);
    }
    Part verify = part(0, position, tokens);
    verify.draft_row_count = draft_count;
    const auto rows = step(*prepared, Pass::main, {verify});
    next_tokens.clear();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      run.answer.add(rows[row]);
      next_tokens.push_back(run.answer.tokens.back());
      if (row + 1 == rows.size()) break;
      const bool accept = run.answer.tokens.back() == tokens[row + 1];
      ++(accept ? run.accepted : run.rejected);
      if (!accept) break;
    }
    kept_from = position;
    position += static_cast<std::int64_t>(next_tokens.size());
  }
  run.answer.tokens.resize(kNewTokens);
  run.answer.logits.resize(kNewTokens);
  return run;
}

TEST(Speculative, GivesTheTokensAndBitsOfPlainDecoding) {
  for (const auto& [name, mode] :
       {std::pair("bf16", Activations::f32), {"compressed", Activations::automatic}}) {
    const Golden golden(name);
    auto prompt = golden.ids("long.input_ids");
    prompt.resize(50);  // the answer crosses position 64, where the state moves
    const Answer plain = plain_greedy(golden, mode, prompt);
    for (int draft_count = 1; draft_count <= 5; ++draft_count) {
      const Speculation run = speculate(golden, mode, prompt, plain, draft_count);
      EXPECT_EQ(run.answer.tokens, plain.tokens) << name << " with " << draft_count;
      EXPECT_EQ(run.answer.logits, plain.logits) << name << " with " << draft_count;
      EXPECT_GT(run.accepted, 0);
      EXPECT_GT(run.rejected, 0);
    }
  }
}

}  // namespace
}  // namespace fourfold::model
