// One meaning of many schemas.
#include "constrain/schema_merge.h"

#include <algorithm>
#include <cmath>

#include "constrain/formats.h"
#include "constrain/json_values.h"
#include "constrain/regex.h"

namespace fourfold::constrain {
namespace {

constexpr std::int64_t kCountMax = 100'000;
constexpr std::size_t kPropertiesMax = 2'000;
constexpr std::size_t kPatternPropertiesMax = 4;
constexpr std::int64_t kMultipleMax = 1'000;

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

Decimal read_decimal(const SchemaDocument& document, const bj::object& schema, std::string_view keyword) {
  const bj::value& value = schema.at({keyword.data(), keyword.size()});
  if (!value.is_number() || (value.is_double() && !std::isfinite(value.get_double())))
    document.refuse(&schema, keyword, "must be a number");
  return decimal_of(value);
}

class Merger {
 public:
  Merger(const SchemaDocument& document, const Conjunction& parts, bool closed, Budget& budget)
      : document_(document), parts_(parts), closed_(closed), budget_(budget) {}

  MergedSchema run() {
    static const bj::object nothing;
    merged_.place = parts_.empty() ? &nothing : parts_[0];
    read_types();
    for (const bj::object* part : parts_) {
      budget_.spend(200);  // some thirty keywords are looked for
      read_values(*part);
      read_not(*part);
      read_string(*part);
      read_number(*part);
      read_counts(*part);
    }
    read_properties();
    read_items();
    return std::move(merged_);
  }

 private:
  const bj::value* find(const bj::object& part, std::string_view keyword) {
    const bj::value* value = document_.member(part, keyword);
    if (value && keyword != "enum" && keyword != "const") merged_.is_free = false;
    return value;
  }

  // Without "type", the types the keywords speak of: {"properties": ...} means an object.
  void read_types() {
    constexpr std::pair<std::string_view, unsigned> speaks_of[] = {{"properties", kObjectType},
                                                                   {"required", kObjectType},
                                                                   {"additionalProperties", kObjectType},
                                                                   {"patternProperties", kObjectType},
                                                                   {"propertyNames", kObjectType},
                                                                   {"minProperties", kObjectType},
                                                                   {"maxProperties", kObjectType},
                                                                   {"items", kArrayType},
                                                                   {"prefixItems", kArrayType},
                                                                   {"additionalItems", kArrayType},
                                                                   {"minItems", kArrayType},
                                                                   {"maxItems", kArrayType},
                                                                   {"uniqueItems", kArrayType},
                                                                   {"minLength", kStringType},
                                                                   {"maxLength", kStringType},
                                                                   {"pattern", kStringType},
                                                                   {"format", kStringType},
                                                                   {"minimum", kNumberTypes},
                                                                   {"maximum", kNumberTypes},
                                                                   {"exclusiveMinimum", kNumberTypes},
                                                                   {"exclusiveMaximum", kNumberTypes},
                                                                   {"multipleOf", kNumberTypes}};
    bool is_said = false;
    unsigned spoken_of = 0;
    for (const bj::object* part : parts_) {
      is_said |= part->contains("type") || part->contains("enum") || part->contains("const");
      merged_.types &= types_of(document_, *part);
      for (const auto& [keyword, bits] : speaks_of)
        if (part->contains({keyword.data(), keyword.size()})) spoken_of |= bits;
    }
    if (!is_said && spoken_of) merged_.types &= spoken_of;
  }

  void read_values(const bj::object& part) {
    std::vector<const bj::value*> listed;
    if (const bj::value* list = find(part, "enum")) {
      if (!list->is_array() || list->get_array().empty())
        document_.refuse(&part, "enum", "must be a list of values");
      for (const bj::value& value : list->get_array()) listed.push_back(&value);
      keep_values(listed);
    }
    if (const bj::value* only = find(part, "const")) {
      listed.assign(1, only);
      keep_values(listed);
    }
  }

  void keep_values(const std::vector<const bj::value*>& listed) {
    budget_.spend(std::ssize(listed));
    if (!merged_.values) {
      merged_.values = listed;
      return;
    }
    std::set<std::string> meanings;
    for (const bj::value* value : listed) {
      budget_.spend(100);
      meanings.insert(meaning_of(*value, budget_));
    }
    std::erase_if(*merged_.values, [&](const bj::value* value) {
      budget_.spend(100);
      return !meanings.contains(meaning_of(*value, budget_));
    });
  }

  // Only what is true of everything can be denied: {"not": {}} is how some write that nothing is allowed.
  void read_not(const bj::object& part) {
    const bj::value* denied = find(part, "not");
    if (!denied) return;
    const bool everything =
        (denied->is_object() && denied->get_object().empty()) || (denied->is_bool() && denied->get_bool());
    const bool nothing = denied->is_bool() && !denied->get_bool();
    if (!everything && !nothing)
      document_.refuse(&part, "not", "is supported with {} only, which allows nothing");
    if (everything) merged_.types = 0;
  }

  void read_string(const bj::object& part) {
    if (find(part, "minLength"))
      merged_.length_min = std::max(merged_.length_min, *read_count(document_, part, "minLength"));
    if (find(part, "maxLength")) tighten(merged_.length_max, read_count(document_, part, "maxLength"));
    for (const std::string_view keyword : {std::string_view("pattern"), std::string_view("format")})
      if (const bj::value* text = find(part, keyword)) {
        if (!text->is_string()) document_.refuse(&part, keyword, "must be a string");
        if (keyword == "format" && !(types_of(document_, part) & kStringType)) {
          read_number_format(view(text->get_string()));
          continue;
        }
        if (keyword == "format" && !find_format(view(text->get_string()))) {
          document_.note("format", view(text->get_string()));
          continue;
        }
        auto& list = keyword == "pattern" ? merged_.patterns : merged_.formats;
        list.push_back({std::string(view(text->get_string())), &part});
      }
  }

  // OpenAPI's and Rust's formats of numbers.
  void read_number_format(std::string_view name) {
    // 15 digits for the larger ones: see json_number.h.
    constexpr std::int64_t most = 999'999'999'999'999;
    struct Range {
      std::string_view name;
      std::int64_t least, most;
    };
    constexpr Range ranges[] = {
        {"int8", -128, 127},          {"int16", -32'768, 32'767}, {"int32", -2'147'483'648, 2'147'483'647},
        {"int64", -most, most},       {"uint8", 0, 255},          {"uint16", 0, 65'535},
        {"uint32", 0, 4'294'967'295}, {"uint64", 0, most},        {"uint", 0, most}};
    if (name == "float" || name == "double") return;
    for (const Range& range : ranges)
      if (range.name == name) {
        tighten_bound(merged_.bounds.least, {Decimal::of(range.least), false}, true);
        tighten_bound(merged_.bounds.most, {Decimal::of(range.most), false}, false);
        return;
      }
    document_.note("format", name);
  }

  static void tighten_bound(std::optional<Bound>& bound, const Bound& now, bool least) {
    const int order = bound ? compare(now.at, bound->at) : 0;
    if (!bound || (least ? order > 0 : order < 0) || (order == 0 && now.exclusive)) bound = now;
  }

  static void tighten(std::optional<std::int64_t>& limit, std::optional<std::int64_t> other) {
    if (other) limit = limit ? std::min(*limit, *other) : *other;
  }

  void read_number(const bj::object& part) {
    const auto read = [&](std::string_view keyword, std::optional<Bound>& bound, bool least, bool exclusive) {
      if (find(part, keyword))
        tighten_bound(bound, {read_decimal(document_, part, keyword), exclusive}, least);
    };
    read("minimum", merged_.bounds.least, true, false);
    read("exclusiveMinimum", merged_.bounds.least, true, true);
    read("maximum", merged_.bounds.most, false, false);
    read("exclusiveMaximum", merged_.bounds.most, false, true);
    if (find(part, "multipleOf")) {
      const Decimal multiple = read_decimal(document_, part, "multipleOf");
      if (!multiple.is_integer() || multiple.negative || multiple.is_zero() || multiple.digits.size() > 4 ||
          std::stoll(multiple.digits) > kMultipleMax)
        document_.refuse(&part, "multipleOf", "only integers from 1 to {} are supported", kMultipleMax);
      merged_.bounds.multiples_of.push_back(std::stoll(multiple.digits));
    }
  }

  void read_counts(const bj::object& part) {
    if (find(part, "minItems"))
      merged_.items_min = std::max(merged_.items_min, *read_count(document_, part, "minItems"));
    if (find(part, "maxItems")) tighten(merged_.items_max, read_count(document_, part, "maxItems"));
    if (find(part, "minProperties"))
      merged_.members_min = std::max(merged_.members_min, *read_count(document_, part, "minProperties"));
    if (find(part, "maxProperties"))
      tighten(merged_.members_max, read_count(document_, part, "maxProperties"));
  }

  // ---- objects -----------------------------------------------------------------------------------------

  const bj::object* object_of_schemas(const bj::object& part, std::string_view keyword) {
    const bj::value* value = find(part, keyword);
    if (!value) return nullptr;
    if (!value->is_object()) document_.refuse(&part, keyword, "must be an object of schemas");
    if (value->get_object().size() > kPropertiesMax)
      document_.refuse(&part, keyword, "{} properties; at most {}", value->get_object().size(),
                       kPropertiesMax);
    return &value->get_object();
  }

  void read_properties() {
    std::vector<Pattern> patterns;
    bool declares = false, opens = false, closes = false;
    std::set<std::string> required;
    for (const bj::object* part : parts_) {
      if (const bj::object* named = object_of_schemas(*part, "properties")) {
        declares |= !named->empty();
        for (const auto& member : *named) add_property(std::string(view(member.key())));
      }
      if (const bj::object* matched = object_of_schemas(*part, "patternProperties"))
        for (const auto& member : *matched) {
          declares = true;
          patterns.push_back({std::string(view(member.key())), part});
        }
      if (const bj::value* additional = find(*part, "additionalProperties")) {
        closes |= additional->is_bool() && !additional->get_bool();
        opens |= !additional->is_bool() || additional->get_bool();
      }
      if (const bj::value* names = find(*part, "propertyNames")) merged_.names.push_back(names);
      if (const bj::value* list = find(*part, "required")) {
        if (!list->is_array()) document_.refuse(part, "required", "must be a list of names");
        for (const bj::value& name : list->get_array()) {
          budget_.spend(60);
          if (!name.is_string()) document_.refuse(part, "required", "must be a list of names");
          required.insert(std::string(view(name.get_string())));
        }
      }
    }
    for (const std::string& name : required) add_property(name);
    if (patterns.size() > kPatternPropertiesMax)
      document_.refuse(merged_.place, "patternProperties", "{} patterns at once; at most {}", patterns.size(),
                       kPatternPropertiesMax);
    const std::vector<Dfa> matchers = compile_names(patterns);
    for (MergedSchema::Property& property : merged_.properties)
      constrain_property(property, required.contains(property.name), patterns, matchers);
    merged_.is_opened = !closes && opens;
    add_others(patterns, !closes && (opens || (!declares && !closed_)));
  }

  void add_property(std::string name) {
    budget_.spend(60);
    if (property_names_.insert(name).second) merged_.properties.push_back({std::move(name), {}, false});
    if (merged_.properties.size() > kPropertiesMax)
      document_.refuse(merged_.place, "properties", "more than {} properties", kPropertiesMax);
  }

  std::vector<Dfa> compile_names(const std::vector<Pattern>& patterns) {
    std::vector<Dfa> matchers;
    for (const Pattern& pattern : patterns) {
      ExpressionPool pool(budget_);
      matchers.push_back(pool.compile(parse_regex(pool, pattern.text, RegexUse::search, Writing::json_string,
                                                  "the schema's patternProperties")));
    }
    return matchers;
  }

  // Every part has its say: by name, by pattern, or else by its additionalProperties.
  void constrain_property(MergedSchema::Property& property, bool required,
                          const std::vector<Pattern>& patterns, const std::vector<Dfa>& matchers) {
    property.required = required;
    for (const bj::object* part : parts_) {
      budget_.spend(60);
      bool is_named = false;
      if (const bj::object* named = object_of_schemas(*part, "properties"))
        if (const bj::value* schema = document_.member(*named, property.name)) {
          property.schemas.push_back(schema);
          is_named = true;
        }
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        if (patterns[i].place != part) continue;
        budget_.spend(10 + 4 * std::ssize(property.name));
        if (matchers[i].accepts(written(property.name, Writing::json_string))) {
          property.schemas.push_back(&part->at("patternProperties").get_object().at(patterns[i].text));
          is_named = true;
        }
      }
      if (const bj::value* additional = document_.member(*part, "additionalProperties");
          additional && !is_named)
        property.schemas.push_back(additional);
    }
  }

  void add_others(const std::vector<Pattern>& patterns, bool open) {
    for (unsigned subset = 0; subset < 1u << patterns.size(); ++subset) {
      if (subset == 0 && !open) continue;
      MergedSchema::Others others;
      std::set<const bj::object*> matched;
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        if (!(subset >> i & 1)) {
          others.other_patterns.push_back(patterns[i]);
          continue;
        }
        others.patterns.push_back(patterns[i]);
        matched.insert(patterns[i].place);
        others.schemas.push_back(
            &patterns[i].place->at("patternProperties").get_object().at(patterns[i].text));
      }
      for (const bj::object* part : parts_) {
        budget_.spend(40);
        if (const bj::value* additional = document_.member(*part, "additionalProperties");
            additional && !matched.contains(part))
          others.schemas.push_back(additional);
      }
      merged_.others.push_back(std::move(others));
    }
  }

  // ---- arrays ------------------------------------------------------------------------------------------

  // The first items one by one, then the others. Before 2020 "items" was a list and "additionalItems" spoke
  // of the others.
  struct Items {
    const bj::array* first = nullptr;
    const bj::value* others = nullptr;
  };

  Items items_of(const bj::object& part) {
    Items out;
    const bj::value* items = find(part, "items");
    const bj::value* first = find(part, "prefixItems");
    const bj::value* additional = find(part, "additionalItems");
    if (first && !first->is_array()) document_.refuse(&part, "prefixItems", "must be a list of schemas");
    if (first) out.first = &first->get_array();
    if (items && items->is_array()) {
      if (first) document_.refuse(&part, "items", "a list of schemas beside prefixItems");
      out.first = &items->get_array();
      out.others = additional;
    } else {
      out.others = items;
    }
    if (out.first && out.first->size() > kPropertiesMax)
      document_.refuse(&part, first ? "prefixItems" : "items", "{} schemas; at most {}", out.first->size(),
                       kPropertiesMax);
    return out;
  }

  void read_items() {
    std::vector<Items> said;
    std::size_t first_count = 0;
    for (const bj::object* part : parts_) {
      if (const bj::value* unique = find(*part, "uniqueItems")) {
        if (!unique->is_bool()) document_.refuse(part, "uniqueItems", "must be true or false");
        merged_.unique_items |= unique->get_bool();
      }
      said.push_back(items_of(*part));
      if (said.back().first) first_count = std::max(first_count, said.back().first->size());
    }
    for (std::size_t i = 0; i < first_count; ++i) {
      Schemas schemas;
      for (const Items& items : said) {
        budget_.spend(10);
        if (items.first && i < items.first->size())
          schemas.push_back(&(*items.first)[i]);
        else if (items.others)
          schemas.push_back(items.others);
      }
      merged_.first_items.push_back(std::move(schemas));
    }
    Schemas more;
    for (const Items& items : said)
      if (items.others) more.push_back(items.others);
    // As with members: where the first are named and nothing is said of more, there are no more, unless
    // minItems wants them.
    if (first_count == 0 || !more.empty() || merged_.items_min > static_cast<std::int64_t>(first_count))
      merged_.more_items = std::move(more);
  }

  const SchemaDocument& document_;
  const Conjunction& parts_;
  bool closed_;
  Budget& budget_;
  MergedSchema merged_;
  std::set<std::string> property_names_;
};

}  // namespace

MergedSchema merge(const SchemaDocument& document, const Conjunction& parts, bool closed, Budget& budget) {
  return Merger(document, parts, closed, budget).run();
}

std::optional<std::int64_t> read_count(const SchemaDocument& document, const bj::object& schema,
                                       std::string_view keyword) {
  const bj::value* value = document.member(schema, keyword);
  if (!value) return std::nullopt;
  std::int64_t count = -1;
  if (value->is_int64()) count = value->get_int64();
  if (value->is_double() && std::trunc(value->get_double()) == value->get_double() &&
      std::fabs(value->get_double()) < 1e15)
    count = static_cast<std::int64_t>(value->get_double());
  if (count < 0 || count > kCountMax)
    document.refuse(&schema, keyword, "must be an integer from 0 to {}", kCountMax);
  return count;
}

}  // namespace fourfold::constrain
