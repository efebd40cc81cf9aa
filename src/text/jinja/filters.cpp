#include <algorithm>

#include "text/jinja/filter_tables.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

namespace {

NativeFunction find_filter(std::string_view name) {
  for (const auto table : {text_filters(), list_filters()}) {
    const auto found = std::ranges::find(table, name, &NativeEntry::name);
    if (found != table.end()) return found->function;
  }
  return nullptr;
}

}  // namespace

bool is_known_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value soft_text(Evaluator& evaluator, const Value& value) {
  return value.is_text() ? value : Value(evaluator.text_of(value));
}

void charge_arguments(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  std::size_t bytes = self.is_text() ? self.text().size() : 0;
  for (const Value& value : arguments.positional) bytes += value.is_text() ? value.text().size() : 0;
  for (const auto& [name, value] : arguments.named) bytes += value.is_text() ? value.text().size() : 0;
  evaluator.charge_look(bytes);
}

Value Evaluator::apply_filter(std::string_view name, const Value& input, Arguments arguments) {
  const NativeFunction filter = find_filter(name);
  if (filter == nullptr) throw TemplateFault(format("there is no filter named '{}'", name));
  charge_arguments(*this, input, arguments);
  return filter(*this, input, arguments);
}

}  // namespace fourfold::text::jinja
