// A step's kernels without a machine that runs them; see step_kernels in cuda.h.
#include <map>

#include "backend/cuda/counting_machine.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/step/runner.h"
#include "backend/cuda/step/step_buffers.h"

namespace fourfold::backend {

std::vector<StepKernels> step_kernels(const Program& program, const Capacity& capacity,
                                      const kernels::Machine& machine, std::span<const StepRows> steps,
                                      DenseWeights dense) {
  cuda::CountingMachine counting(machine);
  kernels::Arena arena(counting.memory());
  std::vector<std::string> notices;
  const LoadOptions options{.dense = dense};
  const cuda::BatchTables tables(counting.memory(), arena, capacity);
  cuda::WeightLoader loader(counting, arena, program, options, notices, /*sizes_alone=*/true);
  const cuda::DeviceModel model =
      cuda::load_model(cuda::read_layers(program), program, capacity, loader, arena, counting.memory());
  cuda::KernelSelector selector(counting, nullptr);
  const cuda::Buffers buffers = cuda::make_buffers(model, selector, arena, capacity);
  cuda::Multiplier multiplier(counting, tables, buffers, selector);
  cuda::DeviceSampler sampler(counting, arena, capacity, model.head.vocab, cuda::kLogitsRows);
  cuda::Runner runner(counting, model, buffers, tables, multiplier, sampler, /*exchange=*/nullptr);

  cuda::PassPlaces places;
  places.tables = tables.tables();
  places.tokens = tables.tokens();
  places.batch_rows = tables.batch_rows();
  places.hidden_rows = tables.hidden_rows();
  places.logits_rows = tables.logits_rows();
  places.hidden = buffers.hidden[0];
  places.hidden_out = buffers.hidden[1];
  const cuda::ChoiceKind greedy{.token_limit = model.head.vocab};
  places.choices = sampler.places(greedy, places.logits_rows);
  std::map<std::string_view, int> bytes_of;
  for (const kernels::RowKind kind : kernels::kChosenKinds)
    for (const plan::RowFacts& row : machine.rows(kind)) bytes_of[row.row] = row.total_bytes;
  std::vector<StepKernels> all;
  for (const StepRows& step : steps) {
    const int rows = step.sequences * step.sequence_rows;
    StepKernels kernels;
    counting.listen([&](std::string_view name) {
      const auto row = bytes_of.find(name);
      kernels.push_back(row == bytes_of.end() ? 0 : row->second);
    });
    runner.run({.pass = step.pass,
                .role = Role::decode,
                .rows = rows,
                .sequences = step.sequences,
                .sequence_rows = step.sequence_rows,
                .logits_rows = rows,
                .all_logits = true,
                .choice = greedy},
               places, [](int) {});
    counting.listen({});
    all.push_back(std::move(kernels));
  }
  return all;
}

}  // namespace fourfold::backend
