// Shared by the simulator's tests: launches of tiny kernels over SimCta, and "this must be that fault".
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/sim/cta.h"
#include "kernels/device/types.h"
#include "sim/device.h"
#include "sim/vector_width.h"

namespace fourfold::sim {

using device::Mbarrier;
using device::SimCta;
using device::U32x4;

constexpr int kSharedLimit = 101376;

// Threads, shared memory and seed; everything else is the default.
inline LaunchConfig config_of(int threads, int shared_bytes = 0, std::uint64_t seed = 0) {
  LaunchConfig config;
  config.threads = threads;
  config.shared_bytes = shared_bytes;
  config.shared_limit_bytes = kSharedLimit;
  config.seed = seed;
  config.name = "test";
  return config;
}

// Kernels of tests take a SimCta, as real ones do.
template <class F>
LaunchStats launch(Device& device, const LaunchConfig& config, F kernel) {
  return device.launch(config, [kernel](Lane& lane) { kernel(SimCta(lane)); });
}

// The fault an action raises; none is a failure of the test.
template <class F>
Fault fault_of(F action) {
  try {
    action();
  } catch (const Fault& fault) {
    return fault;
  }
  ADD_FAILURE() << "no fault was raised";
  return Fault(FaultKind::user_check, {}, "none");
}

template <class F>
Fault expect_fault(FaultKind kind, F action) {
  Fault fault = fault_of(std::move(action));
  EXPECT_EQ(fault_name(fault.kind()), fault_name(kind)) << fault.what();
  return fault;
}

// In how many of the seeds 0 .. count-1 the action faults with this kind; other kinds fail the test.
template <class F>
int faults_in_seeds(FaultKind kind, int count, F action) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(count); ++seed) {
    try {
      action(seed);
    } catch (const Fault& fault) {
      EXPECT_EQ(fault_name(fault.kind()), fault_name(kind)) << "seed " << seed << ": " << fault.what();
      ++found;
    }
  }
  return found;
}

inline bool mentions(const Fault& fault, const std::string& text) {
  return std::string(fault.what()).find(text) != std::string::npos;
}

// Device memory filled with words 0, 1, 2, ...
inline std::uint32_t* counting_words(Device& device, std::size_t count, const char* name) {
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<std::uint32_t>(i);
  auto* const memory = device.allocate_array<std::uint32_t>(count, name);
  device.write_from_host(memory, words.data(), count * 4);
  return memory;
}

// With four lanes, and with eight where the processor has them.
template <class F>
void with_every_width(F action) {
  const bool has_eight = has_eight_lanes;
  has_eight_lanes = false;
  action(4);
  has_eight_lanes = has_eight;
  if (has_eight) action(8);
}

}  // namespace fourfold::sim
