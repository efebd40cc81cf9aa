// Keywords, references and alternatives of a schema.
#include "constrain/schema_document.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "constrain/schema_keywords.h"

namespace fourfold::constrain {
namespace {

// Those that only point elsewhere; the others say something by themselves.
constexpr std::string_view kPointing[] = {"anyOf", "oneOf",       "allOf",        "$ref",
                                          "$defs", "definitions", "discriminator"};

constexpr std::size_t kAlternativesMax = 512;
constexpr std::size_t kNotesMax = 16;

std::string_view view(const bj::string& text) { return {text.data(), text.size()}; }
std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

bool says_something(const bj::object& schema) {
  return std::any_of(schema.begin(), schema.end(), [](const auto& member) {
    const std::string_view key = view(member.key());
    return kind_of_keyword(key) == Keyword::supported &&
           std::ranges::find(kPointing, key) == std::end(kPointing);
  });
}

// As in JSON pointers; long names come from hostile schemas, and a message stays one line.
std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 200)) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return name.size() > 200 ? out + "..." : out;
}

// A step of a JSON pointer in a URI's fragment; none where it is not well written.
std::optional<std::string> unescaped(std::string_view step) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string plain;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '%') {
      plain += step[i];
      continue;
    }
    const int high = i + 2 < step.size() ? digit(step[i + 1]) : -1, low = high < 0 ? -1 : digit(step[i + 2]);
    if (low < 0) return std::nullopt;
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  std::string out;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] != '~') {
      out += plain[i];
      continue;
    }
    const char next = i + 1 < plain.size() ? plain[++i] : ' ';
    if (next != '0' && next != '1') return std::nullopt;
    out += next == '0' ? '~' : '/';
  }
  return out;
}

}  // namespace

SchemaDocument::SchemaDocument(const bj::value& root, std::string what, Budget& budget)
    : root_(root), what_(std::move(what)), budget_(budget) {
  remember(root, nullptr, "");
}

std::string SchemaDocument::pointer(const void* part) const {
  std::string out;
  for (auto place = places_.find(part); place != places_.end() && place->second.parent != nullptr;
       place = places_.find(place->second.parent))
    out = "/" + place->second.name + out;
  return out.empty() ? "at the top" : "at " + out;
}

void SchemaDocument::remember(const bj::value& value, const void* parent, std::string_view name) {
  budget_.spend(100);
  budget_.hold(160 + static_cast<std::int64_t>(name.size()));
  places_.emplace(&value, Place{parent, escaped(name)});
  if (value.is_object()) {
    places_.emplace(&value.get_object(), Place{parent, escaped(name)});
    for (const auto& member : value.get_object()) remember(member.value(), &value, view(member.key()));
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.get_array().size(); ++i)
      remember(value.get_array()[i], &value, std::to_string(i));
  }
}

const bj::value* SchemaDocument::member(const bj::object& object, std::string_view name) const {
  constexpr std::size_t few = 16;
  if (object.size() <= few) return object.if_contains({name.data(), name.size()});
  auto& members = members_[&object];
  if (members.empty()) {
    budget_.spend(60 * static_cast<std::int64_t>(object.size()));
    budget_.hold(80 * static_cast<std::int64_t>(object.size()));
    for (const auto& one : object) members.emplace(view(one.key()), &one.value());
  }
  const auto place = members.find(name);
  return place == members.end() ? nullptr : place->second;
}

void SchemaDocument::note(std::string_view kind, std::string_view name) const {
  if (notes_.size() < kNotesMax) notes_.insert(std::string(kind) + " " + escaped(name));
}

void SchemaDocument::check_keywords(const bj::object& schema) {
  if (!checked_.insert(&schema).second) return;
  for (const auto& member : schema) {
    const std::string_view name = view(member.key());
    budget_.spend(30);
    if (name == "$id" && &schema != root_.if_object())
      refuse(&schema, name, "an $id inside a schema is not supported; references are by JSON pointer");
    switch (kind_of_keyword(name)) {
      case Keyword::supported:
      case Keyword::ignored: break;
      case Keyword::refused: refuse(&schema, name, "the keyword is not supported");
      case Keyword::unknown: {
        budget_.spend(1000);
        if (const std::string_view meant = meant_keyword(name); !meant.empty())
          refuse(&schema, escaped(name), "an unknown keyword; did you mean {}?", meant);
        note("keyword", name);
      }
    }
  }
}

const bj::value& SchemaDocument::target_of(const bj::object& schema, std::string_view reference) {
  if (reference.empty() || reference[0] != '#')
    refuse(&schema, "$ref", "only references within the schema (#/...) are followed; nothing is fetched");
  if (reference.size() > 1 && reference[1] != '/')
    refuse(&schema, "$ref", "anchors are not supported; write a JSON pointer (#/...)");
  budget_.spend(20 + static_cast<std::int64_t>(reference.size()));
  const bj::value* at = &root_;
  for (std::string_view rest = reference.substr(1); at != nullptr && !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view step = rest.substr(0, rest.find('/'));
    rest.remove_prefix(step.size());
    const std::optional<std::string> name = unescaped(step);
    if (!name) refuse(&schema, "$ref", "a JSON pointer has %, ~ and / only as escapes");
    const bj::value* next = nullptr;
    if (at->is_object()) next = member(at->get_object(), *name);
    if (at->is_array() && !name->empty() && name->size() < 8 &&
        name->find_first_not_of("0123456789") == std::string::npos)
      next = at->get_array().if_contains(std::stoul(*name));
    at = next;
  }
  if (at == nullptr) refuse(&schema, "$ref", "nothing stands at {}", escaped(reference));
  return *at;
}

const bj::value* SchemaDocument::resolved(const bj::value* schema) {
  std::set<const bj::value*> met;
  while (schema->is_object() && met.insert(schema).second) {
    const bj::object& object = schema->get_object();
    check_keywords(object);
    const bj::value* reference = member(object, "$ref");
    if (!reference || !reference->is_string() || says_something(object)) break;
    if (object.contains("anyOf") || object.contains("oneOf") || object.contains("allOf")) break;
    budget_.spend(40);
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
      for (const bj::object* part : right) {
        budget_.spend(2 + std::ssize(joined) / 4);
        if (std::find(joined.begin(), joined.end(), part) == joined.end()) joined.push_back(part);
      }
      budget_.spend(20 + std::ssize(joined));
      result.push_back(std::move(joined));
    }
  return result;
}

const bj::array& SchemaDocument::list_of_schemas(const bj::object& schema, std::string_view keyword) const {
  const bj::value& list = *member(schema, keyword);
  if (!list.is_array() || list.get_array().empty()) refuse(&schema, keyword, "must be a list of schemas");
  return list.get_array();
}

std::vector<Conjunction> SchemaDocument::any_of(const bj::object& schema, std::string_view keyword) {
  std::vector<Conjunction> result;
  for (const bj::value& part : list_of_schemas(schema, keyword)) {
    for (Conjunction& way : alternatives_of(part)) {
      budget_.spend(10 + std::ssize(way));
      result.push_back(std::move(way));
    }
    if (result.size() > kAlternativesMax)
      refuse(&schema, keyword, "more than {} alternatives", kAlternativesMax);
  }
  return result;
}

std::vector<Conjunction> SchemaDocument::one_of(const bj::object& schema) {
  const bj::object* tag = required_tag(schema);
  std::vector<Way> ways;
  for (const bj::value& part : list_of_schemas(schema, "oneOf")) {
    const std::size_t before = ways.size();
    for (Conjunction& parts : alternatives_of(part)) {
      if (tag) parts.push_back(tag);
      ways.push_back(way_of(std::move(parts)));
      for (std::size_t other = 0; other < before; ++other)
        if (!exclude_each_other(ways[other], ways.back()))
          refuse(&schema, "oneOf",
                 "alternatives that might both hold (no different types, constants or required members); use "
                 "anyOf");
    }
    if (ways.size() > kAlternativesMax)
      refuse(&schema, "oneOf", "more than {} alternatives", kAlternativesMax);
  }
  std::vector<Conjunction> result;
  for (Way& way : ways) {
    // What they exclude each other by is said then, whatever the schema around them says.
    bj::object said;
    if (way.means_object) said.emplace("type", "object");
    if (!way.absent.empty()) {
      bj::object& members = said.emplace("properties", bj::object()).first->value().get_object();
      for (const std::string& name : way.absent) members.emplace(name, false);
    }
    if (!said.empty()) way.parts.push_back(&made_.emplace_back(std::move(said)));
    result.push_back(std::move(way.parts));
  }
  return result;
}

// OpenAPI's discriminator names the member that tells the alternatives apart. It must come then, also where
// the alternatives themselves have a default for it.
const bj::object* SchemaDocument::required_tag(const bj::object& schema) {
  const bj::value* tag = member(schema, "discriminator");
  const bj::value* name = tag && tag->is_object() ? member(tag->get_object(), "propertyName") : nullptr;
  if (!name || !name->is_string()) return nullptr;
  return &made_.emplace_back(bj::object{{"required", bj::array{*name}}});
}

std::vector<Conjunction> SchemaDocument::alternatives_of(const bj::value& schema) {
  if (schema.is_bool()) return schema.get_bool() ? std::vector<Conjunction>{{}} : std::vector<Conjunction>{};
  if (!schema.is_object()) refuse(&schema, "", "a schema is an object, true or false");
  if (std::find(open_.begin(), open_.end(), &schema) != open_.end())
    refuse(&schema, "", "the schema refers to itself with nothing in between");
  budget_.spend(60 + std::ssize(open_));
  if (open_.size() > 200) refuse(&schema, "", "references nested deeper than 200");
  open_.push_back(&schema);
  const bj::object& object = schema.get_object();
  check_keywords(object);
  std::vector<Conjunction> result{{}};
  if (says_something(object)) result[0].push_back(&object);
  if (const bj::value* reference = member(object, "$ref")) {
    if (!reference->is_string()) refuse(&object, "$ref", "must be a string");
    result = both(result, alternatives_of(target_of(object, view(reference->get_string()))), &object);
  }
  if (const bj::value* all = member(object, "allOf")) {
    if (!all->is_array()) refuse(&object, "allOf", "must be a list of schemas");
    for (const bj::value& part : all->get_array()) result = both(result, alternatives_of(part), &object);
  }
  if (object.contains("anyOf")) result = both(result, any_of(object, "anyOf"), &object);
  if (object.contains("oneOf")) result = both(result, one_of(object), &object);
  open_.pop_back();
  return result;
}

std::vector<Conjunction> SchemaDocument::alternatives(std::span<const bj::value* const> schemas) {
  std::vector<Conjunction> result{{}};
  for (const bj::value* schema : schemas) result = both(result, alternatives_of(*schema), schema);
  return result;
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
  const bj::value* type = document.member(schema, "type");
  if (!type) return kAllTypes;
  unsigned bits = 0;
  if (type->is_array())
    for (const bj::value& name : type->get_array()) bits |= bit(name);
  else
    bits = bit(*type);
  const bj::value* nullable = document.member(schema, "nullable");
  if (nullable && !nullable->is_bool()) document.refuse(&schema, "nullable", "must be true or false");
  return nullable && nullable->get_bool() ? bits | kNullType : bits;
}

}  // namespace fourfold::constrain
