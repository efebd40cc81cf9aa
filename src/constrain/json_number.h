// JSON numbers as automata, exactly between bounds: digits are compared as text, nothing is rounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "constrain/expression.h"

namespace fourfold::constrain {

// An answer cannot lose itself in digits: so many stand before the point and after it at most, and three in
// the exponent, which is 199 at most: every number fits a double.
inline constexpr int kNumberDigitsMax = 20;
// Between bounds: doubles tell apart decimals of this many digits, and a validator that reads numbers as
// doubles must not find an exclusive bound reached, or no multiple, by rounding.
inline constexpr int kExactDigits = 15;

// A bound in plain decimal notation: sign, digits without leading zeros, decimals without trailing ones.
struct Decimal {
  bool negative = false;
  std::string digits;    // "" stands for 0
  std::string decimals;  // "" for none

  static Decimal of(std::int64_t value);
  static Decimal of(std::uint64_t value);
  static Decimal of(double value);  // the shortest decimal that reads as this double
  bool is_zero() const { return digits.empty() && decimals.empty(); }
  bool is_integer() const { return decimals.empty(); }
};
int compare(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal at;
  bool exclusive = false;
};

struct NumberBounds {
  std::optional<Bound> least, most;
  std::vector<std::int64_t> multiples_of;
  bool integer = false;
  bool is_free() const { return !least && !most && multiples_of.empty(); }
};

// Any JSON number.
ExprId number_text(ExpressionPool& pool);
// Within bounds: without an exponent, and with multiples_of as integers. Bounds of more than kExactDigits
// before the point leave nothing (a minimum) or everything (a maximum) that is written.
ExprId number_text(ExpressionPool& pool, const NumberBounds& bounds);

}  // namespace fourfold::constrain
