#include "checkpoint/family.h"

namespace fourfold::checkpoint {

std::span<const Family* const> known_families() {
#define FOURFOLD_ADDRESS(family, maker) &family,
  static constexpr const Family* families[] = {FOURFOLD_FAMILIES(FOURFOLD_ADDRESS)};
#undef FOURFOLD_ADDRESS
  return families;
}

}  // namespace fourfold::checkpoint
