// The simulated GPU as hosts see it: memory, and launches that form a chain as on one stream. A device
// belongs to one host thread at a time; different devices may be used by different threads at once.
//
//   sim::Device device;
//   auto* x = static_cast<float*>(device.allocate(4096, "x"));
//   device.write_from_host(x, host.data(), 4096);
//   device.launch({.blocks = 2, .threads = 128, .name = "scale"}, [&](sim::Lane& lane) { ... });
//   device.read_to_host(host.data(), x, 4096);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/fault.h"
#include "sim/fiber.h"
#include "sim/global_memory.h"
#include "sim/lane.h"
#include "sim/launch.h"
#include "sim/peer_memory.h"
#include "sim/site.h"

namespace fourfold::sim {

class Residents;

struct DeviceOptions {
  std::size_t memory_bytes = std::size_t{1} << 30;  // addresses only; pages appear when touched
  std::size_t stack_bytes = 64 * 1024;  // per simulated thread; sanitizer builds use four times as much
  // What the devices of several ranks share; null: this one is alone.
  std::shared_ptr<PeerMemory> peers = {};
  int rank = 0;
};

class Device {
 public:
  explicit Device(DeviceOptions options = {});
  ~Device();

  // ---- memory ---- pointers are real; what the host writes through them is announced with mark_written
  void* allocate(std::size_t bytes, std::string_view name) { return memory_.allocate(bytes, name); }
  template <class T>
  T* allocate_array(std::size_t count, std::string_view name) {
    return static_cast<T*>(memory_.allocate(count * sizeof(T), name));
  }
  void release(const void* pointer) { memory_.release(pointer); }
  void write_from_host(void* to, const void* from, std::size_t bytes);
  // Throws a Fault when a byte was never written.
  void read_to_host(void* to, const void* from, std::size_t bytes) const;
  void mark_written(const void* start, std::size_t bytes) { memory_.mark_written(start, bytes); }
  // From now on these bytes count as never written.
  void forget(const void* start, std::size_t bytes) {
    peers_->contains(start, bytes) ? peers_->forget(start, bytes) : memory_.forget(start, bytes);
  }
  PeerMemory& peers() { return *peers_; }
  int rank() const { return rank_; }

  // ---- launches ----
  // Calls kernel(lane) once per thread of the grid; throws the first Fault. Runs to its end here, unless its
  // blocks have let the next grid start and wait for it: then it goes on beside that one.
  template <class F>
  LaunchStats launch(const LaunchConfig& config, F&& kernel) {
    using Function = std::decay_t<F>;
    return run(config, {[](void* self, Lane& lane) { (*static_cast<Function*>(self))(lane); },
                        std::make_shared<Function>(std::forward<F>(kernel))});
  }
  // The host waits for everything launched so far.
  void synchronize();

  // For launches whose config has seed 0: lets a test vary schedules below a layer that knows no seeds.
  void set_seed(std::uint64_t seed) { seed_ = seed; }
  // Every later launch runs with this synchronisation damaged.
  void install(const Mutation& mutation) { mutation_ = mutation; }
  void clear_mutation() { mutation_.reset(); }
  // Every synchronisation executed by any launch so far, faulty ones included.
  const std::vector<SyncSite>& executed_sites() const { return executed_; }

 private:
  LaunchStats run(const LaunchConfig& config, Kernel kernel);
  void check_config(const LaunchConfig& config) const;
  void remember_sites(LaunchStats& stats);

  void run_residents();
  LaunchStats end_of_launch();

  GlobalMemory memory_;
  std::shared_ptr<PeerMemory> peers_;
  int rank_;
  StackPool stacks_;
  SiteTable sites_;
  std::uint64_t seed_ = 0;
  std::optional<Mutation> mutation_;
  std::vector<SyncSite> executed_;
  std::unique_ptr<Residents> residents_;  // between launches: a grid that waits for the next one

  // The chain of launches. released_: what is complete when a dependent grid may start.
  std::uint32_t last_grid_ = 0;
  std::uint32_t released_ = 0;
  std::uint32_t complete_ = 0;
};

}  // namespace fourfold::sim
