// Methods of dicts and lists, and the members of {{ loop }}. What would change a value is refused, as in the
// sandbox templates are written for.
#include <algorithm>
#include <span>

#include "text/jinja/native.h"

namespace fourfold::text::jinja {

namespace {

Value dict_view(Evaluator& evaluator, const Value& self, std::string_view kind) {
  std::vector<Value> items;
  evaluator.charge(static_cast<std::int64_t>(self.dict()->size()));
  for (const auto& [key, value] : self.dict()->items()) {
    items.push_back(kind == "dict_keys" ? key : kind == "dict_values" ? value : Value::tuple({key, value}));
  }
  evaluator.charge_bytes(items.size() * sizeof(Value));
  return Value::list(std::move(items), Sequence::Kind::view, std::string(kind));
}

Value keys(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("keys", arguments, {});
  return dict_view(evaluator, self, "dict_keys");
}
Value values(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("values", arguments, {});
  return dict_view(evaluator, self, "dict_values");
}
Value items(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  return dict_view(evaluator, self, "dict_items");
}
Value get(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"});
  if (!bound.required(0).is_text()) evaluator.charge(static_cast<std::int64_t>(self.dict()->size()));
  const Value* found = self.dict()->find(bound.required(0));
  return found != nullptr ? *found : bound.or_else(1, None{});
}
Value copy(Evaluator&, const Value& self, Arguments&) { return self; }

bool equal_charged(Evaluator& evaluator, const Value& a, const Value& b) {
  evaluator.charge_compare(a, b);
  return equal(a, b);
}

Value index(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"value"});
  const auto& list = self.sequence()->items;
  const auto found = std::ranges::find_if(
      list, [&](const Value& item) { return equal_charged(evaluator, item, bound.required(0)); });
  if (found == list.end()) throw TemplateFault("index: the value is not in the list");
  return static_cast<std::int64_t>(found - list.begin());
}
Value count(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"value"});
  return static_cast<std::int64_t>(std::ranges::count_if(self.sequence()->items, [&](const Value& item) {
    return equal_charged(evaluator, item, bound.required(0));
  }));
}

constexpr NativeEntry kDictMethods[] = {
    {"keys", keys}, {"values", values}, {"items", items}, {"get", get}, {"copy", copy}};
constexpr NativeEntry kListMethods[] = {{"index", index}, {"count", count}, {"copy", copy}};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear", "pop",    "reverse",
                                             "insert", "sort",  "extend", "remove"};

Value find_method(const Value& object, std::string_view name, std::span<const NativeEntry> methods,
                  std::span<const std::string_view> changes) {
  const auto found = std::ranges::find(methods, name, &NativeEntry::name);
  if (found != methods.end()) return std::make_shared<Native>(std::string(name), found->function, object);
  if (std::ranges::find(changes, name) != changes.end()) {
    throw TemplateFault(
        format("'{}' would change a {}; templates cannot change values", name, type_name(object)));
  }
  return {};
}

}  // namespace

Value container_method(const Value& object, std::string_view name) {
  if (object.is_dict()) return find_method(object, name, kDictMethods, kDictChanges);
  if (!object.is_sequence()) return {};
  if (object.sequence()->kind == Sequence::Kind::list)
    return find_method(object, name, kListMethods, kListChanges);
  const Sequence::Kind kind = object.sequence()->kind;
  const bool searchable = (kind == Sequence::Kind::tuple || kind == Sequence::Kind::range) && name != "copy";
  return searchable ? find_method(object, name, kListMethods, {}) : Value();
}

namespace {

Value cycle(Evaluator&, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateFault("loop.cycle needs something to cycle through");
  return arguments.positional[self.loop()->index % arguments.positional.size()];
}

Value changed(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  LoopState& loop = *self.loop();
  for (const Value& value : arguments.positional) evaluator.charge_look(value.weight());
  const bool same = loop.has_changed && std::ranges::equal(loop.last_changed, arguments.positional, equal);
  loop.has_changed = true;
  loop.last_changed = arguments.positional;
  return !same;
}

}  // namespace

Value loop_attribute(const Value& self, std::string_view name) {
  const LoopState& loop = *self.loop();
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items.size());
  if (name == "index0") return index;
  if (name == "index") return index + 1;
  if (name == "revindex0") return length - index - 1;
  if (name == "revindex") return length - index;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return loop.depth;
  if (name == "depth0") return loop.depth - 1;
  if (name == "previtem")
    return index > 0 ? loop.items[loop.index - 1] : Value(Undefined{"there is no previous item"});
  if (name == "nextitem")
    return index + 1 < length ? loop.items[loop.index + 1] : Value(Undefined{"there is no next item"});
  if (name == "cycle") return std::make_shared<Native>("cycle", cycle, self);
  if (name == "changed") return std::make_shared<Native>("changed", changed, self);
  return Undefined{format("'loop' has no attribute '{}'", name)};
}

}  // namespace fourfold::text::jinja
