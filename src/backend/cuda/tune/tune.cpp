#include "backend/cuda/tune/tune.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/cuda/tune/stage.h"
#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/glob.h"

namespace fourfold::backend::cuda {
namespace {

using Outputs = std::vector<std::vector<std::uint32_t>>;

constexpr unsigned bit(Stage stage) { return 1u << static_cast<unsigned>(stage); }

// Rows asked for by name whose kernel is chosen by another question.
bool is_chosen_elsewhere(const kernels::Machine& machine, const Question& question) {
  const auto* only = std::get_if<OnlyCall>(&question.call);
  if (only == nullptr) return false;
  const auto& rows = machine.rows(kernels::RowKind::step);
  const std::string_view kernel =
      rows[static_cast<std::size_t>(machine.find(kernels::RowKind::step, only->row).index)].kernel;
  return kernel.starts_with("dense_") || kernel == "attend" || kernel == "attend_prompt";
}

// The stages whose time an op's choice can change. Whether the shared expert goes along with the routed ones
// depends on their rows.
unsigned stages_of(const Question& question) {
  if (std::holds_alternative<moe_layer::Request>(question.call))
    return bit(Stage::shared_down) | bit(Stage::experts);
  return question.stages;
}

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

// Graphs timed in turn, so that a clock that drifts touches all alike.
class Race {
 public:
  explicit Race(Tunable& program) : program_(program) {}
  void add(std::unique_ptr<kernels::Recording> recording) { graphs_.push_back({std::move(recording), {}}); }
  // What takes twice the time of the fastest is timed once, after a warm-up, as is everything else.
  void run(int rounds) {
    double fastest = std::numeric_limits<double>::max();
    for (Graph& graph : graphs_) {
      program_.time(*graph.recording, 1);
      graph.samples = {program_.time(*graph.recording, 1)};
      fastest = std::min(fastest, graph.samples.front());
    }
    // A sample lasts a millisecond, against which reading the clock is nothing.
    const int replays = std::clamp(static_cast<int>(1000 / std::max(fastest, 1.0)), 1, 20);
    std::vector<bool> is_running;
    for (Graph& graph : graphs_) {
      is_running.push_back(graph.samples.front() < 2 * fastest);
      if (is_running.back()) graph.samples.clear();
    }
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < graphs_.size(); ++i)
        if (is_running[i]) graphs_[i].samples.push_back(program_.time(*graphs_[i].recording, replays));
    for (Graph& graph : graphs_) std::sort(graph.samples.begin(), graph.samples.end());
  }
  double median(std::size_t graph) const { return quantile(graphs_[graph].samples, 0.5); }
  double spread(std::size_t graph) const {
    const auto& samples = graphs_[graph].samples;
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / median(graph);
  }

 private:
  struct Graph {
    std::unique_ptr<kernels::Recording> recording;
    std::vector<double> samples;
  };
  Tunable& program_;
  std::vector<Graph> graphs_;
};

class Tuner {
 public:
  Tuner(Tunable& program, const Tuning& tuning, int tokens_from, const TuneOptions& options)
      : program_(program), tuning_(tuning), tokens_from_(tokens_from), options_(options) {}

  MeasuredOp measure(const Question& question, const Outputs& expected) {
    MeasuredOp op{question.op, question.shape, question.tokens, {}, 0, 0, 0};
    for (const Candidate& candidate : candidates_of(program_.machine(), question, program_.workspace_bytes()))
      op.candidates.push_back({candidate.form, 0, 0, candidate.refusal});
    std::vector<std::size_t> racing;
    Race race(program_);
    for (std::size_t i = 0; i < op.candidates.size(); ++i) {
      Measured& candidate = op.candidates[i];
      if (!candidate.refusal.empty()) continue;
      if (question.op == "only") continue;  // nothing to race against
      if (options_.is_over()) {
        candidate.refusal = "not timed: the time for tuning is over";
        continue;
      }
      use(question, i > 0 ? &candidate.form : nullptr);
      if (i > 0) candidate.refusal = difference(program_.outputs(), expected);
      if (!candidate.refusal.empty()) continue;
      if (!options_.times) continue;
      race.add(program_.record(stages_of(question)));
      racing.push_back(i);
    }
    if (!racing.empty()) {
      race.run(options_.rounds);
      for (std::size_t i = 0; i < racing.size(); ++i) {
        op.candidates[racing[i]].microseconds = race.median(i);
        op.candidates[racing[i]].spread = race.spread(i);
      }
      choose(question, op);
    }
    return op;
  }

 private:
  // The program with a form of its own for the question, beside what was chosen before; null: the default.
  void use(const Question& question, const TunedForm* form) {
    auto tuning = std::make_shared<Tuning>(tuning_);
    if (form != nullptr) tuning->add(choice_of(question, *form));
    program_.set_tuning(std::move(tuning));
  }
  TunedChoice choice_of(const Question& question, const TunedForm& form) const {
    return {question.op,
            question.shape,
            std::min(tokens_from_, question.tokens),
            question.tokens,
            form,
            0,
            {},
            0};
  }

  static std::string difference(const Outputs& found, const Outputs& expected) {
    check(found.size() == expected.size(), "a pass has the same outputs every time", found.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i] != expected[i]) {
        std::size_t count = 0;
        for (std::size_t at = 0; at < found[i].size(); ++at) count += found[i][at] != expected[i][at];
        return format("other bits: {} of {} numbers of output {}", count, found[i].size(), i);
      }
    return {};
  }

  // The fastest alone, if the whole step agrees.
  void choose(const Question& question, MeasuredOp& op) {
    const Measured& first = op.candidates.front();
    std::size_t best = 0;
    for (std::size_t i = 1; i < op.candidates.size(); ++i)
      if (op.candidates[i].microseconds > 0 &&
          op.candidates[i].microseconds < op.candidates[best].microseconds)
        best = i;
    if (best == 0) return;
    Measured& winner = op.candidates[best];
    if (winner.microseconds > (1 - std::max(options_.gain, first.spread)) * first.microseconds) {
      winner.refusal = "not taken: within the noise of the default";
      return;
    }
    Race steps(program_);
    for (const TunedForm* form : {static_cast<const TunedForm*>(nullptr), &std::as_const(winner.form)}) {
      use(question, form);
      steps.add(program_.record(~0u));
    }
    steps.run(2 * options_.rounds);
    op.step_before = steps.median(0);
    op.step_after = steps.median(1);
    if (op.step_after < op.step_before)
      op.chosen = best;
    else
      winner.refusal = "not taken: the whole step is not faster with it";
  }

  Tunable& program_;
  const Tuning& tuning_;
  int tokens_from_;
  const TuneOptions& options_;
};

}  // namespace

void tune(Prepared& prepared, int tokens_from, const TuneOptions& options, TuneResult& result) {
  auto* program = dynamic_cast<Tunable*>(&prepared);
  if (program == nullptr)
    fail(Code::invalid_request, "only a program on a GPU or on the simulator can be tuned");
  const auto give = [&] { program->set_tuning(std::make_shared<Tuning>(result.tuning)); };
  give();
  const std::vector<Question> questions = program->questions();
  const Outputs expected = program->outputs();
  for (const Question& question : questions) {
    const bool is_done = std::any_of(result.ops.begin(), result.ops.end(), [&](const MeasuredOp& op) {
      return op.op == question.op && op.shape == question.shape && op.tokens == question.tokens;
    });
    if (is_done || is_chosen_elsewhere(program->machine(), question)) continue;
    if (!glob_match(options.ops, question.op + " " + question.shape)) continue;
    MeasuredOp op = Tuner(*program, result.tuning, tokens_from, options).measure(question, expected);
    if (op.is_tuned()) {
      const Measured &winner = op.candidates[op.chosen], &first = op.candidates.front();
      result.tuning.add({op.op, op.shape, std::min(tokens_from, op.tokens), op.tokens, winner.form,
                         winner.microseconds, first.form, first.microseconds});
    }
    options.show(op);
    result.ops.push_back(std::move(op));
  }
  give();
}

std::vector<double> time_passes(Prepared& prepared, const std::vector<Tuning>& tunings, int rounds) {
  auto& program = dynamic_cast<Tunable&>(prepared);
  Race race(program);
  for (const Tuning& tuning : tunings) {
    program.set_tuning(std::make_shared<Tuning>(tuning));
    race.add(program.record(~0u));
  }
  race.run(rounds);
  std::vector<double> medians;
  for (std::size_t i = 0; i < tunings.size(); ++i) medians.push_back(race.median(i));
  return medians;
}

}  // namespace fourfold::backend::cuda
