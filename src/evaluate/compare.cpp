#include "evaluate/compare.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "backend/reference/reference.h"
#include "base/check.h"
#include "base/error.h"
#include "evaluate/input_noise.h"
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
double gap_of(std::span<const float> row) {
  if (row.size() < 2) return 0;
  std::vector<float> sorted(row.begin(), row.end());
  std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
  return static_cast<double>(sorted[0]) - sorted[1];
}

void add_prompt(Comparison& out, const Trace& trace, const PromptReference& prompt,
                const Bounds::Prompt& bounds, std::size_t vocab) {
  for (const Kind& kind : kinds_of(trace, prompt)) {
    const Bounds::Kind bound = bound_of(bounds, kind.what);
    const Difference found = difference(kind.ours, kind.theirs, kind.columns);
    out.numbers.push_back(
        {prompt.name, kind.what, found.largest, found.typical, bound.largest, bound.typical});
  }
  out.tokens.push_back(compare_tokens("greedy", prompt, trace.greedy, prompt.greedy_ids, bounds.greedy_rows,
                                      [&](std::size_t i) { return prompt.greedy_gap[i]; }));
  if (trace.drafts.empty()) return;
  out.tokens.push_back(
      compare_tokens("drafts", prompt, trace.drafts, prompt.draft_ids, bounds.draft_rows,
                     [&](std::size_t i) { return gap_of(prompt.draft_logits.subspan(i * vocab, vocab)); }));
}

}  // namespace

bool Comparison::fine() const {
  return std::all_of(numbers.begin(), numbers.end(), [](const auto& item) { return item.fine(); }) &&
         std::all_of(tokens.begin(), tokens.end(), [](const auto& item) { return item.fine(); });
}

Bounds::Bounds(const backend::Program& program, const ReferenceFile& reference,
               const backend::Capacity& capacity) {
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
  if (noise_bf16 > 0 || noise_nvfp4 > 0 || noise_fp8 > 0 || noise_kv > 0)
    derive(program, reference, capacity);
}

// On the reference backend; see the header.
void Bounds::derive(const backend::Program& program, const ReferenceFile& reference,
                    const backend::Capacity& capacity) {
  const auto prompts = reference.prompts();
  std::vector<Trace> clean;
  for (int run = 0; run <= kNoiseRuns; ++run) {
    backend::Program exact = program;
    for (backend::MatrixUse& use : exact.matrices) use.input = backend::InputFormat::f32;
    for (backend::KvCache& cache : exact.kv_caches) cache.format = backend::KvFormat::f32;
    const NoisyProgram noisy(program, static_cast<std::uint64_t>(run));
    const auto prepared = backend::ReferenceBackend().prepare(run == 0 ? exact : noisy.program(), capacity);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Trace trace = run_trace(*prepared, prompts[i]);
      if (run == 0)
        clean.push_back(std::move(trace));
      else
        raise(prompts_[i], trace, clean[i], prompts[i], static_cast<std::size_t>(program.vocab_size));
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
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Trace trace = run_trace(prepared, prompts[i]);
    out.hidden_compared = !trace.hidden.empty();
    out.mtp_compared = out.mtp_compared || !trace.drafts.empty();
    add_prompt(out, trace, prompts[i], bounds.of(i), static_cast<std::size_t>(prepared.program().vocab_size));
  }
  return out;
}

}  // namespace fourfold::evaluate
