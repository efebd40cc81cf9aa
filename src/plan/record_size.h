// The grain of every weight tile: a record holds 32 rows x 64 columns with their scales, so M is a multiple
// of 32 and K of 64, and no layout needs more than that. Its bytes are kernels/record/record.h.
#pragma once

namespace fourfold::plan {

inline constexpr int kRecordRows = 32;
inline constexpr int kRecordColumns = 64;

}  // namespace fourfold::plan
