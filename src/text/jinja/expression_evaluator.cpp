// Expressions: one function for the frequent cases, the rest by kind.
#include "base/format.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

using Kind = Expression::Kind;

Value Evaluator::evaluate(const Expression& node, Scope& scope) {
  charge(1);
  line_ = node.line;
  if (node.kind == Kind::constant) return node.constant;
  if (node.kind == Kind::name) return evaluate_name(node, scope);
  if (depth_ >= limits_.depth_max)
    throw TemplateFault(format("nested deeper than {} levels", limits_.depth_max));
  struct Level {
    int& depth;
    explicit Level(int& counted) : depth(counted) { ++depth; }
    ~Level() { --depth; }
  } const level(depth_);
  const auto operand = [&](std::size_t i) { return evaluate(*node.operands[i], scope); };
  switch (node.kind) {
    case Kind::constant:
    case Kind::name: break;
    case Kind::list:
    case Kind::tuple:
    case Kind::dict: return evaluate_display(node, scope);
    case Kind::attribute: return attribute(operand(0), node.text);
    case Kind::item: {
      const Value object = operand(0);
      return item(object, operand(1));
    }
    case Kind::slice: return evaluate_slice(node, scope);
    case Kind::call: {
      const Value function = operand(0);
      Arguments arguments = evaluate_arguments(node.arguments, scope);
      line_ = node.line;
      return call(function, std::move(arguments));
    }
    case Kind::filter: return evaluate_filter(node, scope, nullptr);
    case Kind::test: {
      const Value input = operand(0);
      return apply_test(node.text, input, evaluate_arguments(node.arguments, scope));
    }
    case Kind::negate: return negated(operand(0));
    case Kind::plus: {
      Value value = operand(0);
      if (!value.is_number()) negated(value);  // the fault is the same
      return value.is_bool() ? Value(value.integer()) : value;
    }
    case Kind::logical_not: return !truth(operand(0));
    case Kind::logical_and: {
      Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case Kind::logical_or: {
      Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case Kind::condition: return evaluate_condition(node, scope);
    case Kind::compare: return evaluate_compare(node, scope);
    case Kind::concatenate: return evaluate_concatenation(node, scope);
    case Kind::binary: {
      const Value left = operand(0);
      const Value right = operand(1);
      line_ = node.line;
      return binary_operation(*this, node.text, left, right);
    }
  }
  return {};
}

Value Evaluator::evaluate_name(const Expression& node, Scope& scope) {
  if (const Value* found = scope.find(node.text)) return *found;
  Value function = global_function(node.text);
  return function.is_undefined() ? Value(Undefined{format("'{}' is undefined", node.text)}) : function;
}

Value Evaluator::evaluate_display(const Expression& node, Scope& scope) {
  if (node.kind == Kind::dict) {
    Dict out;
    for (std::size_t i = 0; i < node.operands.size(); i += 2) {
      Value key = evaluate(*node.operands[i], scope);
      charge_look(key.weight());
      if (!is_hashable(key)) throw TemplateFault(format("a {} cannot be a key", type_name(key)));
      out.set(std::move(key), evaluate(*node.operands[i + 1], scope));
    }
    return out;
  }
  std::vector<Value> items;
  for (const auto& operand : node.operands) items.push_back(evaluate(*operand, scope));
  return new_list(std::move(items), node.kind == Kind::list ? Sequence::Kind::list : Sequence::Kind::tuple);
}

Value Evaluator::evaluate_slice(const Expression& node, Scope& scope) {
  const Value object = evaluate(*node.operands[0], scope);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& operand = node.operands[i + 1];
    bounds[i] = operand ? evaluate(*operand, scope) : Value(None{});
  }
  line_ = node.line;
  return sliced(*this, object, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::evaluate_filter(const Expression& node, Scope& scope, const Value* input) {
  // The innermost filter of a {% filter %} chain has no operand: it gets the block's text.
  Value value;
  if (node.operands[0] == nullptr) {
    value = *input;
  } else if (node.operands[0]->kind == Kind::filter) {
    value = evaluate_filter(*node.operands[0], scope, input);
  } else {
    value = evaluate(*node.operands[0], scope);
  }
  Arguments arguments = evaluate_arguments(node.arguments, scope);
  line_ = node.line;
  charge(1);
  return apply_filter(node.text, value, std::move(arguments));
}

Value Evaluator::evaluate_compare(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.operands[i + 1], scope);
    line_ = node.line;
    const std::string& op = node.operators[i];
    bool holds = false;
    if (op != "in" && op != "not in") charge_compare(left, right);
    if (op == "==")
      holds = equal(left, right);
    else if (op == "!=")
      holds = !equal(left, right);
    else if (op == "in")
      holds = contains(*this, right, left);
    else if (op == "not in")
      holds = !contains(*this, right, left);
    else if ((left.is_real() && left.real() != left.real()) ||
             (right.is_real() && right.real() != right.real())) {
      holds = left.is_number() && right.is_number() ? false : compare(left, right) < 0;  // NaN has no order
    } else {
      const int order = compare(left, right);
      holds = op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::evaluate_condition(const Expression& node, Scope& scope) {
  if (truth(evaluate(*node.operands[0], scope))) return evaluate(*node.operands[1], scope);
  if (node.operands[2]) return evaluate(*node.operands[2], scope);
  return Undefined{"the condition was false and there is no else"};
}

Value Evaluator::evaluate_concatenation(const Expression& node, Scope& scope) {
  TracedText out;
  for (const auto& operand : node.operands) {
    const Value part = evaluate(*operand, scope);
    if (part.is_text()) {
      charge_bytes(part.traced().memory());
      out.append(part.traced());
    } else {
      out.append(text_of(part));
    }
  }
  return new_text(std::move(out));
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments, Scope& scope) {
  Arguments out;
  for (const auto& argument : arguments.positional) out.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : arguments.named)
    out.named.emplace_back(name, evaluate(*argument, scope));
  if (arguments.spread) {
    for (Value& value : items_of(evaluate(*arguments.spread, scope)))
      out.positional.push_back(std::move(value));
  }
  if (arguments.named_spread) {
    const Value spread = evaluate(*arguments.named_spread, scope);
    if (!spread.is_dict()) throw TemplateFault("** needs a dict");
    charge(static_cast<std::int64_t>(spread.dict()->size()));
    for (const auto& [key, value] : spread.dict()->items()) {
      if (!key.is_text()) throw TemplateFault("** needs a dict with names as keys");
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

}  // namespace fourfold::text::jinja
