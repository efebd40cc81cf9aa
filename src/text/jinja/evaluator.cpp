// Statements: scopes, loops, macros and output.
#include "text/jinja/evaluator.h"

#include <algorithm>
#include <optional>

#include "base/cancel.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

namespace {

class Macro : public Callable {
 public:
  Macro(const Statement& statement, std::string name, std::shared_ptr<Scope> scope)
      : statement_(statement), name_(std::move(name)), scope_(std::move(scope)) {}
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return evaluator.run_macro(statement_, scope_, name_, std::move(arguments));
  }
  std::string name() const override { return name_; }

 private:
  const Statement& statement_;
  std::string name_;
  std::shared_ptr<Scope> scope_;
};

}  // namespace

// Counts nested evaluations for as long as it lives.
class Evaluator::Nested {
 public:
  explicit Nested(Evaluator& evaluator) : evaluator_(evaluator) {
    evaluator.charge(1);
    if (evaluator.depth_ >= evaluator.limits_.depth_max) {
      throw TemplateFault(format("nested deeper than {} levels", evaluator.limits_.depth_max));
    }
    ++evaluator.depth_;
  }
  ~Nested() { --evaluator_.depth_; }

 private:
  Evaluator& evaluator_;
};

// Sends output to a string of its own for as long as it lives.
class Evaluator::Output {
 public:
  explicit Output(Evaluator& evaluator)
      : evaluator_(evaluator), outer_(std::exchange(evaluator.out_, &text)) {}
  ~Output() { evaluator_.out_ = outer_; }
  TracedText text;

 private:
  Evaluator& evaluator_;
  TracedText* outer_;
};

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->names) {
      if (key == name) return &value;
    }
    if (scope->variables != nullptr) return scope->variables->find(name);
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : names) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

Evaluator::~Evaluator() {
  for (const auto& scope : captured_scopes_) scope->names.clear();
  for (const auto& names : namespaces_) names->members.clear();
}

namespace {

// A template may put whole messages into what it says; ours is one for a person.
std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 2000;
  if (text.size() <= kMost) return std::string(text);
  return std::string(text.substr(0, code_point_start(text, kMost))) + "...";
}

}  // namespace

TracedText Evaluator::render(const Body& body, const Dict& variables) {
  auto globals = std::make_shared<Scope>();
  globals->variables = &variables;
  auto scope = std::make_shared<Scope>();
  scope->parent = globals;
  captured_scopes_.push_back(scope);
  Output output(*this);
  try {
    run(body, scope);
  } catch (const TemplateFault& fault) {
    fail(Code::invalid_request, "{} line {}: {}", name_, line_, shortened(fault.what()));
  }
  return std::move(output.text);
}

void Evaluator::charge(std::int64_t steps) {
  constexpr std::int64_t kLookEvery = 1 << 16;  // some milliseconds
  if ((steps_ + steps) / kLookEvery != steps_ / kLookEvery) CancelScope::look();
  steps_ += steps;
  if (steps_ > limits_.steps_max)
    throw TemplateFault(format("more than {} steps", with_commas(limits_.steps_max)));
}

void Evaluator::charge_bytes(std::size_t bytes) {
  bytes_ += static_cast<std::int64_t>(bytes);
  if (bytes > limits_.output_bytes_max || bytes_ > limits_.bytes_max) {
    throw TemplateFault(format("builds strings or lists beyond its limit of {} bytes ({} at once)",
                               with_commas(limits_.bytes_max),
                               with_commas(static_cast<long long>(limits_.output_bytes_max))));
  }
}

TracedText Evaluator::text_of(const Value& value) {
  charge_look(value.weight());
  return value.is_text() ? value.traced() : TracedText(to_text(value));
}

Value Evaluator::new_text(TracedText text, bool markup) {
  charge_bytes(text.memory());
  return Value(std::move(text), markup);
}

Value Evaluator::new_list(std::vector<Value> items, Sequence::Kind kind) {
  charge(static_cast<std::int64_t>(items.size() / 8));
  charge_bytes(items.size() * sizeof(Value));
  return Value::list(std::move(items), kind);
}

Value Evaluator::new_namespace(Namespace members) {
  namespaces_.push_back(std::make_shared<Namespace>(std::move(members)));
  charge_bytes(sizeof(Namespace));
  return Value(namespaces_.back());
}

void Evaluator::require_room(std::size_t bytes) {
  charge_bytes(bytes);
  if (out_->size() + bytes > limits_.output_bytes_max) {
    throw TemplateFault(
        format("writes more than {} bytes", with_commas(static_cast<long long>(limits_.output_bytes_max))));
  }
}

void Evaluator::write(const Value& value) {
  if (value.is_text()) {
    require_room(value.traced().memory());
    return out_->append(value.traced());
  }
  const TracedText text = text_of(value);
  require_room(text.size());
  out_->append(text);
}

std::shared_ptr<Scope> Evaluator::inner(const std::shared_ptr<Scope>& scope) {
  auto out = std::make_shared<Scope>();
  out->parent = scope;
  return out;
}

TracedText Evaluator::captured(const Body& body, const std::shared_ptr<Scope>& scope) {
  Output output(*this);
  run(body, inner(scope));
  return std::move(output.text);
}

Evaluator::Flow Evaluator::run(const Body& body, const std::shared_ptr<Scope>& scope) {
  const Nested guard(*this);
  for (const auto& statement : body) {
    const Flow flow = run(*statement, scope);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  charge(1);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::text:
      require_room(statement.text.size());
      out_->append_own(statement.text);
      break;
    case Statement::Kind::print:
      for (const auto& expression : statement.expressions) write(evaluate(*expression, *scope));
      break;
    case Statement::Kind::condition: return run_condition(statement, scope);
    case Statement::Kind::loop:
      run_for(statement, items_of(evaluate(*statement.expressions[0], *scope)), scope, 1);
      break;
    case Statement::Kind::set:
      assign(statement.targets[0], evaluate(*statement.expressions[0], *scope), *scope);
      break;
    case Statement::Kind::set_block: run_set_block(statement, scope); break;
    case Statement::Kind::macro:
      captured_scopes_.push_back(scope);
      scope->set(statement.text, std::make_shared<Macro>(statement, statement.text, scope));
      break;
    case Statement::Kind::call_block: run_call_block(statement, scope); break;
    case Statement::Kind::filter_block: {
      const Value text = new_text(captured(statement.bodies[0], scope));
      write(evaluate_filter(*statement.expressions[0], *scope, &text));
      break;
    }
    case Statement::Kind::with: run_with(statement, scope); break;
    case Statement::Kind::scope: return run(statement.bodies[0], inner(scope));
    case Statement::Kind::break_loop: return Flow::break_loop;
    case Statement::Kind::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_condition(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
    if (truth(evaluate(*statement.expressions[i], *scope))) return run(statement.bodies[i], scope);
  }
  const bool has_else = statement.bodies.size() > statement.expressions.size();
  return has_else ? run(statement.bodies.back(), scope) : Flow::normal;
}

void Evaluator::run_for(const Statement& statement, std::vector<Value> items,
                        const std::shared_ptr<Scope>& scope, int depth) {
  if (const auto& filter = statement.expressions[1]) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const auto test_scope = inner(scope);
      assign(statement.targets[0], item, *test_scope);
      if (truth(evaluate(*filter, *test_scope))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  auto loop = std::make_shared<LoopState>();
  loop->items = std::move(items);
  loop->depth = depth;
  loop->statement = &statement;
  loop->scope = scope;
  bool completed = false;
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    const auto body_scope = inner(scope);
    body_scope->set("loop", Value(loop));
    assign(statement.targets[0], loop->items[loop->index], *body_scope);
    const Flow flow = run(statement.bodies[0], body_scope);
    if (flow == Flow::break_loop) break;
    completed |= flow == Flow::normal;
  }
  // Jinja's else belongs to loops of which no round was run to its end.
  if (!completed && statement.bodies.size() > 1) run(statement.bodies[1], inner(scope));
}

TracedText Evaluator::run_loop(const Statement& loop, std::vector<Value> items,
                               const std::shared_ptr<Scope>& scope, int depth) {
  const Nested guard(*this);
  Output output(*this);
  run_for(loop, std::move(items), scope, depth);
  return std::move(output.text);
}

void Evaluator::run_set_block(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  Value value = new_text(captured(statement.bodies[0], scope));
  if (statement.expressions[0]) value = evaluate_filter(*statement.expressions[0], *scope, &value);
  assign(statement.targets[0], value, *scope);
}

void Evaluator::run_call_block(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  const Expression& call_node = *statement.expressions[0];
  Arguments arguments = evaluate_arguments(call_node.arguments, *scope);
  captured_scopes_.push_back(scope);
  arguments.named.emplace_back("caller", std::make_shared<Macro>(statement, "caller", scope));
  write(call(evaluate(*call_node.operands[0], *scope), std::move(arguments)));
}

void Evaluator::run_with(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  const auto body_scope = inner(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i) {
    // Values are computed outside: with a=1, b=a does not see the new a.
    assign(statement.targets[i], evaluate(*statement.expressions[i], *scope), *body_scope);
  }
  run(statement.bodies[0], body_scope);
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.member.empty()) {
    const Value* object = scope.find(target.name);
    Namespace* names = object == nullptr ? nullptr : object->names();
    if (names == nullptr) {
      throw TemplateFault(
          format("'{}' is not a namespace; only a namespace's members can be set", target.name));
    }
    names->set(target.member, value);
  } else if (target.is_tuple) {
    const std::vector<Value> items = items_of(value);
    if (items.size() != target.items.size()) {
      throw TemplateFault(
          format("{} values cannot be unpacked into {} names", items.size(), target.items.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], scope);
  } else {
    scope.set(target.name, value);
  }
}

namespace {

// What a macro was given by name, taken out of the list.
std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  const auto found = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

}  // namespace

Value Evaluator::run_macro(const Statement& macro, const std::shared_ptr<Scope>& scope, std::string_view name,
                           Arguments arguments) {
  const Nested guard(*this);
  const MacroSignature& signature = macro.signature;
  const auto body_scope = inner(scope);
  const std::size_t count = signature.parameters.size();
  const std::size_t first_default = count - signature.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& parameter = signature.parameters[i];
    std::optional<Value> value = take_named(arguments, parameter);
    if (i < arguments.positional.size()) {
      if (value) throw TemplateFault(format("macro '{}' got '{}' twice", name, parameter));
      value = arguments.positional[i];
    }
    if (!value && i >= first_default) value = evaluate(*signature.defaults[i - first_default], *body_scope);
    if (!value) value = Undefined{format("parameter '{}' was not provided", parameter)};
    body_scope->set(parameter, std::move(*value));
  }
  if (signature.takes_caller) {
    const auto caller = take_named(arguments, "caller");
    body_scope->set("caller", caller ? *caller : Value(Undefined{"No caller defined"}));
  }
  if (signature.takes_kwargs) {
    Dict rest;
    for (auto& [key, value] : std::exchange(arguments.named, {})) rest.set(key, std::move(value));
    body_scope->set("kwargs", std::move(rest));
  }
  if (!arguments.named.empty()) {
    throw TemplateFault(format("macro '{}' has no parameter '{}'", name, arguments.named[0].first));
  }
  if (arguments.positional.size() > count && !signature.takes_varargs) {
    throw TemplateFault(format("macro '{}' takes at most {} arguments, {} were given", name, count,
                               arguments.positional.size()));
  }
  if (signature.takes_varargs) {
    const auto rest = arguments.positional.begin() +
                      static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
    body_scope->set("varargs", Value::tuple({rest, arguments.positional.end()}));
  }
  Output output(*this);
  run(macro.bodies[0], body_scope);
  return new_text(std::move(output.text));
}

}  // namespace fourfold::text::jinja
