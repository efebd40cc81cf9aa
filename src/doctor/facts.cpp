#include "doctor/facts.h"

#include <charconv>
#include <cmath>

#include "base/format.h"

namespace fourfold::doctor {
namespace {

constexpr double kCommasFrom = 10'000;  // below it are years, ports, clocks

std::string number_text(double number) {
  // What is no count of anything, or no number at all: from an odd log or a mistyped variable.
  if (!(std::abs(number) < 1e15)) {
    char digits[40];
    return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
  }
  const double whole = std::round(number);
  if (whole == number)
    return std::abs(number) >= kCommasFrom ? with_commas(static_cast<long long>(number))
                                           : std::to_string(static_cast<long long>(number));
  if (std::abs(number) >= 100) return number_text(whole);
  char digits[40];
  const int decimals = std::abs(number) >= 10 ? 1 : 2;
  const auto end =
      std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed, decimals).ptr;
  std::string text(digits, end);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "yes" : "no";
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "unknown";
}

Value parse_value(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return number;
  return std::string(text);
}

std::string exact_text(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* number = std::get_if<double>(&value)) {
    char digits[40];
    return {digits, std::to_chars(digits, digits + sizeof digits, *number).ptr};
  }
  return text_of(value);
}

Value Facts::get(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? Value{} : found->second;
}

double Facts::number_or(const std::string& name, double otherwise) const {
  const Value value = get(name);
  const auto* number = std::get_if<double>(&value);
  return number == nullptr ? otherwise : *number;
}

std::string Facts::text_or(const std::string& name, const std::string& otherwise) const {
  const Value value = get(name);
  return std::holds_alternative<Unknown>(value) ? otherwise : text_of(value);
}

bool Facts::is_true(const std::string& name) const { return get(name) == Value(true); }

std::string indexed(std::string_view group, int index, std::string_view name) {
  return fourfold::format("{}.{}.{}", group, index, name);
}

}  // namespace fourfold::doctor
