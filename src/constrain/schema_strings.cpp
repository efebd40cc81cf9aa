// Strings of a schema: patterns, formats and lengths.
#include <algorithm>

#include "constrain/formats.h"
#include "constrain/regex.h"
#include "constrain/schema_compiler.h"

namespace fourfold::constrain {

namespace {

// A format's automaton times a count of characters grows with the count, and pydantic bounds every HttpUrl by
// 2,083: no address that is worth writing is longer than this.
constexpr std::int64_t kFormatLengthMax = 512;

std::optional<std::int64_t> length_max(const MergedSchema& merged) {
  if (merged.formats.empty() || !merged.length_max) return merged.length_max;
  return std::min(*merged.length_max, std::max(merged.length_min, kFormatLengthMax));
}

}  // namespace

Dfa SchemaCompiler::pattern(const Pattern& pattern, Writing writing) {
  return pool_.compile(parse_regex(pool_, pattern.text, RegexUse::search, writing,
                                   "the schema's pattern " + document_.pointer(pattern.place)));
}

Dfa SchemaCompiler::format(const Pattern& format, Writing writing) {
  return pool_.compile(
      parse_regex(pool_, find_format(format.text)->regex, RegexUse::whole, writing, "format"));
}

std::optional<Dfa> SchemaCompiler::form_of(const MergedSchema& merged, Writing writing) {
  std::optional<Dfa> form;
  const auto narrow = [&](Dfa by) { form = form ? intersect(*form, by, builder_.budget()) : std::move(by); };
  for (const Pattern& one : merged.patterns) narrow(pattern(one, writing));
  for (const Pattern& one : merged.formats) narrow(format(one, writing));
  return form;
}

// Characters are counted only where the form does not bound them itself: two counts at once are expensive. A
// character has a byte at least.
std::optional<Dfa> SchemaCompiler::text_of(const MergedSchema& merged, Writing writing) {
  std::optional<Dfa> form = form_of(merged, writing);
  std::int64_t min = merged.length_min;
  std::optional<std::int64_t> max = length_max(merged);
  if (form && max) {
    const std::optional<std::int64_t> own = longest_text(*form, builder_.budget());
    if (own && *own <= *max) max.reset();
  }
  if (form && min == 1 && !form->states.empty() && !form->states[0].final) min = 0;
  if (min == 0 && !max) return form;
  const ExprId character = one_of(pool_, CodeSet::all(), writing);
  Dfa length = pool_.compile(pool_.repeat(character, min, max));
  return form ? intersect(*form, length, builder_.budget()) : std::move(length);
}

ExprId SchemaCompiler::string(const MergedSchema& merged) {
  const bool has_form = !merged.patterns.empty() || !merged.formats.empty();
  const bool any_length = merged.length_min == 0 && !merged.length_max;
  if (!has_form && any_length) return json_.any_string();
  std::string key = fourfold::format("{} {}", merged.length_min, merged.length_max.value_or(-1));
  for (const auto* list : {&merged.patterns, &merged.formats})
    for (const Pattern& one : *list)
      key += fourfold::format("{}{} {}", list == &merged.patterns ? " p" : " f", one.text.size(), one.text);
  builder_.budget().spend(20 + std::ssize(key) / 4);
  auto place = strings_.find(key);
  if (place == strings_.end()) {
    const RuleId rule = builder_.declare();
    if (has_form)
      builder_.define(rule, enclosed(*text_of(merged, Writing::json_string), '"', builder_.budget()));
    else
      builder_.define(rule, json_.string_of_length(merged.length_min, merged.length_max));
    builder_.budget().hold(100 + std::ssize(key));
    place = strings_.emplace(std::move(key), rule).first;
  }
  return pool_.call(place->second);
}

ExprId SchemaCompiler::plain_string(const MergedSchema& merged, const Dfa& text) {
  const std::optional<Dfa> wanted = text_of(merged, Writing::plain);
  return pool_.automaton(wanted ? intersect(text, *wanted, builder_.budget()) : text);
}

}  // namespace fourfold::constrain
