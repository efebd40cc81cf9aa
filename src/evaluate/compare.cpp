#include "evaluate/compare.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <list>
#include <optional>

#include "backend/reference/reference.h"
#include "base/check.h"
#include "base/error.h"
#include "evaluate/input_noise.h"
#include "evaluate/router_ties.h"
#include "evaluate/trace.h"

namespace fourfold::evaluate {
namespace {

struct Difference {
  double largest = 0;
  double typical = 0;
};

// The larger of two numbers that are not negative; a NaN on either side is the larger.
double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

Difference difference(std::span<const float> ours, std::span<const float> theirs, std::size_t columns) {
  check(ours.size() == theirs.size(), "both sides have the same numbers", ours.size(), theirs.size());
  Difference out;
  std::vector<double> rows;
  for (std::size_t row = 0; row < ours.size(); row += columns) {
    double squares = 0;
    for (std::size_t i = row; i < row + columns; ++i) {
      const double off = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
      out.largest = larger(out.largest, off);
      squares += off * off;
    }
    rows.push_back(std::sqrt(squares / static_cast<double>(columns)));
  }
  if (rows.empty()) return out;
  // A row that is no number cannot be ranked, and is not typical of anything right.
  if (std::any_of(rows.begin(), rows.end(), [](double row) { return std::isnan(row); })) {
    out.typical = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
  std::nth_element(rows.begin(), middle, rows.end());
  out.typical = *middle;
  return out;
}

// The numbers of a trace by kind, and where the reference has them.
struct Kind {
  std::string what;
  std::span<const float> ours;
  std::span<const float> theirs;
  std::size_t columns;
};

std::vector<Kind> kinds_of(const Trace& trace, const PromptReference& prompt) {
  const std::size_t vocab = prompt.logits.size() / prompt.rows.size();
  const std::size_t width = prompt.final_norm.size() / prompt.rows.size();
  std::vector<Kind> kinds{{"logits", trace.logits, prompt.logits, vocab}};
  std::size_t at = 0;
  for (std::size_t i = 0; i < trace.hidden.size(); ++i) {
    const std::vector<float>& layer = trace.hidden[i];
    kinds.push_back({i == 0 ? "embedding" : fourfold::format("layer {}", i - 1), layer,
                     prompt.hidden.subspan(at, layer.size()), width});
    at += layer.size();
  }
  if (!trace.final_norm.empty()) kinds.push_back({"final norm", trace.final_norm, prompt.final_norm, width});
  if (!prompt.greedy_logits.empty())
    kinds.push_back({"greedy logits", trace.greedy, prompt.greedy_logits, vocab});
  if (!trace.drafts.empty()) {
    kinds.push_back({"mtp logits", trace.mtp, prompt.mtp_logits, vocab});
    kinds.push_back({"draft logits", trace.drafts, prompt.draft_logits, vocab});
  }
  return kinds;
}

// Largest difference in each row of `columns`.
std::vector<double> row_differences(std::span<const float> ours, std::span<const float> theirs,
                                    std::size_t columns) {
  std::vector<double> rows;
  for (std::size_t at = 0; at < ours.size(); at += columns)
    rows.push_back(difference(ours.subspan(at, columns), theirs.subspan(at, columns), columns).largest);
  return rows;
}

// What f32 leaves open, where no format rounds; numbers that no rounding reaches have it in any format.
Bounds::Kind exact(const std::string& what) { return {what, kExactBound, kExactBound}; }

Bounds::Kind bound_of(const Bounds::Prompt& bounds, const std::string& what) {
  // By name: a backend may keep fewer kinds of numbers than the reference backend did.
  for (const Bounds::Kind& kind : bounds.kinds)
    if (kind.what == what) return kind;
  check(bounds.kinds.empty(), "the noisy runs had every kind of number", std::string_view(what));
  return exact(what);
}

void raise(std::vector<double>& to, const std::vector<double>& from) {
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], kLargestFactor * from[i]);
}

// What one noisy run showed.
void raise(Bounds::Prompt& bounds, const Trace& noisy, const Trace& clean, const PromptReference& prompt,
           std::size_t vocab) {
  const std::vector<Kind> with = kinds_of(noisy, prompt);
  const std::vector<Kind> without = kinds_of(clean, prompt);
  for (std::size_t i = 0; i < with.size(); ++i) {
    if (bounds.kinds.size() == i) bounds.kinds.push_back(exact(with[i].what));
    const Difference seen = difference(with[i].ours, without[i].ours, with[i].columns);
    Bounds::Kind& bound = bounds.kinds[i];
    bound.largest = std::max(bound.largest, kLargestFactor * seen.largest);
    bound.typical = std::max(bound.typical, kTypicalFactor * seen.typical);
  }
  raise(bounds.greedy_rows, row_differences(noisy.greedy, clean.greedy, vocab));
  raise(bounds.draft_rows, row_differences(noisy.drafts, clean.drafts, vocab));
}

TokenDifference compare_tokens(std::string what, const PromptReference& prompt, std::span<const float> logits,
                               std::span<const std::int32_t> wanted, const std::vector<double>& row_bounds,
                               const std::function<double(std::size_t)>& gap) {
  TokenDifference out{prompt.name, std::move(what)};
  const std::size_t columns = logits.size() / std::max<std::size_t>(1, wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto row = logits.subspan(i * columns, columns);
    ++out.count;
    // Nothing can be chosen from a row that holds no number somewhere: not the same, and not undecided.
    if (std::any_of(row.begin(), row.end(), [](float x) { return std::isnan(x); })) continue;
    const auto best = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    if (best == wanted[i])
      ++out.same;
    else if (gap(i) <= 2 * row_bounds[i])
      ++out.undecided;
  }
  return out;
}

// Best minus second of a row.
float gap_of(std::span<const float> row) {
  if (row.size() < 2) return 0;
  std::vector<float> sorted(row.begin(), row.end());
  std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
  return sorted[0] - sorted[1];
}

// What one prompt adds to a comparison.
Comparison judge(const Trace& trace, const PromptReference& prompt, const Bounds::Prompt& bounds,
                 std::size_t vocab) {
  Comparison out;
  for (const Kind& kind : kinds_of(trace, prompt)) {
    const Bounds::Kind bound = bound_of(bounds, kind.what);
    const Difference found = difference(kind.ours, kind.theirs, kind.columns);
    out.numbers.push_back(
        {prompt.name, kind.what, found.largest, found.typical, bound.largest, bound.typical});
  }
  out.tokens.push_back(compare_tokens("greedy", prompt, trace.greedy, prompt.greedy_ids, bounds.greedy_rows,
                                      [&](std::size_t i) { return prompt.greedy_gap[i]; }));
  if (trace.drafts.empty()) return out;
  out.tokens.push_back(
      compare_tokens("drafts", prompt, trace.drafts, prompt.draft_ids, bounds.draft_rows,
                     [&](std::size_t i) { return gap_of(prompt.draft_logits.subspan(i * vocab, vocab)); }));
  return out;
}

// A prompt's numbers had its routers chosen otherwise: the file's own, moved by what that does to the
// reference backend's. Tokens are those the moved logits choose.
class TurnedReference {
 public:
  TurnedReference(const PromptReference& prompt, const Trace& clean, const Trace& turned) : prompt_(prompt) {
    std::vector<float> was, is;
    for (const std::vector<float>& layer : clean.hidden) was.insert(was.end(), layer.begin(), layer.end());
    for (const std::vector<float>& layer : turned.hidden) is.insert(is.end(), layer.begin(), layer.end());
    move(prompt_.hidden, was, is);
    move(prompt_.logits, clean.logits, turned.logits);
    move(prompt_.final_norm, clean.final_norm, turned.final_norm);
    move(prompt_.greedy_logits, clean.greedy, turned.greedy);
    move(prompt_.mtp_logits, clean.mtp, turned.mtp);
    move(prompt_.draft_logits, clean.drafts, turned.drafts);
    choose(turned.greedy, prompt_.greedy_ids, &gaps_);
    choose(turned.drafts, prompt_.draft_ids, nullptr);
    prompt_.greedy_gap = gaps_;
  }
  TurnedReference(const TurnedReference&) = delete;  // the prompt points into this
  TurnedReference& operator=(const TurnedReference&) = delete;
  const PromptReference& prompt() const { return prompt_; }

 private:
  void move(std::span<const float>& numbers, std::span<const float> was, std::span<const float> is) {
    if (numbers.empty() || was.empty()) return;  // the file has MTP and the model has not
    check(numbers.size() == was.size() && was.size() == is.size(), "all have the same numbers",
          numbers.size(), was.size());
    std::vector<float>& moved = moved_.emplace_back(numbers.begin(), numbers.end());
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += is[i] - was[i];
    numbers = moved;
  }
  static void choose(std::span<const float> logits, std::vector<std::int32_t>& ids,
                     std::vector<float>* gaps) {
    const std::size_t columns = logits.size() / std::max<std::size_t>(1, ids.size());
    for (std::size_t i = 0; i < ids.size() && columns > 0; ++i) {
      const auto row = logits.subspan(i * columns, columns);
      ids[i] = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      if (gaps != nullptr) gaps->push_back(gap_of(row));
    }
  }

  PromptReference prompt_;
  std::list<std::vector<float>> moved_;
  std::vector<float> gaps_;
};

// How far a trace is from a reference, all kinds of numbers alike, in units of their bounds.
double distance(const Trace& trace, const PromptReference& prompt, const Bounds::Prompt& bounds) {
  double sum = 0;
  for (const Kind& kind : kinds_of(trace, prompt)) {
    if (kind.ours.empty()) continue;
    double squares = 0;
    for (std::size_t i = 0; i < kind.ours.size(); ++i) {
      const double off = static_cast<double>(kind.ours[i]) - static_cast<double>(kind.theirs[i]);
      squares += off * off;
    }
    const double unit = bound_of(bounds, kind.what).typical;
    sum += squares / static_cast<double>(kind.ours.size()) / (unit * unit);
  }
  return sum;
}

// The first layer's output that lies beyond its bound: what led there was chosen before it was written.
std::int32_t first_beyond(const Comparison& found, const Trace& trace, const backend::Program& program) {
  if (trace.hidden.size() == program.layer_outputs.size())
    for (std::size_t i = 0; i < trace.hidden.size(); ++i)
      if (!found.numbers[1 + i].fine()) return program.layer_outputs[i].index;  // behind the logits
  return std::numeric_limits<std::int32_t>::max();
}

// The judgement with ties turned that bring the trace within its bounds; `plain`, that without, where none
// do.
Comparison judge_turned(const Trace& trace, const PromptReference& prompt, const Bounds& all,
                        const Bounds::Prompt& bounds, std::size_t vocab, const Comparison& plain) {
  double nearest = distance(trace, prompt, bounds);
  // In f32 no input is off by anything; and what is no number comes no nearer.
  if (bounds.kinds.empty() || std::isnan(nearest) || all.program().expert_sets.empty()) return plain;
  const auto run = [&](const HeldChoices& turned) {
    return run_reference(all.exact(), all.capacity(), prompt, turned);
  };
  ReferenceRun now = run({});
  const Trace clean = now.trace;
  Comparison found = plain;
  std::vector<TurnedChoice> turns;
  HeldChoices turned;
  while (turns.size() < kTurnsMax) {
    std::optional<RouterTie> best;
    const double before = nearest;
    const std::int32_t beyond = first_beyond(found, trace, all.program());
    const std::vector<RouterTie> ties = find_ties(all.program(), all.capacity(), prompt, now);
    for (const RouterTie& tie : ties) {
      HeldChoices with = turned;
      if (tie.logits.index > beyond || !with.emplace(tie.choice, tie.experts).second) continue;
      ReferenceRun other = run(with);
      const double away = distance(trace, TurnedReference(prompt, clean, other.trace).prompt(), bounds);
      if (!(away < nearest)) continue;
      nearest = away;
      now = std::move(other);
      best = tie;
    }
    // If so few turns were the cause, the best of them would take its share of the way.
    if (!best || nearest > before * (1 - 1.0 / kTurnsMax)) break;
    turned[best->choice] = best->experts;
    turns.push_back({prompt.name, std::move(*best)});
    found = judge(trace, TurnedReference(prompt, clean, now.trace).prompt(), bounds, vocab);
    if (!found.fine()) continue;
    found.turned = std::move(turns);
    return found;
  }
  return plain;
}

template <typename Item>
void append(std::vector<Item>& to, std::vector<Item> from) {
  std::ranges::move(from, std::back_inserter(to));
}

}  // namespace

bool Comparison::fine() const {
  return std::all_of(numbers.begin(), numbers.end(), [](const auto& item) { return item.fine(); }) &&
         std::all_of(tokens.begin(), tokens.end(), [](const auto& item) { return item.fine(); });
}

Bounds::Bounds(const backend::Program& program, const ReferenceFile& reference,
               const backend::Capacity& capacity)
    : program_(program), exact_(program), capacity_(capacity) {
  for (backend::MatrixUse& use : exact_.matrices) use.input = backend::InputFormat::f32;
  for (backend::KvCache& cache : exact_.kv_caches) cache.format = backend::KvFormat::f32;
  for (const backend::MatrixUse& use : program.matrices) {
    if (use.input == backend::InputFormat::bf16) noise_bf16 = relative_input_noise(use.input);
    if (backend::quantises(use.input)) noise_nvfp4 = relative_input_noise(use.input);
    if (use.input == backend::InputFormat::fp8_prefill) noise_fp8 = relative_input_noise(use.input);
  }
  for (const backend::KvCache& cache : program.kv_caches)
    noise_kv = std::max(noise_kv, relative_kv_noise(cache.format));
  for (const PromptReference& prompt : reference.prompts())
    prompts_.push_back({{},
                        std::vector<double>(prompt.greedy_ids.size(), kExactBound),
                        std::vector<double>(prompt.draft_ids.size(), kExactBound)});
  if (noise_bf16 > 0 || noise_nvfp4 > 0 || noise_fp8 > 0 || noise_kv > 0) derive(reference);
}

// On the reference backend; see the header.
void Bounds::derive(const ReferenceFile& reference) {
  const auto prompts = reference.prompts();
  std::vector<Trace> clean;
  for (int run = 0; run <= kNoiseRuns; ++run) {
    const NoisyProgram noisy(program_, static_cast<std::uint64_t>(run));
    const auto prepared = backend::ReferenceBackend().prepare(run == 0 ? exact_ : noisy.program(), capacity_);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Trace trace = run_trace(*prepared, prompts[i]);
      if (run == 0)
        clean.push_back(std::move(trace));
      else
        raise(prompts_[i], trace, clean[i], prompts[i], static_cast<std::size_t>(program_.vocab_size));
    }
  }
}

Comparison compare(backend::Prepared& prepared, const ReferenceFile& reference) {
  return compare(prepared, prepared.program(), reference);
}

Comparison compare(backend::Prepared& prepared, const backend::Program& program,
                   const ReferenceFile& reference) {
  return compare(prepared, reference, Bounds(program, reference, prepared.capacity()));
}

Comparison compare(backend::Prepared& prepared, const ReferenceFile& reference, const Bounds& bounds) {
  Comparison out;
  out.noise_bf16 = bounds.noise_bf16;
  out.noise_nvfp4 = bounds.noise_nvfp4;
  out.noise_fp8 = bounds.noise_fp8;
  out.noise_kv = bounds.noise_kv;
  const auto prompts = reference.prompts();
  const auto vocab = static_cast<std::size_t>(prepared.program().vocab_size);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Trace trace = run_trace(prepared, prompts[i]);
    out.hidden_compared = !trace.hidden.empty();
    out.mtp_compared = out.mtp_compared || !trace.drafts.empty();
    Comparison found = judge(trace, prompts[i], bounds.of(i), vocab);
    if (!found.fine()) found = judge_turned(trace, prompts[i], bounds, bounds.of(i), vocab, found);
    append(out.numbers, std::move(found.numbers));
    append(out.tokens, std::move(found.tokens));
    append(out.turned, std::move(found.turned));
  }
  return out;
}

}  // namespace fourfold::evaluate
