#include "sim/fault.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fourfold::sim {
namespace {

TEST(Fault, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(FaultKind::user_check); ++kind)
    names.insert(fault_name(static_cast<FaultKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(FaultKind::user_check) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
}

TEST(Fault, SaysWhereAndWhat) {
  const Fault fault(FaultKind::race, {"moe_gemm", 3, 2, 5, "moe_gemm.h", 120}, "two writers");
  EXPECT_STREQ(fault.what(), "race in moe_gemm, block 3, warp 2 lane 5, at moe_gemm.h:120: two writers");
  EXPECT_EQ(fault.detail(), "two writers");
}

TEST(Fault, IsLocatedOnce) {
  Fault fault(FaultKind::early_accumulator, {}, "used");
  EXPECT_STREQ(fault.what(), "early_accumulator: used");
  fault.locate("kernel", 1, 2, 3);
  fault.locate("other", 7, 7, 7);
  EXPECT_STREQ(fault.what(), "early_accumulator in kernel, block 1, warp 2 lane 3: used");
}

}  // namespace
}  // namespace fourfold::sim
