// The types of a tool's parameters, and a parameter's text read by them.
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/jinja/json_value.h"
#include "text/jinja/python_text.h"
#include "text/tool_calls.h"

namespace fourfold::text {
namespace {

// Schemas a parameter's types are looked for in; one that refers to itself many times over is not worth more.
constexpr int kSchemasMax = 256;

unsigned type_named(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, unsigned>, 7> types{{{"null", kToolNull},
                                                                               {"integer", kToolInteger},
                                                                               {"number", kToolNumber},
                                                                               {"boolean", kToolBoolean},
                                                                               {"object", kToolObject},
                                                                               {"array", kToolArray},
                                                                               {"string", kToolString}}};
  for (const auto& [word, type] : types)
    if (word == name) return type;
  return 0;
}

unsigned type_of_value(const jinja::Value& value) {
  if (value.is_none()) return kToolNull;
  if (value.is_bool()) return kToolBoolean;
  if (value.is_integer()) return kToolInteger;
  if (value.is_real()) return kToolNumber;
  if (value.is_text()) return kToolString;
  return value.is_dict() ? kToolObject : kToolArray;
}

// "#/$defs/Point" within the root.
const jinja::Value* referred(const jinja::Value& root, std::string_view pointer) {
  if (!pointer.starts_with("#")) return nullptr;
  const jinja::Value* at = &root;
  for (pointer.remove_prefix(1); !pointer.empty() && at != nullptr;) {
    if (pointer.front() != '/' || at->dict() == nullptr) return nullptr;
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    at = at->dict()->find(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
  }
  return at;
}

unsigned types_in(const jinja::Value& schema, const jinja::Value& root, int& left) {
  const jinja::Dict* dict = schema.dict();
  if (dict == nullptr || --left < 0) return 0;
  unsigned out = 0;
  if (const jinja::Value* type = dict->find("type")) {
    if (type->is_text()) out |= type_named(type->text());
    if (type->is_sequence())
      for (const jinja::Value& one : type->sequence()->items)
        if (one.is_text()) out |= type_named(one.text());
  }
  if (out != 0) return out;
  if (const jinja::Value* value = dict->find("const")) out |= type_of_value(*value);
  if (const jinja::Value* values = dict->find("enum"); values != nullptr && values->is_sequence())
    for (const jinja::Value& value : values->sequence()->items) out |= type_of_value(value);
  for (const char* name : {"anyOf", "oneOf", "allOf"})
    if (const jinja::Value* parts = dict->find(name); parts != nullptr && parts->is_sequence())
      for (const jinja::Value& part : parts->sequence()->items) out |= types_in(part, root, left);
  if (const jinja::Value* reference = dict->find("$ref"); reference != nullptr && reference->is_text())
    if (const jinja::Value* target = referred(root, reference->text())) out |= types_in(*target, root, left);
  return out;
}

bool equal_ignoring_case(std::string_view text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]) != word[i]) return false;
  return true;
}

// The value, where the text is JSON.
bool read_json(std::string_view text, jinja::Value& out) {
  try {
    out = jinja::parse_json(text, "parameter", jinja::JsonRules::answer);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_whole(const jinja::Value& value) {
  return value.is_integer() ||
         (value.is_real() && value.real() == std::trunc(value.real()) && std::fabs(value.real()) < 9e15);
}

}  // namespace

void ToolSchemas::add(std::string name, jinja::Value parameters) {
  schemas_.insert_or_assign(std::move(name), std::move(parameters));
}

unsigned ToolSchemas::types_of(std::string_view function, std::string_view parameter) const {
  const auto found = schemas_.find(function);
  if (found == schemas_.end() || !found->second.is_dict()) return kToolString;
  const jinja::Dict& schema = *found->second.dict();
  const jinja::Value* properties = schema.find("properties");
  const jinja::Value* property =
      properties != nullptr && properties->is_dict() ? properties->dict()->find(parameter) : nullptr;
  if (property == nullptr) property = schema.find("additionalProperties");
  int left = kSchemasMax;
  const unsigned types = property == nullptr ? 0 : types_in(*property, found->second, left);
  return types == 0 ? kToolString : types;
}

std::string typed_json(std::string_view text, unsigned types) {
  if (types != kToolString) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const std::string_view word = first == std::string_view::npos
                                      ? std::string_view{}
                                      : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
    // Templates write Python's None, True and False.
    if ((types & kToolNull) && (equal_ignoring_case(word, "null") || equal_ignoring_case(word, "none")))
      return "null";
    jinja::Value value;
    const bool is_json = read_json(word, value);
    const bool is_number = is_json && (value.is_integer() || value.is_real());
    const bool is_digits = word.find_first_not_of("-0123456789") == std::string_view::npos;
    if ((types & kToolInteger) && is_number && (is_digits || is_whole(value)))
      return is_digits ? std::string(word)
                       : jinja::to_json(jinja::Value(static_cast<std::int64_t>(value.real())));
    if ((types & kToolNumber) && is_number) return std::string(word);
    if (types & kToolBoolean) {
      if (equal_ignoring_case(word, "true") || word == "1") return "true";
      if (equal_ignoring_case(word, "false") || word == "0") return "false";
    }
    if ((types & kToolObject) && is_json && value.is_dict()) return std::string(word);
    if ((types & kToolArray) && is_json && value.is_sequence()) return std::string(word);
  }
  return jinja::to_json(jinja::Value(text));
}

bool is_json_object(std::string_view text) {
  jinja::Value value;
  return read_json(text, value) && value.is_dict();
}

}  // namespace fourfold::text
