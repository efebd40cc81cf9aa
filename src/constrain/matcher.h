// Where a text stands in a grammar: a set of (state, stack) pairs, because several readings may be open. Sets
// and stacks are kept once and have numbers, and what a byte does to a set is remembered.
//
// A stack is shared by all readings that entered the same rule at the same place, as in generalised LR
// parsing: without it a schema whose alternatives look alike would double the readings at every level.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"

namespace fourfold::constrain {

// What the masks of one answer may cost, in steps of a few nanoseconds: the engine's thread makes them, and
// all requests wait for it. A mask that is made once and kept is expensive, most tokens cost next to nothing;
// so an answer may spend much on one token, but not on each of them. Throws invalid_request when it is spent.
class MaskBudget {
 public:
  static constexpr std::int64_t kTokenMax = 20'000'000;
  static constexpr std::int64_t kAnswerMax = 100'000'000;
  static constexpr std::int64_t kForEachToken = 50'000;  // on top of the answer's

  explicit MaskBudget(std::int64_t token = kTokenMax, std::int64_t answer = kAnswerMax)
      : token_max_(token), token_left_(token), answer_left_(answer) {}
  void spend(std::int64_t steps) {
    token_left_ -= steps;
    answer_left_ -= steps;
    if (token_left_ < 0 || answer_left_ < 0) refuse();
  }
  void begin_token() {
    token_left_ = token_max_;
    answer_left_ += kForEachToken;
  }
  std::int64_t spent_on_token() const { return token_max_ - token_left_; }

 private:
  [[noreturn]] void refuse() const;
  std::int64_t token_max_, token_left_, answer_left_;
};

class Matcher {
 public:
  using SetId = std::uint32_t;
  using StackId = std::uint32_t;
  static constexpr SetId kDead = 0xFFFFFFFF;
  static constexpr StackId kBottom = 0;

  struct Reading {
    std::uint32_t state;
    StackId stack;
    auto operator<=>(const Reading&) const = default;
  };

  // budget: pays for new sets; null: they are free, and any number of them is remembered. Must outlive the
  // matcher.
  explicit Matcher(const Grammar& grammar, MaskBudget* budget = nullptr);

  // The set that stands on a state with nothing below it.
  SetId start_at(std::uint32_t state);
  SetId step(SetId set, std::uint8_t byte) {
    const SetId known = sets_[set]->next[byte];
    return known != kUnknown ? known : step_new(set, byte);
  }
  // The text may end here: a reading has left the lowest rule.
  bool may_end(SetId set) const { return sets_[set]->may_end; }
  // Readings that are not merely the start of a rule another reading is about to enter.
  std::span<const Reading> kernel(SetId set) const {
    return std::span(sets_[set]->readings).first(sets_[set]->kernel_count);
  }
  // Where readings with this stack stand once they have left their rule; kDead when nothing can follow.
  SetId after_return(StackId stack);

  // Where a reading with this stack stands once it has left its rule, and whether the text may end then.
  std::span<const Reading> returns(StackId stack) const { return stacks_[stack].returns; }
  bool is_lowest(StackId stack) const { return stacks_[stack].bottom; }

  // Of all sets and stacks that are remembered.
  std::size_t bytes() const { return bytes_; }
  // Forgets every set but this one, and gives its new number. Ids of stacks change too.
  SetId keep_only(SetId set);

 private:
  static constexpr SetId kUnknown = 0xFFFFFFFE;
  struct Stack {
    bool bottom = false;           // leaving may leave the lowest rule
    std::vector<Reading> returns;  // (state after the call, its stack), ascending
    auto operator<=>(const Stack&) const = default;
  };
  struct Set {
    std::array<SetId, 256> next;
    std::vector<Reading> readings;
    std::size_t kernel_count = 0;
    bool may_end = false;
  };

  SetId step_new(SetId set, std::uint8_t byte);
  SetId make_set(std::vector<Reading> readings, bool may_end = false);
  void enter_calls(std::vector<Reading>& readings);
  StackId stack_of(Stack stack);
  StackId copy_stack(const Matcher& from, StackId stack, std::vector<StackId>& copied);

  void spend(std::int64_t steps) {
    if (budget_ != nullptr) budget_->spend(steps);
  }
  void hold(std::size_t bytes);

  const Grammar* grammar_;
  MaskBudget* budget_;
  std::vector<Stack> stacks_;
  std::map<Stack, StackId> stack_ids_;
  std::vector<std::unique_ptr<Set>> sets_;
  std::map<std::pair<bool, std::vector<Reading>>, SetId> set_ids_;
  std::size_t bytes_ = 0;
};

}  // namespace fourfold::constrain
