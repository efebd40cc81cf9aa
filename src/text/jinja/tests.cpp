// Tests: {{ x is defined }}, {{ x is divisibleby 3 }}.
#include <algorithm>

#include "text/jinja/native.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

bool is_known_filter(std::string_view name);  // filters.cpp

namespace {

// The remainder Python's % gives, floats included.
Value remainder(Evaluator& evaluator, const Value& value, const Value& divisor) {
  if (value.is_text()) throw TemplateFault("the test needs a number, not str");
  return binary_operation(evaluator, "%", value, divisor);
}

bool has_length_and_items(const Value& value) {
  if (value.is_text() || value.is_dict() || value.is_undefined()) return true;
  const Sequence* sequence = value.sequence();
  return sequence != nullptr && sequence->kind != Sequence::Kind::generator &&
         sequence->kind != Sequence::Kind::view;
}

bool is_same(const Value& a, const Value& b) {
  if (a.data().index() != b.data().index()) return false;
  if (a.is_sequence()) return a.sequence() == b.sequence();
  if (a.is_dict()) return a.dict() == b.dict();
  return equal(a, b);
}

using Test = bool (*)(Evaluator& evaluator, const Value& value, const Value& argument);

bool ordered(const Value& value, const Value& argument, bool less, bool same) {
  const int order = compare(value, argument);
  return order == 0 ? same : (order < 0) == less;
}

struct TestEntry {
  std::string_view name;
  std::size_t argument_count;
  Test test;
};

constexpr TestEntry kTests[] = {
    {"defined", 0, [](Evaluator&, const Value& v, const Value&) { return !v.is_undefined(); }},
    {"undefined", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_undefined(); }},
    {"none", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_none(); }},
    {"boolean", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_bool(); }},
    {"true", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_bool() && v.boolean(); }},
    {"false", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_bool() && !v.boolean(); }},
    {"integer", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_integer() || v.wide(); }},
    {"float", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_real() && !v.wide(); }},
    {"number", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_number(); }},
    {"string", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_text(); }},
    {"mapping", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_dict(); }},
    {"sequence", 0, [](Evaluator&, const Value& v, const Value&) { return has_length_and_items(v); }},
    {"iterable", 0,
     [](Evaluator&, const Value& v, const Value&) {
       return v.is_text() || v.is_dict() || v.is_sequence() || v.is_undefined() || v.loop() != nullptr;
     }},
    {"callable", 0,
     [](Evaluator&, const Value& v, const Value&) { return v.callable() || v.loop() || v.is_undefined(); }},
    {"escaped", 0, [](Evaluator&, const Value& v, const Value&) { return v.is_markup(); }},
    {"lower", 0,
     [](Evaluator& e, const Value& v, const Value&) {
       const std::string text = e.text_of(v).bytes();
       return lower(text) == text && upper(text) != text;
     }},
    {"upper", 0,
     [](Evaluator& e, const Value& v, const Value&) {
       const std::string text = e.text_of(v).bytes();
       return upper(text) == text && lower(text) != text;
     }},
    {"even", 0, [](Evaluator& e, const Value& v, const Value&) { return remainder(e, v, 2).number() == 0; }},
    {"odd", 0, [](Evaluator& e, const Value& v, const Value&) { return remainder(e, v, 2).number() == 1; }},
    {"divisibleby", 1,
     [](Evaluator& e, const Value& v, const Value& by) { return remainder(e, v, by).number() == 0; }},
    {"eq", 1, [](Evaluator&, const Value& v, const Value& a) { return equal(v, a); }},
    {"equalto", 1, [](Evaluator&, const Value& v, const Value& a) { return equal(v, a); }},
    {"ne", 1, [](Evaluator&, const Value& v, const Value& a) { return !equal(v, a); }},
    {"lt", 1, [](Evaluator&, const Value& v, const Value& a) { return ordered(v, a, true, false); }},
    {"lessthan", 1, [](Evaluator&, const Value& v, const Value& a) { return ordered(v, a, true, false); }},
    {"le", 1, [](Evaluator&, const Value& v, const Value& a) { return ordered(v, a, true, true); }},
    {"gt", 1, [](Evaluator&, const Value& v, const Value& a) { return ordered(v, a, false, false); }},
    {"greaterthan", 1,
     [](Evaluator&, const Value& v, const Value& a) { return ordered(v, a, false, false); }},
    {"ge", 1, [](Evaluator&, const Value& v, const Value& a) { return ordered(v, a, false, true); }},
    {"in", 1, [](Evaluator& e, const Value& v, const Value& a) { return contains(e, a, v); }},
    {"sameas", 1, [](Evaluator&, const Value& v, const Value& a) { return is_same(v, a); }},
    {"filter", 0,
     [](Evaluator&, const Value& v, const Value&) { return v.is_text() && is_known_filter(v.text()); }},
};

// Names that are spelled as operators when a filter passes them: select("==", 1).
std::string_view plain_name(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {"<=", "le"}, {">", "gt"}, {">=", "ge"}};
  for (const auto& [sign, plain] : kSigns) {
    if (name == sign) return plain;
  }
  return name;
}

}  // namespace

bool Evaluator::apply_test(std::string_view name, const Value& input, Arguments arguments) {
  const auto found = std::ranges::find(kTests, plain_name(name), &TestEntry::name);
  if (found == std::end(kTests)) throw TemplateFault(format("there is no test named '{}'", name));
  if (arguments.positional.size() != found->argument_count || !arguments.named.empty()) {
    throw TemplateFault(format("the test '{}' takes {} arguments, {} were given", name, found->argument_count,
                               arguments.positional.size() + arguments.named.size()));
  }
  const Value argument = found->argument_count == 0 ? Value() : arguments.positional[0];
  charge_compare(input, argument);
  return found->test(*this, input, argument);
}

}  // namespace fourfold::text::jinja
