#include "backend/cpu/plan.h"

#include <set>

#include "tests/backend/support.h"

namespace fourfold::backend::cpu {
namespace {

// embed x; a = W x; n = norm a; b = V x; s = n + b; logits.
struct Planned {
  Planned() {
    program = small.program;
    program.vectors = {{"w", weights}};
    program.matrices.push_back(program.matrices[1]);
    program.values = {{.name = "x", .columns = 4}, {.name = "a", .columns = 5},
                      {.name = "n", .columns = 5}, {.name = "b", .columns = 5},
                      {.name = "s", .columns = 5}, {.name = "logits", .columns = 5}};
    program.main = {Embed{{0}, {{0}}},       Linear{{0}, {1}, {{1}}}, RmsNorm{{1}, {0}, false, 1e-6, {{2}}},
                    Linear{{0}, {2}, {{3}}}, Add{{2}, {3}, {{4}}},    AllReduce{{4}, {{5}}}};
    program.main_logits = {5};
  }
  SmallModel small;
  std::vector<float> weights = std::vector<float>(5, 1.0f);
  Program program;
};

TEST(Plan, LinearsOfOneInputStandTogether) {
  const Planned p;
  ASSERT_TRUE(problems_of(p.program).empty());
  const auto steps = plan_steps(p.program, Pass::main);
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[1].linears.size(), 2u);
  EXPECT_EQ(steps[1].linears[1].out.index, 3);
  EXPECT_TRUE(std::holds_alternative<RmsNorm>(steps[2].op));
}

TEST(Plan, ValuesShareMemoryOnlyWhenTheirLivesDoNotMeet) {
  const Planned p;
  const auto steps = plan_steps(p.program, Pass::main);
  const ValuePlaces places = place_values(p.program, steps, {}, Sharing::shared);
  EXPECT_EQ(places.buffer[5], ValuePlaces::kCaller);
  // Alive together: a and b with x (read while they are written), n with a and b, s with n and b.
  for (const auto& [one, other] : {std::pair(0, 1), {0, 3}, {1, 3}, {1, 2}, {2, 3}, {4, 2}, {4, 3}})
    EXPECT_NE(places.buffer[static_cast<std::size_t>(one)], places.buffer[static_cast<std::size_t>(other)])
        << one << " and " << other;
  EXPECT_LT(places.buffer_columns.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_GE(places.buffer_columns[static_cast<std::size_t>(places.buffer[i])], p.program.values[i].columns);
}

TEST(Plan, ApartEveryValueHasItsOwn) {
  const Planned p;
  const ValuePlaces places = place_values(p.program, plan_steps(p.program, Pass::main), {}, Sharing::apart);
  EXPECT_EQ(std::set<std::int32_t>(places.buffer.begin(), places.buffer.end()).size(), 6u);
}

}  // namespace
}  // namespace fourfold::backend::cpu
