// The rules every schema shares.
#include "constrain/json_text.h"

#include "constrain/json_number.h"

namespace fourfold::constrain {

ExprId JsonText::space() {
  if (!blanks_) return pool_.empty();
  if (!space_) {
    space_ = builder_.declare();
    const ExprId indent = pool_.repeat(pool_.either({pool_.text(" "), pool_.text("\t")}), 0, 60);
    builder_.define(*space_, pool_.either({pool_.text(" "), pool_.sequence({pool_.optional(pool_.text("\r")),
                                                                            pool_.text("\n"), indent})}));
  }
  return pool_.optional(pool_.call(*space_));
}

ExprId JsonText::separator() { return pool_.sequence({pool_.text(","), space()}); }

// Characters of one byte that stand for themselves, or a call of all others.
ExprId JsonText::one_character() {
  if (!long_character_) {
    long_character_ = builder_.declare();
    const auto hex = [&](std::string_view pairs) {
      std::vector<ExprId> ranges;
      for (std::size_t i = 0; i < pairs.size(); i += 2)
        ranges.push_back(
            pool_.bytes(static_cast<std::uint8_t>(pairs[i]), static_cast<std::uint8_t>(pairs[i + 1])));
      return pool_.either(ranges);
    };
    const ExprId beyond_ascii = one_of(pool_, CodeSet({{0x80, 0x10FFFF}}), Writing::plain);
    const ExprId any = hex("09AFaf");
    const ExprId d = hex("DDdd");
    const ExprId basic = pool_.either(
        {pool_.sequence({hex("09ACEFacef"), any, any, any}), pool_.sequence({d, hex("07"), any, any})});
    const ExprId pair =
        pool_.sequence({d, hex("89ABab"), any, any, pool_.text("\\u"), d, hex("CFcf"), any, any});
    std::vector<ExprId> escapes{pool_.sequence({pool_.text("u"), pool_.either({basic, pair})})};
    for (const char c : std::string_view("\"\\/bfnrt"))
      escapes.push_back(pool_.text(std::string_view(&c, 1)));
    const ExprId escaped = pool_.sequence({pool_.text("\\"), pool_.either(escapes)});
    builder_.define(*long_character_, pool_.either({beyond_ascii, escaped}));
    builder_.mark_long_character(*long_character_);
  }
  const CodeSet plain = CodeSet({{0, 0x7F}}).without(must_be_escaped());
  return pool_.either({one_of(pool_, plain, Writing::plain), pool_.call(*long_character_)});
}

ExprId JsonText::string_of_length(std::int64_t min, std::optional<std::int64_t> max) {
  return quoted(pool_.repeat(one_character(), min, max));
}

ExprId JsonText::canonical_text() {
  return pool_.repeat(one_of(pool_, CodeSet::all(), Writing::json_string), 0, std::nullopt);
}

ExprId JsonText::any_string() {
  if (!string_) {
    string_ = builder_.declare();
    builder_.define(*string_, string_of_length(0, std::nullopt));
  }
  return pool_.call(*string_);
}

ExprId JsonText::any_number() {
  if (!number_) {
    number_ = builder_.declare();
    builder_.define(*number_, number_text(pool_));
  }
  return pool_.call(*number_);
}

ExprId JsonText::any_value() {
  if (!value_) {
    value_ = builder_.declare();
    builder_.define(*value_, pool_.either({any_string(), any_number(), any_object(), any_array(),
                                           pool_.text("true"), pool_.text("false"), pool_.text("null")}));
  }
  return pool_.call(*value_);
}

ExprId JsonText::any_object() {
  if (!object_) {
    object_ = builder_.declare();
    const ExprId member = pool_.sequence({any_string(), pool_.text(":"), space(), any_value()});
    const ExprId more = pool_.repeat(pool_.sequence({separator(), member}), 0, std::nullopt);
    builder_.define(
        *object_, pool_.sequence({pool_.text("{"), space(),
                                  pool_.optional(pool_.sequence({member, more, space()})), pool_.text("}")}));
  }
  return pool_.call(*object_);
}

ExprId JsonText::any_array() {
  if (!array_) {
    array_ = builder_.declare();
    const ExprId more = pool_.repeat(pool_.sequence({separator(), any_value()}), 0, std::nullopt);
    builder_.define(*array_, pool_.sequence({pool_.text("["), space(),
                                             pool_.optional(pool_.sequence({any_value(), more, space()})),
                                             pool_.text("]")}));
  }
  return pool_.call(*array_);
}

}  // namespace fourfold::constrain
