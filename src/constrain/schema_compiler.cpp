// Schemas to expressions: types, alternatives, listed values and numbers.
#include "constrain/schema_compiler.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "constrain/json_values.h"

namespace fourfold::constrain {
namespace {

std::string_view view(const bj::string& text) { return {text.data(), text.size()}; }

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
    builder_.budget().spend(20);
    schema = document_.resolved(schema);
    const bool says_nothing =
        (schema->is_bool() && schema->get_bool()) || (schema->is_object() && schema->get_object().empty());
    if (!says_nothing) key.push_back(schema);
  }
  builder_.budget().spend(20 * std::ssize(key));
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

ExprId SchemaCompiler::object_value(MergedSchema merged) {
  merged.types = kObjectType;
  return one_way(merged, nullptr);
}

ExprId SchemaCompiler::expression(const Schemas& schemas, const Dfa* text) {
  std::vector<ExprId> ways;
  for (const Conjunction& parts : document_.alternatives(schemas))
    ways.push_back(one_way(merge(document_, parts, closed_, builder_.budget()), text));
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
  if (merged.types & kObjectType)
    ways.push_back(merged.is_free && !closed_ ? json_.any_object() : object(merged));
  if (merged.types & kArrayType) ways.push_back(merged.is_free ? json_.any_array() : array(merged));
  return pool_.either(ways);
}

ExprId SchemaCompiler::listed(const MergedSchema& merged, const Dfa* text) {
  const std::optional<Dfa> form = form_of(merged, Writing::plain);
  std::vector<ExprId> ways;
  for (const bj::value* value : *merged.values) {
    builder_.budget().spend(20);
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
    builder_.budget().spend(4 * static_cast<std::int64_t>(value.get_string().size()));
    const auto length = static_cast<std::int64_t>(count_code_points(view(value.get_string())));
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

ExprId SchemaCompiler::number(const MergedSchema& merged) {
  NumberBounds bounds = merged.bounds;
  bounds.integer = !(merged.types & kFractionType);
  if (!bounds.integer && bounds.is_free()) return json_.any_number();
  const auto beyond = [](const std::optional<Bound>& bound, bool negative) {
    return bound && std::ssize(bound->at.digits) > kExactDigits && bound->at.negative == negative;
  };
  if (beyond(bounds.least, false))
    document_.refuse(merged.place, "minimum", "at most {} digits are written", kExactDigits);
  if (beyond(bounds.most, true))
    document_.refuse(merged.place, "maximum", "at most {} digits are written", kExactDigits);
  return number_text(pool_, bounds);
}

}  // namespace fourfold::constrain
