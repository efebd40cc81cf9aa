// Valid documents for the schemas of random_schema.h, and how programs write them.
#pragma once

#include <charconv>
#include <optional>

#include "tests/constrain/random_schema.h"

namespace fourfold::constrain {

class RandomInstance {
 public:
  RandomInstance(const bj::object& root, Random& random) : root_(root), random_(random) {}

  // None where the draw met a dead end (bounds without a multiple between them).
  std::optional<bj::value> make(const bj::object& s, int depth = 0) {
    if (const auto* reference = s.if_contains("$ref"))
      return make(root_.at("$defs").get_object().at(reference->get_string().subview(8)).get_object(),
                  depth + 1);
    if (const auto* any = s.if_contains("anyOf")) return make(any->get_array()[pick(2)].get_object(), depth);
    if (const auto* list = s.if_contains("enum")) return list->get_array()[pick(list->get_array().size())];
    if (const auto* only = s.if_contains("const")) return *only;
    const bj::value& type = s.at("type");
    const bj::string& name =
        type.is_array() ? type.get_array()[pick(type.get_array().size())].get_string() : type.get_string();
    if (name == "null") return bj::value(nullptr);
    if (name == "boolean") return bj::value(pick(2) == 1);
    if (name == "string") return string(s);
    if (name == "integer" || name == "number") return number(s, name == "integer");
    if (name == "array") return array(s, depth);
    return object(s, depth);
  }

 private:
  std::size_t pick(std::size_t count) { return random_.below(count); }

  static const char* sample(const std::vector<Sample>& samples, const bj::value& wanted, std::size_t which) {
    for (const Sample& one : samples)
      if (wanted.get_string() == one.text) return one.good[which % one.good.size()];
    return "";
  }

  bj::value string(const bj::object& s) {
    if (const auto* pattern = s.if_contains("pattern"))
      return bj::value(sample(pattern_samples(), *pattern, pick(9)));
    if (const auto* format = s.if_contains("format"))
      return bj::value(sample(format_samples(), *format, pick(9)));
    const char* const letters[] = {"a", " ",    "\"", "\\", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80",
                                   "/", "\x01", "the"};
    const auto* min = s.if_contains("minLength");
    const auto* max = s.if_contains("maxLength");
    const auto low = min ? static_cast<std::size_t>(min->get_int64()) : 0;
    std::string text;
    const std::size_t count = low + pick(max ? static_cast<std::size_t>(max->get_int64()) - low + 1 : 12);
    for (std::size_t i = 0; i < count; ++i) text += letters[pick(max ? 9 : 10)];
    return bj::value(text);
  }

  std::optional<bj::value> number(const bj::object& s, bool integer) {
    double low = -3000, high = 3000;
    const auto read = [&](const char* name, double& bound) {
      if (const auto* at = s.if_contains(name)) bound = at->to_number<double>();
    };
    read("minimum", low);
    read("exclusiveMinimum", low);
    high = low + 6000;
    read("maximum", high);
    read("exclusiveMaximum", high);
    for (int attempt = 0; attempt < 30; ++attempt) {
      double value = std::floor((low + (high - low) * random_.uniform()) * 8) / 8;
      if (integer) value = std::floor(value);
      if (const auto* multiple = s.if_contains("multipleOf"))
        value = std::floor(value / multiple->to_number<double>()) * multiple->to_number<double>();
      if (!Validator(root_).holds(s, bj::value(value))) continue;
      return integer ? bj::value(static_cast<std::int64_t>(value)) : bj::value(value);
    }
    return std::nullopt;
  }

  std::optional<bj::value> array(const bj::object& s, int depth) {
    const auto* first = s.if_contains("prefixItems");
    const auto* more = s.if_contains("items");
    const auto* min = s.if_contains("minItems");
    const auto* max = s.if_contains("maxItems");
    std::size_t count = min ? static_cast<std::size_t>(min->get_int64()) : 0;
    if (depth < 4) count += pick(3);
    if (max) count = std::min(count, static_cast<std::size_t>(max->get_int64()));
    if (first && !more) count = std::min(count, first->get_array().size());
    bj::array out;
    for (std::size_t i = 0; i < count; ++i) {
      const bj::value* schema = first && i < first->get_array().size() ? &first->get_array()[i] : more;
      auto item = make(schema->get_object(), depth + 1);
      if (!item) return std::nullopt;
      out.push_back(std::move(*item));
    }
    return out;
  }

  std::optional<bj::value> object(const bj::object& s, int depth) {
    bj::object out;
    const bj::array& required = s.at("required").get_array();
    for (const auto& property : s.at("properties").get_object()) {
      const bool needed =
          std::find(required.begin(), required.end(), bj::value(property.key())) != required.end();
      if (!needed && (depth > 3 || pick(2))) continue;
      auto value = make(property.value().get_object(), depth + 1);
      if (!value) return std::nullopt;
      out[property.key()] = std::move(*value);
    }
    if (const auto* additional = s.if_contains("additionalProperties"); additional && additional->is_object())
      for (const char* name : {"extra", "nam", "\xC3\xBC\n"})
        if (auto value = make(additional->get_object(), depth + 1); value && pick(2))
          out[name] = std::move(*value);
    return out;
  }

  const bj::object& root_;
  Random& random_;
};

enum class JsonStyle { compact, spaced, indented };

inline void dump_to(std::string& out, const bj::value& value, JsonStyle style, int depth) {
  if (!value.is_structured()) {
    if (value.is_double()) {
      char text[64];
      out.append(text, std::to_chars(text, text + sizeof text, value.get_double()).ptr);
    } else {
      out += bj::serialize(value);
    }
    return;
  }
  const bool is_object = value.is_object();
  const auto line = [&](int level) {
    if (style == JsonStyle::indented) out += "\n" + std::string(static_cast<std::size_t>(level) * 2, ' ');
  };
  const std::size_t count = is_object ? value.get_object().size() : value.get_array().size();
  out += is_object ? '{' : '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += style == JsonStyle::spaced ? ", " : ",";
    line(depth + 1);
    if (is_object) {
      const auto& member = *(value.get_object().begin() + static_cast<std::ptrdiff_t>(i));
      out += bj::serialize(bj::value(member.key())) + (style == JsonStyle::compact ? ":" : ": ");
      dump_to(out, member.value(), style, depth + 1);
    } else {
      dump_to(out, value.get_array()[i], style, depth + 1);
    }
  }
  if (count > 0) line(depth);
  out += is_object ? '}' : ']';
}

inline std::string dump(const bj::value& value, JsonStyle style) {
  std::string out;
  dump_to(out, value, style, 0);
  return out;
}

}  // namespace fourfold::constrain
