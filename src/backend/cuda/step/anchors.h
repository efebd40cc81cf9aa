// Recurrent states kept apart from their slots, on the machine: for each DeltaNet layer the anchor at a
// multiple of 64 and the convolution's inputs before it, which is all that later rows read of earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/load/device_layers.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

class AnchorPool {
 public:
  AnchorPool(kernels::Memory& memory, kernels::Arena& arena, const DeviceModel& model,
             const Capacity& capacity);

  std::int64_t anchor_bytes() const { return anchor_floats_ * 4; }
  // Copies behind what was launched before, and before what is launched next. Both throw invalid_request for
  // places that are not there, restore also for one that holds another position.
  void save(std::int32_t slot, std::int64_t position, std::int32_t anchor);
  void restore(std::int32_t anchor, std::int32_t slot, std::int64_t position);

 private:
  // Calls visit(in the slot, in the pool, floats) for each piece of a state.
  template <class Visit>
  void each_piece(std::int32_t slot, std::int64_t position, std::int32_t anchor, Visit visit) const;
  void require_place(std::int32_t anchor) const;

  kernels::Memory& memory_;
  std::vector<const DeviceDelta*> layers_;
  std::int64_t anchor_floats_ = 0;
  float* pool_ = nullptr;                // [anchor_count, anchor_floats]
  std::vector<std::int64_t> positions_;  // by anchor; 0: nothing is there
};

}  // namespace fourfold::backend::cuda
