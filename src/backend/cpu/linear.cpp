#include "backend/cpu/linear.h"

#include <algorithm>

#include "base/check.h"

namespace fourfold::backend::cpu {
namespace {

// Panels of one matrix that a thread takes at a time: small enough that all threads have work to the end,
// large enough that tokens stay in the cache while the panels pass by.
std::int64_t panels_at_a_time(std::int64_t panel_count, int threads) {
  return std::clamp<std::int64_t>(panel_count / (8 * threads), 1, 16);
}

// Neurons first to first + count of an expert; the result stands where the gate was.
void activate(const kernel::Kernels& kernels, const RunExperts& op, const ExpertWeights& expert,
              std::int64_t first, std::int64_t count, float* gates, float* ups) {
  float* gate = gates + first;
  float* up = ups + first;
  if (expert.gate_bias != nullptr) kernels.add_rows(gate, expert.gate_bias + first, count, gate);
  if (expert.up_bias != nullptr) kernels.add_rows(up, expert.up_bias + first, count, up);
  if (op.glu == GluKind::plain)
    kernels.silu_times(gate, up, count, gate);
  else
    kernels.clamped_silu_times(gate, up, static_cast<float>(op.glu_alpha), static_cast<float>(op.glu_limit),
                               count, gate);
}

}  // namespace

const std::uint8_t* const* InputRows::make(Machine& machine, const InputNeed& need, const float* in,
                                           std::int64_t row_count, std::int64_t columns) {
  for (int i = 0; i < used_; ++i)
    if (made_[i].need == need) return made_[i].rows.get(row_count);
  check(used_ < kNeeds, "few matrices of one input differ in what they need", used_);
  Made& made = made_[used_++];
  made.need = need;
  const std::int64_t bytes = kernel::row_bytes(need.form, columns);
  std::uint8_t* to = made.bytes.get(row_count * bytes);
  const std::uint8_t** rows = made.rows.get(row_count);
  machine.each_row(row_count, columns, [&](std::int64_t row) {
    rows[row] = to + row * bytes;
    kernel::make_input_row(machine.kernels, need.form, in + row * columns, columns, need.scale,
                           to + row * bytes);
  });
  return rows;
}

void multiply(Machine& machine, InputRows& inputs, std::span<const Product> products, const float* in,
              std::int64_t row_count, std::int64_t columns) {
  if (row_count == 0) return;  // no logits were asked
  struct Part {
    const Product* product;
    kernel::MultiplyJob job;
  };
  constexpr std::size_t most_products = 16;
  Part parts[most_products];
  for (std::size_t first = 0; first < products.size(); first += most_products) {
    const std::size_t count = std::min(most_products, products.size() - first);
    inputs.clear();
    std::int64_t panel_total = 0;
    for (std::size_t i = 0; i < count; ++i) panel_total += products[first + i].weight->matrix.panel_count();
    const std::int64_t grain = panels_at_a_time(panel_total, machine.pool.thread_count());
    std::int64_t item_count = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Product& product = products[first + i];
      Part& part = parts[i] = {&product, product.weight->job()};
      part.job.tokens = inputs.make(machine, product.weight->need, in, row_count, columns);
      part.job.token_count = row_count;
      part.job.out = product.out;
      part.job.out_stride = product.weight->matrix.rows;
      item_count += (product.weight->matrix.panel_count() + grain - 1) / grain;
    }
    machine.pool.run(item_count, [&](std::int64_t item) {
      std::size_t i = 0;
      for (;; ++i) {
        const std::int64_t items = (parts[i].product->weight->matrix.panel_count() + grain - 1) / grain;
        if (item < items) break;
        item -= items;
      }
      kernel::MultiplyJob job = parts[i].job;
      job.panel_begin = item * grain;
      job.panel_end = std::min(job.panel_begin + grain, parts[i].job.panel_end);
      parts[i].product->weight->multiply(machine.kernels, job);
    });
  }
  for (const Product& product : products) {
    if (product.bias == nullptr) continue;
    const std::int64_t width = product.weight->matrix.rows;
    machine.each_row(row_count, width, [&](std::int64_t row) {
      float* out = product.out + row * width;
      machine.kernels.add_rows(out, product.bias, width, out);
    });
  }
}

void multiply_heads(Machine& machine, InputRows& inputs, std::span<const Weight> heads, const float* in,
                    std::int64_t row_count, float* out) {
  if (row_count == 0) return;
  const auto head_count = static_cast<std::int64_t>(heads.size());
  const kernel::PackedMatrix& first = heads.front().matrix;
  inputs.clear();
  const std::uint8_t* const* rows =
      inputs.make(machine, heads.front().need, in, row_count * head_count, first.columns);
  machine.pool.run(head_count, [&](std::int64_t head) {
    static thread_local Scratch<const std::uint8_t*> memory;
    const std::uint8_t** tokens = memory.get(row_count);
    for (std::int64_t row = 0; row < row_count; ++row) tokens[row] = rows[row * head_count + head];
    const Weight& weight = heads[static_cast<std::size_t>(head)];
    kernel::MultiplyJob job = weight.job();
    job.tokens = tokens;
    job.token_count = row_count;
    job.out = out + head * first.rows;
    job.out_stride = head_count * first.rows;
    weight.multiply(machine.kernels, job);
  });
}

std::vector<ExpertWeights> expert_weights(const Program& program, const ExpertSet& set,
                                          std::span<const Weight> weights) {
  std::vector<ExpertWeights> made;
  const auto weight = [&](MatrixId id) { return &weights[static_cast<std::size_t>(id.index)]; };
  const auto bias = [&](OptionalVectorId id, const Weight* of) -> const float* {
    if (!id.is_there()) return nullptr;
    return program.vector(id).values.data() + static_cast<std::int64_t>(made.size()) * of->matrix.rows;
  };
  for (const ExpertMatrices& expert : set.experts) {
    ExpertWeights one{weight(expert.gate), weight(expert.up), weight(expert.down)};
    one.gate_bias = bias(set.gate_bias, one.gate);
    one.up_bias = bias(set.up_bias, one.up);
    one.down_bias = bias(set.down_bias, one.down);
    made.push_back(one);
  }
  return made;
}

void ExpertRunner::group_slots(const std::int32_t* experts, std::int64_t slot_count,
                               std::int64_t first_expert, std::size_t expert_count) {
  // Below 0 the number is large.
  const auto index_of = [&](std::int64_t slot) {
    return static_cast<std::size_t>(experts[slot] - first_expert);
  };
  counts_.assign(expert_count + 1, 0);
  for (std::int64_t slot = 0; slot < slot_count; ++slot)
    if (index_of(slot) < expert_count) ++counts_[index_of(slot) + 1];
  groups_.clear();
  for (std::size_t expert = 0; expert < expert_count; ++expert) {
    counts_[expert + 1] += counts_[expert];
    if (counts_[expert + 1] > counts_[expert])
      groups_.push_back({static_cast<std::int32_t>(expert), counts_[expert], counts_[expert + 1]});
  }
  slots_.resize(static_cast<std::size_t>(counts_[expert_count]));
  place_of_.assign(static_cast<std::size_t>(slot_count), -1);
  for (std::int64_t slot = 0; slot < slot_count; ++slot) {
    if (index_of(slot) >= expert_count) continue;
    const std::int64_t place = counts_[index_of(slot)]++;
    slots_[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(slot);
    place_of_[static_cast<std::size_t>(slot)] = place;
  }
}

void ExpertRunner::gate_and_up(Machine& machine, const RunExperts& op, std::span<const ExpertWeights> set,
                               const float* in, std::int64_t row_count, std::int64_t choices) {
  const InputNeed need = set.front().gate->need;
  const std::int64_t columns = set.front().gate->matrix.columns;
  const std::int64_t inner = set.front().gate->matrix.rows;
  const auto slot_count = static_cast<std::int64_t>(slots_.size());
  // One pointer a slot for the gates, and one for the ups where they need something else.
  const std::uint8_t** gate_tokens = token_pointers_.get(2 * slot_count);
  const std::uint8_t** up_tokens = gate_tokens + slot_count;
  bool is_uniform = true;
  for (const Group& group : groups_) {
    const ExpertWeights& expert = set[static_cast<std::size_t>(group.expert)];
    is_uniform = is_uniform && expert.gate->need == need && expert.up->need == need;
  }
  if (is_uniform) {
    shared_inputs_.clear();
    const std::uint8_t* const* rows = shared_inputs_.make(machine, need, in, row_count, columns);
    for (std::int64_t i = 0; i < slot_count; ++i)
      gate_tokens[i] = up_tokens[i] = rows[slots_[static_cast<std::size_t>(i)] / choices];
  } else {  // input scales of their own: every slot has its rows
    const std::int64_t bytes = kernel::row_bytes(kernel::InputForm::three_planes, columns);
    std::uint8_t* to = own_inputs_.get(2 * slot_count * bytes);
    machine.pool.run(static_cast<std::int64_t>(groups_.size()), [&](std::int64_t at) {
      const Group& group = groups_[static_cast<std::size_t>(at)];
      const ExpertWeights& expert = set[static_cast<std::size_t>(group.expert)];
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const float* row = in + slots_[static_cast<std::size_t>(i)] / choices * columns;
        gate_tokens[i] = to + i * bytes;
        up_tokens[i] = to + (slot_count + i) * bytes;
        kernel::make_input_row(machine.kernels, expert.gate->need.form, row, columns, expert.gate->need.scale,
                               to + i * bytes);
        kernel::make_input_row(machine.kernels, expert.up->need.form, row, columns, expert.up->need.scale,
                               to + (slot_count + i) * bytes);
      }
    });
  }
  float* gates = gate_.get(slot_count * inner);
  float* ups = up_.get(slot_count * inner);
  const std::int64_t panels = (inner + kernel::kPanelRows - 1) / kernel::kPanelRows;
  const std::int64_t grain =
      panels_at_a_time(panels * static_cast<std::int64_t>(groups_.size()), machine.pool.thread_count());
  const std::int64_t items = (panels + grain - 1) / grain;
  machine.pool.run(items * static_cast<std::int64_t>(groups_.size()), [&](std::int64_t item) {
    const Group& group = groups_[static_cast<std::size_t>(item / items)];
    const ExpertWeights& expert = set[static_cast<std::size_t>(group.expert)];
    const std::int64_t begin = item % items * grain;
    const std::int64_t end = std::min(begin + grain, panels);
    const auto half = [&](const Weight& weight, const std::uint8_t* const* tokens, float* out) {
      kernel::MultiplyJob job = weight.job();
      job.panel_begin = begin;
      job.panel_end = end;
      job.tokens = tokens + group.begin;
      job.token_count = group.end - group.begin;
      job.out = out + group.begin * inner;
      job.out_stride = inner;
      weight.multiply(machine.kernels, job);
    };
    half(*expert.gate, gate_tokens, gates);
    half(*expert.up, up_tokens, ups);
    const std::int64_t first = begin * kernel::kPanelRows;
    const std::int64_t count = std::min(end * kernel::kPanelRows, inner) - first;
    for (std::int64_t i = group.begin; i < group.end; ++i)
      activate(machine.kernels, op, expert, first, count, gates + i * inner, ups + i * inner);
  });
}

void ExpertRunner::down(Machine& machine, std::span<const ExpertWeights> set, std::int64_t slot_count) {
  const std::int64_t inner = set.front().down->matrix.columns;
  const std::int64_t hidden = set.front().down->matrix.rows;
  const std::int64_t bytes = kernel::row_bytes(kernel::InputForm::three_planes, inner);
  std::uint8_t* rows = own_inputs_.get(2 * slot_count * bytes);
  const std::uint8_t** tokens = token_pointers_.get(2 * slot_count);
  const float* inners = gate_.get(slot_count * inner);
  std::vector<Group>& groups = groups_;
  machine.each_row(static_cast<std::int64_t>(groups.size()), slot_count * inner, [&](std::int64_t at) {
    const Group& group = groups[static_cast<std::size_t>(at)];
    const InputNeed& need = set[static_cast<std::size_t>(group.expert)].down->need;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      tokens[i] = rows + i * bytes;
      // An expert's own activation is quantised as it is (InputFormat::nvfp4).
      const bool is_fp4 = need.form == kernel::InputForm::one_plane_bf16;
      kernel::make_input_row(machine.kernels, is_fp4 ? kernel::InputForm::one_plane : need.form,
                             inners + i * inner, inner, need.scale, rows + i * bytes);
    }
  });
  float* results = result_.get(slot_count * hidden);
  const std::int64_t panels = (hidden + kernel::kPanelRows - 1) / kernel::kPanelRows;
  const std::int64_t grain =
      panels_at_a_time(panels * static_cast<std::int64_t>(groups.size()), machine.pool.thread_count());
  const std::int64_t items = (panels + grain - 1) / grain;
  machine.pool.run(items * static_cast<std::int64_t>(groups.size()), [&](std::int64_t item) {
    const Group& group = groups[static_cast<std::size_t>(item / items)];
    const ExpertWeights& expert = set[static_cast<std::size_t>(group.expert)];
    kernel::MultiplyJob job = expert.down->job();
    job.panel_begin = item % items * grain;
    job.panel_end = std::min(job.panel_begin + grain, panels);
    job.tokens = tokens + group.begin;
    job.token_count = group.end - group.begin;
    job.out = results + group.begin * hidden;
    job.out_stride = hidden;
    expert.down->multiply(machine.kernels, job);
    if (expert.down_bias == nullptr) return;
    const std::int64_t first = job.panel_begin * kernel::kPanelRows;
    const std::int64_t count = std::min(job.panel_end * kernel::kPanelRows, hidden) - first;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      float* out = results + i * hidden + first;
      machine.kernels.add_rows(out, expert.down_bias + first, count, out);
    }
  });
}

void ExpertRunner::run(Machine& machine, const RunExperts& op, std::span<const ExpertWeights> set,
                       std::int64_t first_expert, const float* in, const std::int32_t* experts,
                       const float* shares, std::int64_t row_count, std::int64_t choices, float* out) {
  if (row_count == 0) return;
  const std::int64_t hidden = set.front().down->matrix.rows;
  group_slots(experts, row_count * choices, first_expert, set.size());
  const auto slot_count = static_cast<std::int64_t>(slots_.size());
  gate_and_up(machine, op, set, in, row_count, choices);
  down(machine, set, slot_count);
  const float* results = result_.get(slot_count * hidden);
  machine.each_row(row_count, choices * hidden, [&](std::int64_t row) {
    float* sum = out + row * hidden;
    std::fill_n(sum, hidden, 0.0f);
    for (std::int64_t rank = 0; rank < choices; ++rank) {
      const std::int64_t slot = row * choices + rank;
      const std::int64_t place = place_of_[static_cast<std::size_t>(slot)];
      if (place >= 0) machine.kernels.add_scaled(sum, results + place * hidden, shares[slot], hidden, sum);
    }
  });
}

}  // namespace fourfold::backend::cpu
