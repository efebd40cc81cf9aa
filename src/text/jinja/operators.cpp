// + - * / // % ** and in, with Python's meanings.
#include <cmath>

#include "base/format.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

namespace {

[[noreturn]] void fail_types(std::string_view op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) fail_undefined(*side);
  }
  throw TemplateFault(format("'{}' does not work between {} and {}", op, type_name(left), type_name(right)));
}

[[noreturn]] void fail_overflow() { throw TemplateFault("an integer grows beyond 64 bits"); }

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) throw TemplateFault("division by zero");
  if (b == -1) {
    std::int64_t out = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &out)) fail_overflow();
    return out;
  }
  const std::int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
  if (b == 0) throw TemplateFault("division by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_remainder(double a, double b) {
  if (b == 0) throw TemplateFault("division by zero");
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw TemplateFault("0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t out = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(out, base, &out)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return out;
}

Value integer_operation(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool overflow = false;
  if (op == "+")
    overflow = __builtin_add_overflow(a, b, &out);
  else if (op == "-")
    overflow = __builtin_sub_overflow(a, b, &out);
  else if (op == "*")
    overflow = __builtin_mul_overflow(a, b, &out);
  else if (op == "//")
    out = floor_quotient(a, b);
  else if (op == "%")
    out = floor_remainder(a, b);
  else if (op == "**")
    return integer_power(a, b);
  else if (b == 0)
    throw TemplateFault("division by zero");
  else
    return static_cast<double>(a) / static_cast<double>(b);
  if (overflow) fail_overflow();
  return out;
}

Value real_operation(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) throw TemplateFault("division by zero");
  if (op == "/") return a / b;
  if (op == "%") return real_remainder(a, b);
  return std::floor((a - real_remainder(a, b)) / b + 0.5);
}

Value added_texts(Evaluator& evaluator, const Value& left, const Value& right) {
  const bool markup = left.is_markup() || right.is_markup();
  evaluator.charge_bytes(left.text().size() + right.text().size());
  TracedText out;
  for (const Value* side : {&left, &right}) {
    if (markup && !side->is_markup()) {
      out.append(escaped(side->traced()));
    } else {
      out.append(side->traced());
    }
  }
  return evaluator.new_text(std::move(out), markup);
}

bool is_list_or_tuple(const Value& value) {
  return value.is_sequence() &&
         (value.sequence()->kind == Sequence::Kind::list || value.sequence()->kind == Sequence::Kind::tuple);
}

Value repeated(Evaluator& evaluator, const Value& value, std::int64_t count) {
  count = std::max<std::int64_t>(count, 0);
  const std::size_t unit =
      value.is_text() ? value.traced().memory() : value.sequence()->items.size() * sizeof(Value);
  if (unit == 0) count = 0;
  if (count > (std::int64_t{1} << 40)) fail_overflow();
  // Charged before it is built: 'a' * 10**12 must not be tried.
  if (unit > 0 && static_cast<std::size_t>(count) > (std::size_t{1} << 50) / unit) fail_overflow();
  evaluator.charge_bytes(unit * static_cast<std::size_t>(count));
  if (value.is_text()) {
    TracedText out;
    for (std::int64_t i = 0; i < count; ++i) out.append(value.traced());
    return Value(std::move(out), value.is_markup());
  }
  std::vector<Value> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.insert(out.end(), value.sequence()->items.begin(), value.sequence()->items.end());
  }
  return Value::list(std::move(out), value.sequence()->kind);
}

}  // namespace

Value binary_operation(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_real() || right.is_real()) return real_operation(op, left.number(), right.number());
    return integer_operation(op, left.integer(), right.integer());
  }
  if (op == "+" && left.is_text() && right.is_text()) return added_texts(evaluator, left, right);
  if (op == "+" && is_list_or_tuple(left) && is_list_or_tuple(right) &&
      left.sequence()->kind == right.sequence()->kind) {
    std::vector<Value> items = left.sequence()->items;
    items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
    return evaluator.new_list(std::move(items), left.sequence()->kind);
  }
  const auto whole = [](const Value& value) { return value.is_integer() || value.is_bool(); };
  if (op == "*" && whole(right) && (left.is_text() || is_list_or_tuple(left))) {
    return repeated(evaluator, left, right.integer());
  }
  if (op == "*" && whole(left) && (right.is_text() || is_list_or_tuple(right))) {
    return repeated(evaluator, right, left.integer());
  }
  if (op == "%" && left.is_text())
    return evaluator.new_text(percent_formatted(evaluator, left.traced(), right), left.is_markup());
  fail_types(op, left, right);
}

Value negated(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_real()) return -value.real();
  if (!value.is_number()) throw TemplateFault(format("a {} has no sign", type_name(value)));
  return integer_operation("-", 0, value.integer());
}

bool contains(Evaluator& evaluator, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (item.is_undefined()) fail_undefined(item);
    if (!item.is_text()) throw TemplateFault(format("'in' a string needs a string, not {}", type_name(item)));
    evaluator.charge_look(container.text().size() + item.text().size());
    return find_text(container.text(), item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    evaluator.charge_look(item.weight());
    if (!item.is_text()) evaluator.charge(static_cast<std::int64_t>(dict->size()));
    if (!is_hashable(item)) throw TemplateFault(format("a {} cannot be a key", type_name(item)));
    return dict->find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  const std::vector<Value> items = evaluator.items_of(container);
  evaluator.charge(static_cast<std::int64_t>(items.size()));
  for (const Value& candidate : items) {
    evaluator.charge_compare(candidate, item);
    if (equal(candidate, item)) return true;
  }
  return false;
}

}  // namespace fourfold::text::jinja
