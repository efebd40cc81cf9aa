#include "backend/cost.h"

#include <cmath>

namespace fourfold::backend {
namespace {

class Pricer {
 public:
  Pricer(const Program& program, const StepShape& shape)
      : program_(program),
        sequences_(static_cast<double>(shape.sequence_count)),
        rows_(static_cast<double>(shape.row_count)),
        logits_rows_(static_cast<double>(shape.logits_row_count)),
        context_(shape.context),
        experts_(shape.experts) {}

  Cost operator()(const Embed& op) const {
    return {.weight_bytes = rows_ * bytes(op.table) / static_cast<double>(matrix(op.table).rows)};
  }
  Cost operator()(const Linear& op) const {
    const double rows = program_.value(op.in).rows == RowSet::tokens ? rows_ : logits_rows_;
    return {.weight_bytes = rows == 0 ? 0 : bytes(op.weight), .flops = 2 * rows * elements(op.weight)};
  }
  // Backends hold these in bf16, or in f32, whatever they are stored in.
  Cost operator()(const HeadLinear& op) const {
    const double width = program_.matrix(op.weight).input == InputFormat::f32 ? 4 : 2;
    return {.weight_bytes = width * elements(op.weight), .flops = 2 * rows_ * elements(op.weight)};
  }
  Cost operator()(const RunExperts& op) const {
    Cost all;  // of every expert, once
    for (const ExpertMatrices& expert : program_.expert_set(op.set).experts)
      for (const MatrixId id : {expert.gate, expert.up, expert.down})
        all += {.weight_bytes = bytes(id), .flops = 2 * elements(id)};
    const auto count = static_cast<double>(program_.expert_set(op.set).count());
    const auto chosen = static_cast<double>(program_.value(op.experts).columns);
    const double read = experts_ > 0 ? experts_ : spread_experts(count, chosen, rows_);
    return {.weight_bytes = all.weight_bytes * read / count, .flops = all.flops * chosen / count * rows_};
  }
  Cost operator()(const WriteKv& op) const { return {.state_bytes = rows_ * position_bytes(op.cache)}; }
  // A sequence's rows read its pages once, together.
  Cost operator()(const Attention& op) const {
    const KvCache& cache = program_.kv_cache(op.cache);
    const double per_position =
        2.0 * static_cast<double>(op.head_count * (cache.head_dim + cache.value_dim()));
    const double seen = op.window == 0 ? context_ : std::fmin(context_, static_cast<double>(op.window));
    return {.state_bytes = sequences_ * seen * position_bytes(op.cache),
            .flops = rows_ * seen * per_position};
  }
  // A row reads the state with k and with q and adds to it once. The anchor is read once a sequence and
  // written once in kAnchorTokens rows.
  Cost operator()(const DeltaRule& op) const {
    const DeltaState& state = program_.delta_state(op.state);
    const auto cells = static_cast<double>(state.value_dim() * state.key_head_dim);
    const double writes = rows_ / static_cast<double>(kAnchorTokens);
    return {.state_bytes = 4 * cells * (sequences_ + writes), .flops = 6 * cells * rows_};
  }
  Cost operator()(const auto&) const { return {}; }

 private:
  const checkpoint::Matrix& matrix(MatrixId id) const { return *program_.matrix(id).matrix; }
  double bytes(MatrixId id) const { return static_cast<double>(checkpoint::stored_bytes(matrix(id))); }
  double elements(MatrixId id) const { return static_cast<double>(matrix(id).rows * matrix(id).columns); }
  double position_bytes(KvCacheId id) const {
    const KvCache& cache = program_.kv_cache(id);
    return static_cast<double>(cache.stored_columns() * element_bytes(cache.format));
  }

  const Program& program_;
  double sequences_, rows_, logits_rows_, context_, experts_;
};

}  // namespace

double spread_experts(double experts, double chosen, double rows) {
  return experts * (1 - std::pow(1 - chosen / experts, rows));
}

Cost cost_of(const Program& program, const Op& op, const StepShape& shape) {
  return std::visit(Pricer(program, shape), op);
}

Cost cost_of(const Program& program, Pass pass, const StepShape& shape) {
  Cost total;
  for (const Op& op : program.ops(pass)) total += cost_of(program, op, shape);
  return total;
}

}  // namespace fourfold::backend
