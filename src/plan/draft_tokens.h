// Tokens of a step with drafts.
#pragma once

namespace fourfold::plan {

// When each draft stands with this chance: 1 + a + ... + a^k.
constexpr double tokens_of_step(double acceptance, int drafts) {
  double tokens = 1, chance = 1;
  for (int i = 0; i < drafts; ++i) tokens += chance *= acceptance;
  return tokens;
}

}  // namespace fourfold::plan
