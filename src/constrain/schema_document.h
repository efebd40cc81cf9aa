// A JSON Schema as text gives it: the document, what its references point to, and where a part of it stands
// (for messages). Every keyword is known or refused here.
#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "constrain/budget.h"

namespace fourfold::constrain {

namespace bj = boost::json;

// Keywords by what they do; docs/structured.md is checked against these.
std::span<const std::string_view> supported_keywords();
std::span<const std::string_view> ignored_keywords();  // annotations, without effect on what is valid
std::span<const std::string_view> refused_keywords();  // known, and refused by name

// Parts of a schema that must hold together, without references and alternatives: every object's own
// keywords.
using Conjunction = std::vector<const bj::object*>;

class SchemaDocument {
 public:
  // `what` begins messages. The value must outlive this.
  SchemaDocument(const bj::value& root, std::string what, Budget& budget);

  const bj::value& root() const { return root_; }
  // The ways to satisfy all of these schemas at once; none: nothing does.
  std::vector<Conjunction> alternatives(std::span<const bj::value* const> schemas);
  // The same schema for every reference to it, as far as it is nothing but a reference.
  const bj::value* resolved(const bj::value* schema);

  // For messages: where this value stands.
  std::string pointer(const void* part) const;
  template <class... Values>
  [[noreturn]] void refuse(const void* part, std::string_view keyword, std::string_view why,
                           const Values&... values) const {
    std::string reason;
    append_format(reason, why, values...);
    fail(Code::invalid_request, "{}, {}{}{}: {}", what_, pointer(part), keyword.empty() ? "" : "/", keyword,
         reason);
  }

 private:
  std::vector<Conjunction> alternatives_of(const bj::value& schema);
  std::vector<Conjunction> both(const std::vector<Conjunction>& a, const std::vector<Conjunction>& b,
                                const void* place);
  std::vector<Conjunction> any_of(const bj::object& schema, std::string_view keyword, bool exactly_one);
  void check_keywords(const bj::object& schema);
  const bj::value& target_of(const bj::object& schema, std::string_view reference);
  void remember(const bj::value& value, const std::string& pointer);
  bool exclude_each_other(const Conjunction& a, const Conjunction& b) const;

  const bj::value& root_;
  std::string what_;
  Budget& budget_;
  std::map<const void*, std::string> pointers_;  // of values and of their objects
  std::set<const bj::object*> checked_;
  std::vector<const bj::value*> open_;  // being expanded
};

// The types an object's "type" allows, as bits; all of them where it has none.
enum TypeBit : unsigned {
  kNullType = 1,
  kBooleanType = 2,
  kStringType = 4,
  kIntegerType = 8,
  kFractionType = 16,  // numbers that are not integers
  kObjectType = 32,
  kArrayType = 64,
};
inline constexpr unsigned kNumberTypes = kIntegerType | kFractionType;
inline constexpr unsigned kAllTypes = 127;
unsigned types_of(const SchemaDocument& document, const bj::object& schema);
unsigned type_of(const bj::value& value);

}  // namespace fourfold::constrain
