#include "library/plan_step.h"

#include <cmath>
#include <optional>

#include "backend/cost.h"
#include "backend/cuda/load/held_matrix.h"
#include "plan/expected_tiles.h"

namespace fourfold::library {
namespace {

using backend::Pass;

double held_share(const StepQuestion& question, backend::MatrixId id) {
  const checkpoint::Matrix& matrix = *question.program.matrix(id).matrix;
  const auto bytes = [&](backend::DenseWeights dense) {
    return static_cast<double>(backend::cuda::record_bytes(backend::cuda::record_format(matrix, dense)));
  };
  return bytes(question.dense) / bytes(std::nullopt);
}

double expert_bytes(const backend::Program& program, const backend::RunExperts& op) {
  const backend::ExpertMatrices& first = program.expert_set(op.set).experts.front();
  double bytes = 0;
  for (const backend::MatrixId id : {first.gate, first.up, first.down})
    bytes += static_cast<double>(checkpoint::stored_bytes(*program.matrix(id).matrix));
  return bytes;
}

// Parts of experts that one GPU reads in a layer: of all that rows chose, or whole ones of those that the
// busiest GPU has.
double parts_read(const StepQuestion& question, bool by_expert, int per_token, int rows) {
  if (by_expert)
    return question.parts_an_expert *
           plan::busiest_rank_experts(question.expert_count, per_token, question.ranks, rows);
  const double share = static_cast<double>(per_token) / question.expert_count;
  return question.expert_count * (1 - std::pow(1 - share, rows));
}

// Bytes that one GPU moves in the model's own pass.
double pass_bytes(const StepQuestion& question, int users, int rows, bool by_expert, double* routed) {
  const backend::StepShape shape{users, rows, rows, question.context};
  double total = 0;
  std::optional<double> read;  // the same in every layer
  for (const backend::Op& op : question.program.ops(Pass::main)) {
    backend::Cost cost = cost_of(question.program, op, shape);
    if (const auto* linear = std::get_if<backend::Linear>(&op))
      cost.weight_bytes *= held_share(question, linear->weight);
    if (const auto* run = std::get_if<backend::RunExperts>(&op)) {
      if (!read)
        read = parts_read(question, by_expert, static_cast<int>(question.program.value(run->experts).columns),
                          rows);
      cost.weight_bytes = *read * expert_bytes(question.program, *run);
      if (routed != nullptr) *routed += cost.weight_bytes;
    }
    total += cost.weight_bytes + cost.state_bytes;
  }
  return total;
}

// Whole experts: as long as by column, and the bytes that the busiest GPU reads more.
std::vector<ShardingLine> compare_shardings(const StepQuestion& question) {
  const std::vector<int> users{1, 2, 4, 8, 16, 32, 64};
  const std::vector<plan::Range> column_us = predict_users(question, users);
  const plan::Range speed = plan::read_gb_per_s(question.product);
  std::vector<ShardingLine> lines;
  for (std::size_t i = 0; i < users.size(); ++i) {
    double column = 0, expert = 0;
    pass_bytes(question, users[i], users[i], false, &column);
    pass_bytes(question, users[i], users[i], true, &expert);
    const double more = (expert - column) / 1e3;
    ShardingLine line{users[i], column / 1e9, expert / 1e9, column_us[i], column_us[i]};
    line.expert_us += {more / speed.high, more / speed.low};
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

StepAnswer answer_step(const StepQuestion& question) {
  StepAnswer answer;
  answer.step = predict(question);
  answer.bytes = pass_bytes(question, question.users, question.users * (question.drafts + 1), false, nullptr);
  if (question.ranks > 1 && question.expert_count > 0 && question.expert_count % question.ranks == 0)
    answer.shardings = compare_shardings(question);
  return answer;
}

}  // namespace fourfold::library
