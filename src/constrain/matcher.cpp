// Reading bytes with a grammar.
#include "constrain/matcher.h"

#include <algorithm>

#include "base/error.h"

namespace fourfold::constrain {
namespace {

// Readings beyond this many are given up. Each of those kept can be finished, so the answer still has its
// form; only schemas made to be ambiguous come here.
constexpr std::size_t kReadingsMax = 512;
constexpr std::size_t kBytesMax = std::size_t{16} << 20;

}  // namespace

void MaskBudget::refuse() const {
  const bool of_token = token_left_ < 0;
  fail_with_hint(Code::invalid_request, "Make its alternatives differ earlier.",
                 "to follow the form of the answer takes more than {} steps for one {}",
                 of_token ? token_max_ : kAnswerMax, of_token ? "token" : "answer");
}

Matcher::Matcher(const Grammar& grammar, MaskBudget* budget) : grammar_(&grammar), budget_(budget) {
  stack_of({.bottom = true, .returns = {}});
}

void Matcher::hold(std::size_t bytes) {
  bytes_ += bytes;
  if (budget_ != nullptr && bytes_ > kBytesMax)
    fail_with_hint(Code::invalid_request, "Make its alternatives differ earlier.",
                   "to follow the form of the answer takes more than {} MiB", kBytesMax >> 20);
}

Matcher::StackId Matcher::stack_of(Stack stack) {
  const auto next = static_cast<StackId>(stacks_.size());
  spend(50 + std::ssize(stack.returns));
  const auto [place, is_new] = stack_ids_.try_emplace(stack, next);
  if (is_new) {
    hold(160 + 2 * stack.returns.size() * sizeof(Reading));
    stacks_.push_back(std::move(stack));
  }
  return place->second;
}

Matcher::SetId Matcher::start_at(std::uint32_t state) {
  // Not through make_set: a start that may end has not left its rule, nothing has been read.
  const SetId set = static_cast<SetId>(sets_.size());
  hold(sizeof(Set));
  sets_.push_back(std::make_unique<Set>());
  sets_[set]->next.fill(kUnknown);
  sets_[set]->readings = {{state, kBottom}};
  sets_[set]->kernel_count = 1;
  sets_[set]->may_end = grammar_->is_final(state);
  enter_calls(sets_[set]->readings);
  return set;
}

Matcher::SetId Matcher::step_new(SetId set, std::uint8_t byte) {
  std::vector<Reading> moved;
  spend(4 * std::ssize(sets_[set]->readings));
  for (const Reading& reading : sets_[set]->readings) {
    const auto edges = grammar_->edges(reading.state);
    const auto edge = std::lower_bound(edges.begin(), edges.end(), byte,
                                       [](const Grammar::Edge& e, std::uint8_t b) { return e.high < b; });
    if (edge != edges.end() && edge->low <= byte) moved.push_back({edge->to, reading.stack});
  }
  const SetId to = make_set(std::move(moved));
  sets_[set]->next[byte] = to;
  return to;
}

Matcher::SetId Matcher::after_return(StackId stack) {
  return stacks_[stack].returns.empty() ? kDead : make_set(stacks_[stack].returns);
}

Matcher::SetId Matcher::make_set(std::vector<Reading> readings, bool may_end) {
  if (readings.empty()) return kDead;
  // Readings whose rule is finished also stand where the rule was called.
  std::sort(readings.begin(), readings.end());
  readings.erase(std::unique(readings.begin(), readings.end()), readings.end());
  if (readings.size() > kReadingsMax) readings.resize(kReadingsMax);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    if (!grammar_->is_final(readings[i].state)) continue;
    const Stack& stack = stacks_[readings[i].stack];
    may_end |= stack.bottom;
    for (const Reading& back : stack.returns)
      if (readings.size() < kReadingsMax &&
          std::find(readings.begin(), readings.end(), back) == readings.end())
        readings.push_back(back);
  }
  std::sort(readings.begin(), readings.end());
  // Looking for each among all others is what many readings cost.
  const auto count = static_cast<std::int64_t>(readings.size());
  spend(64 + 16 * count + count * count / 4);

  const auto next = static_cast<SetId>(sets_.size());
  const auto [place, is_new] = set_ids_.try_emplace({may_end, readings}, next);
  if (!is_new) return place->second;
  auto set = std::make_unique<Set>();
  set->next.fill(kUnknown);
  set->kernel_count = readings.size();
  set->may_end = may_end;
  enter_calls(readings);
  hold(sizeof(Set) + 100 + 2 * readings.size() * sizeof(Reading));
  spend(100);
  set->readings = std::move(readings);
  sets_.push_back(std::move(set));
  return next;
}

void Matcher::enter_calls(std::vector<Reading>& readings) {
  std::map<std::uint32_t, std::pair<RuleId, Stack>> waiting;  // by rank: all callers of a rule come before it
  const auto add_calls = [&](const Reading& reading) {
    for (const Grammar::Call& call : grammar_->calls(reading.state)) {
      spend(30);
      auto& [rule, stack] = waiting[grammar_->rank(call.rule)];
      rule = call.rule;
      if (grammar_->only_ends(call.to)) {  // nothing to come back for
        const Stack& below = stacks_[reading.stack];
        spend(std::ssize(below.returns));
        stack.bottom |= below.bottom;
        stack.returns.insert(stack.returns.end(), below.returns.begin(), below.returns.end());
      } else {
        stack.returns.push_back({call.to, reading.stack});
      }
    }
  };
  for (const Reading& reading : readings) add_calls(reading);
  while (!waiting.empty()) {
    auto [rule, stack] = std::move(waiting.begin()->second);
    waiting.erase(waiting.begin());
    spend(4 * std::ssize(stack.returns));
    std::sort(stack.returns.begin(), stack.returns.end());
    stack.returns.erase(std::unique(stack.returns.begin(), stack.returns.end()), stack.returns.end());
    if (stack.returns.size() > kReadingsMax) stack.returns.resize(kReadingsMax);
    readings.push_back({grammar_->entry(rule), stack_of(std::move(stack))});
    add_calls(Reading(readings.back()));
  }
}

Matcher::StackId Matcher::copy_stack(const Matcher& from, StackId stack, std::vector<StackId>& copied) {
  // Stacks only point to stacks made before them, so a loop in order of their numbers would do; a text deep
  // in brackets keeps few of many, though, and the walk from the top meets just those.
  std::vector<StackId> todo{stack};
  while (!todo.empty()) {
    const StackId at = todo.back();
    if (copied[at] != kDead) {
      todo.pop_back();
      continue;
    }
    const std::size_t before = todo.size();
    spend(10 + std::ssize(from.stacks_[at].returns));
    for (const Reading& back : from.stacks_[at].returns)
      if (copied[back.stack] == kDead) todo.push_back(back.stack);
    if (todo.size() != before) continue;
    Stack copy = from.stacks_[at];
    for (Reading& back : copy.returns) back.stack = copied[back.stack];
    std::sort(copy.returns.begin(), copy.returns.end());
    copied[at] = stack_of(std::move(copy));
    todo.pop_back();
  }
  return copied[stack];
}

Matcher::SetId Matcher::keep_only(SetId set) {
  Matcher fresh(*grammar_, budget_);
  std::vector<StackId> copied(stacks_.size(), kDead);
  std::vector<Reading> kept;
  for (const Reading& reading : kernel(set))
    kept.push_back({reading.state, fresh.copy_stack(*this, reading.stack, copied)});
  const SetId renumbered = fresh.make_set(std::move(kept), may_end(set));
  *this = std::move(fresh);
  return renumbered;
}

}  // namespace fourfold::constrain
