#include "backend/cuda/step/anchors.h"

#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

constexpr std::int64_t kInputsKept = delta::kTaps - 1;

std::int64_t state_floats(const delta::Layout& layout) {
  return std::int64_t{layout.value_dim} * layout.head_dim;
}

}  // namespace

AnchorPool::AnchorPool(kernels::Memory& memory, kernels::Arena& arena, const DeviceModel& model,
                       const Capacity& capacity, std::int64_t seen_count)
    : memory_(memory), positions_(static_cast<std::size_t>(capacity.anchor_count)) {
  for (const DeviceLayer& layer : model.layers) {
    if (const auto* mixer = std::get_if<DeviceDelta>(&layer.mixer)) layers_.push_back(mixer);
    const auto* attention = std::get_if<DeviceAttention>(&layer.mixer);
    if (attention == nullptr || !attention->has_window_pages) continue;
    const std::int64_t floats = std::int64_t{step::kPageTokens} * attention->kv_heads * attention->head_dim *
                                element_bytes(attention->kv) / 4;
    for (unsigned char* pages : {attention->keys, attention->values}) windows_.push_back({pages, floats});
  }
  for (const Pages& window : windows_) anchor_floats_ += seen_count * window.page_floats;
  for (const DeviceDelta* layer : layers_)
    anchor_floats_ += state_floats(layer->layout) + kInputsKept * layer->layout.conv_dim;
  const std::int64_t floats = anchor_floats_ * capacity.anchor_count;
  if (floats > 0) pool_ = arena.take<float>(static_cast<std::size_t>(floats), "kept states");
}

template <class Visit>
void AnchorPool::each_piece(std::int32_t slot, std::int64_t position, std::span<const std::int32_t> seen,
                            std::int32_t anchor, Visit visit) const {
  float* kept = pool_ + anchor * anchor_floats_;
  for (const DeviceDelta* layer : layers_) {
    const delta::Layout& layout = layer->layout;
    float* base = layer->state + std::int64_t{slot} * layout.slot_floats;
    const std::int64_t state = state_floats(layout);
    visit(base + position / delta::kBlockRows % 2 * state, kept, state);
    kept += state;
    for (std::int64_t at = position - kInputsKept; at < position; ++at) {
      const int row = delta::wrapped(static_cast<int>(at), delta::kConvKept);
      visit(base + layout.conv_at + std::int64_t{row} * layout.conv_dim, kept, std::int64_t{layout.conv_dim});
      kept += layout.conv_dim;
    }
  }
  for (const Pages& window : windows_)
    for (const std::int32_t page : seen) {
      visit(reinterpret_cast<float*>(window.pages) + page * window.page_floats, kept, window.page_floats);
      kept += window.page_floats;
    }
}

void AnchorPool::require_place(std::int32_t anchor) const {
  if (anchor < 0 || anchor >= std::ssize(positions_))
    fail(Code::invalid_request, "anchor {}; there is room for {}", anchor, positions_.size());
}

void AnchorPool::require(std::int32_t anchor, std::int64_t position) const {
  if (anchor_floats_ == 0) return;  // nothing but pages
  require_place(anchor);
  const std::int64_t held = positions_[static_cast<std::size_t>(anchor)];
  if (position < 1 || held != position)
    fail(Code::invalid_request, "anchor {} holds the state at {}, not at {}", anchor, held, position);
}

void AnchorPool::save(std::int32_t slot, std::int64_t position, std::span<const std::int32_t> seen,
                      std::int32_t anchor) {
  require_place(anchor);
  positions_[static_cast<std::size_t>(anchor)] = position;
  each_piece(slot, position, seen, anchor, [&](float* in_slot, float* kept, std::int64_t floats) {
    memory_.copy(kept, in_slot, static_cast<std::size_t>(floats) * 4);
  });
}

void AnchorPool::restore(std::int32_t anchor, std::int32_t slot, std::int64_t position,
                         std::span<const std::int32_t> seen) {
  each_piece(slot, position, seen, anchor, [&](float* in_slot, float* kept, std::int64_t floats) {
    memory_.copy(in_slot, kept, static_cast<std::size_t>(floats) * 4);
  });
}

}  // namespace fourfold::backend::cuda
