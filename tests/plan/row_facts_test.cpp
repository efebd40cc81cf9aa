#include "plan/row_facts.h"

#include <gtest/gtest.h>

#include "tests/plan/sample_rows.h"

namespace fourfold::plan {
namespace {

TEST(RowFacts, PartsSumToTheTotal) {
  const RowFacts row = sample_prefill_row();
  EXPECT_EQ(parts_sum_bytes(row), row.total_bytes);
  EXPECT_EQ(tile_of(row), (Tile{256, 128, 128}));
  check_row(row);
}

TEST(RowFactsDeathTest, ARowThatDoesNotAddUpIsOurBug) {
  RowFacts row = sample_prefill_row();
  row.total_bytes += 1'024;
  EXPECT_DEATH(check_row(row), "parts of a row sum to its total.*83072 84096");
}

}  // namespace
}  // namespace fourfold::plan
