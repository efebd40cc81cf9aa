// Filters on lists and dicts.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"
#include "text/merge_sort.h"

namespace fourfold::text::jinja {

namespace {

// "a.b.0" walks members and indices; an integer is an index.
Value by_path(Evaluator& evaluator, Value object, const Value& path) {
  if (!path.is_text()) return evaluator.item(object, path);
  evaluator.charge_look(path.text().size());
  for (const std::string_view part : split_at(path.text(), ".", -1, false)) {
    const bool digits = !part.empty() && part.size() < 10 &&
                        std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    object =
        evaluator.item(object, digits ? Value(std::int64_t{std::stoll(std::string(part))}) : Value(part));
  }
  return object;
}

// What sort, unique, min and max compare: an attribute if one is asked for, strings without case unless
// asked.
Value sort_key(Evaluator& evaluator, const Value& item, const Value& path, bool case_sensitive) {
  Value key = path.is_none() ? item : by_path(evaluator, item, path);
  evaluator.charge_look(key.is_text() ? key.text().size() : 0);
  return key.is_text() && !case_sensitive ? Value(lower(key.text())) : key;
}

Value length(Evaluator&, const Value& input, Arguments& arguments) {
  const Bound bound("length", arguments, {});
  if (input.is_undefined()) return 0;
  if (input.is_text()) return static_cast<std::int64_t>(count_code_points(input.text()));
  if (input.is_dict()) return static_cast<std::int64_t>(input.dict()->size());
  if (input.is_sequence() && input.sequence()->kind != Sequence::Kind::generator) {
    return static_cast<std::int64_t>(input.sequence()->items.size());
  }
  throw TemplateFault(format("a {} has no length", type_name(input)));
}

Value default_value(Evaluator&, const Value& input, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool replace = input.is_undefined() || (bound.flag_or(1, false) && !truth(input));
  return replace ? bound.or_else(0, "") : input;
}

Value first(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("first", arguments, {});
  const Sequence* list = input.sequence();
  if (list != nullptr && list->kind != Sequence::Kind::generator && !list->items.empty())
    return list->items.front();
  const std::vector<Value> items = evaluator.items_of(input);
  return items.empty() ? Value(Undefined{"the sequence was empty, it has no first item"}) : items.front();
}

Value last(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (input.is_sequence() && input.sequence()->kind == Sequence::Kind::generator) {
    throw TemplateFault("last: a generator cannot be read backwards");
  }
  if (const Sequence* list = input.sequence(); list != nullptr && !list->items.empty())
    return list->items.back();
  const std::vector<Value> items = evaluator.items_of(input);
  return items.empty() ? Value(Undefined{"the sequence was empty, it has no last item"}) : items.back();
}

Value list(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return evaluator.new_list(evaluator.items_of(input));
}

Value join(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const TracedText separator = evaluator.text_of(bound.or_else(0, ""));
  const Value path = bound.or_else(1, None{});
  TracedText out;
  bool is_first = true;
  for (const Value& item : evaluator.items_of(input)) {
    const TracedText part = evaluator.text_of(path.is_none() ? item : by_path(evaluator, item, path));
    evaluator.charge_bytes(separator.memory() + part.memory());
    if (!std::exchange(is_first, false)) out.append(separator);
    out.append(part);
  }
  return evaluator.new_text(std::move(out));
}

Value reverse(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (input.is_text()) return sliced(evaluator, input, None{}, None{}, -1);
  std::vector<Value> items = evaluator.items_of(input);
  std::ranges::reverse(items);
  return evaluator.new_list(std::move(items), Sequence::Kind::generator);
}

Value items(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  if (input.is_undefined()) return Value::generator({});
  if (!input.is_dict()) throw TemplateFault(format("items needs a dict, not {}", type_name(input)));
  evaluator.charge(static_cast<std::int64_t>(input.dict()->size()));
  std::vector<Value> out;
  for (const auto& [key, value] : input.dict()->items()) out.push_back(Value::tuple({key, value}));
  return evaluator.new_list(std::move(out), Sequence::Kind::generator);
}

Value dictsort(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.is_dict()) {
    if (input.is_undefined()) fail_undefined(input);
    throw TemplateFault(format("dictsort needs a dict, not {}", type_name(input)));
  }
  const std::string by = bound.text_or(1, "key");
  if (by != "key" && by != "value") throw TemplateFault("dictsort: by is 'key' or 'value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.dict()->items()) {
    keyed.emplace_back(sort_key(evaluator, by == "key" ? key : value, None{}, bound.flag_or(0, false)),
                       Value::tuple({key, value}));
  }
  const bool backwards = bound.flag_or(2, false);
  merge_sort(keyed, [backwards, &evaluator](const auto& a, const auto& b) {
    evaluator.charge_compare(a.first, b.first);
    return backwards ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return evaluator.new_list(std::move(out));
}

Value sort(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<std::vector<Value>, Value>> keyed;
  std::vector<Value> paths = {bound.or_else(2, None{})};
  if (paths[0].is_text()) {
    const std::vector<std::string_view> parts = split_at(paths[0].text(), ",", -1, false);
    paths.assign(parts.begin(), parts.end());
  }
  for (const Value& item : evaluator.items_of(input)) {
    std::vector<Value> keys;
    for (const Value& path : paths) keys.push_back(sort_key(evaluator, item, path, bound.flag_or(1, false)));
    keyed.emplace_back(std::move(keys), item);
  }
  const auto before = [&evaluator](const auto& a, const auto& b) {
    for (std::size_t i = 0; i < a.first.size(); ++i) {
      evaluator.charge_compare(a.first[i], b.first[i]);
      if (!equal(a.first[i], b.first[i])) return compare(a.first[i], b.first[i]) < 0;
    }
    return false;
  };
  if (bound.flag_or(0, false)) {
    merge_sort(keyed, [&](const auto& a, const auto& b) { return before(b, a); });
  } else {
    merge_sort(keyed, before);
  }
  std::vector<Value> out;
  for (auto& [keys, item] : keyed) out.push_back(std::move(item));
  return evaluator.new_list(std::move(out));
}

Value unique(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : evaluator.items_of(input)) {
    Value key = sort_key(evaluator, item, bound.or_else(1, None{}), bound.flag_or(0, false));
    evaluator.charge_look(key.weight());
    if (!is_hashable(key))
      throw TemplateFault(format("unique: a {} cannot be compared by key", type_name(key)));
    evaluator.charge(key.is_text() ? 1 : static_cast<std::int64_t>(seen.size()));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), true);
    out.push_back(item);
  }
  return evaluator.new_list(std::move(out), Sequence::Kind::generator);
}

template <bool kLargest>
Value extreme(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("min and max", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> candidates = evaluator.items_of(input);
  if (candidates.empty()) return Undefined{"the sequence was empty"};
  const auto key = [&](const Value& item) {
    return sort_key(evaluator, item, bound.or_else(1, None{}), bound.flag_or(0, false));
  };
  Value best = candidates[0], best_key = key(best);
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    Value next_key = key(candidates[i]);
    evaluator.charge_compare(next_key, best_key);
    const int order = compare(next_key, best_key);
    if (kLargest ? order > 0 : order < 0) {
      best = candidates[i];
      best_key = std::move(next_key);
    }
  }
  return best;
}

Value sum(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const Value path = bound.or_else(0, None{});
  Value total = bound.or_else(1, 0);
  for (const Value& item : evaluator.items_of(input)) {
    total = binary_operation(evaluator, "+", total, path.is_none() ? item : by_path(evaluator, item, path));
  }
  return total;
}

Value map(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  std::vector<Value> out;
  if (!truth(input)) return Value::generator({});  // none and 0 too, as Jinja has it
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"});
    for (const Value& item : evaluator.items_of(input)) {
      Value value = by_path(evaluator, item, bound.required(0));
      out.push_back(value.is_undefined() && bound.has(1) ? bound.required(1) : std::move(value));
    }
    return evaluator.new_list(std::move(out), Sequence::Kind::generator);
  }
  const Value name = arguments.positional[0];
  if (!name.is_text()) throw TemplateFault("map needs the name of a filter");
  for (const Value& item : evaluator.items_of(input)) {
    evaluator.charge(1);
    out.push_back(evaluator.apply_filter(
        name.text(), item,
        {{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named}));
  }
  return evaluator.new_list(std::move(out), Sequence::Kind::generator);
}

// select, reject, selectattr, rejectattr: keep what passes a test, or is true when there is none.
template <bool kKeep, bool kAttribute>
Value select(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  constexpr std::size_t test_index = kAttribute ? 1 : 0;
  if (arguments.positional.size() < test_index)
    throw TemplateFault("selectattr and rejectattr need an attribute");
  if (!truth(input)) return Value::generator({});
  const bool has_test = arguments.positional.size() > test_index;
  if (has_test && !arguments.positional[test_index].is_text())
    throw TemplateFault("a test is given by its name");
  std::vector<Value> out;
  for (const Value& item : evaluator.items_of(input)) {
    evaluator.charge(1);
    const Value value = kAttribute ? by_path(evaluator, item, arguments.positional[0]) : item;
    bool passes = truth(value);
    if (has_test) {
      const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(test_index) + 1;
      passes = evaluator.apply_test(arguments.positional[test_index].text(), value,
                                    {{rest, arguments.positional.end()}, arguments.named});
    }
    if (passes == kKeep) out.push_back(item);
  }
  return evaluator.new_list(std::move(out), Sequence::Kind::generator);
}

Value batch(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"});
  const std::int64_t count = bound.integer(0);
  if (count < 1 || count > 100'000) throw TemplateFault("batch: the count is not between 1 and 100000");
  std::vector<Value> out, line;
  const auto finish = [&] { out.push_back(Value::list(std::exchange(line, {}))); };
  for (const Value& item : evaluator.items_of(input)) {
    if (static_cast<std::int64_t>(line.size()) == count) finish();
    line.push_back(item);
  }
  const Value fill = bound.or_else(1, None{});
  if (!line.empty()) {
    if (!fill.is_none()) line.resize(static_cast<std::size_t>(count), fill);
    finish();
  }
  return evaluator.new_list(std::move(out), Sequence::Kind::generator);
}

Value attr(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"});
  if (input.is_dict() && container_method(input, bound.text(0)).is_undefined()) {
    return Undefined{
        format("'dict object' has no attribute '{}'", bound.text(0))};  // members are not attributes
  }
  return evaluator.attribute(input, bound.text(0));
}

Value groupby(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : evaluator.items_of(input)) {
    Value key = by_path(evaluator, item, bound.required(0));
    if (key.is_undefined() && bound.has(1)) key = bound.required(1);
    keyed.emplace_back(std::move(key), item);
  }
  const bool cased = bound.flag_or(2, false);
  const auto folded = [&](const Value& key) { return sort_key(evaluator, key, None{}, cased); };
  merge_sort(keyed, [&](const auto& a, const auto& b) {
    evaluator.charge_compare(a.first, b.first);
    return compare(folded(a.first), folded(b.first)) < 0;
  });
  std::vector<Value> out;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> group;
    const Value key = keyed[i].first;
    for (; i < keyed.size() && equal(folded(keyed[i].first), folded(key)); ++i)
      group.push_back(keyed[i].second);
    out.push_back(Value::tuple({key, evaluator.new_list(std::move(group))}));
  }
  return evaluator.new_list(std::move(out));
}

constexpr NativeEntry kFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const NativeEntry> list_filters() { return kFilters; }

}  // namespace fourfold::text::jinja
