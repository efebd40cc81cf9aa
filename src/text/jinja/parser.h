// Recursive descent over the tokens of a template: expressions here, statements in statement_parser.cpp. How
// deep an expression may nest is bounded, so that neither parsing nor running a hostile template exhausts the
// stack.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace fourfold::text::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  // Statements up to one of the tags in `ends` (which is left unread), or up to the end when there are none.
  Body body(const std::vector<std::string_view>& ends);
  bool at_end() const { return token().kind == Token::Kind::end; }

 private:
  static constexpr int kDepthMax = 200;
  class Depth;

  // ---- tokens
  const Token& token(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  [[noreturn]] void refuse(std::string_view why) const { syntax_error(name_, token().line, why); }
  std::string describe() const;
  bool is_name(std::string_view text, std::size_t ahead = 0) const;
  bool is_op(std::string_view text, std::size_t ahead = 0) const;
  bool take_name(std::string_view text);
  bool take_op(std::string_view text);
  void expect_op(std::string_view text);
  void expect_name(std::string_view text);
  std::string expect_identifier();
  std::string dotted_name();

  // ---- expressions, loosest first
  ExpressionPtr make(Expression::Kind kind, int line) const;
  ExpressionPtr make(Expression::Kind kind, int line, ExpressionPtr first, ExpressionPtr second = nullptr);
  void adopt(Expression& parent, ExpressionPtr child);
  ExpressionPtr expression();
  ExpressionPtr tuple_or_expression(bool parenthesised = false);
  ExpressionPtr condition();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr list_display();
  ExpressionPtr dict_display();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  ExpressionPtr filter(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr node);
  ExpressionPtr call(ExpressionPtr node);
  CallArguments call_arguments(Expression& owner);

  // ---- statements
  std::unique_ptr<Statement> make_statement(Statement::Kind kind) const;
  std::unique_ptr<Statement> statement();
  std::unique_ptr<Statement> if_statement();
  std::unique_ptr<Statement> for_statement();
  std::unique_ptr<Statement> set_statement();
  std::unique_ptr<Statement> macro_statement();
  std::unique_ptr<Statement> call_statement();
  std::unique_ptr<Statement> filter_statement();
  std::unique_ptr<Statement> with_statement();
  Target target(bool with_member, bool single = false);
  Target single_target(bool with_member);
  void signature(MacroSignature& out);
  Body block_body(std::string_view end);
  void end_of_tag();

  std::vector<Token> tokens_;
  std::string_view name_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  std::vector<MacroSignature*> macros_;  // being parsed, innermost last
};

}  // namespace fourfold::text::jinja
