// Numbers between bounds. A bound is split into its sign and its magnitude; magnitudes are compared digit by
// digit: first by the count of digits before the point, then from the left.
#include "constrain/json_number.h"

#include <algorithm>
#include <charconv>

namespace fourfold::constrain {
namespace {

class NumberWriter {
 public:
  explicit NumberWriter(ExpressionPool& pool) : pool_(pool) {}

  ExprId digits(std::int64_t min, std::optional<std::int64_t> max) {
    return pool_.repeat(pool_.bytes('0', '9'), min, max);
  }
  ExprId range(char low, char high) {
    if (low > high) return pool_.nothing();
    return pool_.bytes(static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high));
  }
  ExprId digit(char c) { return range(c, c); }

  ExprId any_integer(int digits_max) {
    return pool_.either({pool_.text("0"), pool_.sequence({range('1', '9'), digits(0, digits_max - 1)})});
  }
  ExprId fraction(int max) { return pool_.sequence({pool_.text("."), digits(1, max)}); }

  // Magnitudes before the point, `digits` being a bound as in Decimal; strictly beyond it.
  ExprId integer_above(const std::string& bound) {
    if (bound.empty()) return pool_.sequence({range('1', '9'), digits(0, kNumberDigitsMax - 1)});
    const auto length = static_cast<std::int64_t>(bound.size());
    std::vector<ExprId> ways;
    if (length < kNumberDigitsMax)
      ways.push_back(pool_.sequence({range('1', '9'), digits(length, kNumberDigitsMax - 1)}));
    for (std::size_t i = 0; i < bound.size(); ++i) {
      if (bound[i] == '9') continue;
      const auto rest = static_cast<std::int64_t>(bound.size() - 1 - i);
      ways.push_back(pool_.sequence(
          {pool_.text(bound.substr(0, i)), range(static_cast<char>(bound[i] + 1), '9'), digits(rest, rest)}));
    }
    return pool_.either(ways);
  }
  ExprId integer_below(const std::string& bound) {
    if (bound.empty()) return pool_.nothing();
    std::vector<ExprId> ways{pool_.text("0")};
    if (bound.size() > 1)
      ways.push_back(
          pool_.sequence({range('1', '9'), digits(0, static_cast<std::int64_t>(bound.size()) - 2)}));
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const char low = i == 0 ? '1' : '0';
      if (bound[i] <= low) continue;
      const auto rest = static_cast<std::int64_t>(bound.size() - 1 - i);
      ways.push_back(pool_.sequence(
          {pool_.text(bound.substr(0, i)), range(low, static_cast<char>(bound[i] - 1)), digits(rest, rest)}));
    }
    return pool_.either(ways);
  }
  ExprId integer_exactly(const std::string& bound) { return pool_.text(bound.empty() ? "0" : bound); }

  // Behind the point, with the point: what is at least (at most) 0.decimals; nothing counts as .0.
  ExprId fraction_above(const std::string& decimals, bool exclusive) {
    const ExprId any = digits(0, std::nullopt);
    const ExprId nonzero = pool_.sequence({digits(0, std::nullopt), range('1', '9'), any});
    if (decimals.empty())
      return exclusive ? pool_.sequence({pool_.text("."), nonzero})
                       : pool_.optional(pool_.sequence({pool_.text("."), digits(1, std::nullopt)}));
    std::vector<ExprId> ways{pool_.sequence({pool_.text(decimals), exclusive ? nonzero : any})};
    for (std::size_t i = 0; i < decimals.size(); ++i)
      ways.push_back(pool_.sequence(
          {pool_.text(decimals.substr(0, i)), range(static_cast<char>(decimals[i] + 1), '9'), any}));
    return pool_.sequence({pool_.text("."), pool_.either(ways)});
  }
  ExprId fraction_below(const std::string& decimals, bool exclusive) {
    const ExprId zeros = pool_.repeat(pool_.text("0"), 0, std::nullopt);
    if (decimals.empty()) {
      if (exclusive) return pool_.nothing();
      return pool_.optional(pool_.sequence({pool_.text("."), pool_.text("0"), zeros}));
    }
    std::vector<ExprId> ways;
    if (!exclusive) ways.push_back(pool_.sequence({pool_.text(decimals), zeros}));
    for (std::size_t i = 0; i < decimals.size(); ++i) {
      if (i > 0) ways.push_back(pool_.text(decimals.substr(0, i)));
      ways.push_back(
          pool_.sequence({pool_.text(decimals.substr(0, i)), range('0', static_cast<char>(decimals[i] - 1)),
                          digits(0, std::nullopt)}));
    }
    return pool_.optional(pool_.sequence({pool_.text("."), pool_.either(ways)}));
  }

  ExprId magnitude_above(const Decimal& bound, bool exclusive) {
    const ExprId any = pool_.optional(pool_.sequence({pool_.text("."), digits(1, std::nullopt)}));
    return pool_.either(
        {pool_.sequence({integer_above(bound.digits), any}),
         pool_.sequence({integer_exactly(bound.digits), fraction_above(bound.decimals, exclusive)})});
  }
  ExprId magnitude_below(const Decimal& bound, bool exclusive) {
    const ExprId any = pool_.optional(pool_.sequence({pool_.text("."), digits(1, std::nullopt)}));
    return pool_.either(
        {pool_.sequence({integer_below(bound.digits), any}),
         pool_.sequence({integer_exactly(bound.digits), fraction_below(bound.decimals, exclusive)})});
  }

  // Numbers on one side of a bound, with their sign.
  ExprId beyond(const Bound& bound, bool above) {
    const ExprId any =
        pool_.sequence({any_integer(kNumberDigitsMax),
                        pool_.optional(pool_.sequence({pool_.text("."), digits(1, std::nullopt)}))});
    const ExprId minus = pool_.text("-");
    const bool towards_zero = bound.at.negative == above && !bound.at.is_zero();
    // Above -3: all without a sign, and with one those of at most 3. Above 3: those without a sign of at
    // least 3.
    const ExprId same_sign = towards_zero ? magnitude_below(bound.at, bound.exclusive)
                                          : magnitude_above(bound.at, bound.exclusive);
    if (bound.at.is_zero()) {
      const ExprId zero = bound.exclusive ? pool_.nothing() : magnitude_below(bound.at, false);
      return above ? pool_.either({same_sign, pool_.sequence({minus, zero})})
                   : pool_.either({zero, pool_.sequence({minus, same_sign})});
    }
    if (above) return bound.at.negative ? pool_.either({any, pool_.sequence({minus, same_sign})}) : same_sign;
    return bound.at.negative ? pool_.sequence({minus, same_sign})
                             : pool_.either({same_sign, pool_.sequence({minus, any})});
  }

 private:
  ExpressionPool& pool_;
};

// Integers without leading zeros whose remainder is 0: a state for each remainder.
Dfa multiples(std::int64_t of) {
  Dfa dfa;
  dfa.states.resize(static_cast<std::size_t>(of) + 3);
  constexpr std::uint32_t minus = 1, zero = 2, first = 3;
  const auto take_digits = [&](std::uint32_t state, std::int64_t before, char low) {
    for (char c = low; c <= '9'; ++c) {
      const auto rest = static_cast<std::uint32_t>((before * 10 + (c - '0')) % of);
      dfa.states[state].edges.push_back(
          {static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), first + rest});
    }
  };
  dfa.states[0].edges.push_back({'-', '-', minus});
  dfa.states[0].edges.push_back({'0', '0', zero});
  take_digits(0, 0, '1');
  take_digits(minus, 0, '1');
  dfa.states[zero].final = true;
  dfa.states[first].final = true;
  for (std::int64_t rest = 0; rest < of; ++rest)
    take_digits(first + static_cast<std::uint32_t>(rest), rest, '0');
  return dfa;
}

template <class T>
Decimal of_integer(T value) {
  char text[32];
  std::string digits(text, std::to_chars(text, text + sizeof text, value).ptr);
  Decimal decimal;
  decimal.negative = digits[0] == '-';
  if (decimal.negative) digits.erase(0, 1);
  if (digits != "0") decimal.digits = digits;
  return decimal;
}

// The next larger magnitude of as many decimals.
void step_up(Decimal& value) {
  std::string all = "0" + value.digits + value.decimals;
  std::size_t at = all.size() - 1;
  for (; all[at] == '9'; --at) all[at] = '0';
  ++all[at];
  value.digits = all.substr(0, all.size() - value.decimals.size());
  value.decimals = all.substr(all.size() - value.decimals.size());
  value.digits.erase(0, std::min(value.digits.find_first_not_of('0'), value.digits.size()));
}

// A bound as the numbers that can be written know it: moved inwards to so many decimals. None where they all
// keep to it.
std::optional<Bound> fitted(std::optional<Bound> bound, bool least) {
  if (!bound) return bound;
  Decimal& at = bound->at;
  if (std::ssize(at.digits) > kExactDigits) return at.negative == least ? std::nullopt : bound;
  if (std::ssize(at.decimals) <= kExactDigits) return bound;
  at.decimals.resize(kExactDigits);
  if (at.negative != least) step_up(at);
  at.decimals.erase(at.decimals.find_last_not_of('0') + 1);
  if (at.is_zero()) at.negative = false;
  bound->exclusive = false;
  return bound;
}

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.digits.size() != b.digits.size()) return a.digits.size() < b.digits.size() ? -1 : 1;
  if (const int order = a.digits.compare(b.digits); order != 0) return order < 0 ? -1 : 1;
  const int order = a.decimals.compare(b.decimals);  // no trailing zeros: a prefix is the smaller
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

}  // namespace

Decimal Decimal::of(std::int64_t value) { return of_integer(value); }
Decimal Decimal::of(std::uint64_t value) { return of_integer(value); }

Decimal Decimal::of(double value) {
  char text[1100];
  std::string_view digits(
      text, static_cast<std::size_t>(
                std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr - text));
  Decimal decimal;
  decimal.negative = digits[0] == '-';
  if (decimal.negative) digits.remove_prefix(1);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  decimal.digits = digits.substr(0, point);
  if (point < digits.size()) decimal.decimals = digits.substr(point + 1);
  decimal.digits.erase(0, std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size()));
  decimal.decimals.erase(decimal.decimals.find_last_not_of('0') + 1);
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int order = compare_magnitudes(a, b);
  return a.negative ? -order : order;
}

ExprId number_text(ExpressionPool& pool) {
  NumberWriter writer(pool);
  // Up to 199: with 20 digits before the point, no number is beyond a double.
  const ExprId high =
      pool.either({writer.digits(1, 2), pool.sequence({pool.bytes('0', '1'), writer.digits(2, 2)})});
  const ExprId power = pool.either({pool.sequence({pool.text("-"), writer.digits(1, 3)}),
                                    pool.sequence({pool.optional(pool.text("+")), high})});
  const ExprId exponent = pool.sequence({pool.either({pool.text("e"), pool.text("E")}), power});
  return pool.sequence({pool.optional(pool.text("-")), writer.any_integer(kNumberDigitsMax),
                        pool.optional(writer.fraction(kNumberDigitsMax)), pool.optional(exponent)});
}

ExprId number_text(ExpressionPool& pool, const NumberBounds& bounds) {
  if (!bounds.integer && bounds.is_free()) return number_text(pool);
  NumberWriter writer(pool);
  const int digits_max = bounds.is_free() ? kNumberDigitsMax : kExactDigits;
  const ExprId integer = pool.sequence({pool.optional(pool.text("-")), writer.any_integer(digits_max)});
  const auto least = fitted(bounds.least, true), most = fitted(bounds.most, false);
  ExprId base = integer;
  if (!bounds.integer && bounds.multiples_of.empty()) {
    int decimals = kExactDigits;
    for (const auto& bound : {least, most})
      if (bound) decimals = std::min(decimals, kExactDigits - static_cast<int>(bound->at.digits.size()));
    for (const auto& bound : {least, most})
      if (bound) decimals = std::max(decimals, static_cast<int>(bound->at.decimals.size()));
    if (decimals > 0) base = pool.sequence({integer, pool.optional(writer.fraction(decimals))});
  }
  Dfa dfa = pool.compile(base);
  if (least) dfa = intersect(dfa, pool.compile(writer.beyond(*least, true)), pool.budget());
  if (most) dfa = intersect(dfa, pool.compile(writer.beyond(*most, false)), pool.budget());
  for (const std::int64_t multiple : bounds.multiples_of)
    dfa = intersect(dfa, multiples(multiple), pool.budget());
  return pool.automaton(std::move(dfa));
}

}  // namespace fourfold::constrain
