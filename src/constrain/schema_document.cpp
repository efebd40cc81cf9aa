// Keywords, references and alternatives of a schema.
#include "constrain/schema_document.h"

#include <algorithm>
#include <cmath>

namespace fourfold::constrain {
namespace {

constexpr std::string_view kSupported[] = {"type",
                                           "enum",
                                           "const",
                                           "properties",
                                           "required",
                                           "additionalProperties",
                                           "patternProperties",
                                           "minProperties",
                                           "maxProperties",
                                           "items",
                                           "prefixItems",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "anyOf",
                                           "oneOf",
                                           "allOf",
                                           "$ref",
                                           "$defs",
                                           "definitions",
                                           "nullable"};
constexpr std::string_view kIgnored[] = {"title",      "description", "default",   "examples",
                                         "example",    "$schema",     "$id",       "$comment",
                                         "deprecated", "readOnly",    "writeOnly", "discriminator"};
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "propertyNames",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "additionalItems",
                                         "contentEncoding",
                                         "contentMediaType",
                                         "contentSchema",
                                         "$anchor",
                                         "$dynamicRef",
                                         "$dynamicAnchor",
                                         "$recursiveRef",
                                         "$recursiveAnchor",
                                         "$vocabulary"};
// Those that say something by themselves; the others only point elsewhere.
constexpr std::string_view kPointing[] = {"anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions"};

constexpr std::size_t kAlternativesMax = 512;

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool says_something(const bj::object& schema) {
  return std::any_of(schema.begin(), schema.end(), [](const auto& member) {
    const std::string_view key(member.key().data(), member.key().size());
    return !is_among(kPointing, key) && !is_among(kIgnored, key);
  });
}

std::string_view view(const bj::string& text) { return {text.data(), text.size()}; }
std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  if (out.size() > 200) {
    out.resize(200);
    out += "...";
  }
  return out;
}

}  // namespace

std::span<const std::string_view> supported_keywords() { return kSupported; }
std::span<const std::string_view> ignored_keywords() { return kIgnored; }
std::span<const std::string_view> refused_keywords() { return kRefused; }

SchemaDocument::SchemaDocument(const bj::value& root, std::string what, Budget& budget)
    : root_(root), what_(std::move(what)), budget_(budget) {
  remember(root, "");
}

std::string SchemaDocument::pointer(const void* part) const {
  const auto place = pointers_.find(part);
  return place == pointers_.end() || place->second.empty() ? "at the top" : "at " + place->second;
}

void SchemaDocument::remember(const bj::value& value, const std::string& pointer) {
  budget_.spend(10 + static_cast<std::int64_t>(pointer.size()));
  budget_.hold(100 + static_cast<std::int64_t>(pointer.size()));
  pointers_.emplace(&value, pointer);
  if (value.is_object()) {
    pointers_.emplace(&value.get_object(), pointer);
    for (const auto& member : value.get_object())
      remember(member.value(), pointer + "/" + escaped(view(member.key())));
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.get_array().size(); ++i)
      remember(value.get_array()[i], pointer + "/" + std::to_string(i));
  }
}

void SchemaDocument::check_keywords(const bj::object& schema) {
  if (!checked_.insert(&schema).second) return;
  for (const auto& member : schema) {
    const std::string_view name = view(member.key());
    if (name == "$id" && &schema != root_.if_object())
      refuse(&schema, name, "an $id inside a schema is not supported; references are by JSON pointer");
    if (is_among(kSupported, name) || is_among(kIgnored, name)) continue;
    if (is_among(kRefused, name)) refuse(&schema, escaped(name), "the keyword is not supported");
    refuse(&schema, escaped(name), "an unknown keyword");
  }
}

const bj::value& SchemaDocument::target_of(const bj::object& schema, std::string_view reference) {
  if (reference.empty() || reference[0] != '#')
    refuse(&schema, "$ref", "only references within the schema (#/...) are followed; nothing is fetched");
  if (reference.size() > 1 && reference[1] != '/')
    refuse(&schema, "$ref", "anchors are not supported; write a JSON pointer (#/...)");
  if (reference.find('%') != std::string_view::npos)
    refuse(&schema, "$ref", "percent signs in references are not supported");
  boost::system::error_code code;
  const bj::value* target = root_.find_pointer({reference.data() + 1, reference.size() - 1}, code);
  if (!target) refuse(&schema, "$ref", "nothing stands at {}", escaped(reference));
  return *target;
}

const bj::value* SchemaDocument::resolved(const bj::value* schema) {
  std::set<const bj::value*> met;
  while (schema->is_object() && met.insert(schema).second) {
    const bj::object& object = schema->get_object();
    check_keywords(object);
    const bj::value* reference = object.if_contains("$ref");
    if (!reference || !reference->is_string() || says_something(object)) break;
    if (object.contains("anyOf") || object.contains("oneOf") || object.contains("allOf")) break;
    budget_.spend(20);
    schema = &target_of(object, view(reference->get_string()));
  }
  return schema;
}

std::vector<Conjunction> SchemaDocument::both(const std::vector<Conjunction>& a,
                                              const std::vector<Conjunction>& b, const void* place) {
  if (a.size() * b.size() > kAlternativesMax)
    refuse(place, "", "{} times {} alternatives at once; at most {}", a.size(), b.size(), kAlternativesMax);
  std::vector<Conjunction> result;
  for (const Conjunction& left : a)
    for (const Conjunction& right : b) {
      Conjunction joined(left);
      for (const bj::object* part : right)
        if (std::find(joined.begin(), joined.end(), part) == joined.end()) joined.push_back(part);
      budget_.spend(static_cast<std::int64_t>(joined.size() + left.size() * right.size()));
      result.push_back(std::move(joined));
    }
  return result;
}

std::vector<Conjunction> SchemaDocument::any_of(const bj::object& schema, std::string_view keyword,
                                                bool exactly_one) {
  const bj::value& list = schema.at({keyword.data(), keyword.size()});
  if (!list.is_array() || list.get_array().empty()) refuse(&schema, keyword, "must be a list of schemas");
  std::vector<Conjunction> result;
  for (const bj::value& part : list.get_array()) {
    std::vector<Conjunction> ways = alternatives_of(part);
    if (exactly_one)
      for (const Conjunction& before : result)
        for (const Conjunction& way : ways)
          if (!exclude_each_other(before, way))
            refuse(
                &schema, keyword,
                "alternatives that might both hold (no different types, no property of different constants); "
                "use anyOf");
    result.insert(result.end(), ways.begin(), ways.end());
    if (result.size() > kAlternativesMax)
      refuse(&schema, keyword, "more than {} alternatives", kAlternativesMax);
  }
  return result;
}

std::vector<Conjunction> SchemaDocument::alternatives_of(const bj::value& schema) {
  if (schema.is_bool()) return schema.get_bool() ? std::vector<Conjunction>{{}} : std::vector<Conjunction>{};
  if (!schema.is_object()) refuse(&schema, "", "a schema is an object, true or false");
  if (std::find(open_.begin(), open_.end(), &schema) != open_.end())
    refuse(&schema, "", "the schema refers to itself with nothing in between");
  budget_.spend(20 + static_cast<std::int64_t>(open_.size()));
  if (open_.size() > 200) refuse(&schema, "", "references nested deeper than 200");
  open_.push_back(&schema);
  const bj::object& object = schema.get_object();
  check_keywords(object);
  std::vector<Conjunction> result{{}};
  if (says_something(object)) result[0].push_back(&object);
  if (const bj::value* reference = object.if_contains("$ref")) {
    if (!reference->is_string()) refuse(&object, "$ref", "must be a string");
    result = both(result, alternatives_of(target_of(object, view(reference->get_string()))), &object);
  }
  if (const bj::value* all = object.if_contains("allOf")) {
    if (!all->is_array()) refuse(&object, "allOf", "must be a list of schemas");
    for (const bj::value& part : all->get_array()) result = both(result, alternatives_of(part), &object);
  }
  if (object.contains("anyOf")) result = both(result, any_of(object, "anyOf", false), &object);
  if (object.contains("oneOf")) result = both(result, any_of(object, "oneOf", true), &object);
  open_.pop_back();
  return result;
}

std::vector<Conjunction> SchemaDocument::alternatives(std::span<const bj::value* const> schemas) {
  std::vector<Conjunction> result{{}};
  for (const bj::value* schema : schemas) result = both(result, alternatives_of(*schema), schema);
  return result;
}

namespace {

// The constants a conjunction allows for a member it requires.
std::vector<const bj::value*> constants_of(const Conjunction& parts, bj::string_view name) {
  for (const bj::object* part : parts) {
    const bj::value* properties = part->if_contains("properties");
    const bj::value* property =
        properties && properties->is_object() ? properties->get_object().if_contains(name) : nullptr;
    if (!property || !property->is_object()) continue;
    std::vector<const bj::value*> constants;
    if (const bj::value* only = property->get_object().if_contains("const")) return {only};
    if (const bj::value* list = property->get_object().if_contains("enum"); list && list->is_array()) {
      for (const bj::value& value : list->get_array()) constants.push_back(&value);
      return constants;
    }
  }
  return {};
}

bool requires_member(const Conjunction& parts, bj::string_view name) {
  return std::any_of(parts.begin(), parts.end(), [&](const bj::object* part) {
    const bj::value* required = part->if_contains("required");
    if (!required || !required->is_array()) return false;
    const auto& list = required->get_array();
    return std::any_of(list.begin(), list.end(), [&](const bj::value& value) {
      return value.is_string() && value.get_string() == name;
    });
  });
}

bool nothing_in_common(const std::vector<const bj::value*>& a, const std::vector<const bj::value*>& b) {
  for (const bj::value* left : a)
    for (const bj::value* right : b)
      if (*left == *right || (left->is_number() && right->is_number())) return false;
  return !a.empty() && !b.empty();
}

std::vector<const bj::value*> own_constants(const Conjunction& parts) {
  std::vector<const bj::value*> constants;
  for (const bj::object* part : parts) {
    if (const bj::value* only = part->if_contains("const")) return {only};
    if (const bj::value* list = part->if_contains("enum"); list && list->is_array()) {
      for (const bj::value& value : list->get_array()) constants.push_back(&value);
      return constants;
    }
  }
  return constants;
}

}  // namespace

bool SchemaDocument::exclude_each_other(const Conjunction& a, const Conjunction& b) const {
  budget_.spend(50);
  const auto types = [this](const Conjunction& parts) {
    unsigned bits = kAllTypes;
    for (const bj::object* part : parts) bits &= types_of(*this, *part);
    return bits;
  };
  const unsigned common = types(a) & types(b);
  if (common == 0 || nothing_in_common(own_constants(a), own_constants(b))) return true;
  if (common != kObjectType) return false;
  for (const bj::object* part : a) {
    const bj::value* properties = part->if_contains("properties");
    if (!properties || !properties->is_object()) continue;
    for (const auto& member : properties->get_object())
      if (requires_member(a, member.key()) && requires_member(b, member.key()) &&
          nothing_in_common(constants_of(a, member.key()), constants_of(b, member.key())))
        return true;
  }
  return false;
}

unsigned type_of(const bj::value& value) {
  switch (value.kind()) {
    case bj::kind::null: return kNullType;
    case bj::kind::bool_: return kBooleanType;
    case bj::kind::string: return kStringType;
    case bj::kind::int64:
    case bj::kind::uint64: return kIntegerType;
    case bj::kind::double_:
      return std::trunc(value.get_double()) == value.get_double() ? kIntegerType : kFractionType;
    case bj::kind::object: return kObjectType;
    case bj::kind::array: return kArrayType;
  }
  return 0;
}

unsigned types_of(const SchemaDocument& document, const bj::object& schema) {
  const auto bit = [&](const bj::value& name) -> unsigned {
    constexpr std::pair<std::string_view, unsigned> names[] = {
        {"null", kNullType},       {"boolean", kBooleanType}, {"string", kStringType},
        {"integer", kIntegerType}, {"number", kNumberTypes},  {"object", kObjectType},
        {"array", kArrayType}};
    if (name.is_string())
      for (const auto& [text, bits] : names)
        if (view(name.get_string()) == text) return bits;
    document.refuse(&schema, "type",
                    "must be null, boolean, string, integer, number, object or array, or a list");
  };
  const bj::value* type = schema.if_contains("type");
  if (!type) return kAllTypes;
  unsigned bits = 0;
  if (type->is_array())
    for (const bj::value& name : type->get_array()) bits |= bit(name);
  else
    bits = bit(*type);
  const bj::value* nullable = schema.if_contains("nullable");
  if (nullable && !nullable->is_bool()) document.refuse(&schema, "nullable", "must be true or false");
  return nullable && nullable->get_bool() ? bits | kNullType : bits;
}

}  // namespace fourfold::constrain
