// Rules put together: those that can never end are removed, the others get one numbering of their states.
#include "constrain/grammar.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::constrain {

RuleId GrammarBuilder::declare() {
  rules_.emplace_back();
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarBuilder::note(const std::string& what) {
  constexpr std::size_t notes_max = 16;
  if (notes_.size() < notes_max && std::ranges::find(notes_, what) == notes_.end()) notes_.push_back(what);
}

void GrammarBuilder::define(RuleId rule, Dfa automaton) {
  rules_[rule] = std::move(automaton);
  check(rules_[rule].states.empty() || !rules_[rule].states[0].final, "a called rule takes at least one byte",
        rule);
}

std::shared_ptr<const Grammar> GrammarBuilder::finish(ExprId answer, std::vector<std::string> tags) {
  rules_[0] = pool_.compile(answer);
  drop_endless_rules();
  if (rules_[0].states.empty())
    fail(Code::invalid_request,
         "no text can have the form that is asked for: it contradicts itself, or needs "
         "itself inside itself without end");
  add_newlines_rule();
  auto grammar = std::make_shared<Grammar>();
  flatten(*grammar);
  rank_rules(*grammar);
  grammar->tags_ = std::move(tags);
  grammar->long_character_ = long_character_;
  grammar->notes_ = notes_;
  return grammar;
}

void GrammarBuilder::add_newlines_rule() {
  constexpr std::uint32_t newlines_max = 2;
  constexpr std::uint32_t end = newlines_max + 1;
  Dfa rule;
  rule.states.resize(end + 1);
  for (std::uint32_t i = 0; i <= newlines_max; ++i) {
    if (i < newlines_max) rule.states[i].edges.push_back({'\n', '\n', i + 1});
    rule.states[i].calls.push_back({0, end});
    rule.states[i].final = rules_[0].states[0].final;
  }
  rule.states[end].final = true;
  rules_.push_back(std::move(rule));
}

// A rule that calls itself on every way never ends. Found from the other side: rules known to end, until no
// more are found. Rules mostly call those declared after them, so the last come first.
void GrammarBuilder::drop_endless_rules() {
  std::vector<char> ends(rules_.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rule = rules_.size(); rule-- > 0;) {
      if (ends[rule] || !can_end(rules_[rule], ends)) continue;
      ends[rule] = 1;
      changed = true;
    }
  }
  for (Dfa& rule : rules_) {
    bool changed = false;
    for (Dfa::State& state : rule.states)
      changed |= std::erase_if(state.calls, [&](const Dfa::Call& call) { return !ends[call.rule]; }) > 0;
    if (changed) trim(rule);
  }
}

// Whether the end can be reached with calls of such rules alone.
bool GrammarBuilder::can_end(const Dfa& rule, const std::vector<char>& ends) {
  std::vector<char> seen(rule.states.size(), 0);
  std::vector<std::uint32_t> todo;
  const auto visit = [&](std::uint32_t state) {
    if (seen[state]) return;
    seen[state] = 1;
    todo.push_back(state);
  };
  if (!rule.states.empty()) visit(0);
  while (!todo.empty()) {
    const Dfa::State& state = rule.states[todo.back()];
    todo.pop_back();
    if (state.final) return true;
    budget_.spend(static_cast<std::int64_t>(1 + state.edges.size() + state.calls.size()));
    for (const Dfa::Edge& edge : state.edges) visit(edge.to);
    for (const Dfa::Call& call : state.calls)
      if (ends[call.rule]) visit(call.to);
  }
  return false;
}

void GrammarBuilder::flatten(Grammar& grammar) const {
  std::uint32_t base = 0;
  for (const Dfa& rule : rules_) {
    grammar.entry_.push_back(base);
    for (const Dfa::State& state : rule.states) {
      grammar.edge_begin_.push_back(static_cast<std::uint32_t>(grammar.edges_.size()));
      grammar.call_begin_.push_back(static_cast<std::uint32_t>(grammar.calls_.size()));
      for (Dfa::Edge edge : state.edges) {
        edge.to += base;
        grammar.edges_.push_back(edge);
      }
      for (Dfa::Call call : state.calls) {
        call.to += base;
        grammar.calls_.push_back(call);
      }
      const bool only_ends = state.final && state.edges.empty() && state.calls.empty();
      grammar.flags_.push_back(static_cast<std::uint8_t>((state.final ? Grammar::kFinal : 0) |
                                                         (only_ends ? Grammar::kOnlyEnds : 0)));
    }
    base += static_cast<std::uint32_t>(rule.states.size());
  }
  grammar.edge_begin_.push_back(static_cast<std::uint32_t>(grammar.edges_.size()));
  grammar.call_begin_.push_back(static_cast<std::uint32_t>(grammar.calls_.size()));
}

// An order in which every rule comes before those its first state calls. There is one unless a rule starts
// with itself, which the compilers of this room rule out before.
void GrammarBuilder::rank_rules(Grammar& grammar) const {
  std::vector<int> callers(rules_.size(), 0);
  for (const Dfa& rule : rules_)
    if (!rule.states.empty())
      for (const Dfa::Call& call : rule.states[0].calls) ++callers[call.rule];
  grammar.rank_.assign(rules_.size(), 0);
  std::vector<RuleId> order;
  for (RuleId rule = 0; rule < rules_.size(); ++rule)
    if (callers[rule] == 0) order.push_back(rule);
  for (std::size_t i = 0; i < order.size(); ++i) {
    grammar.rank_[order[i]] = static_cast<std::uint32_t>(i);
    if (rules_[order[i]].states.empty()) continue;
    for (const Dfa::Call& call : rules_[order[i]].states[0].calls)
      if (--callers[call.rule] == 0) order.push_back(call.rule);
  }
  check(order.size() == rules_.size(), "no rule starts with itself", order.size(), rules_.size());
}

}  // namespace fourfold::constrain
