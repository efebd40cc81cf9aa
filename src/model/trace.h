// A prepared program driven along the tokens of a reference: the prompt at once, then the greedy continuation
// one token at a time, and the drafts. Every token is the reference's own, so that one difference does not
// become the cause of the next.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/reference_file.h"

namespace fourfold::model {

struct Trace {
  std::vector<std::vector<float>> hidden;  // [layers + 1][T * H]; empty when the backend keeps no values
  std::vector<float> final_norm;           // [T * H], or empty
  std::vector<float> logits;               // [T, V]
  std::vector<float> greedy;               // [greedy tokens, V]: what each was chosen from
  std::vector<float> mtp;                  // [T - 1, V], or empty
  std::vector<float> drafts;               // [drafts, V], or empty
};

// What run_trace needs room for.
backend::Capacity trace_capacity(std::span<const PromptReference> prompts);

Trace run_trace(backend::Prepared& prepared, const PromptReference& prompt);

}  // namespace fourfold::model
