// Answers as a model without any sense would write them under a form's masks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "constrain/guide.h"
#include "constrain/matcher.h"
#include "tests/constrain/random_schema.h"
#include "text/tokenizer.h"

namespace fourfold::constrain {

struct Model {
  Model() : tokenizer(text::Tokenizer::load(FOURFOLD_TEXT_GOLDEN "/qwen35.tokenizer.json")) {
    stop = *tokenizer.added_token("<|im_end|>");
    vocabulary = std::make_shared<Vocabulary>(tokenizer, std::span(&stop, 1), tokenizer.id_limit());
  }
  text::Tokenizer tokenizer;
  TokenId stop;
  std::shared_ptr<const Vocabulary> vocabulary;
};

inline const Model& model() {
  static const Model one;
  return one;
}

// How many bytes a text still needs, at least, from the shortest ways through the rules.
class Completer {
 public:
  explicit Completer(const Grammar& grammar) : grammar_(grammar), to_end_(grammar.state_count(), kFar) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::uint32_t state = 0; state < grammar.state_count(); ++state) {
        std::int64_t best = grammar.is_final(state) ? 0 : kFar;
        for (const auto& edge : grammar.edges(state)) best = std::min(best, 1 + to_end_[edge.to]);
        for (const auto& call : grammar.calls(state))
          best = std::min(best, to_end_[grammar.entry(call.rule)] + to_end_[call.to]);
        if (best < to_end_[state]) {
          to_end_[state] = best;
          changed = true;
        }
      }
    }
  }

  std::int64_t needed(const Matcher& matcher, Matcher::SetId set) {
    if (matcher.may_end(set)) return 0;
    std::int64_t best = kFar;
    for (const auto& reading : matcher.kernel(set))
      best = std::min(best, to_end_[reading.state] + below(matcher, reading.stack));
    return best;
  }

  // A byte on the shortest way to the end.
  std::uint8_t next_byte(Matcher& matcher, Matcher::SetId set) {
    const std::int64_t now = needed(matcher, set);
    for (int byte = 0; byte < 256; ++byte) {
      const Matcher::SetId next = matcher.step(set, static_cast<std::uint8_t>(byte));
      if (next != Matcher::kDead && needed(matcher, next) < now) return static_cast<std::uint8_t>(byte);
    }
    ADD_FAILURE() << "no way to the end";
    return 0;
  }

  static constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();

 private:
  std::int64_t below(const Matcher& matcher, Matcher::StackId stack) {
    if (matcher.is_lowest(stack)) return 0;
    std::int64_t best = kFar;
    for (const auto& back : matcher.returns(stack))
      best = std::min(best, to_end_[back.state] + below(matcher, back.stack));
    return best;
  }

  const Grammar& grammar_;
  std::vector<std::int64_t> to_end_;
};

inline std::vector<TokenId> allowed(engine::TokenGuide& guide) {
  const Vocabulary& vocabulary = *model().vocabulary;
  std::vector<std::uint64_t> bits(vocabulary.word_count());
  guide.allowed(bits);
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < bits.size(); ++i)
    for (std::uint64_t word = bits[i]; word != 0; word &= word - 1)
      tokens.push_back(static_cast<TokenId>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
  return tokens;
}

inline bool is_allowed(engine::TokenGuide& guide, TokenId token) {
  const auto tokens = allowed(guide);
  return std::binary_search(tokens.begin(), tokens.end(), token);
}

// Up to `tokens` tokens at random, then the shortest way out, every byte of it by its own token. haste: how
// many of ten tokens are of the shortest way from the beginning, so that all parts of a long form are met.
inline std::string random_answer(const std::shared_ptr<const Masks>& masks, Random& random,
                                 std::uint64_t tokens = 40, std::uint64_t haste = 0) {
  const Vocabulary& vocabulary = masks->vocabulary();
  auto guide = make_guide(masks);
  Matcher matcher(masks->grammar());
  Matcher::SetId set = matcher.start_at(masks->grammar().start());
  Completer completer(masks->grammar());
  std::string text;
  std::uint64_t left = random.below(tokens);
  while (left > 0 || !matcher.may_end(set)) {
    const auto choices = allowed(*guide);
    EXPECT_FALSE(choices.empty()) << text;
    if (choices.empty()) return text;
    TokenId token = choices[random.below(choices.size())];
    const bool shortest = left == 0 || random.below(10) < haste;
    if (shortest && !matcher.may_end(set)) {
      const char byte = static_cast<char>(completer.next_byte(matcher, set));
      const auto own = std::find_if(choices.begin(), choices.end(), [&](TokenId one) {
        return vocabulary.bytes(one) == std::string_view(&byte, 1);
      });
      EXPECT_NE(own, choices.end()) << text << " then " << byte;
      if (own == choices.end()) return text;
      token = *own;
    }
    if (token == model().stop) return text;
    guide->accept(token);
    for (const char c : vocabulary.bytes(token)) set = matcher.step(set, static_cast<std::uint8_t>(c));
    text += vocabulary.bytes(token);
    EXPECT_LT(completer.needed(matcher, set), Completer::kFar) << text;
    if (left > 0) --left;
  }
  EXPECT_TRUE(is_allowed(*guide, model().stop)) << text;
  return text;
}

}  // namespace fourfold::constrain
