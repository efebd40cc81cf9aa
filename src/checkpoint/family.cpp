#include "checkpoint/family.h"

namespace fourfold::checkpoint {

std::span<const Family* const> known_families() {
  static constexpr const Family* families[] = {&kQwen35,    &kQwen3Next, &kQwen3Moe,   &kGlm4Moe,
                                               &kMiniMaxM2, &kGptOss,    &kDeepseekV3, &kMistral4};
  return families;
}

}  // namespace fourfold::checkpoint
