// Stands in for GPUs and the simulated one in fourfold-chat (cmake/chat.cmake): whoever asks for a machine is
// told which program has them. Only what the room calls is here; something new is an error of the linker.
#include "backend/cuda/cuda.h"
#include "backend/cuda/load/held_matrix.h"
#include "base/error.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/gpu/gpu.h"
#include "kernels/verify/probes.h"
#include "library/prepare_model.h"
#include "library/rank_machines.h"
#include "library/tuned.h"

namespace fourfold {
namespace {

[[noreturn]] void refuse() {
  fail_with_hint(Code::unsupported_device,
                 "./dev build makes build/fourfold, which has them; --backend cpu is here.",
                 "fourfold-chat has neither CUDA kernels nor the simulated GPU");
}

}  // namespace

namespace library {

std::shared_ptr<kernels::Machine> open_machine(const std::string&, int) { refuse(); }
std::shared_ptr<RankMachines> open_rank_machines(const std::string&, int, const Listener&) { refuse(); }
std::shared_ptr<RankMachines> open_node_machine(const std::string&, const PartOf&, int) { refuse(); }
std::string machine_words(const kernels::Machine&) { refuse(); }
std::string choose_collective(const BackendOptions&, const Listener&) { refuse(); }
bool records_steps(const std::string&) { refuse(); }
void join_processes(RankMachines&, const std::string&, const PartOf&,
                    const std::shared_ptr<backend::Collective>&) {
  refuse();
}
std::vector<int> devices_of_ranks(const std::string&, int) { refuse(); }
std::vector<backend::MemoryRoom> rank_rooms(const std::vector<int>&, double, const AskMemory&) { refuse(); }
std::shared_ptr<const backend::cuda::Tuning> find_tuning(const kernels::Machine&, const std::string&,
                                                         const Listener&) {
  refuse();
}

}  // namespace library

namespace backend {

std::unique_ptr<Backend> make_gpu_backend(kernels::Machine&, GpuOptions) { refuse(); }
std::vector<MemoryUse> plan_memory(const Program&, const Capacity&, const kernels::Machine&, DenseWeights,
                                   const std::shared_ptr<const cuda::Tuning>&, all_reduce::Meets) {
  refuse();
}
std::string StepDecision::text() const { refuse(); }
WeightFormat cuda::record_format(const checkpoint::Matrix&, DenseWeights) { refuse(); }

}  // namespace backend

namespace kernels {
GpuMemory gpu_memory(int) { refuse(); }
}  // namespace kernels

namespace verify {
std::vector<Probe> run_probes(kernels::Machine&, std::uint64_t) { refuse(); }
Arithmetic arithmetic_of(const std::vector<Probe>&, std::string_view) { refuse(); }
}  // namespace verify

namespace all_reduce {
void Exchange::stop() { refuse(); }  // none is ever made
}  // namespace all_reduce

}  // namespace fourfold
