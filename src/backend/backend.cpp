#include "backend/backend.h"

#include "base/error.h"

namespace fourfold::backend {

void Prepared::save_anchor(std::int32_t, std::int64_t, std::int32_t anchor) {
  fail(Code::invalid_request, "anchor {}: this program was prepared without room for anchors", anchor);
}

void Prepared::restore_anchor(std::int32_t anchor, std::int32_t, std::int64_t) {
  fail(Code::invalid_request, "anchor {}: this program was prepared without room for anchors", anchor);
}

}  // namespace fourfold::backend
