// Strings of a schema: patterns, formats and lengths.
#include "constrain/formats.h"
#include "constrain/regex.h"
#include "constrain/schema_compiler.h"

namespace fourfold::constrain {

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

std::optional<Dfa> SchemaCompiler::text_of(const MergedSchema& merged, Writing writing) {
  std::optional<Dfa> form = form_of(merged, writing);
  if (merged.length_min == 0 && !merged.length_max) return form;
  const ExprId character = one_of(pool_, CodeSet::all(), writing);
  Dfa length = pool_.compile(pool_.repeat(character, merged.length_min, merged.length_max));
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
    const ExprId text = has_form ? json_.quoted(pool_.automaton(*text_of(merged, Writing::json_string)))
                                 : json_.string_of_length(merged.length_min, merged.length_max);
    const RuleId rule = builder_.declare();
    builder_.define(rule, text);
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
