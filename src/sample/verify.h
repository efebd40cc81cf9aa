// Whether a draft stands. Both rules give tokens distributed exactly as the target says, whatever was
// drafted.
#pragma once

#include "sample/distribution.h"

namespace fourfold::sample {

struct Verdict {
  bool accepted = false;
  TokenId token = 0;  // the draft, or its replacement
};

// A draft that was not drawn but chosen (the most probable one): the target's own token is drawn, and the
// draft stands when it is that token. That is rejection sampling with a one-point draft distribution: the
// draft is accepted with its probability p(d), and otherwise the token is one of p without d. Since `u` is
// the number that would have drawn the token without any draft, the answer is the same with and without
// drafts, token by token.
Verdict verify_chosen_draft(const Distribution& target, TokenId draft, double u);

// A draft that was drawn from `drafted`: accepted with probability min(1, p(d) / q(d)), otherwise replaced by
// a draw from max(p - q, 0).
Verdict verify_drawn_draft(const Distribution& target, const Distribution& drafted, TokenId draft,
                           double acceptance_u, double replacement_u);

}  // namespace fourfold::sample
