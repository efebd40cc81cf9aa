// Statements of templates: what stands between {% and %}.
#include "text/jinja/depth_guard.h"
#include "text/jinja/parser.h"

namespace fourfold::text::jinja {

using Kind = Statement::Kind;

std::unique_ptr<Statement> Parser::make_statement(Kind kind) const {
  auto out = std::make_unique<Statement>();
  out->kind = kind;
  out->line = token().line;
  return out;
}

void Parser::end_of_tag() {
  if (token().kind != Token::Kind::block_end) refuse(format("expected '%}', found {}", describe()));
  ++at_;
}

Body Parser::body(const std::vector<std::string_view>& ends) {
  const Depth guard(*this);
  Body out;
  while (true) {
    switch (token().kind) {
      case Token::Kind::data: {
        auto text = make_statement(Kind::text);
        text->text = std::move(tokens_[at_++].text);
        out.push_back(std::move(text));
        break;
      }
      case Token::Kind::print_begin: {
        ++at_;
        auto print = make_statement(Kind::print);
        print->expressions.push_back(tuple_or_expression());
        if (token().kind != Token::Kind::print_end) refuse(format("expected '}}', found {}", describe()));
        ++at_;
        out.push_back(std::move(print));
        break;
      }
      case Token::Kind::block_begin: {
        ++at_;
        for (const std::string_view end : ends) {
          if (is_name(end)) return out;
        }
        out.push_back(statement());
        break;
      }
      default:
        if (!ends.empty()) refuse(format("the template ends, but '{}' was expected", ends.back()));
        return out;
    }
  }
}

Body Parser::block_body(std::string_view end) {
  end_of_tag();
  Body out = body({end});
  expect_name(end);
  return out;
}

// The tag's name is the current token; the closing %} is read too.
std::unique_ptr<Statement> Parser::statement() {
  if (token().kind != Token::Kind::name) refuse(format("expected the name of a tag, found {}", describe()));
  const std::string& tag = token().text;
  std::unique_ptr<Statement> out;
  if (tag == "if")
    out = if_statement();
  else if (tag == "for")
    out = for_statement();
  else if (tag == "set")
    out = set_statement();
  else if (tag == "macro")
    out = macro_statement();
  else if (tag == "call")
    out = call_statement();
  else if (tag == "filter")
    out = filter_statement();
  else if (tag == "with")
    out = with_statement();
  else if (tag == "generation") {
    out = make_statement(Kind::scope);
    ++at_;
    out->bodies.push_back(block_body("endgeneration"));
  } else if (tag == "print") {
    out = make_statement(Kind::print);
    ++at_;
    do out->expressions.push_back(expression());
    while (take_op(","));
  } else if (tag == "break" || tag == "continue") {
    if (loop_depth_ == 0) refuse(format("'{}' outside a loop", tag));
    out = make_statement(tag == "break" ? Kind::break_loop : Kind::continue_loop);
    ++at_;
  } else {
    refuse(format("the tag '{}' is unknown or out of place", tag));
  }
  end_of_tag();
  return out;
}

std::unique_ptr<Statement> Parser::if_statement() {
  auto out = make_statement(Kind::condition);
  ++at_;
  while (true) {
    out->expressions.push_back(tuple_or_expression());
    end_of_tag();
    out->bodies.push_back(body({"elif", "else", "endif"}));
    if (!take_name("elif")) break;
  }
  if (take_name("else")) {
    out->bodies.push_back(block_body("endif"));
  } else {
    expect_name("endif");
  }
  return out;
}

std::unique_ptr<Statement> Parser::for_statement() {
  auto out = make_statement(Kind::loop);
  ++at_;
  out->targets.push_back(target(false));
  expect_name("in");
  // No condition here: "for x in xs if test" filters.
  const int line = token().line;
  ExpressionPtr items = logical_or();
  if (is_op(",")) {
    ExpressionPtr tuple = make(Expression::Kind::tuple, line, std::move(items));
    while (take_op(",") && !is_name("if") && token().kind != Token::Kind::block_end)
      adopt(*tuple, logical_or());
    items = std::move(tuple);
  }
  out->expressions.push_back(std::move(items));
  out->expressions.push_back(take_name("if") ? expression() : nullptr);
  out->recursive = take_name("recursive");
  end_of_tag();
  ++loop_depth_;
  out->bodies.push_back(body({"else", "endfor"}));
  --loop_depth_;
  if (take_name("else")) {
    out->bodies.push_back(block_body("endfor"));
  } else {
    expect_name("endfor");
  }
  return out;
}

Target Parser::single_target(bool with_member) {
  if (take_op("(")) {
    Target inner = target(with_member);
    expect_op(")");
    return inner;
  }
  Target out;
  out.name = expect_identifier();
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (out.name == reserved) refuse(format("'{}' cannot be assigned to", out.name));
  }
  if (with_member && take_op(".")) out.member = expect_identifier();
  return out;
}

Target Parser::target(bool with_member, bool single) {
  const Depth guard(*this);
  Target first = single_target(with_member);
  if (single || !is_op(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.items.push_back(std::move(first));
  while (take_op(",") && (token().kind == Token::Kind::name || is_op("(")) && !is_name("in")) {
    tuple.items.push_back(single_target(with_member));
  }
  return tuple;
}

std::unique_ptr<Statement> Parser::set_statement() {
  auto out = make_statement(Kind::set);
  ++at_;
  out->targets.push_back(target(true));
  if (take_op("=")) {
    out->expressions.push_back(tuple_or_expression());
    return out;
  }
  out->kind = Kind::set_block;
  ExpressionPtr chain;
  while (take_op("|")) chain = filter(std::move(chain));
  out->expressions.push_back(std::move(chain));
  out->bodies.push_back(block_body("endset"));
  return out;
}

void Parser::signature(MacroSignature& out) {
  expect_op("(");
  while (!is_op(")")) {
    out.parameters.push_back(expect_identifier());
    if (take_op("=")) {
      out.defaults.push_back(expression());
    } else if (!out.defaults.empty()) {
      refuse("a parameter without a default stands behind one with a default");
    }
    if (!take_op(",")) break;
  }
  expect_op(")");
}

std::unique_ptr<Statement> Parser::macro_statement() {
  auto out = make_statement(Kind::macro);
  ++at_;
  out->text = expect_identifier();
  signature(out->signature);
  macros_.push_back(&out->signature);
  const int outer_loops = std::exchange(loop_depth_, 0);
  out->bodies.push_back(block_body("endmacro"));
  loop_depth_ = outer_loops;
  macros_.pop_back();
  return out;
}

std::unique_ptr<Statement> Parser::call_statement() {
  auto out = make_statement(Kind::call_block);
  ++at_;
  if (is_op("(")) signature(out->signature);
  out->expressions.push_back(expression());
  if (out->expressions[0]->kind != Expression::Kind::call) refuse("'call' needs a call");
  macros_.push_back(&out->signature);
  const int outer_loops = std::exchange(loop_depth_, 0);
  out->bodies.push_back(block_body("endcall"));
  loop_depth_ = outer_loops;
  macros_.pop_back();
  return out;
}

std::unique_ptr<Statement> Parser::filter_statement() {
  auto out = make_statement(Kind::filter_block);
  ++at_;
  ExpressionPtr chain = filter(nullptr);
  while (take_op("|")) chain = filter(std::move(chain));
  out->expressions.push_back(std::move(chain));
  out->bodies.push_back(block_body("endfilter"));
  return out;
}

std::unique_ptr<Statement> Parser::with_statement() {
  auto out = make_statement(Kind::with);
  ++at_;
  while (token().kind != Token::Kind::block_end) {
    out->targets.push_back(target(false, true));
    expect_op("=");
    out->expressions.push_back(expression());
    if (!take_op(",")) break;
  }
  out->bodies.push_back(block_body("endwith"));
  return out;
}

Body parse_template(std::string_view source, std::string_view name) {
  Parser parser(tokenize(source, name), name);
  return parser.body({});
}

}  // namespace fourfold::text::jinja
