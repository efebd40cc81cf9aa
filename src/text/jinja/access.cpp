// What stands behind a dot or in brackets, and walking over a value.
#include <algorithm>

#include "base/format.h"
#include "base/utf8.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

namespace {

std::string_view object_name(const Value& value) {
  return value.is_none() ? std::string_view("None") : type_name(value);
}

std::size_t bytes_at(std::string_view text, std::size_t at) {
  return static_cast<std::size_t>(read_code_point(text.data() + at).bytes);
}

// Start of each code point, and the end.
std::vector<std::size_t> code_point_starts(Evaluator& evaluator, std::string_view text) {
  evaluator.charge_bytes((count_code_points(text) + 1) * sizeof(std::size_t));
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); at += bytes_at(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

// An index as Python counts it, or -1 when it is outside.
std::int64_t place(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  return index >= 0 && index < count ? index : -1;
}

Value text_item(Evaluator& evaluator, const Value& value, std::int64_t index) {
  evaluator.charge_look(value.text().size());
  const std::int64_t found = place(index, count_code_points(value.text()));
  if (found < 0) return Undefined{"the string is shorter"};
  const std::size_t at = offset_of(value.text(), found);
  return Value(value.traced().slice(at, at + bytes_at(value.text(), at)), value.is_markup());
}

}  // namespace

void fail_undefined(const Value& undefined) {
  throw TemplateFault(std::get<Undefined>(undefined.data()).why);
}

std::vector<Value> Evaluator::items_of(const Value& value) {
  if (value.is_undefined()) return {};
  std::vector<Value> out;
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind == Sequence::Kind::generator) {
      if (sequence->consumed) return {};
      sequence->consumed = true;
    }
    out = sequence->items;
  } else if (const Dict* dict = value.dict()) {
    for (const auto& member : dict->items()) out.push_back(member.first);
  } else if (value.is_text()) {
    charge_texts(count_code_points(value.text()));
    for (std::size_t at = 0, bytes = 0; at < value.text().size(); at += bytes) {
      bytes = bytes_at(value.text(), at);
      out.emplace_back(value.traced().slice(at, at + bytes));
    }
  } else {
    throw TemplateFault(format("a {} cannot be iterated over", type_name(value)));
  }
  charge(static_cast<std::int64_t>(out.size()));
  charge_bytes(out.size() * sizeof(Value));
  return out;
}

Value Evaluator::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (name.starts_with("__")) throw TemplateFault(format("access to '{}' is not allowed", name));
  if (const Namespace* names = object.names()) {
    if (const Value* found = names->find(name)) return *found;
  } else if (object.loop()) {
    return loop_attribute(object, name);
  } else {
    Value method = object.is_text() ? text_method(object, name) : container_method(object, name);
    if (!method.is_undefined()) return method;
    if (const Dict* dict = object.dict()) {
      if (const Value* found = dict->find(name)) return *found;
    }
  }
  return Undefined{format("'{} object' has no attribute '{}'", object_name(object), name)};
}

Value Evaluator::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (const Dict* dict = object.dict()) {
    charge_look(key.weight());
    if (!key.is_text()) charge(static_cast<std::int64_t>(dict->size()));
    if (const Value* found = dict->find(key)) return *found;
  } else if (key.is_integer() || key.is_bool()) {
    if (object.is_text()) return text_item(*this, object, key.integer());
    const Sequence* sequence = object.sequence();
    const bool indexed = sequence != nullptr && sequence->kind != Sequence::Kind::generator &&
                         sequence->kind != Sequence::Kind::view;
    if (indexed) {
      const std::int64_t found = place(key.integer(), sequence->items.size());
      if (found >= 0) return sequence->items[static_cast<std::size_t>(found)];
    }
  }
  if (key.is_text()) {
    // Brackets fall back to attributes, as a dot falls back to members.
    const Value found = attribute(object, key.text());
    if (!found.is_undefined()) return found;
  }
  constexpr std::size_t kShown = 100;
  return Undefined{format("'{} object' has no element {}", object_name(object),
                          key.weight() <= kShown ? to_repr(key) : format("by a long {}", type_name(key)))};
}

namespace {

struct SliceRange {
  std::int64_t start, stop, step;
};

// The indices Python's slice.indices gives.
SliceRange slice_range(const Value& start, const Value& stop, const Value& step, std::size_t size) {
  const auto number = [](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    if (value.is_undefined()) fail_undefined(value);
    if (!value.is_integer() && !value.is_bool()) throw TemplateFault("a slice needs integers");
    return value.integer();
  };
  const auto count = static_cast<std::int64_t>(size);
  SliceRange out{0, 0, number(step, 1)};
  if (out.step == 0) throw TemplateFault("a slice cannot have step 0");
  const std::int64_t lowest = out.step < 0 ? -1 : 0;
  const std::int64_t highest = out.step < 0 ? count - 1 : count;
  const auto bounded = [&](std::int64_t index) {
    if (index < 0) index = index < -count ? -1 - count : index + count;  // never overflows
    return std::clamp(index, lowest, highest);
  };
  out.start = start.is_none() ? (out.step < 0 ? highest : lowest) : bounded(number(start, 0));
  out.stop = stop.is_none() ? (out.step < 0 ? lowest : highest) : bounded(number(stop, 0));
  return out;
}

template <class Take>
void walk(const SliceRange& range, std::size_t size, Take take) {
  std::int64_t step = std::clamp<std::int64_t>(range.step, -static_cast<std::int64_t>(size) - 1,
                                               static_cast<std::int64_t>(size) + 1);
  for (std::int64_t i = range.start; step > 0 ? i < range.stop : i > range.stop; i += step) {
    take(static_cast<std::size_t>(i));
  }
}

}  // namespace

Value sliced(Evaluator& evaluator, const Value& value, const Value& start, const Value& stop,
             const Value& step) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_text()) {
    evaluator.charge_look(value.text().size());
    const std::size_t size = count_code_points(value.text());
    const SliceRange range = slice_range(start, stop, step, size);
    TracedText out;
    if (range.step == 1) {
      const std::size_t begin = offset_of(value.text(), range.start);
      out = value.traced().slice(begin, std::max(begin, offset_of(value.text(), range.stop)));
    } else {
      const auto starts = code_point_starts(evaluator, value.text());
      walk(range, size, [&](std::size_t i) { out.append_slice(value.traced(), starts[i], starts[i + 1]); });
    }
    return evaluator.new_text(std::move(out), value.is_markup());
  }
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || sequence->kind == Sequence::Kind::generator ||
      sequence->kind == Sequence::Kind::view) {
    throw TemplateFault(format("a {} cannot be sliced", type_name(value)));
  }
  std::vector<Value> out;
  const SliceRange range = slice_range(start, stop, step, sequence->items.size());
  walk(range, sequence->items.size(), [&](std::size_t i) { out.push_back(sequence->items[i]); });
  if (sequence->kind == Sequence::Kind::range && range.step < 1'000'000 && range.step > -1'000'000) {
    const auto at = [sequence](std::int64_t index) { return sequence->start + index * sequence->step; };
    return Value::range(at(range.start), at(range.stop), sequence->step * range.step, std::move(out));
  }
  return evaluator.new_list(std::move(out), sequence->kind);
}

Value Evaluator::call(const Value& function, Arguments arguments) {
  if (function.is_undefined()) fail_undefined(function);
  if (LoopState* loop = function.loop()) {
    if (!loop->statement->recursive) throw TemplateFault("the loop is not recursive, so it cannot be called");
    if (arguments.positional.size() != 1) throw TemplateFault("a recursive loop is called with one list");
    return new_text(
        run_loop(*loop->statement, items_of(arguments.positional[0]), loop->scope, loop->depth + 1));
  }
  if (!function.callable()) throw TemplateFault(format("a {} cannot be called", type_name(function)));
  return function.callable()->call(*this, std::move(arguments));
}

}  // namespace fourfold::text::jinja
