// The MoE layers of published models, from the config files of their releases. What kernels are proved and
// measured at, and what models of random weights are made with, are the same sizes.
#pragma once

#include <string_view>

namespace fourfold {

struct MoeShape {
  std::string_view name;
  int hidden = 0;
  int intermediate = 0;  // of one expert
  int experts = 0;
  int top_k = 0;
};

inline constexpr MoeShape kQwen35b{"35b", 2048, 512, 256, 8};
inline constexpr MoeShape kQwen122b{"122b", 3072, 1024, 256, 8};
inline constexpr MoeShape kQwen397b{"397b", 4096, 1024, 512, 10};

// What one of `ranks` GPUs has of a layer: some neurons of every expert.
constexpr MoeShape rank_of(MoeShape shape, std::string_view name, int ranks) {
  shape.name = name;
  shape.intermediate /= ranks;
  return shape;
}
inline constexpr MoeShape kQwen397bTp4 = rank_of(kQwen397b, "397b-tp4", 4);

inline constexpr MoeShape kPublishedShapes[] = {kQwen35b, kQwen122b, kQwen397b, kQwen397bTp4};

}  // namespace fourfold
