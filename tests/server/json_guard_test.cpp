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

// The guard and the parser behind it draw the line at the same bracket and the same value.
TEST(JsonGuard, LimitsAreExact) {
  const auto nested = [](int depth, const char* inside) {
    std::string out;
    for (int i = 0; i < depth; ++i) out += i % 2 == 0 ? "{\"a\":" : "[";
    out += inside;
    for (int i = depth; i-- > 0;) out += i % 2 == 0 ? "}" : "]";
    return out;
  };
  const auto parse = [](const std::string& text) {
    text::jinja::parse_json(text, "t", text::jinja::JsonRules::request);
  };
  for (const std::string& text : {nested(64, "1"), nested(63, "[]"), nested(63, "{}")}) {
    EXPECT_NO_THROW(require_bounded(text)) << text;
    EXPECT_NO_THROW(parse(text)) << text;
  }
  for (const std::string& text : {nested(65, "1"), nested(64, "[]"), nested(64, "{}")}) {
    EXPECT_THROW(require_bounded(text), Error) << text;
    EXPECT_THROW(parse(text), Error) << text;
  }
  const JsonBounds few{.depth_max = 2, .value_count_max = 4};
  EXPECT_NO_THROW(require_bounded("[1,2,3]", few));
  EXPECT_THROW(require_bounded("[1,2,3,4]", few), Error);
}

}  // namespace
}  // namespace fourfold::server
