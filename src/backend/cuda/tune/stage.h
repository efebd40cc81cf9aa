// The stages of a pass: what is timed apart, and what a question about a row belongs to.
#pragma once

#include <string_view>

namespace fourfold::backend::cuda {

enum class Stage : unsigned {
  embed,
  delta_in,   // norm and projections
  delta,      // convolution, delta rule, gated norm
  delta_out,  // projection and residual
  attention_in,
  attention,
  attention_out,
  router,       // norm, router, gate and up of the shared expert
  shared_down,  // and residual
  experts,      // routing, both GEMMs, combine, residual
  mlp,          // of dense models
  head,
  choice,      // of tokens
  all_reduce,  // and gather, of several ranks
  count,
};
constexpr std::string_view stage_name(Stage stage) {
  constexpr std::string_view names[] = {"embed",     "delta in",      "delta",  "delta out",   "attention in",
                                        "attention", "attention out", "router", "shared down", "experts",
                                        "dense MLP", "head",          "choice", "all-reduce"};
  return names[static_cast<unsigned>(stage)];
}

}  // namespace fourfold::backend::cuda
