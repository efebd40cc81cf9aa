#include "backend/cuda/cuda.h"

#include "backend/cuda/prepared.h"

namespace fourfold::backend {
namespace {

class GpuBackend final : public Backend {
 public:
  GpuBackend(kernels::Machine& machine, GpuOptions options) : machine_(machine), options_(options) {}
  std::string_view name() const override { return "cuda"; }
  std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) override {
    return cuda::prepare(std::move(program), capacity, machine_, options_);
  }

 private:
  kernels::Machine& machine_;
  GpuOptions options_;
};

}  // namespace

std::unique_ptr<Backend> make_gpu_backend(kernels::Machine& machine, GpuOptions options) {
  return std::make_unique<GpuBackend>(machine, options);
}

std::vector<StageTime> time_stages(Prepared& prepared, int rounds) {
  return cuda::time_stages(prepared, rounds);
}

std::vector<int> distinct_experts(Prepared& prepared, int rows) {
  return cuda::distinct_experts(prepared, rows);
}

void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position) {
  cuda::assume_position(prepared, state_slot, position);
}

}  // namespace fourfold::backend
