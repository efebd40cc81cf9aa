// Which tokens a sequence has seen, as far as penalties ask.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "sample/params.h"

namespace fourfold::sample {

class History {
 public:
  void note_prompt(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) counts_.try_emplace(token, 0);
  }
  void note(TokenId token) { ++counts_[token]; }
  std::int64_t size() const { return static_cast<std::int64_t>(counts_.size()); }

  // visit(token, count in the answer, 0: in the prompt only), in no particular order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [token, count] : counts_) visit(token, count);
  }

  // Changes the scores of the tokens seen, as Params says.
  void penalise(const Params& params, std::span<double> scores) const;

 private:
  std::unordered_map<TokenId, std::int64_t> counts_;  // in the answer; 0: in the prompt only
};

}  // namespace fourfold::sample
