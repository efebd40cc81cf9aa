// Functions a template can call by name: Jinja's own and those Hugging Face adds.
#include <algorithm>

#include "text/jinja/native.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

namespace {

constexpr std::int64_t kRangeMax = 100'000;  // Jinja's sandbox has the same

Value range(Evaluator& evaluator, const Value&, Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"});
  const bool one = !bound.has(1);
  const std::int64_t start = one ? 0 : bound.integer(0);
  const std::int64_t stop = one ? bound.integer(0) : bound.integer(1);
  const std::int64_t step = bound.integer_or(2, 1);
  if (step == 0) throw TemplateFault("range: the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kRangeMax) {
      throw TemplateFault(format("range: more than {} items", with_commas(kRangeMax)));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  evaluator.charge_bytes(items.size() * sizeof(Value));
  return Value::range(start, stop, step, std::move(items));
}

Value make_namespace(Evaluator& evaluator, const Value&, Arguments& arguments) {
  Namespace members;
  for (const Value& base : arguments.positional) {
    if (!base.is_dict()) throw TemplateFault("namespace takes a dict and named values");
    for (const auto& [key, value] : base.dict()->items()) {
      evaluator.charge(1 + static_cast<std::int64_t>(members.members.size()));
      members.set(evaluator.text_of(key).bytes(), value);
    }
  }
  for (auto& [name, value] : arguments.named) members.set(name, std::move(value));
  return evaluator.new_namespace(std::move(members));
}

Value make_dict(Evaluator& evaluator, const Value&, Arguments& arguments) {
  Dict out;
  for (const Value& base : arguments.positional) {
    if (base.is_dict()) {
      evaluator.charge(static_cast<std::int64_t>(base.dict()->size()));
      for (const auto& [key, value] : base.dict()->items()) out.set(key, value);
      continue;
    }
    for (const Value& pair : evaluator.items_of(base)) {
      const std::vector<Value> parts = evaluator.items_of(pair);
      if (parts.size() != 2) throw TemplateFault("dict needs pairs");
      evaluator.charge_look(parts[0].weight());
      if (!parts[0].is_text()) evaluator.charge(static_cast<std::int64_t>(out.size()));
      out.set(parts[0], parts[1]);
    }
  }
  for (auto& [name, value] : arguments.named) out.set(name, std::move(value));
  return out;
}

Value raise_exception(Evaluator& evaluator, const Value&, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"});
  throw TemplateFault(evaluator.text_of(bound.required(0)).bytes());
}

Value strftime_now(Evaluator& evaluator, const Value&, Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"});
  if (bound.text(0).size() > 256) throw TemplateFault("strftime_now: the format is longer than 256 bytes");
  if (bound.text(0).empty()) return "";
  char text[4096];
  const std::size_t bytes = std::strftime(text, sizeof text, bound.text(0).c_str(), &evaluator.now());
  return evaluator.new_text(std::string(text, bytes));
}

// joiner(", "): nothing the first time it is called, the separator after that.
class Joiner : public Callable {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  Value call(Evaluator&, Arguments) override { return std::exchange(used_, true) ? separator_ : Value(""); }
  std::string name() const override { return "joiner"; }

 private:
  Value separator_;
  bool used_ = false;
};

Value joiner(Evaluator&, const Value&, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  if (bound.has(0)) bound.text(0);  // it must be text
  return std::make_shared<Joiner>(bound.or_else(0, ", "));
}

constexpr NativeEntry kFunctions[] = {
    {"range", range},   {"namespace", make_namespace},        {"dict", make_dict},
    {"joiner", joiner}, {"raise_exception", raise_exception}, {"strftime_now", strftime_now},
};

}  // namespace

Value global_function(std::string_view name) {
  const auto found = std::ranges::find(kFunctions, name, &NativeEntry::name);
  if (found == std::end(kFunctions)) return {};
  return std::make_shared<Native>(std::string(name), found->function);
}

}  // namespace fourfold::text::jinja
