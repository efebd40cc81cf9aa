// Random schemas with two judges of their own: a generator of instances and a validator. Neither shares code
// with the room, so that what both say about a schema can be held against its masks.
#pragma once

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <regex>
#include <string>

#include "base/random.h"

namespace fourfold::constrain {

namespace bj = boost::json;

struct Sample {
  const char* text;  // of the keyword
  std::vector<const char*> good;
};
inline const std::vector<Sample>& pattern_samples() {
  static const std::vector<Sample> samples{{"^[a-z]{2,5}$", {"ab", "xyzzy"}},
                                           {"^(red|green|blue)( light)?$", {"red", "green light"}},
                                           {"\\d+", {"1", "x 22 y", "12"}},
                                           {"^[A-Z]\\w*$", {"A", "Zz_9"}},
                                           {"^\\\\?\"$", {"\"", "\\\""}}};
  return samples;
}
inline const std::vector<Sample>& format_samples() {
  static const std::vector<Sample> samples{{"date", {"2024-02-29", "1999-12-31"}},
                                           {"date-time", {"2026-11-15T00:00:00Z"}},
                                           {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}},
                                           {"ipv4", {"10.0.255.1"}},
                                           {"email", {"a.b@example.org"}}};
  return samples;
}

class RandomSchema {
 public:
  explicit RandomSchema(std::uint64_t seed) : random_(seed) {}

  bj::object make() {
    bj::object root = schema(3);
    root["$defs"] = {{"leaf", schema(0)}, {"tree", tree()}};
    return root;
  }

 private:
  std::int64_t pick(std::int64_t count) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(count)));
  }

  bj::object tree() {
    return {{"type", "object"},
            {"properties",
             {{"v", schema(0)}, {"kids", {{"type", "array"}, {"items", {{"$ref", "#/$defs/tree"}}}}}}},
            {"required", bj::array{"v"}},
            {"additionalProperties", false}};
  }

  bj::object schema(int depth) {
    switch (pick(depth > 0 ? 12 : 7)) {
      case 0: return string();
      case 1: return integer();
      case 2: return number();
      case 3: return {{"type", pick(2) ? "boolean" : "null"}};
      case 4:
        return {{"enum", bj::array{"a", "b\"\n", 3, nullptr, bj::array{1, bj::object{{"x", true}}}, -0.5}}};
      case 5: return {{"const", pick(2) ? bj::value("\xC3\xA9 \\") : bj::value(42)}};
      case 6:
        return {
            {"type", bj::array{"integer", "null", "string"}}, {"minLength", pick(3)}, {"minimum", pick(9)}};
      case 7: return array(depth);
      case 8: return {{"anyOf", bj::array{schema(depth - 1), schema(depth - 1)}}};
      case 9: return {{"$ref", pick(2) ? "#/$defs/leaf" : "#/$defs/tree"}};
      default: return object(depth);
    }
  }

  bj::object string() {
    bj::object out{{"type", "string"}};
    switch (pick(4)) {
      case 0:
        out["pattern"] =
            pattern_samples()[static_cast<std::size_t>(pick(std::ssize(pattern_samples())))].text;
        break;
      case 1:
        out["format"] = format_samples()[static_cast<std::size_t>(pick(std::ssize(format_samples())))].text;
        break;
      case 2:
        out["minLength"] = pick(4);
        out["maxLength"] = 4 + pick(10);
        break;
      default: break;
    }
    return out;
  }

  bj::object integer() {
    bj::object out{{"type", "integer"}};
    const std::int64_t low = pick(2000) - 1000;
    if (pick(2)) out[pick(2) ? "minimum" : "exclusiveMinimum"] = low;
    if (pick(2)) out[pick(2) ? "maximum" : "exclusiveMaximum"] = low + 20 + pick(500);
    if (pick(3) == 0) out["multipleOf"] = 1 + pick(9);
    return out;
  }

  bj::object number() {
    bj::object out{{"type", "number"}};
    const double low = static_cast<double>(pick(4000) - 2000) / 8;
    if (pick(2)) out[pick(2) ? "minimum" : "exclusiveMinimum"] = low;
    if (pick(2)) out[pick(2) ? "maximum" : "exclusiveMaximum"] = low + 3;
    return out;
  }

  bj::object array(int depth) {
    bj::object out{{"type", "array"}};
    const bool first = pick(3) == 0;
    if (first) out["prefixItems"] = bj::array{schema(depth - 1), schema(0)};
    if (!first || pick(2)) out["items"] = schema(depth - 1);
    if (pick(2)) out["minItems"] = pick(3);
    if (pick(2)) out["maxItems"] = 2 + pick(3);
    return out;
  }

  bj::object object(int depth) {
    bj::object properties;
    bj::array required;
    const char* const names[] = {"a", "name", "long name", "\"q\"", "\xC3\xA4", "a1"};
    for (const char* name : names) {
      if (pick(2)) continue;
      properties[name] = schema(depth - 1);
      if (pick(2)) required.push_back(name);
    }
    bj::object out{{"type", "object"}, {"properties", properties}, {"required", required}};
    const std::int64_t kind = pick(3);
    if (kind == 0) out["additionalProperties"] = false;
    if (kind == 1) out["additionalProperties"] = schema(0);
    return out;
  }

  Random random_;
};

// ---- validator
// ------------------------------------------------------------------------------------------------

class Validator {
 public:
  explicit Validator(const bj::object& root) : root_(root) {}
  bool holds(const bj::value& schema, const bj::value& value) const {
    if (schema.is_bool()) return schema.get_bool();
    const bj::object& s = schema.get_object();
    if (const auto* reference = s.if_contains("$ref")) {
      boost::system::error_code code;
      const bj::value whole = root_;
      const std::string pointer(reference->get_string().subview(1));
      if (!holds(*whole.find_pointer(pointer, code), value)) return false;
    }
    if (const auto* any = s.if_contains("anyOf")) {
      bool one = false;
      for (const bj::value& part : any->get_array()) one |= holds(part, value);
      if (!one) return false;
    }
    if (const auto* type = s.if_contains("type"); type && !has_type(*type, value)) return false;
    if (const auto* list = s.if_contains("enum"); list && !is_among(list->get_array(), value)) return false;
    if (const auto* only = s.if_contains("const"); only && !equal(*only, value)) return false;
    if (value.is_string()) return string_holds(s, value.get_string());
    if (value.is_number()) return number_holds(s, value.to_number<double>());
    if (value.is_array()) return array_holds(s, value.get_array());
    return !value.is_object() || object_holds(s, value.get_object());
  }

 private:
  static bool equal(const bj::value& a, const bj::value& b) {
    return a.is_number() && b.is_number() ? a.to_number<double>() == b.to_number<double>() : a == b;
  }
  static bool is_among(const bj::array& list, const bj::value& value) {
    return std::any_of(list.begin(), list.end(), [&](const bj::value& one) { return equal(one, value); });
  }
  static bool has_type(const bj::value& type, const bj::value& value) {
    if (type.is_array())
      return std::any_of(type.get_array().begin(), type.get_array().end(),
                         [&](const bj::value& one) { return has_type(one, value); });
    const bj::string& name = type.get_string();
    if (name == "integer")
      return value.is_number() && std::trunc(value.to_number<double>()) == value.to_number<double>();
    return (name == "number" && value.is_number()) || (name == "string" && value.is_string()) ||
           (name == "boolean" && value.is_bool()) || (name == "null" && value.is_null()) ||
           (name == "object" && value.is_object()) || (name == "array" && value.is_array());
  }
  static bool string_holds(const bj::object& s, const bj::string& text) {
    std::int64_t length = 0;
    for (const char c : text) length += (c & 0xC0) != 0x80;
    if (const auto* min = s.if_contains("minLength"); min && length < min->to_number<std::int64_t>())
      return false;
    if (const auto* max = s.if_contains("maxLength"); max && length > max->to_number<std::int64_t>())
      return false;
    if (const auto* pattern = s.if_contains("pattern"))
      if (!std::regex_search(std::string(text), std::regex(std::string(pattern->get_string())))) return false;
    return true;
  }
  static bool number_holds(const bj::object& s, double value) {
    const auto bound = [&](const char* name, auto compare) {
      const auto* at = s.if_contains(name);
      return !at || compare(value, at->to_number<double>());
    };
    return bound("minimum", [](double v, double at) { return v >= at; }) &&
           bound("exclusiveMinimum", [](double v, double at) { return v > at; }) &&
           bound("maximum", [](double v, double at) { return v <= at; }) &&
           bound("exclusiveMaximum", [](double v, double at) { return v < at; }) &&
           bound("multipleOf", [](double v, double at) { return std::fmod(v, at) == 0; });
  }
  bool array_holds(const bj::object& s, const bj::array& items) const {
    const auto count = static_cast<std::int64_t>(items.size());
    if (const auto* min = s.if_contains("minItems"); min && count < min->to_number<std::int64_t>())
      return false;
    if (const auto* max = s.if_contains("maxItems"); max && count > max->to_number<std::int64_t>())
      return false;
    const auto* first = s.if_contains("prefixItems");
    const auto* more = s.if_contains("items");
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bj::value* schema = first && i < first->get_array().size() ? &first->get_array()[i] : more;
      if (schema && !holds(*schema, items[i])) return false;
    }
    return true;
  }
  bool object_holds(const bj::object& s, const bj::object& members) const {
    const auto* properties = s.if_contains("properties");
    if (const auto* required = s.if_contains("required"))
      for (const bj::value& name : required->get_array())
        if (!members.contains(name.get_string())) return false;
    for (const auto& member : members) {
      const bj::value* schema = properties ? properties->get_object().if_contains(member.key()) : nullptr;
      if (!schema) schema = s.if_contains("additionalProperties");
      if (schema && !holds(*schema, member.value())) return false;
    }
    return true;
  }

  const bj::object& root_;
};

}  // namespace fourfold::constrain
