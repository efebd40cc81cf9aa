#include "backend/reference/reference.h"

#include "tests/backend/support.h"
#include "tests/support/steps.h"

namespace fourfold::backend {
namespace {

constexpr Capacity kCapacity{.page_count = 4, .page_tokens = 8, .state_slot_count = 2, .row_count = 20};

TEST(Reference, GivesLogitsOfTheRowsAskedAndNoOthers) {
  const SmallModel model;
  const auto prepared = ReferenceBackend().prepare(model.program, kCapacity);
  const auto rows = step(*prepared, Pass::main,
                         {{.slot = 0, .pages = {0}, .tokens = {3, 1, 4}, .all_logits = false},
                          {.slot = 1, .pages = {1}, .tokens = {2, 0}}});
  const std::vector<std::int32_t> asked{4, 2, 0};
  ASSERT_EQ(rows.size(), asked.size());
  for (std::size_t row = 0; row < asked.size(); ++row) {
    for (int id = 0; id < 5; ++id) {
      double sum = 0;
      for (int i = 0; i < 4; ++i)
        sum += static_cast<double>(model.table_values[asked[row] * 4 + i]) * model.head_values[id * 4 + i];
      EXPECT_EQ(rows[row][id], static_cast<float>(sum));
    }
  }
  EXPECT_EQ(prepared->value({0}).size(), 5u * 4u);
}

TEST(Reference, RefusesABatchAndChangesNothing) {
  const SmallModel model;
  const auto prepared = ReferenceBackend().prepare(model.program, kCapacity);
  const std::vector<Part> first{{.slot = 0, .pages = {0}, .tokens = {3, 1}}};
  step(*prepared, Pass::main, first);
  expect_refused({"state slot 0 holds 2 positions"}, [&] {
    step(*prepared, Pass::main, {{.slot = 0, .pages = {0}, .position = 3, .tokens = {1}}});
  });
  expect_refused({"token id 9"},
                 [&] { step(*prepared, Pass::main, {{.slot = 0, .pages = {0}, .tokens = {9}}}); });
  step(*prepared, Pass::main, {{.slot = 0, .pages = {0}, .position = 2, .tokens = {1}}});
}

TEST(Reference, RefusesAnEmptyCapacity) {
  const SmallModel model;
  expect_refused({"capacity", "0 slots"},
                 [&] { ReferenceBackend().prepare(model.program, {.page_count = 1, .row_count = 1}); });
}

TEST(ReferenceDeathTest, AnUnsoundProgramIsOurMistake) {
  const SmallModel model;
  Program program = model.program;
  program.values[1].columns = 3;
  EXPECT_DEATH(ReferenceBackend().prepare(program, kCapacity), "the program is sound");
}

}  // namespace
}  // namespace fourfold::backend
