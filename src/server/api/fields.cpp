#include "server/api/fields.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/closest.h"
#include "base/format.h"
#include "base/utf8.h"
#include "server/api/request_error.h"
#include "text/jinja/python_text.h"

namespace fourfold::server::api {
namespace {

constexpr std::size_t kUnknownMax = 256;    // fields of one object
constexpr std::size_t kMeantBytesMax = 40;  // no known name is longer
// Other servers' own fields, which are not meant to be ours however near they are.
constexpr std::array<std::string_view, 3> kOthersNames{"models", "return_tokens", "top_a"};

// Without what people spell differently: topP, top-p, top_p.
std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '_' && c != '-') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace

std::string_view kind_of(const Json& value) {
  if (value.is_none()) return "null";
  if (value.is_bool()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_text()) return "a string";
  if (value.is_dict()) return "an object";
  return "an array";
}

std::string shown(const Json& value) {
  if (value.is_bool()) return value.boolean() ? "true" : "false";
  if (value.is_integer()) return fourfold::format("{}", value.integer());
  if (value.is_real()) return fourfold::format("{}", value.real());
  if (!value.is_text()) return std::string(kind_of(value));
  constexpr std::size_t longest = 40;
  std::string text = value.text();
  if (text.size() > longest) {
    text = text.substr(0, code_point_start(text, longest)) + "...";
  }
  return text::jinja::to_json(Json(std::string_view(text)));
}

std::string_view meant_name(std::string_view unknown, const std::set<std::string, std::less<>>& known) {
  if (unknown.size() > kMeantBytesMax || std::ranges::find(kOthersNames, unknown) != kOthersNames.end())
    return {};
  const std::string given = folded(unknown);
  std::string_view nearest;
  std::size_t least = kMeantBytesMax;
  for (const std::string& name : known) {
    if (name.size() > kMeantBytesMax) continue;
    const std::string wanted = folded(name);
    // Every word of one letter is an edit away from n; id, is and in from one another.
    const std::size_t most = wanted.size() < 3 ? 0 : wanted.size() < 6 ? 1 : 2;
    const std::size_t apart =
        wanted.size() > given.size() ? wanted.size() - given.size() : given.size() - wanted.size();
    if (apart > most) continue;
    const std::size_t count = edits(given, wanted);
    if (count <= most && count < least) {
      nearest = name;
      least = count;
    }
  }
  return nearest;
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_bool()) return {};
  if (value.is_integer()) return value.integer();
  if (!value.is_real() || !(std::fabs(value.real()) < 9e15) || value.real() != std::trunc(value.real())) {
    return {};
  }
  return static_cast<std::int64_t>(value.real());
}

Fields::Fields(const Json& object, std::string path, Notes& notes)
    : dict_(object.dict()), path_(std::move(path)), notes_(&notes) {
  if (dict_ == nullptr)
    refuse_type(path_, "{} is {}; it must be an object", path_.empty() ? "the body" : path_, kind_of(object));
}

std::string Fields::name_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

const Json* Fields::find(std::string_view name) {
  known_.emplace(name);
  const Json* value = dict_->find(name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_bool())
    refuse_type(name_of(name), "{} is {}; it must be true or false", name_of(name), shown(*value));
  return value->boolean();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  const auto number = whole_number(*value);
  if (!number || *number < low || *number > high) {
    const auto* pattern = "{} is {}; it must be an integer, at least {} and at most {}";
    if (!number) refuse_type(name_of(name), pattern, name_of(name), shown(*value), low, high);
    refuse(name_of(name), pattern, name_of(name), shown(*value), low, high);
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name, const Range& range) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  const bool is_number = value->is_integer() || value->is_real();
  const double number = is_number ? value->number() : 0;
  const bool above = range.low_is_allowed ? number >= range.low : number > range.low;
  if (!is_number || !above || !(number <= range.high)) {
    const std::string why =
        fourfold::format("{} is {}; it must be a number, {} {} and at most {}", name_of(name), shown(*value),
                         range.low_is_allowed ? "at least" : "more than", range.low, range.high);
    if (!is_number) refuse_type(name_of(name), "{}", why);
    refuse(name_of(name), "{}", why);
  }
  return number;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_text())
    refuse_type(name_of(name), "{} is {}; it must be a string", name_of(name), shown(*value));
  return value->text();
}

const std::vector<Json>* Fields::list(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_sequence())
    refuse_type(name_of(name), "{} is {}; it must be an array", name_of(name), shown(*value));
  return &value->sequence()->items;
}

std::optional<Fields> Fields::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  return Fields(*value, name_of(name), *notes_);
}

std::optional<std::string> Fields::one_of(std::string_view name, std::span<const std::string_view> choices) {
  auto value = text(name);
  if (!value) return {};
  std::string all;
  for (const std::string_view choice : choices) {
    if (*value == choice) return value;
    if (!all.empty()) all += ", ";
    all += choice;
  }
  refuse(name_of(name), "{} is {}; it must be one of {}", name_of(name), shown(*value), all);
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void Fields::only_false(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (boolean(name).value_or(false))
      refuse_unsupported(name_of(name), "{} is true; this server only does false", name_of(name));
}

void Fields::only_true(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (!boolean(name).value_or(true))
      refuse_unsupported(name_of(name), "{} is false; this server only does true", name_of(name));
}

void Fields::only_number(std::string_view name, double value) {
  const Json* given = find(name);
  if (given == nullptr || (given->is_number() && given->number() == value)) return;
  refuse_unsupported(name_of(name), "{} is {}; this server only does {}", name_of(name), shown(*given),
                     value);
}

void Fields::refuse_any(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* value = find(name);
    const bool empty = value == nullptr || (value->is_bool() && !value->boolean()) ||
                       (value->is_text() && value->text().empty()) ||
                       (value->is_sequence() && value->sequence()->items.empty()) ||
                       (value->is_dict() && value->dict()->items().empty());
    if (!empty)
      throw RequestError(400, fourfold::format("{} is not served here; leave it out", name_of(name)),
                         name_of(name), "unsupported_parameter");
  }
}

void Fields::finish() const {
  std::size_t unknown = 0;
  for (const auto& [key, value] : dict_->items()) {
    if (value.is_none() || known_.contains(key.text())) continue;
    if (++unknown > kUnknownMax)
      refuse(path_, "{} has more than {} fields this server does not know",
             path_.empty() ? "the body" : path_, kUnknownMax);
    const std::string quoted = shown(key);
    const std::string name = name_of(quoted.substr(1, quoted.size() - 2));
    if (const std::string_view meant = meant_name(key.text(), known_); !meant.empty())
      throw RequestError(
          400,
          fourfold::format("{} is not a field this server knows; did you mean {}?", name, name_of(meant)),
          name, "unknown_parameter");
    notes_->add(NoteKind::field, name);
  }
}

}  // namespace fourfold::server::api
