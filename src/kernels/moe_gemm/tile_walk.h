// The order of work items: every role iterates the same walk, so loader and math cannot disagree. An item is
// a token tile times M weight rows; blocks take items round robin. FP4: M fastest, neighbours share the
// tokens in L2. The wider formats, whose matrices are mostly dense (one expert, many token tiles), go in
// groups of sixteen token tiles, token tiles fastest: neighbours share the weights, and a group's tokens stay
// in L2.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/record/record.h"

namespace fourfold::moe_gemm {

struct Item {
  moe::TokenTile tile;
  int first_strip;
};

// Token columns a row's math runs a tile of `count` tokens with. wgmma has its width in its encoding, one
// loop per width: rows that serve have them in steps that waste little, the others a half and a quarter of N.
template <class Row>
constexpr int padded_columns(int count) {
  if constexpr (Row::fine_widths) {
    if (Row::n <= 64 || count <= 32) return (count + 7) / 8 * 8;
    return (count + 15) / 16 * 16;
  } else {
    return count <= Row::n / 4 && Row::n >= 32   ? Row::n / 4
           : count <= Row::n / 2 && Row::n >= 16 ? Row::n / 2
                                                 : Row::n;
  }
}

inline constexpr int kTilesOfGroup = 16;

template <class Row, class Cta>
class TileWalk {
 public:
  FOURFOLD_DEVICE TileWalk(Cta cta, const moe::GemmParams& params)
      : cta_(cta), params_(params), blocks_of_m_((params.strips + Row::strips - 1) / Row::strips) {
    count_ = cta.load(params.tile_count) * blocks_of_m_;
    index_ = cta.block();
  }
  FOURFOLD_DEVICE bool done() const { return index_ >= count_; }
  FOURFOLD_DEVICE Item item() const {
    const Place at = place();
    return {cta_.load(params_.tiles + at.tile), at.first_strip};
  }
  FOURFOLD_DEVICE void advance() { index_ += cta_.blocks(); }

 private:
  struct Place {
    int tile;
    int first_strip;
  };
  FOURFOLD_DEVICE Place place() const {
    int tile = index_ / blocks_of_m_;
    int block_of_m = index_ - tile * blocks_of_m_;
    if constexpr (!record::kHasBlockScales<typename Row::Format>) {
      const int first = tile / kTilesOfGroup * kTilesOfGroup, left = count_ / blocks_of_m_ - first;
      const int tiles = left < kTilesOfGroup ? left : kTilesOfGroup;
      const int in_group = index_ - first * blocks_of_m_;
      block_of_m = in_group / tiles;
      tile = first + in_group - block_of_m * tiles;
    }
    return {tile, block_of_m * Row::strips};
  }
  Cta cta_;
  const moe::GemmParams& params_;
  int blocks_of_m_;
  int count_;
  int index_;
};

// Stages of K; the last may hold fewer panels (on the warpgroup path the first).
template <class Row>
FOURFOLD_DEVICE int stages_of_k(const moe::GemmParams& params) {
  return (params.records + Row::panels - 1) / Row::panels;
}
template <class Row>
FOURFOLD_DEVICE int panels_of_first_stage(const moe::GemmParams& params) {
  return params.records - (stages_of_k<Row>(params) - 1) * Row::panels;
}
template <class Row>
FOURFOLD_DEVICE int panels_of_stage(const moe::GemmParams& params, int stage_of_k) {
  const int left = params.records - stage_of_k * Row::panels;
  return left < Row::panels ? left : Row::panels;
}

}  // namespace fourfold::moe_gemm
