// Runs proofs on all cores, longest first, each on a machine of its own thread; results come back in the
// order of the list.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/verify/cases.h"
#include "kernels/verify/probes.h"

namespace fourfold::sim {
class Device;
}

namespace fourfold::verify {

// Where proofs run. use() hands a machine to its argument for the time of the call; several threads may call
// it at once.
struct Target {
  std::string description;  // "simulator, sm120"
  const plan::ArchFacts* arch = nullptr;
  std::vector<Probe> probes;  // what the chip answered; none: it computes as modelled
  std::function<void(std::uint64_t seed, const std::function<void(kernels::Machine&)>& with)> use;
};

// What the target's probes say of the arithmetic a case uses.
Arithmetic arithmetic_of(const Target& target, const Case& test);

// A fresh simulated device for every proof, its schedule drawn from the proof's seed. prepare (may be empty)
// sees each device first: tests install mutations with it.
Target simulator_target(const plan::ArchFacts& arch, std::function<void(sim::Device&)> prepare = {});

struct Job {
  const Target* target;
  Case test;
};

struct Progress {
  int done;
  int count;
  double share;  // of the work, by estimated cost
};

// progress (may be empty) is called after each proof, from one thread at a time.
std::vector<Result> run_jobs(const std::vector<Job>& jobs,
                             const std::function<void(const Progress&)>& progress);

// The same case on two machines, byte for byte. Only where the arithmetic of both is exact.
struct MachineComparison {
  std::string row, op, first, second;
  std::uint64_t seed = 0;
  std::int64_t bytes = 0;
  std::int64_t different = 0;
  std::string failure;
  bool passed() const { return failure.empty() && bytes > 0 && different == 0; }
};
MachineComparison compare_machines(const Target& first, const Target& second, const Case& test);

}  // namespace fourfold::verify
