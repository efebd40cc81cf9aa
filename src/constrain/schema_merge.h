// What a conjunction of schemas says, all together: the tightest bounds, every pattern, the schemas of each
// member and item. Still as the schema's words; schema_compiler.h makes expressions of them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "constrain/json_number.h"
#include "constrain/schema_document.h"

namespace fourfold::constrain {

using Schemas = std::vector<const bj::value*>;  // that must all hold

struct Pattern {
  std::string text;
  const bj::object* place;
};

struct MergedSchema {
  unsigned types = kAllTypes;
  // enum and const: what remains after all of them; the values' types and bounds are checked by who uses
  // them.
  std::optional<std::vector<const bj::value*>> values;

  std::int64_t length_min = 0;
  std::optional<std::int64_t> length_max;
  std::vector<Pattern> patterns;
  std::vector<Pattern> formats;

  NumberBounds bounds;  // .integer is the type's business

  struct Property {
    std::string name;
    Schemas schemas;
    bool required = false;
  };
  std::vector<Property> properties;  // in the order the schema names them
  struct Others {                    // members whose names match all of these patterns and no other
    std::vector<Pattern> patterns;   // with none: the additional properties
    std::vector<Pattern> other_patterns;
    Schemas schemas;
  };
  std::vector<Others> others;
  bool is_opened = false;  // the schema itself says that there may be others
  Schemas names;           // propertyNames: what every member's name must satisfy
  std::optional<std::int64_t> members_max;
  std::int64_t members_min = 0;

  std::vector<Schemas> first_items;
  std::optional<Schemas> more_items;  // absent: no more
  std::int64_t items_min = 0;
  std::optional<std::int64_t> items_max;
  bool unique_items = false;

  const bj::object* place = nullptr;  // for messages
  // Nothing is said beyond types and lists of values.
  bool is_free = true;
};

// closed: also objects that name no members have none, unless the schema says that they may.
MergedSchema merge(const SchemaDocument& document, const Conjunction& parts, bool closed, Budget& budget);

// Reads "minLength" and the like: an integer of at least 0.
std::optional<std::int64_t> read_count(const SchemaDocument& document, const bj::object& schema,
                                       std::string_view keyword);

}  // namespace fourfold::constrain
