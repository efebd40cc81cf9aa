// A JSON Schema as text gives it: the document, what its references point to, and where a part of it stands
// (for messages). Every keyword is known, refused, or noted as one without effect here.
#pragma once

#include <boost/json/value.hpp>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "constrain/budget.h"

namespace fourfold::constrain {

namespace bj = boost::json;

// Parts of a schema that must hold together, without references and alternatives: every object's own
// keywords.
using Conjunction = std::vector<const bj::object*>;

class SchemaDocument {
 public:
  // `what` begins messages. The value must outlive this.
  SchemaDocument(const bj::value& root, std::string what, Budget& budget);

  // The ways to satisfy all of these schemas at once; none: nothing does.
  std::vector<Conjunction> alternatives(std::span<const bj::value* const> schemas);
  // The same schema for every reference to it, as far as it is nothing but a reference.
  const bj::value* resolved(const bj::value* schema);
  // A member by its name. Not Boost's own search: its time is up to whoever chose the names.
  const bj::value* member(const bj::object& object, std::string_view name) const;

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

  // Something the schema says that has no effect ("format color"), for whoever wants to tell the client.
  void note(std::string_view kind, std::string_view name) const;
  const std::set<std::string>& notes() const { return notes_; }

 private:
  std::vector<Conjunction> alternatives_of(const bj::value& schema);
  std::vector<Conjunction> both(const std::vector<Conjunction>& a, const std::vector<Conjunction>& b,
                                const void* place);
  std::vector<Conjunction> any_of(const bj::object& schema, std::string_view keyword);
  std::vector<Conjunction> one_of(const bj::object& schema);
  const bj::array& list_of_schemas(const bj::object& schema, std::string_view keyword) const;
  const bj::object* required_tag(const bj::object& schema);
  void check_keywords(const bj::object& schema);
  const bj::value& target_of(const bj::object& schema, std::string_view reference);
  void remember(const bj::value& value, const void* parent, std::string_view name);

  using Texts = std::set<std::string>;
  struct Way {  // one of several that exclude each other
    Conjunction parts;
    unsigned types;
    bool means_object;  // says so by its keywords only
    Texts absent = {};  // members it must not have for that
  };
  Way way_of(Conjunction parts);
  bool exclude_each_other(Way& a, Way& b);
  bool differ_by_a_member(const Conjunction& a, const Conjunction& b);
  // A member that b requires and what is written for a never has; empty: none.
  std::string missing_member(const Conjunction& a, const Conjunction& b);
  const Texts* constants(const bj::object& schema);
  const Texts* constants(const Conjunction& parts);
  const Texts* constants_of_member(const Conjunction& parts, std::string_view name);
  const Texts& required(const bj::object& schema);

  struct Place {
    const void* parent;  // null: the top
    std::string name;
  };
  const bj::value& root_;
  std::string what_;
  Budget& budget_;
  std::map<const void*, Place> places_;  // of values and of their objects
  std::set<const bj::object*> checked_;
  std::vector<const bj::value*> open_;  // being expanded
  // Found once for each object that has them; null: it has none.
  std::map<const bj::object*, std::unique_ptr<Texts>> constants_, required_;
  mutable std::map<const bj::object*, std::map<std::string_view, const bj::value*>> members_;
  std::list<bj::object> made_;  // parts the document does not have itself
  mutable std::set<std::string> notes_;
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
