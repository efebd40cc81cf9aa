// A step's kernels without a machine that runs them; see step_work in cuda.h.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/step/runner.h"
#include "backend/cuda/step/step_buffers.h"
#include "kernels/launch/work_machine.h"

namespace fourfold::backend {
namespace {

// A prepared program on a machine that only counts.
class CountedModel {
 public:
  CountedModel(const Program& program, const Capacity& capacity, const kernels::Machine& machine,
               DenseWeights dense, const cuda::StepWays& ways)
      : options_{.dense = dense},
        machine_(machine),
        arena_(machine_.memory()),
        tables_(machine_.memory(), arena_, program, capacity),
        loader_(machine_, arena_, program, options_, notices_, /*sizes_alone=*/true),
        model_(cuda::load_model(cuda::read_layers(program), program, capacity, loader_, arena_,
                                machine_.memory())),
        selector_(machine_, nullptr),
        buffers_(cuda::make_buffers(model_, selector_, arena_, capacity)),
        multiplier_(machine_, tables_, buffers_, selector_, ways),
        sampler_(machine_, arena_, capacity, model_.head.vocab, cuda::kLogitsRows),
        runner_(machine_, model_, buffers_, tables_, multiplier_, sampler_, /*exchange=*/nullptr, ways) {
    places_.tables = tables_.tables();
    places_.window_pages = tables_.window_pages();
    places_.tokens = tables_.tokens();
    places_.batch_rows = tables_.batch_rows();
    places_.hidden_rows = tables_.hidden_rows();
    places_.logits_rows = tables_.logits_rows();
    places_.hidden = buffers_.hidden[0];
    places_.hidden_out = buffers_.hidden[1];
    places_.choices = sampler_.places(greedy(), places_.logits_rows);
  }
  kernels::WorkMachine& machine() { return machine_; }

  // Rows of one run, of so many sequences.
  void run(const StepRows& step, int rows, int sequences) {
    const bool prefill = step.role == Role::prefill;
    const bool asks_all = !prefill && (step.pass == Pass::main || step.sequence_rows == 1);
    machine_.enter(
        {.rows = rows, .sequences = sequences, .sequence_rows = step.sequence_rows, .context = step.context});
    if (prefill) send_prompt(step);
    runner_.run({.pass = step.pass,
                 .role = step.role,
                 .rows = rows,
                 .sequences = sequences,
                 .sequence_rows = step.sequence_rows,
                 .logits_rows = asks_all ? rows : sequences,
                 .all_logits = asks_all,
                 .choice = greedy()},
                places_, [](int) {});
  }

 private:
  cuda::ChoiceKind greedy() const { return {.token_limit = model_.head.vocab}; }

  // Prompt kernels have as many blocks as the sequences have pieces of 64 positions.
  void send_prompt(const StepRows& step) {
    cuda::RowGroup group;
    group.role = Role::prefill;
    const auto position = static_cast<std::int32_t>(step.context);
    for (std::int32_t sequence = 0; sequence < step.sequences; ++sequence) {
      group.sequences.push_back(
          {sequence * step.sequence_rows, step.sequence_rows, position, sequence, 0, {}});
      for (std::int32_t row = 0; row < step.sequence_rows; ++row) {
        group.batch_row.push_back(group.row_count());
        group.rows.push_back({sequence, position + row, sequence, 0});
      }
    }
    group.tokens.assign(group.rows.size(), 0);
    tables_.send(group, 0, group.row_count());
  }

  std::vector<std::string> notices_;
  LoadOptions options_;
  kernels::WorkMachine machine_;
  kernels::Arena arena_;
  cuda::BatchTables tables_;
  cuda::WeightLoader loader_;
  cuda::DeviceModel model_;
  cuda::KernelSelector selector_;
  cuda::Buffers buffers_;
  cuda::Multiplier multiplier_;
  cuda::DeviceSampler sampler_;
  cuda::Runner runner_;
  cuda::PassPlaces places_;
};

}  // namespace

std::vector<std::vector<plan::KernelWork>> step_work(const Program& program, const Capacity& capacity,
                                                     const kernels::Machine& machine,
                                                     std::span<const StepRows> steps, DenseWeights dense,
                                                     const cuda::StepWays& ways) {
  Capacity room = capacity;
  for (const StepRows& step : steps) {
    room.row_count = std::max<std::int64_t>(room.row_count, step.sequences * step.sequence_rows);
    room.state_slot_count = std::max<std::int64_t>(room.state_slot_count, step.sequences);
  }
  CountedModel model(program, room, machine, dense, ways);
  std::vector<std::vector<plan::KernelWork>> all;
  for (const StepRows& step : steps) {
    std::vector<plan::KernelWork> work;
    const int most = step.role == Role::prefill
                         ? step.sequences * step.sequence_rows
                         : cuda::kGeneratedRows / step.sequence_rows * step.sequence_rows;
    for (int left = step.sequences * step.sequence_rows; left > 0; left -= most) {
      const int rows = std::min(left, most);
      model.run(step, rows, rows / step.sequence_rows);
      work.insert(work.end(), model.machine().work().begin(), model.machine().work().end());
    }
    all.push_back(std::move(work));
  }
  return all;
}

}  // namespace fourfold::backend
