#include "sample/logprobs.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "base/check.h"
#include "base/log_softmax.h"
#include "sample/logits.h"

namespace fourfold::sample {
namespace {

// A thread is worth starting for this many logits, which take it some milliseconds.
constexpr std::size_t kLogitsEach = std::size_t{1} << 20;
constexpr std::size_t kThreadsMost = 16;

// How many rank before it, and itself.
std::int64_t rank_of(std::span<const float> logits, TokenId id) {
  const auto place = static_cast<std::size_t>(id);
  const float own = logits[place];
  const auto at_least = [&](float x) { return x >= own; };
  const auto more = [&](float x) { return x > own; };
  return 1 + std::ranges::count_if(logits.first(place), at_least) +
         std::ranges::count_if(logits.subspan(place + 1), more);
}

}  // namespace

Logprobs measure_logprobs(std::span<const float> logits, TokenId chosen, int count,
                          std::int64_t token_limit) {
  const double normalizer = log_normalizer(logits);
  const auto logprob = [&](float logit) { return static_cast<double>(logit) - normalizer; };
  Logprobs out{{chosen, logprob(logits[static_cast<std::size_t>(chosen)])}, {}, rank_of(logits, chosen)};
  const auto named = logits.first(static_cast<std::size_t>(token_limit));
  for (const Scored& token : best_tokens(named, static_cast<std::size_t>(count)))
    out.best.push_back({token.id, logprob(token.score)});
  return out;
}

std::vector<Logprobs> measure_rows(std::span<const float> logits, std::span<const TokenId> tokens, int count,
                                   std::int64_t token_limit) {
  std::vector<Logprobs> out(tokens.size());
  if (tokens.empty()) return out;
  const std::size_t vocab = logits.size() / tokens.size();
  check(vocab * tokens.size() == logits.size(), "every token has a row", logits.size(), tokens.size());
  const std::size_t thread_count =
      std::clamp<std::size_t>(logits.size() / kLogitsEach, 1,
                              std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kThreadsMost));
  std::vector<std::exception_ptr> faults(thread_count);
  const auto measure = [&](std::size_t thread) {
    try {
      for (std::size_t row = thread; row < tokens.size(); row += thread_count) {
        const auto own = logits.subspan(row * vocab, vocab);
        require_finite(own);
        out[row] = measure_logprobs(own, tokens[row], count, token_limit);
      }
    } catch (...) {
      faults[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t thread = 1; thread < thread_count; ++thread) helpers.emplace_back(measure, thread);
    measure(0);
  }
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
  return out;
}

}  // namespace fourfold::sample
