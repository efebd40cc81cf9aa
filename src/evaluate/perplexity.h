// How well a model knows a text: the mean surprise of its tokens, and how often the MTP layer drafts what the
// model itself would say. The text is cut into windows that start anew, so that a number does not depend on
// how long the text is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backend/backend.h"

namespace fourfold::evaluate {

struct TextScore {
  std::int64_t token_count = 0;     // predicted, which is every token of a window but its first
  double surprise = 0;              // sum of -ln p
  std::int64_t best_count = 0;      // tokens that were the most probable one
  std::int64_t draft_count = 0;     // 0: the model has no MTP layer
  std::int64_t accepted_count = 0;  // drafts that are the model's own first choice: greedy acceptance
  double accepted_probability = 0;  // sum of the model's p of the draft: acceptance when tokens are drawn

  double perplexity() const;
  double mean_surprise() const;
};

// Room for score_text with windows of this many tokens.
backend::Capacity score_capacity(std::int64_t window);

// Scores whole windows of `window` predicted tokens; what is left at the end makes a shorter one. `progress`
// gets the tokens done after every pass and may throw to stop the work. Throws invalid_request for fewer than
// two tokens.
TextScore score_text(backend::Prepared& prepared, std::span<const std::int32_t> tokens, std::int64_t window,
                     const std::function<void(std::int64_t)>& progress = {});

}  // namespace fourfold::evaluate
