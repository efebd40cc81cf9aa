#include "sample/history.h"

namespace fourfold::sample {

// Each token's score is its own affair, so the map's order makes no difference.
void History::penalise(const Params& params, std::span<double> scores) const {
  for (const auto& [token, count] : counts_) {
    if (token < 0 || static_cast<std::size_t>(token) >= scores.size()) continue;
    double& score = scores[static_cast<std::size_t>(token)];
    score = score > 0 ? score / params.repetition_penalty : score * params.repetition_penalty;
    if (count > 0) score -= params.presence_penalty + params.frequency_penalty * static_cast<double>(count);
  }
}

}  // namespace fourfold::sample
