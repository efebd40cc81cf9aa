#include "sample/params.h"

#include <cmath>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/sampling_limits.h"

namespace fourfold::sample {
namespace {

struct Range {
  double low, high;
  bool low_is_allowed = true;
};

void require(std::string_view name, double value, const Range& range) {
  // Written so that NaN fails.
  const bool above = range.low_is_allowed ? value >= range.low : value > range.low;
  if (above && value <= range.high) return;
  fail(Code::invalid_request, "{} is {}; it must be {} {} and at most {}", name, value,
       range.low_is_allowed ? "at least" : "more than", range.low, range.high);
}

void require_bias(const Params& params, std::int64_t vocab_size) {
  std::set<TokenId> seen;
  for (const LogitBias& entry : params.logit_bias) {
    if (entry.id < 0 || entry.id >= vocab_size)
      fail(Code::invalid_request, "logit_bias names token id {}; the vocabulary has {}", entry.id,
           vocab_size);
    if (!seen.insert(entry.id).second)
      fail(Code::invalid_request, "logit_bias names token id {} twice", entry.id);
    require("logit_bias", entry.bias, {-100, 100});
  }
}

}  // namespace

void require_valid(const Params& params, std::int64_t vocab_size) {
  require_bias(params, vocab_size);
  require("repetition_penalty", params.repetition_penalty, {kRepetitionPenaltyLeast, kRepetitionPenaltyMost});
  require("presence_penalty", params.presence_penalty, {-2, 2});
  require("frequency_penalty", params.frequency_penalty, {-2, 2});
  require("temperature", params.temperature, {0, kTemperatureMost});
  if (params.top_k < 0)
    fail(Code::invalid_request, "top_k is {}; it must be at least 0, where 0 keeps all tokens", params.top_k);
  require("top_p", params.top_p, {0, 1, false});
  require("min_p", params.min_p, {0, 1});
  if (params.logprob_count < 0 || params.logprob_count > kLogprobsMax)
    fail(Code::invalid_request, "logprobs is {}; it must be at least 0 and at most {}", params.logprob_count,
         kLogprobsMax);
}

}  // namespace fourfold::sample
