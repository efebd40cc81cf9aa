// Arrays of a schema.
#include <algorithm>
#include <set>

#include "constrain/json_values.h"
#include "constrain/schema_compiler.h"

namespace fourfold::constrain {
namespace {

constexpr std::int64_t kDistinctSetsMax = 1024;
constexpr std::int64_t kDistinctValuesMax = 512;

// How many sets of at most so many of `count` values there are; no further than the limit.
std::int64_t count_sets(std::int64_t count, std::int64_t most) {
  std::int64_t sets = 1, of_size = 1;
  for (std::int64_t size = 1; size <= most && sets <= kDistinctSetsMax; ++size) {
    of_size = of_size * (count - size + 1) / size;
    sets += of_size;
  }
  return sets;
}

}  // namespace

// The values an item may have, each a rule: which have been written is known by their numbers alone.
std::vector<ExprId> SchemaCompiler::distinct_values(const MergedSchema& merged) {
  static const bj::value simple[] = {nullptr, false, true};
  std::vector<ExprId> out;
  std::set<std::string> known;
  const auto add = [&](const bj::value& value) {
    builder_.budget().spend(100);
    if (!known.insert(meaning_of(value, builder_.budget())).second) return;
    const RuleId rule = builder_.declare();
    builder_.define(rule, constant(value));
    out.push_back(pool_.call(rule));
  };
  for (const Conjunction& parts : document_.alternatives(*merged.more_items)) {
    const MergedSchema item = merge(document_, parts, closed_, builder_.budget());
    if (item.values) {
      const std::optional<Dfa> form = form_of(item, Writing::plain);
      for (const bj::value* value : *item.values)
        if (is_allowed(item, form, *value)) add(*value);
    } else if (!(item.types & ~(kNullType | kBooleanType))) {
      for (const bj::value& value : simple)
        if (type_of(value) & item.types) add(value);
    } else {
      document_.refuse(merged.place, "uniqueItems",
                       "is supported for items whose values are listed (enum, const, booleans); leave it out "
                       "and drop what comes twice");
    }
    if (std::ssize(out) > kDistinctValuesMax)
      document_.refuse(merged.place, "uniqueItems", "more than {} values", kDistinctValuesMax);
  }
  return out;
}

// One item or more, in any order, none twice: a state for each set of those that have been written.
ExprId SchemaCompiler::distinct_items(const MergedSchema& merged, std::optional<std::int64_t> max) {
  if (!merged.first_items.empty())
    document_.refuse(merged.place, "uniqueItems", "is not supported beside prefixItems");
  const std::vector<ExprId> values = distinct_values(merged);
  const std::int64_t most = std::min(max.value_or(std::ssize(values)), std::ssize(values));
  const std::int64_t sets = count_sets(std::ssize(values), most);
  if (sets > kDistinctSetsMax)
    document_.refuse(
        merged.place, "uniqueItems",
        "{} values in any order are more than {} sets; 10 values are supported, or more with a small "
        "maxItems (44 with 2, 18 with 3)",
        values.size(), kDistinctSetsMax);
  std::map<std::vector<std::size_t>, ExprId> made;  // by what has been written, ascending
  const auto behind = [&](const auto& self, const std::vector<std::size_t>& written) -> ExprId {
    if (const auto place = made.find(written); place != made.end()) return place->second;
    builder_.budget().spend(100 * std::ssize(values));
    std::vector<ExprId> ways;
    if (std::ssize(written) >= merged.items_min && !written.empty()) ways.push_back(pool_.empty());
    for (std::size_t i = 0; i < values.size() && std::ssize(written) < most; ++i) {
      const auto place = std::lower_bound(written.begin(), written.end(), i);
      if (place != written.end() && *place == i) continue;
      std::vector<std::size_t> more(written);
      more.insert(more.begin() + (place - written.begin()), i);
      const ExprId rest = self(self, more);
      ways.push_back(written.empty() ? pool_.sequence({values[i], rest})
                                     : pool_.sequence({json_.separator(), values[i], rest}));
    }
    return made.emplace(written, pool_.either(ways)).first->second;
  };
  return behind(behind, {});
}

ExprId SchemaCompiler::array(const MergedSchema& merged) {
  const auto first_count = static_cast<std::int64_t>(merged.first_items.size());
  std::optional<std::int64_t> max = merged.items_max;
  if (!merged.more_items) max = std::min(max.value_or(first_count), first_count);
  const std::int64_t min = merged.items_min;
  if (max && *max < min) return pool_.nothing();
  const ExprId none = pool_.sequence({pool_.text("["), json_.space(), pool_.text("]")});
  if (max == 0) return none;
  if (merged.unique_items && max.value_or(2) > 1) {
    const ExprId some = pool_.sequence(
        {pool_.text("["), json_.space(), distinct_items(merged, max), json_.space(), pool_.text("]")});
    return min > 0 ? some : pool_.either({none, some});
  }
  // From the last to the first: what follows once `i` items are written.
  const std::int64_t alone = std::max<std::int64_t>(first_count, 1);
  ExprId rest = pool_.empty();
  if (merged.more_items && (!max || *max > alone)) {
    std::optional<std::int64_t> count;
    if (max) count = *max - alone;
    rest = pool_.repeat(pool_.sequence({json_.separator(), value(*merged.more_items)}),
                        std::max<std::int64_t>(min - alone, 0), count);
  }
  for (std::int64_t i = std::min(first_count, max.value_or(first_count)); i-- > 1;) {
    const ExprId item = value(merged.first_items[static_cast<std::size_t>(i)]);
    rest = pool_.sequence({json_.separator(), item, rest});
    if (i >= min) rest = pool_.optional(rest);
  }
  const ExprId item = value(first_count > 0 ? merged.first_items[0] : *merged.more_items);
  const ExprId some =
      pool_.sequence({pool_.text("["), json_.space(), item, rest, json_.space(), pool_.text("]")});
  return min > 0 ? some : pool_.either({none, some});
}

}  // namespace fourfold::constrain
