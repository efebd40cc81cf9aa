#include "doctor/expression.h"

#include <cctype>
#include <charconv>
#include <functional>
#include <optional>

#include "base/check.h"

namespace fourfold::doctor {
namespace {

bool is_unknown(const Value& value) { return std::holds_alternative<Unknown>(value); }

// True, false, or nothing for unknown.
std::optional<bool> truth_of(const Value& value) {
  if (is_unknown(value)) return std::nullopt;
  const auto* truth = std::get_if<bool>(&value);
  check(truth != nullptr, "a condition is true or false", text_of(value));
  return *truth;
}

Value both(const Value& left, const Value& right) {
  const auto a = truth_of(left), b = truth_of(right);
  if ((a && !*a) || (b && !*b)) return false;
  if (!a || !b) return Unknown{};
  return true;
}

Value either(const Value& left, const Value& right) {
  const auto a = truth_of(left), b = truth_of(right);
  if ((a && *a) || (b && *b)) return true;
  if (!a || !b) return Unknown{};
  return false;
}

Value compare(std::string_view op, const Value& left, const Value& right) {
  if (is_unknown(left) || is_unknown(right)) return Unknown{};
  if (op == "contains") return text_of(left).find(text_of(right)) != std::string::npos;
  if (op == "==") return left == right;
  if (op == "!=") return left != right;
  const auto* a = std::get_if<double>(&left);
  const auto* b = std::get_if<double>(&right);
  // An environment variable may hold text where a number is meant: that is not known to be less or more.
  if (a == nullptr || b == nullptr) return Unknown{};
  if (op == "<") return *a < *b;
  if (op == "<=") return *a <= *b;
  if (op == ">") return *a > *b;
  return *a >= *b;
}

Value calculate(char op, const Value& left, const Value& right) {
  const auto* a = std::get_if<double>(&left);
  const auto* b = std::get_if<double>(&right);
  if (a == nullptr || b == nullptr || (op == '/' && *b == 0)) return Unknown{};
  switch (op) {
    case '+': return *a + *b;
    case '-': return *a - *b;
    case '*': return *a * *b;
    default: return *a / *b;
  }
}

// Recursive descent that evaluates as it reads; both sides of and/or are always read.
class Reader {
 public:
  using Lookup = std::function<Value(std::string_view)>;
  Reader(std::string_view text, Lookup lookup) : text_(text), lookup_(std::move(lookup)) {}

  Value whole() {
    Value value = disjunction();
    skip();
    check(at_ == text_.size(), "an expression ends where its text does", text_);
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  static bool is_name(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '.';
  }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    const std::size_t end = at_ + token.size();
    if (is_name(token.back()) && end < text_.size() && is_name(text_[end])) return false;
    at_ = end;
    return true;
  }
  std::string_view name() {
    skip();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    check(at_ > start, "an expression has a value here", text_.substr(start), text_);
    return text_.substr(start, at_ - start);
  }

  Value disjunction() {
    Value value = conjunction();
    while (take("or")) value = either(value, conjunction());
    return value;
  }
  Value conjunction() {
    Value value = negation();
    while (take("and")) value = both(value, negation());
    return value;
  }
  Value negation() {
    if (!take("not")) return comparison();
    const auto truth = truth_of(negation());
    return truth ? Value(!*truth) : Value{};
  }
  Value comparison() {
    const Value left = sum();
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">", "contains"})
      if (take(op)) return compare(op, left, sum());
    return left;
  }
  Value sum() {
    Value value = product();
    for (;;) {
      if (take("+"))
        value = calculate('+', value, product());
      else if (take("-"))
        value = calculate('-', value, product());
      else
        return value;
    }
  }
  Value product() {
    Value value = term();
    for (;;) {
      if (take("*"))
        value = calculate('*', value, term());
      else if (take("/"))
        value = calculate('/', value, term());
      else
        return value;
    }
  }
  Value term() {
    if (take("(")) {
      Value value = disjunction();
      check(take(")"), "a bracket closes", text_);
      return value;
    }
    if (take("'")) {
      const std::size_t end = text_.find('\'', at_);
      check(end != std::string_view::npos, "a text ends with a quote", text_);
      std::string value(text_.substr(at_, end - at_));
      at_ = end + 1;
      return value;
    }
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("known")) {
      check(take("("), "known(fact)", text_);
      const bool is_known = !is_unknown(lookup_(name()));
      check(take(")"), "known(fact)", text_);
      return is_known;
    }
    const std::string_view word = name();
    if (std::isdigit(static_cast<unsigned char>(word.front())) == 0) return lookup_(word);
    double number = 0;
    const auto end = std::from_chars(word.data(), word.data() + word.size(), number).ptr;
    check(end == word.data() + word.size(), "a number is digits", word, text_);
    return number;
  }

  std::string_view text_;
  Lookup lookup_;
  std::size_t at_ = 0;
};

// Calls with the plain text and with what stands in each pair of braces.
void walk_holes(std::string_view pattern, const std::function<void(std::string_view)>& plain,
                const std::function<void(std::string_view)>& hole) {
  while (!pattern.empty()) {
    const auto open = pattern.find('{');
    plain(pattern.substr(0, open));
    if (open == std::string_view::npos) return;
    const auto close = pattern.find('}', open);
    check(close != std::string_view::npos, "a hole closes", pattern);
    hole(pattern.substr(open + 1, close - open - 1));
    pattern = pattern.substr(close + 1);
  }
}

}  // namespace

Value Scope::get(std::string_view name) const {
  const bool is_each =
      !each.empty() && name.starts_with(each) && name.size() > each.size() && name[each.size()] == '.';
  return facts.get(is_each ? indexed(each, index, name.substr(each.size() + 1)) : std::string(name));
}

Value evaluate(std::string_view expression, const Scope& scope) {
  return Reader(expression, [&](std::string_view name) { return scope.get(name); }).whole();
}

std::string fill(std::string_view pattern, const Scope& scope) {
  std::string out;
  walk_holes(
      pattern, [&](std::string_view text) { out += text; },
      [&](std::string_view hole) {
        const Value value = evaluate(hole, scope);
        // Of a variable we know that it is not set.
        out += hole.starts_with("env.") && is_unknown(value) ? "not set" : text_of(value);
      });
  return out;
}

std::vector<std::string> names_in(std::string_view expression) {
  std::vector<std::string> names;
  Reader(expression, [&](std::string_view name) {
    names.emplace_back(name);
    return Value{};
  }).whole();
  return names;
}

std::vector<std::string> names_in_text(std::string_view pattern) {
  std::vector<std::string> names;
  walk_holes(
      pattern, [](std::string_view) {},
      [&](std::string_view hole) {
        const auto more = names_in(hole);
        names.insert(names.end(), more.begin(), more.end());
      });
  return names;
}

}  // namespace fourfold::doctor
