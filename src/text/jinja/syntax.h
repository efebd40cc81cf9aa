// The tree of a parsed template. Built once by the parser, then only read; every node knows its line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace fourfold::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread;        // *args
  ExpressionPtr named_spread;  // **kwargs
};

struct Expression {
  enum class Kind {
    constant,
    name,
    list,
    tuple,
    dict,       // operands: key, value, key, value ...
    attribute,  // operands[0].text
    item,       // operands[0][operands[1]]
    slice,      // operands[0][a:b:c]; a, b, c may be null
    call,       // operands[0](arguments)
    filter,     // operands[0] | text(arguments); operands[0] null in a filter block
    test,       // operands[0] is text(arguments)
    negate,
    plus,
    logical_not,
    logical_and,
    logical_or,
    condition,    // operands: test, then, otherwise (may be null)
    compare,      // operands[0] operators[0] operands[1] operators[1] ...
    concatenate,  // ~
    binary,       // operands[0] text operands[1]
  };
  Kind kind;
  int line = 0;
  int depth = 1;
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  CallArguments arguments;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// What {% set %} and {% for %} write to: names, a namespace's member, or a tuple of such.
struct Target {
  std::string name;
  std::string member;         // not empty: name.member
  std::vector<Target> items;  // not empty or is_tuple: unpack
  bool is_tuple = false;
};

struct MacroSignature {
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool takes_varargs = false;           // the body uses the name
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Statement {
  enum class Kind {
    text,
    print,         // expressions
    condition,     // expressions[i] -> bodies[i]; one body more: else
    loop,          // target, expressions[0], expressions[1]: filter or null; bodies[0], bodies[1]: else
    set,           // target = expressions[0]
    set_block,     // target = bodies[0], through expressions[0] (a filter chain) if there is one
    macro,         // text(signature): bodies[0]
    call_block,    // expressions[0] is the call, signature the caller's
    filter_block,  // expressions[0]: filter chain over bodies[0]
    with,          // targets = expressions; bodies[0]
    scope,         // {% generation %}: bodies[0] with names of its own
    break_loop,
    continue_loop,
  };
  Kind kind;
  int line = 0;
  std::string text;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> expressions;
  std::vector<Body> bodies;
  MacroSignature signature;
  bool recursive = false;
};

// Throws Error(bad_checkpoint) that names `name` and the line.
Body parse_template(std::string_view source, std::string_view name);

}  // namespace fourfold::text::jinja
