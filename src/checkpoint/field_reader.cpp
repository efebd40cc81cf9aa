#include "checkpoint/field_reader.h"

#include <cmath>

#include "base/error.h"

namespace fourfold::checkpoint {
namespace {

// No list in a config is longer: layers, module names, stop tokens.
constexpr std::size_t kListMax = 1'000'000;

}  // namespace

const boost::json::value* FieldReader::value(std::string_view name) {
  read_.emplace(name);
  const boost::json::value* found = fields_.if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool FieldReader::has(std::string_view name) const {
  const boost::json::value* found = fields_.if_contains(name);
  return found != nullptr && !found->is_null();
}

void FieldReader::wrong_type(std::string_view name, std::string_view wanted) {
  problems_.add("of the wrong type", fourfold::format("{}{} (not {})", prefix_, name, wanted));
}

std::optional<std::int64_t> FieldReader::int_of(const boost::json::value& value, std::string_view name,
                                                IntRange range) {
  std::int64_t number = 0;
  if (value.is_int64()) {
    number = value.get_int64();
  } else if (value.is_uint64() || value.is_double()) {
    // Python may have written 1e6 or 262144.0; anything that is not whole, or beyond the range, is refused
    // below.
    const double real = value.is_double() ? value.get_double() : static_cast<double>(value.get_uint64());
    if (!(std::abs(real) <= 0x1p53) || real != std::floor(real)) {
      problems_.add("out of range", fourfold::format("{}{} = {} (whole, {} to {})", prefix_, name, real,
                                                     range.least, range.most));
      return std::nullopt;
    }
    number = static_cast<std::int64_t>(real);
  } else {
    wrong_type(name, "a whole number");
    return std::nullopt;
  }
  if (number < range.least || number > range.most) {
    problems_.add("out of range",
                  fourfold::format("{}{} = {} ({} to {})", prefix_, name, number, range.least, range.most));
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> FieldReader::optional_int(std::string_view name, IntRange range) {
  const boost::json::value* found = value(name);
  return found == nullptr ? std::nullopt : int_of(*found, name, range);
}

std::int64_t FieldReader::required_int(std::string_view name, IntRange range) {
  const boost::json::value* found = value(name);
  if (found == nullptr) problems_.add("missing", prefix_ + std::string(name));
  return found == nullptr ? range.least : int_of(*found, name, range).value_or(range.least);
}

std::optional<double> FieldReader::optional_real(std::string_view name, RealRange range) {
  const boost::json::value* found = value(name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number()) {
    wrong_type(name, "a number");
    return std::nullopt;
  }
  const double number = found->to_number<double>();
  const bool is_above = range.above_is_allowed ? number >= range.above : number > range.above;
  if (!(is_above && number <= range.most)) {  // so that NaN fails as well
    problems_.add("out of range",
                  fourfold::format("{}{} = {} ({} {}, at most {})", prefix_, name, number,
                                   range.above_is_allowed ? "at least" : "above", range.above, range.most));
    return std::nullopt;
  }
  return number;
}

double FieldReader::required_real(std::string_view name, RealRange range) {
  if (!has(name)) problems_.add("missing", prefix_ + std::string(name));
  return optional_real(name, range).value_or(range.most);
}

std::optional<bool> FieldReader::optional_bool(std::string_view name) {
  const boost::json::value* found = value(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_bool()) return found->get_bool();
  wrong_type(name, "true or false");
  return std::nullopt;
}

std::optional<std::string> FieldReader::optional_text(std::string_view name) {
  const boost::json::value* found = value(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return std::string(std::string_view(found->get_string()));
  wrong_type(name, "a string");
  return std::nullopt;
}

const boost::json::object* FieldReader::optional_object(std::string_view name) {
  const boost::json::value* found = value(name);
  if (found != nullptr && !found->is_object()) wrong_type(name, "an object");
  return found == nullptr ? nullptr : found->if_object();
}

std::vector<std::int64_t> FieldReader::optional_ints(std::string_view name, IntRange range) {
  const boost::json::value* found = value(name);
  std::vector<std::int64_t> numbers;
  if (found == nullptr) return numbers;
  if (!found->is_array() || found->get_array().size() > kListMax) {
    wrong_type(name, "a list of whole numbers");
    return numbers;
  }
  for (const boost::json::value& item : found->get_array()) {
    const auto number = int_of(item, name, range);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::int64_t> FieldReader::optional_int_or_ints(std::string_view name, IntRange range) {
  const boost::json::value* found = value(name);
  if (found == nullptr || found->is_array()) return optional_ints(name, range);
  const auto number = int_of(*found, name, range);
  return number ? std::vector<std::int64_t>{*number} : std::vector<std::int64_t>{};
}

std::vector<std::string> FieldReader::optional_texts(std::string_view name) {
  const boost::json::value* found = value(name);
  std::vector<std::string> texts;
  if (found == nullptr) return texts;
  if (!found->is_array() || found->get_array().size() > kListMax) {
    wrong_type(name, "a list of strings");
    return texts;
  }
  for (const boost::json::value& item : found->get_array()) {
    if (!item.is_string()) {
      wrong_type(name, "a list of strings");
      return {};
    }
    texts.emplace_back(std::string_view(item.get_string()));
  }
  return texts;
}

void FieldReader::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read_.emplace(name);
}

void FieldReader::unsupported(std::string_view name, std::string_view value, std::string_view known) const {
  fail(Code::unsupported_model, "{} is \"{}\"; known: {}", place(name), value.substr(0, 80), known);
}

std::string FieldReader::place(std::string_view name) const {
  return fourfold::format("{}: {}{}", what_, prefix_, name);
}

std::vector<std::string> FieldReader::unread() const {
  std::vector<std::string> names;
  for (const auto& member : fields_)
    if (!read_.contains(std::string(std::string_view(member.key()))))
      names.push_back(prefix_ + std::string(std::string_view(member.key())));
  return names;
}

}  // namespace fourfold::checkpoint
