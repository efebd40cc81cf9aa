// Which tokens a state of a grammar allows, computed once a state and kept: the part of a mask that does not
// depend on what lies on the stack. Shared by all guides of one grammar; any thread may ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/runner.h"
#include "constrain/vocabulary.h"

namespace fourfold::constrain {

// What one mask may cost, in steps of a few nanoseconds: the engine's thread makes masks, and everybody waits
// for it. Only forms made to be ambiguous come here. Throws invalid_request when it is spent.
class MaskBudget {
 public:
  static constexpr std::int64_t kStepsMax = 50'000'000;
  explicit MaskBudget(std::int64_t steps = kStepsMax) : steps_(steps), left_(steps) {}
  void spend(std::int64_t steps) {
    if ((left_ -= steps) < 0) refuse();
  }
  std::int64_t spent() const { return steps_ - left_; }

 private:
  [[noreturn]] void refuse() const;
  std::int64_t steps_, left_;
};

class Masks {
 public:
  Masks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Grammar& grammar() const { return *grammar_; }

  struct Local {
    std::vector<std::uint64_t> bits;  // of the tokens that start here and do not have to leave the rule...
    std::vector<TokenId> tokens;      // ...or the tokens themselves, where they are few
    std::vector<std::uint32_t> leavings;  // nodes of the trie at which the rule may have ended
  };
  std::shared_ptr<const Local> local(std::uint32_t state, MaskBudget& budget) const;
  // Computes now what an answer is likely to need, so that no step of the engine waits for it.
  void warm_up() const;
  // Of the grammar and of all that is kept for it.
  std::size_t bytes() const;
  // How many plain characters a state of free text takes before the count of its string is up.
  std::uint32_t plain_run(std::uint32_t state) const { return plain_run_[state]; }

  // Added tokens the grammar names.
  std::span<const TokenId> tags() const { return tags_; }

 private:
  std::shared_ptr<const Local> compute(std::uint32_t state, MaskBudget& budget) const;
  void classify();
  void find_free_text();

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Grammar> grammar_;
  std::vector<TokenId> tags_;
  std::vector<std::uint32_t> plain_run_;
  std::vector<std::uint64_t> class_of_;  // by state: equal for states no token can tell apart
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::uint64_t, std::shared_ptr<const Local>> known_;
  mutable std::size_t known_bytes_ = 0;
};

// Adds the tokens that read on from `set` below node `from` of the trie to `bits`. `leavings` (or null) gets
// the nodes at which the lowest rule may have ended.
void walk_trie(const Masks& masks, Runner& runner, Runner::SetId set, std::uint32_t from,
               std::span<std::uint64_t> bits, std::vector<std::uint32_t>* leavings, MaskBudget& budget);

}  // namespace fourfold::constrain
