// Expressions: what regular expressions and schemas are written in before they become automata. An expression
// is a number in its pool; a pool belongs to one compilation.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "constrain/budget.h"
#include "constrain/dfa.h"

namespace fourfold::constrain {

using ExprId = std::uint32_t;

class ExpressionPool {
 public:
  explicit ExpressionPool(Budget& budget) : budget_(budget) {}
  Budget& budget() { return budget_; }

  ExprId nothing();  // no text at all, not even the empty one
  ExprId empty();    // the empty text
  ExprId bytes(std::uint8_t low, std::uint8_t high);
  ExprId text(std::string_view text);
  ExprId sequence(std::span<const ExprId> parts);
  ExprId sequence(std::initializer_list<ExprId> parts) {
    return sequence(std::span<const ExprId>(parts.begin(), parts.size()));
  }
  ExprId either(std::span<const ExprId> parts);
  ExprId either(std::initializer_list<ExprId> parts) {
    return either(std::span<const ExprId>(parts.begin(), parts.size()));
  }
  ExprId repeat(ExprId part, std::int64_t min, std::optional<std::int64_t> max);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId call(RuleId rule);  // the rule must not take the empty text
  ExprId automaton(Dfa dfa);
  // Nothing, at the start (at the end) of the text that compile() gets.
  ExprId at_start();
  ExprId at_end();

  // The automaton of an expression, trimmed.
  Dfa compile(ExprId expression) const;

 private:
  friend class NfaBuilder;
  enum class Kind : std::uint8_t {
    nothing,
    empty,
    bytes,
    text,
    sequence,
    either,
    repeat,
    call,
    automaton,
    at_start,
    at_end
  };
  struct Node {
    Kind kind;
    std::uint8_t low = 0, high = 0;
    std::uint32_t first = 0, count = 0;  // children, characters; the part, the rule or the automaton
    std::int64_t min = 0, max = 0;       // max -1: no limit
  };
  ExprId add(const Node& node);
  ExprId add_list(Kind kind, std::span<const ExprId> parts);

  Budget& budget_;
  std::vector<Node> nodes_;
  std::vector<ExprId> children_;
  std::vector<char> characters_;
  std::vector<Dfa> automata_;
};

}  // namespace fourfold::constrain
