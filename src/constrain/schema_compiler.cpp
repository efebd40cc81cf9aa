// Schemas to expressions. Members come in the order the schema names them, additional ones last.
#include "constrain/schema_compiler.h"

#include <algorithm>
#include <charconv>

#include "constrain/formats.h"
#include "constrain/regex.h"
#include "text/utf8.h"

namespace fourfold::constrain {
namespace {

std::string_view view(const bj::string& text) { return {text.data(), text.size()}; }

Decimal decimal_of(const bj::value& number) {
  if (number.is_int64()) return Decimal::of(number.get_int64());
  if (number.is_uint64()) return Decimal::of(number.get_uint64());
  return Decimal::of(number.get_double());
}

std::string number_as_text(const bj::value& number) {
  char text[64];
  char* end = text;
  if (number.is_int64())
    end = std::to_chars(text, text + sizeof text, number.get_int64()).ptr;
  else if (number.is_uint64())
    end = std::to_chars(text, text + sizeof text, number.get_uint64()).ptr;
  else
    end = std::to_chars(text, text + sizeof text, number.get_double()).ptr;
  return std::string(text, end);
}

bool within(const NumberBounds& bounds, const bj::value& number) {
  const Decimal value = decimal_of(number);
  if (bounds.least) {
    const int order = compare(value, bounds.least->at);
    if (order < 0 || (order == 0 && bounds.least->exclusive)) return false;
  }
  if (bounds.most) {
    const int order = compare(value, bounds.most->at);
    if (order > 0 || (order == 0 && bounds.most->exclusive)) return false;
  }
  return std::all_of(bounds.multiples_of.begin(), bounds.multiples_of.end(), [&](std::int64_t multiple) {
    std::int64_t rest = 0;
    for (const char c : value.digits) rest = (rest * 10 + (c - '0')) % multiple;
    return value.is_integer() && rest == 0;
  });
}

}  // namespace

ExprId SchemaCompiler::value(const Schemas& schemas) {
  Schemas key;
  for (const bj::value* schema : schemas) {
    schema = document_.resolved(schema);
    const bool says_nothing =
        (schema->is_bool() && schema->get_bool()) || (schema->is_object() && schema->get_object().empty());
    if (!says_nothing) key.push_back(schema);
  }
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  if (key.empty()) return json_.any_value();
  auto place = rules_.find(key);
  if (place == rules_.end()) {
    place = rules_.emplace(key, builder_.declare()).first;
    undefined_.emplace_back(key, place->second);
    builder_.budget().hold(200);
  }
  return pool_.call(place->second);
}

void SchemaCompiler::define_rules() {
  while (!undefined_.empty()) {
    const auto [schemas, rule] = std::move(undefined_.back());
    undefined_.pop_back();
    builder_.define(rule, expression(schemas, nullptr));
  }
}

ExprId SchemaCompiler::plain_value(const Schemas& schemas, const Dfa& text) {
  return expression(schemas, &text);
}

ExprId SchemaCompiler::expression(const Schemas& schemas, const Dfa* text) {
  std::vector<ExprId> ways;
  for (const Conjunction& parts : document_.alternatives(schemas))
    ways.push_back(one_way(merge(document_, parts, builder_.budget()), text));
  return pool_.either(ways);
}

ExprId SchemaCompiler::one_way(const MergedSchema& merged, const Dfa* text) {
  if (merged.values) return listed(merged, text);
  if (merged.is_free && merged.types == kAllTypes) return text ? pool_.automaton(*text) : json_.any_value();
  std::vector<ExprId> ways;
  if (merged.types & kNullType) ways.push_back(pool_.text("null"));
  if (merged.types & kBooleanType) ways.push_back(pool_.either({pool_.text("true"), pool_.text("false")}));
  if (merged.types & kStringType) ways.push_back(text ? plain_string(merged, *text) : string(merged));
  if (merged.types & kNumberTypes) ways.push_back(number(merged));
  if (merged.types & kObjectType) ways.push_back(merged.is_free ? json_.any_object() : object(merged));
  if (merged.types & kArrayType) ways.push_back(merged.is_free ? json_.any_array() : array(merged));
  return pool_.either(ways);
}

// ---- values
// -------------------------------------------------------------------------------------------------

ExprId SchemaCompiler::listed(const MergedSchema& merged, const Dfa* text) {
  const std::optional<Dfa> form = form_of(merged, Writing::plain);
  std::vector<ExprId> ways;
  for (const bj::value* value : *merged.values) {
    if (!is_allowed(merged, form, *value)) continue;
    if (!text || !value->is_string())
      ways.push_back(constant(*value));
    else if (text->accepts(view(value->get_string())))
      ways.push_back(pool_.text(view(value->get_string())));
  }
  return pool_.either(ways);
}

bool SchemaCompiler::is_allowed(const MergedSchema& merged, const std::optional<Dfa>& form,
                                const bj::value& value) {
  if (!(type_of(value) & merged.types)) return false;
  if (merged.is_free) return true;
  if (value.is_string()) {
    const auto length = static_cast<std::int64_t>(text::count_code_points(view(value.get_string())));
    return length >= merged.length_min && (!merged.length_max || length <= *merged.length_max) &&
           (!form || form->accepts(view(value.get_string())));
  }
  if (value.is_number()) return within(merged.bounds, value);
  if (value.is_structured())
    document_.refuse(merged.place, "",
                     "an object or array among the listed values, beside other keywords, is not "
                     "supported");
  return true;
}

ExprId SchemaCompiler::constant(const bj::value& value) {
  switch (value.kind()) {
    case bj::kind::null: return pool_.text("null");
    case bj::kind::bool_: return pool_.text(value.get_bool() ? "true" : "false");
    case bj::kind::string:
      return pool_.text("\"" + written(view(value.get_string()), Writing::json_string) + "\"");
    case bj::kind::object:
    case bj::kind::array: break;
    default: return pool_.text(number_as_text(value));
  }
  const bool is_object = value.is_object();
  std::vector<ExprId> parts{pool_.text(is_object ? "{" : "["), json_.space()};
  bool is_first = true;
  const auto separate = [&] {
    if (!is_first) parts.push_back(json_.separator());
    is_first = false;
  };
  if (is_object) {
    for (const auto& member : value.get_object()) {
      separate();
      const std::string_view name(member.key().data(), member.key().size());
      parts.push_back(pool_.text("\"" + written(name, Writing::json_string) + "\":"));
      parts.push_back(json_.space());
      parts.push_back(constant(member.value()));
    }
  } else {
    for (const bj::value& item : value.get_array()) {
      separate();
      parts.push_back(constant(item));
    }
  }
  if (!is_first) parts.push_back(json_.space());
  parts.push_back(pool_.text(is_object ? "}" : "]"));
  return pool_.sequence(parts);
}

// ---- strings and numbers
// ------------------------------------------------------------------------------------

Dfa SchemaCompiler::pattern(const Pattern& pattern, Writing writing) {
  return pool_.compile(parse_regex(pool_, pattern.text, RegexUse::search, writing,
                                   "the schema's pattern " + document_.pointer(pattern.place)));
}

Dfa SchemaCompiler::format(const Pattern& format, Writing writing) {
  std::string names;
  for (const Format& known : known_formats()) {
    if (known.name == format.text)
      return pool_.compile(parse_regex(pool_, known.regex, RegexUse::whole, writing, "format"));
    names += names.empty() ? "" : ", ";
    names += known.name;
  }
  document_.refuse(format.place, "format", "the format is not supported; {} are", names);
}

std::optional<Dfa> SchemaCompiler::form_of(const MergedSchema& merged, Writing writing) {
  std::optional<Dfa> form;
  const auto narrow = [&](Dfa by) { form = form ? intersect(*form, by, builder_.budget()) : std::move(by); };
  for (const Pattern& one : merged.patterns) narrow(pattern(one, writing));
  for (const Pattern& one : merged.formats) narrow(format(one, writing));
  return form;
}

ExprId SchemaCompiler::string(const MergedSchema& merged) {
  std::optional<Dfa> form = form_of(merged, Writing::json_string);
  const bool any_length = merged.length_min == 0 && !merged.length_max;
  if (!form && any_length) return json_.any_string();
  if (!form) return json_.string_of_length(merged.length_min, merged.length_max);
  if (!any_length) {
    const ExprId character = one_of(pool_, CodeSet::all(), Writing::json_string);
    form = intersect(*form, pool_.compile(pool_.repeat(character, merged.length_min, merged.length_max)),
                     builder_.budget());
  }
  return json_.quoted(pool_.automaton(std::move(*form)));
}

ExprId SchemaCompiler::plain_string(const MergedSchema& merged, const Dfa& text) {
  Dfa form = text;
  if (const auto wanted = form_of(merged, Writing::plain)) form = intersect(form, *wanted, builder_.budget());
  if (merged.length_min > 0 || merged.length_max) {
    const ExprId character = one_of(pool_, CodeSet::all(), Writing::plain);
    form = intersect(form, pool_.compile(pool_.repeat(character, merged.length_min, merged.length_max)),
                     builder_.budget());
  }
  return pool_.automaton(std::move(form));
}

ExprId SchemaCompiler::number(const MergedSchema& merged) {
  NumberBounds bounds = merged.bounds;
  bounds.integer = !(merged.types & kFractionType);
  return !bounds.integer && bounds.is_free() ? json_.any_number() : number_text(pool_, bounds);
}

// ---- objects and arrays
// -------------------------------------------------------------------------------------

// Two members of one name are one in the end, so a count of members with free names promises nothing.
void SchemaCompiler::check_member_counts(const MergedSchema& merged) {
  const auto required = std::count_if(merged.properties.begin(), merged.properties.end(),
                                      [](const auto& property) { return property.required; });
  if (merged.members_min > std::max<std::int64_t>(required, 1))
    document_.refuse(merged.place, "minProperties", "only 1, or as many as are required, is supported");
  const auto named = static_cast<std::int64_t>(merged.properties.size());
  const bool holds =
      !merged.members_max || (merged.others.empty() ? named <= *merged.members_max : named == 0);
  if (!holds)
    document_.refuse(merged.place, "maxProperties",
                     "is supported where there are additional properties only");
}

std::optional<ExprId> SchemaCompiler::other_member(const MergedSchema& merged) {
  if (merged.others.empty()) return std::nullopt;
  std::vector<ExprId> ways;
  for (const MergedSchema::Others& others : merged.others) {
    ExprId name = 0;
    if (merged.properties.empty() && others.patterns.empty() && others.other_patterns.empty()) {
      name = json_.any_string();
    } else {
      Dfa names = pool_.compile(json_.canonical_text());
      for (const Pattern& one : others.patterns)
        names = intersect(names, pattern(one, Writing::json_string), builder_.budget());
      std::vector<ExprId> taken;
      for (const MergedSchema::Property& property : merged.properties)
        taken.push_back(pool_.text(written(property.name, Writing::json_string)));
      for (const Pattern& one : others.other_patterns)
        taken.push_back(pool_.automaton(pattern(one, Writing::json_string)));
      if (!taken.empty()) names = subtract(names, pool_.compile(pool_.either(taken)), builder_.budget());
      name = json_.quoted(pool_.automaton(std::move(names)));
    }
    ways.push_back(pool_.sequence({name, pool_.text(":"), json_.space(), value(others.schemas)}));
  }
  return pool_.either(ways);
}

ExprId SchemaCompiler::object(const MergedSchema& merged) {
  check_member_counts(merged);
  const std::optional<ExprId> other = other_member(merged);
  // Behind the last named member: `more` where a member stands before, `first` where none does yet.
  ExprId more = pool_.empty(), first = pool_.nothing();
  if (other && merged.members_max != 0) {
    std::optional<std::int64_t> count;
    if (merged.members_max) count = *merged.members_max - 1;
    more = pool_.repeat(pool_.sequence({json_.separator(), *other}), 0, count);
    first = pool_.sequence({*other, more});
  }
  bool may_be_empty = merged.members_min == 0;
  for (std::size_t i = merged.properties.size(); i-- > 0;) {
    const MergedSchema::Property& property = merged.properties[i];
    const ExprId name = pool_.text("\"" + written(property.name, Writing::json_string) + "\":");
    const ExprId member = pool_.sequence({name, json_.space(), value(property.schemas)});
    const ExprId here = pool_.sequence({member, more});
    first = property.required ? here : pool_.either({here, first});
    const ExprId next = pool_.sequence({json_.separator(), member});
    more = pool_.sequence({property.required ? next : pool_.optional(next), more});
    may_be_empty &= !property.required;
  }
  const ExprId members = pool_.sequence({first, json_.space()});
  return pool_.sequence(
      {pool_.text("{"), json_.space(), may_be_empty ? pool_.optional(members) : members, pool_.text("}")});
}

ExprId SchemaCompiler::array(const MergedSchema& merged) {
  const auto first_count = static_cast<std::int64_t>(merged.first_items.size());
  std::optional<std::int64_t> max = merged.items_max;
  if (!merged.more_items) max = std::min(max.value_or(first_count), first_count);
  const std::int64_t min = merged.items_min;
  if (max && *max < min) return pool_.nothing();
  const ExprId none = pool_.sequence({pool_.text("["), json_.space(), pool_.text("]")});
  if (max == 0) return none;
  // From the last to the first: what follows once `i` items are written.
  const std::int64_t alone = std::max<std::int64_t>(first_count, 1);
  ExprId rest = pool_.empty();
  if (merged.more_items && (!max || *max > alone)) {
    std::optional<std::int64_t> count;
    if (max) count = *max - alone;
    rest = pool_.repeat(pool_.sequence({json_.separator(), value(*merged.more_items)}),
                        std::max<std::int64_t>(min - alone, 0), count);
  }
  for (std::int64_t i = std::min(first_count, max.value_or(first_count)); i-- > 1;) {
    const ExprId item = value(merged.first_items[static_cast<std::size_t>(i)]);
    rest = pool_.sequence({json_.separator(), item, rest});
    if (i >= min) rest = pool_.optional(rest);
  }
  const ExprId item = value(first_count > 0 ? merged.first_items[0] : *merged.more_items);
  const ExprId some =
      pool_.sequence({pool_.text("["), json_.space(), item, rest, json_.space(), pool_.text("]")});
  return min > 0 ? some : pool_.either({none, some});
}

}  // namespace fourfold::constrain
