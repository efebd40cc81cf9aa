#include "sample/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fourfold::sample {

Logprobs measure_logprobs(std::span<const float> logits, TokenId chosen, int count) {
  const auto logit = [&](TokenId id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x) - best);
  const double log_total = best + std::log(total);

  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<std::ptrdiff_t>(count, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(),
                    [&](TokenId a, TokenId b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  Logprobs out{{chosen, logit(chosen) - log_total}, {}};
  for (auto id = ids.begin(); id != end; ++id) out.best.push_back({*id, logit(*id) - log_total});
  return out;
}

}  // namespace fourfold::sample
