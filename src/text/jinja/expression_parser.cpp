// Expressions of templates, in Jinja's order of precedence.
#include <algorithm>

#include "text/jinja/depth_guard.h"
#include "text/jinja/parser.h"

namespace fourfold::text::jinja {

using Kind = Expression::Kind;

std::string Parser::describe() const {
  switch (token().kind) {
    case Token::Kind::end: return "the end of the template";
    case Token::Kind::block_begin: return "'{%'";
    case Token::Kind::block_end: return "'%}'";
    case Token::Kind::print_begin: return "'{{'";
    case Token::Kind::print_end: return "'}}'";
    default: return format("'{}'", token().text);
  }
}

bool Parser::is_name(std::string_view text, std::size_t ahead) const {
  return token(ahead).kind == Token::Kind::name && token(ahead).text == text;
}
bool Parser::is_op(std::string_view text, std::size_t ahead) const {
  return token(ahead).kind == Token::Kind::op && token(ahead).text == text;
}
bool Parser::take_name(std::string_view text) { return is_name(text) ? (++at_, true) : false; }
bool Parser::take_op(std::string_view text) { return is_op(text) ? (++at_, true) : false; }
void Parser::expect_op(std::string_view text) {
  if (!take_op(text)) refuse(format("expected '{}', found {}", text, describe()));
}
void Parser::expect_name(std::string_view text) {
  if (!take_name(text)) refuse(format("expected '{}', found {}", text, describe()));
}
std::string Parser::expect_identifier() {
  if (token().kind != Token::Kind::name) refuse(format("expected a name, found {}", describe()));
  return tokens_[at_++].text;
}

// Names of filters and tests may have dots; ours have none, so that a|b.c() fails only where it is run.
std::string Parser::dotted_name() {
  std::string out = expect_identifier();
  while (take_op(".")) out += "." + expect_identifier();
  return out;
}

ExpressionPtr Parser::make(Kind kind, int line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExpressionPtr Parser::make(Kind kind, int line, ExpressionPtr first, ExpressionPtr second) {
  ExpressionPtr node = make(kind, line);
  adopt(*node, std::move(first));
  if (second != nullptr) adopt(*node, std::move(second));
  return node;
}

// A chain a + b + c ... nests to the left without any recursion here, so the depth is kept in the nodes.
void Parser::adopt(Expression& parent, ExpressionPtr child) {
  if (child != nullptr) {
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kDepthMax) refuse(format("an expression of more than {} levels", kDepthMax));
  }
  parent.operands.push_back(std::move(child));
}

ExpressionPtr Parser::expression() { return condition(); }

ExpressionPtr Parser::tuple_or_expression(bool parenthesised) {
  const int line = token().line;
  const auto ends = [this] {
    return token().kind == Token::Kind::block_end || token().kind == Token::Kind::print_end || is_op(")");
  };
  ExpressionPtr tuple = make(Kind::tuple, line);
  bool comma = false;
  while (!ends()) {
    adopt(*tuple, expression());
    if (!take_op(",")) break;
    comma = true;
  }
  if (comma) return tuple;
  if (tuple->operands.size() == 1) return std::move(tuple->operands[0]);
  if (!parenthesised) refuse(format("expected an expression, found {}", describe()));
  return tuple;
}

ExpressionPtr Parser::condition() {
  const Depth guard(*this);
  ExpressionPtr then = logical_or();
  while (is_name("if")) {
    const int line = token().line;
    ++at_;
    ExpressionPtr test = logical_or();
    ExpressionPtr otherwise = take_name("else") ? condition() : nullptr;
    ExpressionPtr node = make(Kind::condition, line, std::move(test), std::move(then));
    adopt(*node, std::move(otherwise));
    then = std::move(node);
  }
  return then;
}

ExpressionPtr Parser::logical_or() {
  ExpressionPtr left = logical_and();
  while (is_name("or")) {
    const int line = tokens_[at_++].line;
    left = make(Kind::logical_or, line, std::move(left), logical_and());
  }
  return left;
}

ExpressionPtr Parser::logical_and() {
  ExpressionPtr left = logical_not();
  while (is_name("and")) {
    const int line = tokens_[at_++].line;
    left = make(Kind::logical_and, line, std::move(left), logical_not());
  }
  return left;
}

ExpressionPtr Parser::logical_not() {
  if (!is_name("not")) return comparison();
  const Depth guard(*this);
  const int line = tokens_[at_++].line;
  return make(Kind::logical_not, line, logical_not());
}

ExpressionPtr Parser::comparison() {
  const int line = token().line;
  ExpressionPtr first = sum();
  std::vector<std::string> operators;
  ExpressionPtr chain = make(Kind::compare, line);
  while (true) {
    std::string op;
    if (token().kind == Token::Kind::op) {
      for (const char* candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (is_op(candidate)) op = candidate;
      }
    } else if (is_name("in")) {
      op = "in";
    } else if (is_name("not") && is_name("in", 1)) {
      op = "not in";
    }
    if (op.empty()) break;
    at_ += op == "not in" ? 2 : 1;
    if (chain->operands.empty()) adopt(*chain, std::move(first));
    chain->operators.push_back(std::move(op));
    adopt(*chain, sum());
  }
  return chain->operands.empty() ? std::move(first) : std::move(chain);
}

ExpressionPtr Parser::sum() {
  ExpressionPtr left = concatenation();
  while (is_op("+") || is_op("-")) {
    const Token& op = tokens_[at_++];
    left = make(Kind::binary, op.line, std::move(left), concatenation());
    left->text = op.text;
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  ExpressionPtr first = product();
  if (!is_op("~")) return first;
  ExpressionPtr node = make(Kind::concatenate, token().line, std::move(first));
  while (take_op("~")) adopt(*node, product());
  return node;
}

ExpressionPtr Parser::product() {
  ExpressionPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Token& op = tokens_[at_++];
    left = make(Kind::binary, op.line, std::move(left), power());
    left->text = op.text;
  }
  return left;
}

ExpressionPtr Parser::power() {
  ExpressionPtr left = unary();
  while (is_op("**")) {
    const int line = tokens_[at_++].line;
    left = make(Kind::binary, line, std::move(left), unary());
    left->text = "**";
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filter) {
  const Depth guard(*this);
  const int line = token().line;
  ExpressionPtr node;
  if (take_op("-")) {
    node = make(Kind::negate, line, unary(false));
  } else if (take_op("+")) {
    node = make(Kind::plus, line, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::primary() {
  const Token& first = token();
  ExpressionPtr node = make(Kind::constant, first.line);
  switch (first.kind) {
    case Token::Kind::integer:
    case Token::Kind::real:
      node->constant = first.number;
      ++at_;
      return node;
    case Token::Kind::text: {
      std::string text;
      while (token().kind == Token::Kind::text) text += tokens_[at_++].text;
      node->constant = Value(TracedText::own(std::move(text)));
      return node;
    }
    case Token::Kind::name: {
      const std::string& name = tokens_[at_++].text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node->constant = name == "true" || name == "True";
      } else if (name == "none" || name == "None") {
        node->constant = None{};
      } else {
        node->kind = Kind::name;
        node->text = name;
        for (MacroSignature* macro : macros_) {
          macro->takes_varargs |= name == "varargs";
          macro->takes_kwargs |= name == "kwargs";
          macro->takes_caller |= name == "caller";
        }
      }
      return node;
    }
    default: break;
  }
  if (is_op("[")) return list_display();
  if (is_op("{")) return dict_display();
  if (!take_op("(")) refuse(format("unexpected {}", describe()));
  ExpressionPtr inner = tuple_or_expression(true);
  expect_op(")");
  return inner;
}

ExpressionPtr Parser::list_display() {
  ExpressionPtr node = make(Kind::list, token().line);
  expect_op("[");
  while (!is_op("]")) {
    adopt(*node, expression());
    if (!take_op(",")) break;
  }
  expect_op("]");
  return node;
}

ExpressionPtr Parser::dict_display() {
  ExpressionPtr node = make(Kind::dict, token().line);
  expect_op("{");
  while (!is_op("}")) {
    adopt(*node, expression());
    expect_op(":");
    adopt(*node, expression());
    if (!take_op(",")) break;
  }
  expect_op("}");
  return node;
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      node = subscript(std::move(node));
    } else if (is_op("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr node) {
  const int line = token().line;
  if (take_op(".")) {
    if (token().kind == Token::Kind::integer) {
      ExpressionPtr index = make(Kind::constant, line);
      index->constant = tokens_[at_++].number;
      return make(Kind::item, line, std::move(node), std::move(index));
    }
    ExpressionPtr attribute = make(Kind::attribute, line, std::move(node));
    attribute->text = expect_identifier();
    return attribute;
  }
  expect_op("[");
  ExpressionPtr start = is_op(":") ? nullptr : expression();
  if (take_op("]")) return make(Kind::item, line, std::move(node), std::move(start));
  expect_op(":");
  ExpressionPtr slice = make(Kind::slice, line, std::move(node));
  adopt(*slice, std::move(start));
  adopt(*slice, is_op(":") || is_op("]") ? nullptr : expression());
  adopt(*slice, take_op(":") && !is_op("]") ? expression() : nullptr);
  expect_op("]");
  return slice;
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (take_op("|")) {
      node = filter(std::move(node));
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_op("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::filter(ExpressionPtr node) {
  ExpressionPtr out = make(Kind::filter, token().line);
  adopt(*out, std::move(node));
  out->text = dotted_name();
  if (is_op("(")) out->arguments = call_arguments(*out);
  return out;
}

ExpressionPtr Parser::test(ExpressionPtr node) {
  const int line = token().line;
  expect_name("is");
  const bool negated = take_name("not");
  ExpressionPtr out = make(Kind::test, line, std::move(node));
  out->text = dotted_name();
  const Token::Kind kind = token().kind;
  const bool starts_value = kind == Token::Kind::name || kind == Token::Kind::text ||
                            kind == Token::Kind::integer || kind == Token::Kind::real || is_op("[") ||
                            is_op("{");
  if (is_op("(")) {
    out->arguments = call_arguments(*out);
  } else if (starts_value && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) refuse("two tests cannot follow each other");
    ExpressionPtr argument = postfix(primary());
    out->depth = std::max(out->depth, argument->depth + 1);
    out->arguments.positional.push_back(std::move(argument));
  }
  return negated ? make(Kind::logical_not, line, std::move(out)) : std::move(out);
}

ExpressionPtr Parser::call(ExpressionPtr node) {
  ExpressionPtr out = make(Kind::call, token().line, std::move(node));
  out->arguments = call_arguments(*out);
  return out;
}

CallArguments Parser::call_arguments(Expression& owner) {
  CallArguments out;
  expect_op("(");
  const auto argument = [this, &owner] {
    ExpressionPtr node = expression();
    owner.depth = std::max(owner.depth, node->depth + 1);
    return node;
  };
  while (!is_op(")")) {
    if (take_op("*")) {
      if (out.spread || out.named_spread) refuse("only one *arguments is allowed");
      out.spread = argument();
    } else if (take_op("**")) {
      if (out.named_spread) refuse("only one **arguments is allowed");
      out.named_spread = argument();
    } else if (token().kind == Token::Kind::name && is_op("=", 1)) {
      if (out.named_spread) refuse("a named argument stands behind **arguments");
      std::string name = tokens_[at_].text;
      at_ += 2;
      out.named.emplace_back(std::move(name), argument());
    } else {
      if (out.spread || out.named_spread || !out.named.empty())
        refuse("a plain argument stands behind a named one");
      out.positional.push_back(argument());
    }
    if (!take_op(",")) break;
  }
  expect_op(")");
  return out;
}

}  // namespace fourfold::text::jinja
