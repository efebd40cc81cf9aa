// The machines of several ranks and what they meet in: a GPU each, streams of one GPU, or simulated devices.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/collective.h"
#include "backend/cuda/cuda.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/machine.h"
#include "library/backend_options.h"
#include "library/listener.h"

namespace fourfold::library {

using backend::PartOf;

struct RankMachines {
  std::vector<std::shared_ptr<kernels::Machine>> machines;  // by rank
  std::vector<std::function<void()>> enter;                 // called once in the rank's thread
  std::vector<int> devices;                        // by rank: its device's number; ranks may share one
  std::vector<void*> streams;                      // by rank: its GPU's cudaStream_t; null: a simulated one
  std::shared_ptr<all_reduce::Exchange> exchange;  // goes before the machines
};

// Which GPU each rank gets of so many: one each, or as few on one as there can be, neighbours together.
std::vector<int> spread_ranks(int ranks, int gpus);
// The same for a backend: its GPUs, or a simulated one each.
std::vector<int> devices_of_ranks(const std::string& backend, int ranks);

// What each rank may plan for: its share of what is free on its own device now. free_and_total answers for a
// device.
using AskMemory = std::function<kernels::GpuMemory(int device)>;
std::vector<backend::MemoryRoom> rank_rooms(const std::vector<int>& devices, double fraction,
                                            const AskMemory& free_and_total);

// cuda: a GPU for each rank where there are so many, else some of them share one, which is said. GPUs write
// into each other's memory when the driver allows it and sums of known numbers have come out right; otherwise
// they meet in the host's memory, and its price is said. sim: a simulated device each.
std::shared_ptr<RankMachines> open_rank_machines(const std::string& backend, int ranks,
                                                 const Listener& listener);

// The machine of one rank whose others are in other processes: this GPU of those here, or a simulated one.
// Throws unsupported_device where there is none of that number.
std::shared_ptr<RankMachines> open_node_machine(const std::string& backend, const PartOf& part, int gpu);
// What parts of a sum fit together by: "sm120 with 188 SMs".
std::string machine_words(const kernels::Machine& machine);
// How the GPUs of several processes meet, by what --collective asks (auto, tcp, nccl): "tcp", or "nccl" and
// the version of the library, which all ranks must have. Which, why and at what price is said. Throws
// unsupported_op where NCCL is asked for and cannot be had.
std::string choose_collective(const BackendOptions& options, const Listener& listener);
// Its exchange; `machines` has one. words: as chosen. The collective is the processes' own way to each other.
void join_processes(RankMachines& machines, const std::string& words, const PartOf& part,
                    const std::shared_ptr<backend::Collective>& collective);
// Whether steps can be recorded as graphs then.
bool records_steps(const std::string& words);

}  // namespace fourfold::library
