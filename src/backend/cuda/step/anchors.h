// States kept apart from their slots, on the machine: for each DeltaNet layer the anchor at a multiple of 64
// and the convolution's inputs before it, for each layer with pages of a window those that rows behind see.
// Beside the pages of other layers that is all that later rows read of earlier ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/load/device_layers.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

class AnchorPool {
 public:
  // seen_count: pages of a window in a state, at most.
  AnchorPool(kernels::Memory& memory, kernels::Arena& arena, const DeviceModel& model,
             const Capacity& capacity, std::int64_t seen_count);

  std::int64_t anchor_bytes() const { return anchor_floats_ * 4; }
  // Throws invalid_request unless this place holds a state at the position, or there are none to hold.
  void require(std::int32_t anchor, std::int64_t position) const;
  // Copies behind what was launched before, and before what is launched next. seen: pages of the slot, of
  // layers with a window (WindowPages). save throws invalid_request for places that are not there.
  void save(std::int32_t slot, std::int64_t position, std::span<const std::int32_t> seen,
            std::int32_t anchor);
  void restore(std::int32_t anchor, std::int32_t slot, std::int64_t position,
               std::span<const std::int32_t> seen);

 private:
  struct Pages {  // keys or values of a layer with a window
    unsigned char* pages;
    std::int64_t page_floats;
  };
  // Calls visit(in the slot, in the pool, floats) for each piece of a state.
  template <class Visit>
  void each_piece(std::int32_t slot, std::int64_t position, std::span<const std::int32_t> seen,
                  std::int32_t anchor, Visit visit) const;
  void require_place(std::int32_t anchor) const;

  kernels::Memory& memory_;
  std::vector<const DeviceDelta*> layers_;
  std::vector<Pages> windows_;
  std::int64_t anchor_floats_ = 0;
  float* pool_ = nullptr;                // [anchor_count, anchor_floats]
  std::vector<std::int64_t> positions_;  // by anchor; 0: nothing is there
};

}  // namespace fourfold::backend::cuda
