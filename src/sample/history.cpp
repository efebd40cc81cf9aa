#include "sample/history.h"

namespace fourfold::sample {

double penalised(const Params& params, double score, std::int64_t count) {
  score = score > 0 ? score / params.repetition_penalty : score * params.repetition_penalty;
  if (count > 0) score -= params.presence_penalty + params.frequency_penalty * static_cast<double>(count);
  return score;
}

void History::penalise(const Params& params, std::span<float> scores) const {
  for (const auto& [token, count] : entries_) {
    if (token < 0 || static_cast<std::size_t>(token) >= scores.size()) continue;
    float& score = scores[static_cast<std::size_t>(token)];
    score = static_cast<float>(penalised(params, score, count));
  }
}

}  // namespace fourfold::sample
