// Objects of a schema. Members come in the order the schema names them, additional ones last.
#include <algorithm>

#include "constrain/schema_compiler.h"

namespace fourfold::constrain {

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

std::optional<ExprId> SchemaCompiler::other_member(const MergedSchema& merged,
                                                   const std::optional<Dfa>& allowed) {
  if (merged.others.empty()) return std::nullopt;
  std::vector<ExprId> ways;
  for (const MergedSchema::Others& others : merged.others) {
    ExprId name = 0;
    if (merged.properties.empty() && others.patterns.empty() && others.other_patterns.empty() && !allowed) {
      name = json_.any_string();
    } else {
      Dfa names = allowed ? *allowed : pool_.compile(json_.canonical_text());
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

// propertyNames: strings, listed one by one or by their form.
SchemaCompiler::Names SchemaCompiler::names_of(const Schemas& schemas) {
  Names out;
  std::vector<ExprId> ways;
  out.is_list = true;
  for (const Conjunction& parts : document_.alternatives(schemas)) {
    const MergedSchema merged = merge(document_, parts, closed_, builder_.budget());
    if (!(merged.types & kStringType)) continue;
    if (!merged.values) {
      out.is_list = false;
      const std::optional<Dfa> text = text_of(merged, Writing::json_string);
      ways.push_back(text ? pool_.automaton(*text) : json_.canonical_text());
      continue;
    }
    const std::optional<Dfa> form = form_of(merged, Writing::plain);
    for (const bj::value* value : *merged.values) {
      if (!value->is_string() || !is_allowed(merged, form, *value)) continue;
      const std::string_view name(value->get_string().data(), value->get_string().size());
      out.list.emplace_back(name);
      ways.push_back(pool_.text(written(name, Writing::json_string)));
    }
  }
  out.text = pool_.compile(pool_.either(ways));
  return out;
}

bool SchemaCompiler::keep_names(MergedSchema& merged, const Names& names) {
  bool has_required = true;
  std::erase_if(merged.properties, [&](const MergedSchema::Property& property) {
    const std::string name = written(property.name, Writing::json_string);
    builder_.budget().spend(20 + 4 * std::ssize(name));
    const bool fits = names.text->accepts(name);
    has_required &= fits || !property.required;
    return !fits;
  });
  // Names that are listed can be named: then each comes once at most.
  const bool plain_others = merged.others.size() == 1 && merged.others[0].patterns.empty() &&
                            merged.others[0].other_patterns.empty();
  if (!names.is_list || !plain_others) return has_required;
  std::set<std::string> known;
  for (const MergedSchema::Property& property : merged.properties) known.insert(property.name);
  for (const std::string& name : names.list) {
    builder_.budget().spend(60);
    if (known.insert(name).second) merged.properties.push_back({name, merged.others[0].schemas, false});
  }
  merged.others.clear();
  return has_required;
}

ExprId SchemaCompiler::object(MergedSchema merged) {
  std::optional<Dfa> names;
  if (!merged.names.empty()) {
    Names said = names_of(merged.names);
    if (!keep_names(merged, said)) return pool_.nothing();
    names = std::move(said.text);
  }
  check_member_counts(merged);
  const std::optional<ExprId> other = other_member(merged, names);
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

}  // namespace fourfold::constrain
