#include "loadgen/measures.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fourfold::loadgen {
namespace {

constexpr double kMs = 1e3;

struct Samples {
  std::vector<double> ttft, tpot, itl, e2el, answer, user_rates;
  std::int64_t good = 0, chunks = 0, accepted = 0, tokens_with_drafts = 0;
  bool has_drafts = false;
};

bool meets(const Limits& limits, double ttft, std::optional<double> tpot, double e2el) {
  return (!limits.ttft_ms || ttft <= *limits.ttft_ms) &&
         (!limits.tpot_ms || !tpot || *tpot <= *limits.tpot_ms) &&
         (!limits.e2el_ms || e2el <= *limits.e2el_ms);
}

void add(const Timeline& line, const Limits& limits, Measures& measures, Samples& samples) {
  const std::int64_t chunks = static_cast<std::int64_t>(line.chunks.size());
  const std::int64_t tokens = line.output_tokens.value_or(chunks);
  measures.counted_by_chunks |= !line.output_tokens;
  measures.output_tokens += tokens;
  measures.reasoning_tokens += line.reasoning_tokens.value_or(0);
  measures.cached_tokens += line.cached_tokens.value_or(0);
  if (line.prompt_tokens) {
    measures.prompt_tokens += *line.prompt_tokens;
    measures.prompt_least = std::min(measures.prompt_least, *line.prompt_tokens);
    measures.prompt_most = std::max(measures.prompt_most, *line.prompt_tokens);
  }
  const double ttft = kMs * (line.chunks.front() - line.sent);
  const double e2el = kMs * (line.last - line.sent);
  std::optional<double> tpot;
  if (tokens > 1) tpot = (e2el - ttft) / static_cast<double>(tokens - 1);
  samples.ttft.push_back(ttft);
  samples.e2el.push_back(e2el);
  if (tpot) samples.tpot.push_back(*tpot);
  if (tpot && *tpot > 0) samples.user_rates.push_back(kMs / *tpot);
  for (std::size_t i = 1; i < line.chunks.size(); ++i)
    samples.itl.push_back(kMs * (line.chunks[i] - line.chunks[i - 1]));
  if (line.first_answer) samples.answer.push_back(kMs * (*line.first_answer - line.sent));
  samples.good += meets(limits, ttft, tpot, e2el);
  samples.chunks += chunks;
  if (line.accepted_tokens) {
    samples.has_drafts = true;
    samples.accepted += *line.accepted_tokens;
    samples.tokens_with_drafts += tokens;
  }
}

// From the first request sent to the last token of an answered one.
double duration(const std::vector<Timeline>& run) {
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const Timeline& line : run) {
    first = std::min(first, line.sent);
    if (!line.failed()) last = std::max(last, line.last);
  }
  return std::max(0.0, last - first);
}

}  // namespace

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  summary.count = static_cast<std::int64_t>(values.size());
  for (const double value : values) summary.mean += value / static_cast<double>(values.size());
  summary.p50 = percentile(values, 0.50);
  summary.p90 = percentile(values, 0.90);
  summary.p99 = percentile(values, 0.99);
  summary.max = values.back();
  return summary;
}

Measures measure(std::span<const std::vector<Timeline>> runs, const Limits& limits) {
  Measures measures;
  Samples samples;
  measures.prompt_least = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<Timeline>& run : runs) {
    measures.seconds += duration(run);
    for (const Timeline& line : run) {
      ++measures.requests;
      if (!line.failed()) {
        add(line, limits, measures, samples);
        continue;
      }
      ++measures.failed;
      ++measures.failures[line.failure];
    }
  }
  if (measures.prompt_most == 0) measures.prompt_least = 0;
  const auto answered = static_cast<double>(measures.requests - measures.failed);
  if (measures.seconds > 0) {
    measures.output_per_s = static_cast<double>(measures.output_tokens) / measures.seconds;
    measures.requests_per_s = answered / measures.seconds;
    if (limits.any()) measures.goodput_per_s = static_cast<double>(samples.good) / measures.seconds;
  } else if (limits.any()) {
    measures.goodput_per_s = 0.0;
  }
  if (samples.chunks > 0)
    measures.tokens_per_chunk =
        static_cast<double>(measures.output_tokens) / static_cast<double>(samples.chunks);
  // Every token is either an accepted draft or a step's own.
  if (samples.has_drafts && samples.tokens_with_drafts > samples.accepted)
    measures.acceptance_length = static_cast<double>(samples.tokens_with_drafts) /
                                 static_cast<double>(samples.tokens_with_drafts - samples.accepted);
  measures.user_per_s = summarize(std::move(samples.user_rates)).p50;
  measures.ttft_ms = summarize(std::move(samples.ttft));
  measures.tpot_ms = summarize(std::move(samples.tpot));
  measures.itl_ms = summarize(std::move(samples.itl));
  measures.e2el_ms = summarize(std::move(samples.e2el));
  measures.answer_ms = summarize(std::move(samples.answer));
  return measures;
}

std::optional<double> variation(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  if (mean == 0) return std::nullopt;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1)) / std::abs(mean);
}

}  // namespace fourfold::loadgen
