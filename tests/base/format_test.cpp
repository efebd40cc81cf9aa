#include "base/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/error.h"

// As std::format stands beside std::string in newer standard libraries, where a call finds it by its
// arguments.
namespace elsewhere {
struct Text : std::string {
  using std::string::string;
};
template <class... Args>
struct Pattern {
  consteval Pattern(const char*) {}
};
template <class... Args>
std::string format(Pattern<std::type_identity_t<Args>...>, Args&&...) {
  return "elsewhere's";
}
}  // namespace elsewhere

namespace fourfold {
namespace {

TEST(Format, IsTheOneThatIsCalledBesideAnother) {
  elsewhere::Text text("ours");
  const elsewhere::Text same("ours");
  EXPECT_EQ(format("{}", text), "ours");
  EXPECT_EQ(format("{} {}", same, 1), "ours 1");
}

TEST(Format, FillsEveryKindOfValue) {
  const std::string owned = "owned";
  EXPECT_EQ(format("{} {} {}", "literal", owned, std::string_view("viewed")), "literal owned viewed");
  EXPECT_EQ(format("{}{}{}", true, false, 'c'), "truefalsec");
  EXPECT_EQ(format("{} {}", std::int8_t{-5}, std::uint8_t{200}), "-5 200");
  EXPECT_EQ(format("{}", std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(format("{}", std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(format("{} {} {}", 0.1F, 1.0 / 3.0, 1e30), "0.1 0.333333 1e+30");
}

TEST(Format, KeepsWhatHasNoHoleAndHolesWithoutAValue) {
  EXPECT_EQ(format("no hole"), "no hole");
  EXPECT_EQ(format("{} of {}", 1), "1 of {}");
  EXPECT_EQ(format("{} of", 1, 2, "three"), "1 of [2] [three]");
  std::string text = "before: ";
  append_format(text, "{}", 7);
  append_value(text, '.');
  EXPECT_EQ(text, "before: 7.");
}

TEST(Format, CommasStandBetweenThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(101'376), "101,376");
  EXPECT_EQ(with_commas(-1'234'567), "-1,234,567");
}

TEST(Error, HoldsItsCodeMessageAndHint) {
  try {
    fail_with_hint(Code::io, "look again", "{} bytes of {}", 3, "x");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_STREQ(error.what(), "3 bytes of x");
    EXPECT_EQ(error.hint(), "look again");
  }
  EXPECT_THROW(fail(Code::internal, "no values"), Error);
}

TEST(CheckDeathTest, NamesTheClaimAndItsValues) {
  check(true, "one is one", 1);
  EXPECT_DEATH(check(false, "bytes are enough", 3, "of", 4), "does not hold: bytes are enough with 3 of 4");
  EXPECT_DEATH(check(false, "nothing more to say"),
               "format_test.cpp:[0-9]+: does not hold: nothing more to say\n");
}

}  // namespace
}  // namespace fourfold
