// From timelines to the numbers people compare. Definitions (docs/bench.md):
//   TTFT    request sent to first chunk with text, thinking or answer
//   TPOT    (E2EL - TTFT) / (output tokens - 1)
//   ITL     gap between two chunks with text; with drafts a chunk holds several tokens, so ITL is not TPOT
//   E2EL    request sent to the chunk of the last token
//   goodput requests that meet every limit, a second
// Output tokens are those of thinking and answer, never of the prompt.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loadgen/timeline.h"

namespace fourfold::loadgen {

// Percentiles lie between the two nearest values in proportion, as numpy's default does.
struct Summary {
  std::int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Summary summarize(std::vector<double> values);
double percentile(const std::vector<double>& sorted, double share);

// Limits of a good request; those not given do not count.
struct Limits {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

struct Measures {
  std::int64_t requests = 0;  // with the failed ones
  std::int64_t failed = 0;
  std::map<std::string, std::int64_t> failures;  // by name

  double seconds = 0;  // first request sent to last token, summed over runs
  std::int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, reasoning_tokens = 0;
  std::int64_t prompt_least = 0, prompt_most = 0;  // tokens of the shortest and longest prompt
  bool counted_by_chunks = false;                  // a server sent no usage: chunks were taken for tokens

  Summary ttft_ms, tpot_ms, itl_ms, e2el_ms;
  Summary answer_ms;  // request sent to the first chunk that is not thinking

  double output_per_s = 0;    // output tokens of all users, a second
  double user_per_s = 0;      // 1 / TPOT of a request, the median
  double requests_per_s = 0;  // answered
  std::optional<double> goodput_per_s;
  double tokens_per_chunk = 0;
  std::optional<double> acceptance_length;  // tokens a step of the model, 1 without drafts
};

// One inner vector a run of the same load; runs follow each other, their durations are summed.
Measures measure(std::span<const std::vector<Timeline>> runs, const Limits& limits);

// Standard deviation of the runs over their mean; nothing for fewer than two.
std::optional<double> variation(std::span<const double> values);

}  // namespace fourfold::loadgen
