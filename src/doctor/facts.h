// What is known about a machine: names and values, "gpu.0.pcie.width" = 8. A name that is not there is
// unknown, which is a third answer beside yes and no and is never replaced by a guess. Probes write facts,
// rules read them.
#pragma once

#include <concepts>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace fourfold::doctor {

struct Unknown {
  bool operator==(const Unknown&) const = default;
};
using Value = std::variant<Unknown, bool, double, std::string>;

// As people read it: 101,376; 12.1; yes; text as it is; "unknown".
std::string text_of(const Value& value);

// The inverse for recordings: true and false, numbers, otherwise text.
Value parse_value(std::string_view text);
// What parse_value reads back as the same value.
std::string exact_text(const Value& value);

class Facts {
 public:
  void set(const std::string& name, bool value) { values_[name] = value; }
  void set(const std::string& name, const char* value) { values_[name] = std::string(value); }
  void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  template <class Number>
  requires(std::integral<Number> || std::floating_point<Number>) &&
      (!std::same_as<Number, bool>)void set(const std::string& name, Number value) {
    values_[name] = static_cast<double>(value);
  }
  void set_value(const std::string& name, Value value) { values_[name] = std::move(value); }

  Value get(const std::string& name) const;
  double number_or(const std::string& name, double otherwise) const;
  std::string text_or(const std::string& name, const std::string& otherwise) const;
  bool is_true(const std::string& name) const;

  const std::map<std::string, Value>& all() const { return values_; }

 private:
  std::map<std::string, Value> values_;
};

// "gpu." + 0 + ".name"
std::string indexed(std::string_view group, int index, std::string_view name);

}  // namespace fourfold::doctor
