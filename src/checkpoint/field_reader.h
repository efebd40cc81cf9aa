// Reads the members of a JSON object into typed values and notes every problem instead of stopping at the
// first. Used by the readers of config files alone.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "checkpoint/problem_list.h"

namespace fourfold::checkpoint {

struct IntRange {
  std::int64_t least;
  std::int64_t most;
};

struct RealRange {
  double above;
  double most;
  bool above_is_allowed = false;
};

class FieldReader {
 public:
  // `what` names the file in errors; `prefix` is what messages put before a field's name, such as
  // "text_config.".
  FieldReader(const boost::json::object& fields, std::string_view what, std::string prefix,
              ProblemList& problems)
      : fields_(fields), what_(what), prefix_(std::move(prefix)), problems_(problems) {}

  // A required field that is absent or bad is noted and reads as the range's least value (or empty): the
  // caller goes on and fails with all problems at once. Optional fields may be absent or null.
  std::int64_t required_int(std::string_view name, IntRange range);
  double required_real(std::string_view name, RealRange range);
  std::optional<std::int64_t> optional_int(std::string_view name, IntRange range);
  std::optional<double> optional_real(std::string_view name, RealRange range);
  std::optional<bool> optional_bool(std::string_view name);
  std::optional<std::string> optional_text(std::string_view name);
  const boost::json::object* optional_object(std::string_view name);
  // Absent or null: empty.
  std::vector<std::int64_t> optional_ints(std::string_view name, IntRange range);
  std::vector<std::string> optional_texts(std::string_view name);
  // A number or a list of numbers.
  std::vector<std::int64_t> optional_int_or_ints(std::string_view name, IntRange range);

  bool has(std::string_view name) const;  // present and not null
  // Marks fields as known to have no effect here.
  void ignore(std::initializer_list<std::string_view> names);
  void problem(std::string_view kind, std::string_view name, std::string_view text) {
    problems_.add(kind, prefix_ + std::string(name) + " " + std::string(text));
  }
  std::vector<std::string> unread() const;

  // A value that is well formed and asks for something that is not implemented: no use in reading on.
  [[noreturn]] void unsupported(std::string_view name, std::string_view value, std::string_view known) const;
  // The file and the field, as errors name them.
  std::string place(std::string_view name) const;

 private:
  const boost::json::value* value(std::string_view name);
  void wrong_type(std::string_view name, std::string_view wanted);
  std::optional<std::int64_t> int_of(const boost::json::value& value, std::string_view name, IntRange range);

  const boost::json::object& fields_;
  std::string_view what_;
  std::string prefix_;
  ProblemList& problems_;
  std::unordered_set<std::string> read_;
};

}  // namespace fourfold::checkpoint
