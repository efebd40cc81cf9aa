// Latent pages on the host, for the proofs of kernels/mla. Unwritten places hold NaN.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "kernels/mla/latent_page.h"
#include "kernels/verify/attention_inputs.h"

namespace fourfold::verify {

// Where a number of a page lies, for every latent a row can have.
struct LatentOffsets {
  std::size_t page_bytes;
  std::uint32_t (*at)(int position, int column);
};
template <int Latent>
LatentOffsets latent_offsets() {
  using Page = mla::LatentPage<Latent, mla::kPanelColumns>;
  return {Page::page_bytes, [](int position, int column) { return Page::offset(position, column); }};
}
inline LatentOffsets latent_offsets(int latent) {
  switch (latent) {
    case 64: return latent_offsets<64>();
    case 256: return latent_offsets<256>();
    case 512: return latent_offsets<512>();
  }
  fail(Code::internal, "no page layout for a latent of {}", latent);
}

struct LatentCache {
  LatentOffsets offsets;
  std::vector<unsigned char> bytes;
  LatentCache(int latent, int page_count)
      : offsets(latent_offsets(latent)),
        bytes(static_cast<std::size_t>(page_count) * offsets.page_bytes, 0xFF) {}
  const unsigned char* at(const std::vector<std::int32_t>& pages, int position, int column) const {
    return bytes.data() + static_cast<std::size_t>(pages[position / mla::kPageTokens]) * offsets.page_bytes +
           offsets.at(position % mla::kPageTokens, column);
  }
  float number(const std::vector<std::int32_t>& pages, int position, int column) const {
    return cached_value(at(pages, position, column), false);
  }
  void put(const std::vector<std::int32_t>& pages, int position, int column, double value) {
    const Bf16 half = to_bf16(static_cast<float>(value));
    std::memcpy(const_cast<unsigned char*>(at(pages, position, column)), &half, 2);
  }
};

inline AttentionShape latent_shape(StepRun& run, std::vector<AttentionPart> parts) {
  AttentionShape shape;
  shape.gated = false;
  shape.parts = std::move(parts);
  shape.gap = run.test().variant % 3 == 1 ? 2 : 0;
  return shape;
}

}  // namespace fourfold::verify
