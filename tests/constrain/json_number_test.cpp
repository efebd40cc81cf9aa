#include "constrain/json_number.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/constrain/accepts.h"

namespace fourfold::constrain {
namespace {

// Every number of this notation in hundredths: exact, without floating point.
struct Written {
  std::string text;
  std::int64_t hundredths;
  bool integer;
};

std::vector<Written> all_small_numbers() {
  std::vector<Written> numbers;
  for (std::int64_t whole = 0; whole <= 130; ++whole)
    for (const std::int64_t sign : {1, -1}) {
      const std::string start = (sign < 0 ? "-" : "") + std::to_string(whole);
      numbers.push_back({start, sign * whole * 100, true});
      for (std::int64_t tenths = 0; tenths < 10; ++tenths) {
        numbers.push_back({start + "." + std::to_string(tenths), sign * (whole * 100 + tenths * 10), false});
        for (std::int64_t rest = 0; rest < 10; rest += 5)
          numbers.push_back({start + "." + std::to_string(tenths) + std::to_string(rest),
                             sign * (whole * 100 + tenths * 10 + rest), false});
      }
    }
  return numbers;
}

std::string decimal(std::int64_t hundredths) {
  const std::int64_t size = std::abs(hundredths);
  std::string text = (hundredths < 0 ? "-" : "") + std::to_string(size / 100);
  if (size % 100 != 0) text += "." + std::to_string(size % 100 / 10) + std::to_string(size % 10);
  return text;
}

TEST(JsonNumber, BoundsAreExact) {
  const std::vector<Written> numbers = all_small_numbers();
  Random random(3);
  const std::int64_t edges[] = {0, 100, -100, 5, -5, 999, 1000, -1000, 9900, 10000, 12345, -12005};
  for (int round = 0; round < 60; ++round) {
    const auto draw = [&] {
      return random.below(3) == 0 ? edges[random.below(std::size(edges))]
                                  : (static_cast<std::int64_t>(random.below(5200)) - 2600) * 5;
    };
    const bool integer = random.below(2), has_low = random.below(4) != 0, has_high = random.below(4) != 0;
    const bool low_open = random.below(2), high_open = random.below(2);
    const std::int64_t low = draw(), high = low + std::abs(draw());
    std::string schema = integer ? R"({"type": "integer")" : R"({"type": "number")";
    if (has_low)
      schema += std::string(", \"") + (low_open ? "exclusiveM" : "m") + "inimum\": " + decimal(low);
    if (has_high)
      schema += std::string(", \"") + (high_open ? "exclusiveM" : "m") + "aximum\": " + decimal(high);
    schema += "}";
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = compile_json_schema(schema);
    } catch (const Error&) {
      for (const Written& number : numbers) {  // refused: then no number may fit
        const bool fits =
            (!has_low || number.hundredths > low || (!low_open && number.hundredths == low)) &&
            (!has_high || number.hundredths < high || (!high_open && number.hundredths == high)) &&
            (!integer || number.integer);
        ASSERT_FALSE(fits) << schema << " " << number.text;
      }
      continue;
    }
    for (const Written& number : numbers) {
      const bool fits =
          (!has_low || number.hundredths > low || (!low_open && number.hundredths == low)) &&
          (!has_high || number.hundredths < high || (!high_open && number.hundredths == high)) &&
          (!integer || number.integer);
      ASSERT_EQ(accepts(*grammar, number.text), fits) << schema << " " << number.text;
    }
  }
}

TEST(JsonNumber, MultiplesAreExact) {
  for (const std::int64_t of : {1, 2, 3, 7, 10, 12, 97, 1000}) {
    const auto grammar =
        compile_json_schema("{\"type\": \"integer\", \"multipleOf\": " + std::to_string(of) + "}");
    for (std::int64_t value = -2100; value <= 2100; ++value)
      ASSERT_EQ(accepts(*grammar, std::to_string(value)), value % of == 0) << value << " of " << of;
  }
}

TEST(JsonNumber, DecimalsOfDoubles) {
  EXPECT_EQ(Decimal::of(0.1).decimals, "1");
  EXPECT_EQ(Decimal::of(-1e3).digits, "1000");
  EXPECT_TRUE(Decimal::of(-1e3).negative);
  EXPECT_TRUE(Decimal::of(-0.0).is_zero());
  EXPECT_FALSE(Decimal::of(-0.0).negative);
  EXPECT_EQ(Decimal::of(1e-7).decimals, "0000001");
  EXPECT_EQ(Decimal::of(1e300).digits.size(), 301u);
  EXPECT_LT(compare(Decimal::of(-2.5), Decimal::of(std::int64_t{-2})), 0);
  EXPECT_GT(compare(Decimal::of(10.5), Decimal::of(std::int64_t{9})), 0);
  EXPECT_EQ(compare(Decimal::of(2.0), Decimal::of(std::uint64_t{2})), 0);
}

TEST(JsonNumber, DigitsHaveAnEnd) {
  const auto grammar = compile_json_schema(R"({"type": "number"})");
  EXPECT_TRUE(accepts(*grammar, std::string(20, '1') + "." + std::string(20, '2') + "e-300"));
  EXPECT_FALSE(accepts(*grammar, std::string(21, '1')));
  EXPECT_FALSE(accepts(*grammar, "0." + std::string(21, '1')));
  EXPECT_FALSE(accepts(*grammar, "1e1000"));
  // Nor is any of them infinity to who reads it.
  for (const char* fits : {"1e5", "1E+05", "1e99", "1e+199", "1e007", "1e-999"})
    EXPECT_TRUE(accepts(*grammar, fits)) << fits;
  for (const char* infinite : {"1e309", "1e200", "1E+999"})
    EXPECT_FALSE(accepts(*grammar, infinite)) << infinite;
}

}  // namespace
}  // namespace fourfold::constrain
