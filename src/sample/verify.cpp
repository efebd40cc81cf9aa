#include "sample/verify.h"

#include <cmath>

namespace fourfold::sample {

Verdict verify_chosen_draft(const Distribution& target, TokenId draft, double u) {
  const TokenId token = target.draw(u);
  return {token == draft, token};
}

Verdict verify_drawn_draft(const Distribution& target, const Distribution& drafted, TokenId draft,
                           double acceptance_u, double replacement_u) {
  if (acceptance_u * drafted.probability(draft) < target.probability(draft)) return {true, draft};
  std::vector<Candidate> rest;
  std::uint64_t total = 0;
  for (const Candidate& candidate : target.candidates()) {
    const double wanted = static_cast<double>(candidate.weight) / static_cast<double>(target.total());
    const double left = wanted - drafted.probability(candidate.id);
    if (left <= 0) continue;
    rest.push_back({candidate.id, static_cast<std::uint64_t>(std::llround(left * 0x1p44))});
    total += rest.back().weight;
  }
  // Nothing is left only where p and q differ by rounding; then they are the same distribution.
  if (total == 0) return {false, target.draw(replacement_u)};
  return {false, Distribution(std::move(rest)).draw(replacement_u)};
}

}  // namespace fourfold::sample
