#include "library/plan_step.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/cost.h"
#include "backend/cuda/load/held_matrix.h"
#include "base/error.h"

namespace fourfold::library {
namespace {

using backend::Pass;
using backend::StepRows;

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

// Whole experts that one GPU reads the bytes of in a layer: parts of those that rows chose, or those of them
// that the busiest GPU has.
double experts_read(const StepQuestion& question, bool by_expert, int per_token, int rows) {
  if (by_expert) return plan::busiest_rank_experts(question.expert_count, per_token, question.ranks, rows);
  const double share = static_cast<double>(per_token) / question.expert_count;
  return question.expert_count * (1 - std::pow(1 - share, rows)) / question.ranks;
}

// Bytes that one GPU moves in a pass.
double pass_bytes(const StepQuestion& question, const StepRows& step, bool by_expert, double* routed) {
  const int rows = step.sequences * step.sequence_rows;
  const backend::StepShape shape{step.sequences, rows, rows, question.context};
  double total = 0;
  std::optional<double> read;  // the same in every layer
  for (const backend::Op& op : question.program.ops(step.pass)) {
    backend::Cost cost = cost_of(question.program, op, shape);
    if (const auto* linear = std::get_if<backend::Linear>(&op))
      cost.weight_bytes *= held_share(question, linear->weight);
    if (const auto* run = std::get_if<backend::RunExperts>(&op)) {
      if (!read)
        read = experts_read(question, by_expert,
                            static_cast<int>(question.program.value(run->experts).columns), rows);
      // Of a whole expert, however this program is sharded.
      const int parts = question.by_expert ? 1 : question.ranks;
      cost.weight_bytes = *read * parts * expert_bytes(question.program, *run);
      if (routed != nullptr) *routed += cost.weight_bytes;
    }
    total += cost.weight_bytes + cost.state_bytes;
  }
  return total;
}

plan::StepWork work_of(const StepQuestion& question, const StepRows& step,
                       const backend::StepKernels& kernels, bool by_expert, double* routed = nullptr) {
  const auto& ops = question.program.ops(step.pass);
  plan::StepWork work;
  work.rows = step.sequences * step.sequence_rows;
  work.bytes = pass_bytes(question, step, by_expert, routed);
  work.kernels = static_cast<int>(kernels.size());
  work.context = question.context;
  work.apart = plan::boundaries_apart(*question.product.arch, kernels);
  work.sums = static_cast<int>(std::count_if(ops.begin(), ops.end(), [](const backend::Op& op) {
    return std::holds_alternative<backend::AllReduce>(op);
  }));
  work.sum_bytes = 4.0 * work.rows * static_cast<double>(question.program.hidden_size);
  work.gather_bytes = 4.0 * work.rows * static_cast<double>(question.program.vocab_size) / question.ranks;
  return work;
}

std::vector<backend::StepKernels> kernels_of(const StepQuestion& question,
                                             const std::vector<StepRows>& steps) {
  return step_kernels(question.program, question.capacity, question.machine, steps, question.dense);
}

plan::SumWay best_way(const StepQuestion& question, double bytes) {
  const auto middle = [&](plan::SumWay way) {
    const plan::Range us = all_reduce_us(way, question.link, question.ranks, bytes);
    return us.low + us.high;
  };
  return middle(plan::SumWay::two_shot) < middle(plan::SumWay::one_shot) ? plan::SumWay::two_shot
                                                                         : plan::SumWay::one_shot;
}

std::vector<plan::Estimate> time_of(const StepQuestion& question, const plan::StepWork& work) {
  return step_time(work, question.product, question.ranks, question.link, best_way(question, work.sum_bytes));
}

// Verification first, then every draft pass: the first goes over all rows of the verification.
std::vector<StepRows> passes_of(const StepQuestion& question) {
  std::vector<StepRows> passes{{Pass::main, question.users, question.drafts + 1}};
  for (int draft = 0; draft < question.drafts; ++draft)
    passes.push_back({Pass::draft, question.users, draft == 0 ? question.drafts + 1 : 1});
  return passes;
}

std::vector<ShardingLine> compare_shardings(const StepQuestion& question) {
  std::vector<ShardingLine> lines;
  std::vector<StepRows> steps;
  for (const int users : {1, 2, 4, 8, 16, 32, 64}) steps.push_back({Pass::main, users, 1});
  const auto kernels = kernels_of(question, steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ShardingLine line{steps[i].sequences, 0, 0, {}, {}};
    line.column_us =
        total_us(time_of(question, work_of(question, steps[i], kernels[i], false, &line.column_gb)));
    line.expert_us =
        total_us(time_of(question, work_of(question, steps[i], kernels[i], true, &line.expert_gb)));
    line.column_gb /= 1e9, line.expert_gb /= 1e9;
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

StepAnswer predict_step(const StepQuestion& question) {
  if (question.users * (question.drafts + 1) > plan::kPredictedRowsMost)
    fail(Code::invalid_request,
         "--users {} with {} drafts are {} rows a step; steps of up to {} rows were measured and can be "
         "predicted",
         question.users, question.drafts, question.users * (question.drafts + 1), plan::kPredictedRowsMost);
  const std::vector<StepRows> passes = passes_of(question);
  const auto kernels = kernels_of(question, passes);
  StepAnswer answer;
  plan::Range drafts;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const plan::StepWork work = work_of(question, passes[i], kernels[i], question.by_expert);
    const std::vector<plan::Estimate> lines = time_of(question, work);
    if (i == 0)
      answer.work = work, answer.lines = lines;
    else
      drafts += total_us(lines);
  }
  if (question.drafts > 0) {
    answer.lines.push_back(
        {"drafts", drafts, answer.lines[1].evidence,
         fourfold::format("{} of the MTP layer: bytes, boundaries and sums as above", question.drafts)});
    answer.tokens = plan::tokens_of_step(question.acceptance, question.drafts);
  }
  answer.us = total_us(answer.lines);
  answer.way = best_way(question, answer.work.sum_bytes);
  if (question.ranks > 1 && question.expert_count > 0 && question.expert_count % question.ranks == 0)
    answer.shardings = compare_shardings(question);
  return answer;
}

}  // namespace fourfold::library
