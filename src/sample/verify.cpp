#include "sample/verify.h"

#include <algorithm>

namespace fourfold::sample {

Verdict verify_chosen_draft(const Distribution& target, TokenId draft, double u) {
  const TokenId token = target.draw(u);
  return {token == draft, token};
}

Verdict verify_drawn_draft(const Distribution& target, const Distribution& drafted, TokenId draft,
                           double acceptance_u, double replacement_u) {
  if (acceptance_u * drafted.probability(draft) < target.probability(draft)) return {true, draft};
  std::vector<Candidate> rest;
  double total = 0;
  for (const Candidate& candidate : target.candidates()) {
    const double weight = candidate.weight / target.total() - drafted.probability(candidate.id);
    if (weight <= 0) continue;
    rest.push_back({candidate.id, weight});
    total += weight;
  }
  // Nothing is left only where p and q differ by rounding; then they are the same distribution.
  if (total == 0) return {false, target.draw(replacement_u)};
  return {false, Distribution(std::move(rest)).draw(replacement_u)};
}

}  // namespace fourfold::sample
