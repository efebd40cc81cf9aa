// Times what could run the ops of a pass, on the machine and the weights at hand. A candidate must first give
// the default's bits in every layer; then it is timed alone, in all layers of the pass, as one graph; and it
// is chosen only if the whole step is faster with it. The layers' weights are far larger than the L2, so each
// comes from memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/tune/candidates.h"

namespace fourfold::backend::cuda {

// What tuning needs of a prepared program; all about the last main pass it ran.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual kernels::Machine& machine() = 0;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void set_tuning(std::shared_ptr<const Tuning> tuning) = 0;
  virtual std::vector<Question> questions() = 0;
  // The bits of the residual stream after the layers and of the logits, from memory that held nothing.
  virtual std::vector<std::vector<std::uint32_t>> outputs() = 0;
  // Stages of the pass (bit i: Stage i) as a graph.
  virtual std::unique_ptr<kernels::Recording> record(unsigned stages) = 0;
  // Microseconds of a replay, of so many in a row.
  virtual double time(kernels::Recording& recording, int replays) = 0;
};

struct Measured {
  TunedForm form;
  double microseconds = 0;  // of the op in all layers; 0: not timed
  double spread = 0;        // between the quartiles, of the median
  std::string refusal;      // why it was not timed or not taken; empty: it could be
};

struct MeasuredOp {
  std::string op, shape;
  int tokens = 1;
  std::vector<Measured> candidates;  // the default first
  std::size_t chosen = 0;
  double step_before = 0,
         step_after = 0;  // microseconds of the whole pass, where another than the default won
  bool is_tuned() const { return chosen != 0; }
};

struct TuneOptions {
  std::string ops = "all";  // pattern for "op shape"
  bool times = true;        // false: bits are compared alone, as on the simulator, which has no time
  int rounds = 9;           // timed, of each candidate in turn
  double gain = 0.01;       // of the op's time: what a choice must be worth
  std::function<bool()> is_over = [] { return false; };        // no time left
  std::function<void(const MeasuredOp&)> show = [](auto&) {};  // as they are done
};

struct TuneResult {
  Tuning tuning;
  std::vector<MeasuredOp> ops;
};

// The ops of the last main pass that `result` does not have yet. A choice is made for tokens_from tokens up
// to those of the pass. The program goes on with the choices.
void tune(Prepared& prepared, int tokens_from, const TuneOptions& options, TuneResult& result);

// Microseconds of the last main pass under each of these, timed in turn.
std::vector<double> time_passes(Prepared& prepared, const std::vector<Tuning>& tunings, int rounds);

}  // namespace fourfold::backend::cuda
