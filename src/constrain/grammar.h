// The form of an answer: rules, each an automaton over bytes and calls of rules. Immutable once built; any
// number of guides share one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "constrain/dfa.h"
#include "constrain/expression.h"

namespace fourfold::constrain {

class Grammar {
 public:
  using Edge = Dfa::Edge;
  using Call = Dfa::Call;

  std::uint32_t state_count() const { return static_cast<std::uint32_t>(flags_.size()); }
  std::uint32_t start() const { return entry_[0]; }
  // As start, with up to two newlines before the text: what models write behind </think>.
  std::uint32_t start_after_newlines() const { return entry_.back(); }
  std::uint32_t entry(RuleId rule) const { return entry_[rule]; }
  // Callers come before those they call without taking a byte first.
  std::uint32_t rank(RuleId rule) const { return rank_[rule]; }
  std::span<const Edge> edges(std::uint32_t state) const {
    return std::span(edges_).subspan(edge_begin_[state], edge_begin_[state + 1] - edge_begin_[state]);
  }
  std::span<const Call> calls(std::uint32_t state) const {
    return std::span(calls_).subspan(call_begin_[state], call_begin_[state + 1] - call_begin_[state]);
  }
  bool is_final(std::uint32_t state) const { return flags_[state] & kFinal; }
  // Final, and nothing can follow inside the rule.
  bool only_ends(std::uint32_t state) const { return flags_[state] & kOnlyEnds; }
  // A state that takes every plain character of one byte, and by a call of this rule every longer one, reads
  // free text (json_text.h); 0: there is none.
  RuleId long_character() const { return long_character_; }
  std::size_t bytes() const {
    return (entry_.size() + rank_.size() + edge_begin_.size() + call_begin_.size()) * sizeof(std::uint32_t) +
           edges_.size() * sizeof(Edge) + calls_.size() * sizeof(Call) + flags_.size();
  }
  // Tokens outside ordinary text (<tool_call>) that the form wants written as such.
  std::span<const std::string> tags() const { return tags_; }
  // What was asked for and has no effect ("format color").
  std::span<const std::string> notes() const { return notes_; }

 private:
  friend class GrammarBuilder;
  static constexpr std::uint8_t kFinal = 1, kOnlyEnds = 2;
  std::vector<std::uint32_t> entry_;  // by rule; rule 0 is the answer
  std::vector<std::uint32_t> rank_;
  std::vector<std::uint32_t> edge_begin_, call_begin_;
  std::vector<Edge> edges_;
  std::vector<Call> calls_;
  std::vector<std::uint8_t> flags_;
  std::vector<std::string> tags_, notes_;
  RuleId long_character_ = 0;
};

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const Limits& limits) : budget_(limits), pool_(budget_) {}
  ExpressionPool& pool() { return pool_; }
  Budget& budget() { return budget_; }

  // A rule may be called before it is defined; rule 0 is defined by finish.
  RuleId declare();
  void define(RuleId rule, ExprId expression) { define(rule, pool_.compile(expression)); }
  void define(RuleId rule, Dfa automaton);
  void mark_long_character(RuleId rule) { long_character_ = rule; }
  void note(const std::string& what);
  // Throws invalid_request when no text can ever satisfy the form.
  std::shared_ptr<const Grammar> finish(ExprId answer, std::vector<std::string> tags = {});

 private:
  void add_newlines_rule();
  void drop_endless_rules();
  bool can_end(const Dfa& rule, const std::vector<char>& ends);
  void rank_rules(Grammar& grammar) const;
  void flatten(Grammar& grammar) const;

  Budget budget_;
  ExpressionPool pool_;
  std::vector<Dfa> rules_{1};
  RuleId long_character_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace fourfold::constrain
