#include "checkpoint/family.h"

namespace fourfold::checkpoint {

// All that is known of the folders of families/ outside of them: a declaration for each family, and its place
// in the list.
extern const Family kQwen35;
extern const Family kQwen3Next;
extern const Family kQwen3Moe;
extern const Family kGlm4Moe;
extern const Family kMiniMaxM2;
extern const Family kGptOss;
extern const Family kDeepseekV3;
extern const Family kMistral4;

std::span<const Family* const> known_families() {
  static constexpr const Family* families[] = {
      &kQwen35, &kQwen3Next, &kQwen3Moe, &kGlm4Moe, &kMiniMaxM2, &kGptOss, &kDeepseekV3, &kMistral4,
  };
  return families;
}

}  // namespace fourfold::checkpoint
