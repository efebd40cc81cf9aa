// A model's program prepared on a backend: its ranks, what is multiplied, what is kept where. The one place
// that puts backends together; the program, the server and libfourfold_engine all come here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/collective.h"
#include "backend/cuda/cuda.h"
#include "checkpoint/stream.h"
#include "kernels/launch/machine.h"
#include "library/activations.h"
#include "library/backend_options.h"
#include "library/listener.h"
#include "library/open_model.h"
#include "model/builder.h"
#include "model/shard.h"

namespace fourfold::library {

// Whether a backend launches kernels: cuda, or sim.
bool on_machine(std::string_view backend);

// keep, fp8 or nvfp4.
backend::DenseWeights parse_dense_weights(std::string_view text);

// cuda: a GPU. sim: the simulated one, the same launches a million times slower, for models of a few thousand
// weights.
std::shared_ptr<kernels::Machine> open_machine(const std::string& backend, int gpu_index);

// --kv: auto leaves the program as it was built, with the activations' format.
void store_kv(backend::Program& program, std::string_view kv);

// Throws invalid_request unless it is more than 0 and at most 1.
double parse_memory_fraction(double fraction);

// --experts: auto, tp or ep.
model::ExpertSharding parse_expert_sharding(std::string_view text);

// Throws invalid_request for words that mean nothing and options the backend does not have.
void require_known(const BackendOptions& options);

// Ranks of --tp that are possible at all.
inline constexpr int kRanksMax = 16;

// The program of one rank, and what it points into. With one rank the part is the model.
struct RankProgram {
  std::shared_ptr<const model::ModelShard> part;  // null: the program points into the OpenModel itself
  backend::Program program;
};
RankProgram rank_program(const OpenModel& model, const BackendOptions& options, int rank,
                         model::Activations activations);

// The CPUs of one rank of several on this machine.
struct CpuShare {
  int threads = 1;
  int first_cpu = 0;
};
// Every one has as many threads; the first begins at the first CPU.
CpuShare cpu_share(const BackendOptions& options, int sharers);
// One rank on the cpu or reference backend.
std::shared_ptr<backend::Backend> make_rank_backend(const BackendOptions& options,
                                                    checkpoint::LoadProgress& progress, const CpuShare& share,
                                                    const std::shared_ptr<backend::Collective>& collective);

struct NodeRanks;

// What a prepared program stands on, in the order it must be torn down.
struct PreparedModel {
  std::shared_ptr<NodeRanks> nodes;           // ranks on other machines: where they join
  std::shared_ptr<kernels::Machine> machine;  // cuda and sim: what the backend launches on
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<backend::Prepared> prepared;
  double seconds = 0;  // it took to load
  ChosenActivations activations;
  backend::LoadReport load;  // cuda and sim: how the weights came there
  backend::Program whole;    // of several ranks: what they compute together
  int whole_ranks = 1;
  // Of ranks on GPUs, by rank: its GPU, and what it may plan for there.
  std::vector<int> devices;
  std::vector<backend::MemoryRoom> rooms;

  backend::Prepared& operator*() const { return *prepared; }
  backend::Prepared* operator->() const { return prepared.get(); }
};

// Builds the program, chooses the kernels, packs the weights. The model must outlive what comes back.
PreparedModel prepare_model(const OpenModel& model, const BackendOptions& options,
                            const backend::Capacity& capacity, const Listener& listener);

}  // namespace fourfold::library
