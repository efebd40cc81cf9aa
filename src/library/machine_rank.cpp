#include "library/machine_rank.h"

#include "base/format.h"
#include "library/tuned.h"

namespace fourfold::library {
namespace {

class MachineRank final : public backend::Backend {
 public:
  MachineRank(std::shared_ptr<RankMachines> all, std::size_t index, backend::GpuOptions gpu)
      : all_(std::move(all)), index_(index) {
    gpu.exchange = all_->exchange;
    inner_ = backend::make_gpu_backend(*all_->machines[index_], std::move(gpu));
  }
  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<backend::Prepared> prepare(backend::Program program,
                                             const backend::Capacity& capacity) override {
    all_->enter[index_]();
    return inner_->prepare(std::move(program), capacity);
  }

 private:
  std::shared_ptr<RankMachines> all_;
  std::size_t index_;
  std::unique_ptr<backend::Backend> inner_;
};

}  // namespace

backend::GpuOptions gpu_options(const BackendOptions& options, const OpenModel& model,
                                checkpoint::LoadProgress& progress, const Listener& listener,
                                const kernels::Machine& machine) {
  backend::GpuOptions gpu{.keep_values = options.keep_values,
                          .load = {.checkpoint = &model.checkpoint,
                                   .progress = &progress,
                                   .dense = parse_dense_weights(options.dense),
                                   .cache = options.cache,
                                   .rebuild_cache = options.rebuild_cache},
                          .tuning = find_tuning(machine, options.tuned, listener)};
  if (options.memory_fraction) gpu.memory_fraction = parse_memory_fraction(*options.memory_fraction);
  gpu.on_new_shape = tell_kernels(options, "");
  return gpu;
}

std::function<void(const backend::StepDecision&)> tell_kernels(const BackendOptions& options,
                                                               const std::string& whose) {
  if (!options.on_kernels) return nullptr;
  return [on_kernels = options.on_kernels, whose](const backend::StepDecision& decision) {
    on_kernels(fourfold::format("{}{}step of {}", whose, whose.empty() ? "" : ": ", decision.text()));
  };
}

std::shared_ptr<backend::Backend> make_machine_rank(std::shared_ptr<RankMachines> all, std::size_t index,
                                                    backend::GpuOptions gpu) {
  return std::make_shared<MachineRank>(std::move(all), index, std::move(gpu));
}

}  // namespace fourfold::library
