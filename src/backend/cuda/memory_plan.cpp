#include "backend/cuda/memory_plan.h"

#include <algorithm>
#include <set>

#include "backend/cuda/buffers.h"
#include "backend/cuda/weights.h"
#include "base/error.h"
#include "base/format.h"
#include "kernels/delta/delta_state.h"
#include "kernels/record/record.h"
#include "kernels/step/step_tables.h"

namespace fourfold::backend::cuda {
namespace {

std::int64_t matrix_bytes(const checkpoint::Matrix& matrix, DenseWeights dense) {
  const std::int64_t strips = (matrix.rows + record::kRows - 1) / record::kRows;
  return strips * (matrix.columns / record::kColumns) * record_bytes(record_format(matrix, dense));
}

std::int64_t weight_bytes(const Program& program, DenseWeights dense) {
  std::set<std::int32_t> multiplied, tables;
  for (const Pass pass : {Pass::main, Pass::draft})
    for (const Op& op : program.ops(pass)) {
      if (const auto* linear = std::get_if<Linear>(&op)) multiplied.insert(linear->weight.index);
      if (const auto* embed = std::get_if<Embed>(&op)) tables.insert(embed->table.index);
    }
  for (const ExpertSet& set : program.expert_sets)
    for (const ExpertMatrices& expert : set.experts)
      for (const MatrixId id : {expert.gate, expert.up, expert.down}) multiplied.insert(id.index);
  std::int64_t bytes = 0;
  for (const std::int32_t id : multiplied) bytes += matrix_bytes(*program.matrix({id}).matrix, dense);
  for (const std::int32_t id : tables) {
    const checkpoint::Matrix& table = *program.matrix({id}).matrix;
    bytes += table.rows * table.columns * 2;
  }
  return bytes;
}

}  // namespace

std::vector<MemoryUse> plan_memory(const Program& program, const Capacity& capacity, DenseWeights dense) {
  std::int64_t pages = 0, states = 0, widest = 0;
  for (const KvCache& cache : program.kv_caches)
    pages += capacity.page_count * step::kPageTokens * cache.columns() * 2 * 2;
  for (const DeltaState& state : program.delta_states)
    states += capacity.state_slot_count * delta::layout_of(static_cast<int>(state.key_head_count),
                                                           static_cast<int>(state.value_head_count),
                                                           static_cast<int>(state.key_head_dim))
                                              .slot_bytes();
  for (const Value& value : program.values)
    if (value.rows == RowSet::tokens) widest = std::max(widest, value.columns);
  // Residual stream, two kept copies, and rows as wide as the widest projection in f32 and as queries, mixed
  // rows and inputs in bf16; a workspace of the same order.
  const std::int64_t step =
      capacity.row_count * (16 * program.hidden_size + 12 * widest) + kLogitsRows * 4 * program.vocab_size;
  return {{"weights", weight_bytes(program, dense)},
          {"KV pages", pages},
          {"recurrent states", states},
          {"a step's rows, about", step}};
}

void require_memory(const std::vector<MemoryUse>& plan, kernels::Memory& memory) {
  std::int64_t needed = 0;
  std::string lines;
  for (const MemoryUse& use : plan) {
    needed += use.bytes;
    lines += format("{}{} {}", lines.empty() ? "" : ", ", use.what, with_commas(use.bytes));
  }
  const std::int64_t there = memory.free_bytes();
  if (needed <= there) return;
  fail_with_hint(
      Code::out_of_memory, "Fewer sequences, a shorter context or a smaller chunk of the prompt need less.",
      "{} bytes are needed ({}), {} are free on the device", with_commas(needed), lines, with_commas(there));
}

}  // namespace fourfold::backend::cuda
