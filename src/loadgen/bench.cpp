#include "loadgen/bench.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "loadgen/arrivals.h"

namespace fourfold::loadgen {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kWarmupTokens = 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One cell: its requests, run as often as asked.
class CellRun {
 public:
  CellRun(const Target& target, const BenchOptions& options, const Cell& cell, std::uint64_t first_prompt,
          BenchProgress& progress, const std::function<void(const BenchProgress&)>& show)
      : target_(target),
        options_(options),
        cell_(cell),
        next_prompt_(first_prompt),
        progress_(progress),
        show_(show) {}

  Row run(Report& report) {
    Row row{.cell = cell_,
            .measures = {},
            .repeats = options_.repeat,
            .spread = {},
            .floor_per_s = {},
            .cost = {}};
    std::vector<std::vector<Timeline>> runs;
    send(make("warm-up", options_.warmup, std::min(kWarmupTokens, cell_.output)), "warm-up", false);
    const auto before = target_.draft_totals();
    for (std::int64_t i = 0; i < options_.repeat && !stopped(); ++i) {
      progress_.repeat = i;
      // Every repetition has prompts of its own, so that none finds the other's in a cache.
      runs.push_back(send(make("prompts", cell_.requests, cell_.output), "load", true));
    }
    row.measures = measure(runs, options_.limits);
    row.repeats = static_cast<std::int64_t>(runs.size());
    spread(runs, row);
    accept(before, row.measures);
    if (estimated_)
      report.notes.push_back(fourfold::format("{}: prompt lengths are estimated", cell_name(cell_)));
    if (options_.floor) {
      const auto answered = static_cast<double>(row.measures.requests - row.measures.failed);
      const double prompt = answered > 0 ? static_cast<double>(row.measures.prompt_tokens) / answered : 0;
      row.floor_per_s = options_.floor(cell_.users, prompt + static_cast<double>(cell_.output) / 2);
    }
    if (options_.cost) row.cost = cost_of(*options_.cost, row.measures.output_per_s);
    return row;
  }
  std::uint64_t next_prompt() const { return next_prompt_; }

 private:
  bool stopped() const { return options_.stop && options_.stop(); }

  std::vector<std::string> make(const char* stage, std::int64_t count, std::int64_t output) {
    std::vector<std::string> requests;
    progress_.stage = stage;
    progress_.load = {.count = static_cast<std::size_t>(count)};
    for (std::int64_t i = 0; i < count && !stopped(); ++i, ++next_prompt_) {
      const SizedPrompt prompt = target_.prompt(cell_.prompts, options_.seed, next_prompt_, cell_.context);
      estimated_ |= cell_.context > 0 && !prompt.tokens;
      requests.push_back(target_.request(
          {.prompt = prompt.text, .output = output, .thinking = cell_.thinking, .seed = next_prompt_}));
      progress_.load.done = requests.size();
      if (show_) show_(progress_);
    }
    return requests;
  }

  std::vector<Timeline> send(const std::vector<std::string>& requests, const char* stage, bool by_rate) {
    progress_.stage = stage;
    DriveOptions drive_options{.url = target_.options().url,
                               .concurrency = static_cast<std::size_t>(cell_.users),
                               .arrivals = {},
                               .timeout_s = target_.options().timeout_s,
                               .clock = {},
                               .stop = options_.stop,
                               .show = {}};
    if (by_rate && cell_.rate)
      drive_options.arrivals = arrivals(static_cast<std::int64_t>(requests.size()), *cell_.rate,
                                        options_.burstiness, options_.seed);
    const auto start = Clock::now();
    drive_options.show = [&](const Progress& load) {
      progress_.load = load;
      progress_.seconds = seconds_since(start);
      if (show_) show_(progress_);
    };
    return drive(drive_options, requests);
  }

  void spread(const std::vector<std::vector<Timeline>>& runs, Row& row) const {
    std::vector<double> rates, firsts, tokens;
    for (const auto& one : runs) {
      const Measures measures = measure({&one, 1}, {});
      rates.push_back(measures.output_per_s);
      firsts.push_back(measures.ttft_ms.p50);
      tokens.push_back(measures.tpot_ms.p50);
    }
    row.spread = {variation(rates), variation(firsts), variation(tokens)};
  }

  // Where no answer says what its drafts did, the server's counters may.
  void accept(const std::optional<DraftTotals>& before, Measures& measures) const {
    if (measures.acceptance_length || !before) return;
    const auto after = target_.draft_totals();
    if (!after || after->steps <= before->steps) return;
    measures.acceptance_length = 1 + (after->accepted - before->accepted) / (after->steps - before->steps);
  }

  const Target& target_;
  const BenchOptions& options_;
  const Cell& cell_;
  std::uint64_t next_prompt_;
  BenchProgress& progress_;
  const std::function<void(const BenchProgress&)>& show_;
  bool estimated_ = false;
};

void add_notes(const Target& target, Report& report) {
  bool thinks = false, by_chunks = false, is_random = false, has_drafts = false, is_short = false;
  for (const Row& row : report.rows) {
    thinks |= row.cell.thinking.value_or(false);
    by_chunks |= row.measures.counted_by_chunks;
    is_random |= row.cell.prompts == PromptKind::random;
    has_drafts |= row.measures.acceptance_length.value_or(1) > 1;
    // More than a tenth fewer than were asked for.
    const std::int64_t asked = (row.measures.requests - row.measures.failed) * row.cell.output;
    is_short |= 10 * row.measures.output_tokens < 9 * asked;
  }
  for (const std::string& note : target.notes()) report.notes.push_back(note);
  if (by_chunks) report.notes.push_back("tokens were counted as chunks: with drafts these are too few");
  if (thinks)
    report.notes.push_back(
        "thinking about a short prompt is trivial text that MTP drafts easily: its tok/s is higher than "
        "any real task's; compare servers by natural prompts with thinking off");
  if (is_random && has_drafts)
    report.notes.push_back("acceptance on random words says nothing about drafts on real text");
  if (is_short)
    report.notes.push_back("answers ended before their length (the model stopped): rates are of what came");
}

}  // namespace

Report run_bench(const Target& target, const BenchOptions& options,
                 const std::function<void(const BenchProgress&)>& show) {
  if (options.repeat < 1) fail(Code::invalid_request, "--repeat is {}; 1 or more", options.repeat);
  Report report;
  BenchProgress progress{.cell_count = options.cells.size(), .cell = {}, .stage = {}, .load = {}};
  const auto start = Clock::now();
  Bounds bounds = options.bounds;
  if (!bounds.positions) bounds.positions = target.context_limit();
  std::uint64_t next_prompt = 0;
  for (const Cell& cell : options.cells) {
    std::string why = why_skipped(cell, bounds);
    if (why.empty() && options.stop && options.stop()) why = "stopped by the user";
    if (why.empty() && options.time_limit_s && seconds_since(start) > *options.time_limit_s)
      why = fourfold::format("the time limit of {} s is over", *options.time_limit_s);
    progress.cell = cell_name(cell);
    if (why.empty()) {
      CellRun run(target, options, cell, next_prompt, progress, show);
      report.rows.push_back(run.run(report));
      next_prompt = run.next_prompt();
    } else {
      report.skipped.push_back(fourfold::format("{}: {}: {}", cell.table, progress.cell, why));
    }
    ++progress.cell_index;
  }
  add_notes(target, report);
  return report;
}

}  // namespace fourfold::loadgen
