#include "checkpoint/problem_list.h"

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

TEST(ProblemList, AnEmptyListIsNoError) {
  const ProblemList problems;
  EXPECT_TRUE(problems.empty());
  problems.fail_if_any("model");
}

TEST(ProblemList, GroupsCutsAndCounts) {
  ProblemList problems;
  problems.add("missing", "a");
  for (int i = 0; i < 1500; ++i) problems.add("left over", format("t{}", i));
  problems.add("missing", "b");
  const std::string hint =
      expect_error(Code::bad_checkpoint,
                   {"model: 2 missing: a, b; 1,500 left over: t0, t1, t2, t3, t4, t5, t6, t7 and 1,492 more"},
                   [&] { problems.fail_if_any("model", "download it again"); });
  EXPECT_EQ(hint, "download it again");
}

}  // namespace
}  // namespace fourfold::checkpoint
