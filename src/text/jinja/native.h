// Helpers for functions written in C++: a callable around one, and binding arguments to parameter names as
// Python does.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "text/jinja/evaluator.h"

namespace fourfold::text::jinja {

using NativeFunction = Value (*)(Evaluator& evaluator, const Value& self, Arguments& arguments);

// All text that a function is given: it may look at every byte of it.
void charge_arguments(Evaluator& evaluator, const Value& self, const Arguments& arguments);
// str.replace and |replace; the result is charged before it is built.
Value replaced_text(Evaluator& evaluator, const TracedText& text, const TracedText& from,
                    const TracedText& to, std::int64_t most, bool markup);

// A function, or a method bound to its object.
class Native : public Callable {
 public:
  Native(std::string name, NativeFunction function, Value self = {})
      : name_(std::move(name)), function_(function), self_(std::move(self)) {}
  Value call(Evaluator& evaluator, Arguments arguments) override {
    charge_arguments(evaluator, self_, arguments);
    return function_(evaluator, self_, arguments);
  }
  std::string name() const override { return name_; }
  int depth() const override { return 1 + self_.depth(); }

 private:
  std::string name_;
  NativeFunction function_;
  Value self_;
};

struct NativeEntry {
  std::string_view name;
  NativeFunction function;
};

// Arguments by parameter name; too many, unknown and repeated ones are faults.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters);

  bool has(std::size_t index) const { return values_[index].has_value(); }
  const Value& required(std::size_t index) const;
  Value or_else(std::size_t index, Value otherwise) const {
    return values_[index] ? *values_[index] : std::move(otherwise);
  }
  const std::string& text(std::size_t index) const;
  std::string text_or(std::size_t index, std::string_view otherwise) const;
  std::int64_t integer(std::size_t index) const;
  std::int64_t integer_or(std::size_t index, std::int64_t otherwise) const;
  bool flag_or(std::size_t index, bool otherwise) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

inline Bound::Bound(std::string_view function, const Arguments& arguments,
                    std::initializer_list<std::string_view> parameters)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size()) {
    throw TemplateFault(format("{} takes at most {} arguments, {} were given", function, parameters.size(),
                               arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t index = 0;
    while (index < parameters_.size() && parameters_[index] != name) ++index;
    if (index == parameters_.size()) throw TemplateFault(format("{} has no parameter '{}'", function, name));
    if (values_[index]) throw TemplateFault(format("{} got '{}' twice", function, name));
    values_[index] = value;
  }
}

inline const Value& Bound::required(std::size_t index) const {
  if (!values_[index])
    throw TemplateFault(format("{} needs the argument '{}'", function_, parameters_[index]));
  return *values_[index];
}
inline const std::string& Bound::text(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is_text()) {
    throw TemplateFault(
        format("{}: '{}' must be a string, not {}", function_, parameters_[index], type_name(value)));
  }
  return value.text();
}
inline std::string Bound::text_or(std::size_t index, std::string_view otherwise) const {
  return values_[index] ? text(index) : std::string(otherwise);
}
inline std::int64_t Bound::integer(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is_integer() && !value.is_bool()) {
    throw TemplateFault(
        format("{}: '{}' must be an integer, not {}", function_, parameters_[index], type_name(value)));
  }
  return value.integer();
}
inline std::int64_t Bound::integer_or(std::size_t index, std::int64_t otherwise) const {
  return values_[index] ? integer(index) : otherwise;
}
inline bool Bound::flag_or(std::size_t index, bool otherwise) const {
  return values_[index] ? truth(*values_[index]) : otherwise;
}

}  // namespace fourfold::text::jinja
