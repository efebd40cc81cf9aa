// A prepared program driven along the tokens of a reference: the prompt, in pieces where it is longer than
// the rows of a step, then the greedy continuation one token at a time, and the drafts. Every token is the
// reference's own, so that one difference does not become the cause of the next.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "evaluate/reference_file.h"

namespace fourfold::evaluate {

// Of the R rows that the reference has.
struct Trace {
  std::vector<std::vector<float>> hidden;  // [layers + 1][R * H]; empty when the backend keeps no values
  std::vector<float> final_norm;           // [R * H], or empty
  std::vector<float> logits;               // [R, V]
  std::vector<float> greedy;               // [greedy tokens, V]: what each was chosen from
  std::vector<float> mtp;                  // [R - 1, V], or empty
  std::vector<float> drafts;               // [drafts, V], or empty
};

// What run_trace needs room for. step_rows: the most rows of a step, a multiple of a page's tokens; 0: a
// whole prompt.
backend::Capacity trace_capacity(std::span<const PromptReference> prompts, std::int64_t step_rows = 0);

Trace run_trace(backend::Prepared& prepared, const PromptReference& prompt);

}  // namespace fourfold::evaluate
