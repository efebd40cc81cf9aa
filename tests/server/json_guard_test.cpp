#include "server/json_guard.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fourfold::server {
namespace {

TEST(JsonGuard, CountsOutsideOfStrings) {
  const JsonSize size = measure_json(R"({"a":[1,2,{"b":"[[[[,,,,\"[["}],"c":3})");
  EXPECT_EQ(size.depth, 3u);
  EXPECT_EQ(size.value_count, 1u + 3 + 3);
  EXPECT_EQ(measure_json("]]]]{").depth, 1u);
  EXPECT_EQ(measure_json("\"abc\\").depth, 0u);
}

TEST(JsonGuard, RefusesDeepAndWide) {
  EXPECT_NO_THROW(require_bounded(R"({"a":1})"));
  EXPECT_THROW(require_bounded(""), Error);
  EXPECT_THROW(require_bounded(" \n"), Error);
  EXPECT_THROW(require_bounded("\xEF\xBB\xBF{}"), Error);
  EXPECT_THROW(require_bounded(std::string(100'000, '[')), Error);
  EXPECT_THROW(require_bounded("[" + std::string(3'000'000, ',') + "]"), Error);
}

}  // namespace
}  // namespace fourfold::server
