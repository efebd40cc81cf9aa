// Which tokens a sequence has seen, as far as penalties ask.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sample/params.h"

namespace fourfold::sample {

class History {
 public:
  void note_prompt(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) entry_of(token);
  }
  void note(TokenId token) { ++entry_of(token).count; }
  std::int64_t size() const { return std::ssize(entries_); }
  // In the answer; 0: in the prompt only; nothing: not seen.
  std::optional<std::int64_t> count(TokenId token) const {
    const auto found = places_.find(token);
    return found == places_.end() ? std::nullopt : std::optional(entries_[found->second].count);
  }

  // visit(token, count in the answer, 0: in the prompt only), in the order they were first seen.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Entry& entry : entries_) visit(entry.token, entry.count);
  }

  // Changes the scores of the tokens seen, as penalised() says, each rounded to f32.
  void penalise(const Params& params, std::span<float> scores) const;

 private:
  struct Entry {
    TokenId token = 0;
    std::int64_t count = 0;
  };
  Entry& entry_of(TokenId token) {
    const auto [place, is_new] = places_.try_emplace(token, entries_.size());
    if (is_new) entries_.push_back({token, 0});
    return entries_[place->second];
  }

  std::vector<Entry> entries_;  // side by side: every choice of a token visits all of them
  std::unordered_map<TokenId, std::size_t> places_;
};

// The score of a token that was seen, in the answer so many times.
double penalised(const Params& params, double score, std::int64_t count);

}  // namespace fourfold::sample
