// Which tokens a state of a grammar allows, computed once a state and kept: the part of a mask that does not
// depend on what lies on the stack. Shared by all guides of one grammar; any thread may ask.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/matcher.h"
#include "constrain/vocabulary.h"

namespace fourfold::constrain {

// The memory of all forms that are in use: those that answers wait for or are written by, and those kept for
// later. A share is a part of a whole, and counts in both. Any thread may ask.
class FormBytes {
 public:
  explicit FormBytes(std::size_t max, std::shared_ptr<FormBytes> whole = nullptr)
      : max_(max), whole_(std::move(whole)) {}
  bool take(std::size_t bytes);  // false: there is not so much left
  void give(std::size_t bytes);
  std::size_t used() const { return used_; }
  std::size_t max() const { return max_; }

 private:
  const std::size_t max_;
  const std::shared_ptr<FormBytes> whole_;
  std::atomic<std::size_t> used_{0};
};

class Masks {
 public:
  // Throws over_capacity when `memory` has not enough for it (null: there is no limit).
  Masks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar,
        std::shared_ptr<FormBytes> memory = nullptr);
  ~Masks();
  Masks(const Masks&) = delete;
  Masks& operator=(const Masks&) = delete;

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Grammar& grammar() const { return *grammar_; }

  struct Local {
    std::vector<std::uint64_t> bits;  // of the tokens that start here and do not have to leave the rule...
    std::vector<TokenId> tokens;      // ...or the tokens themselves, where they are few
    std::vector<std::uint32_t> leavings;  // nodes of the trie at which the rule may have ended
  };
  std::shared_ptr<const Local> local(std::uint32_t state, MaskBudget& budget) const;
  // Computes now what an answer is likely to need, so that no step of the engine waits for it. Throws
  // invalid_request when a single mask is too expensive.
  void warm_up() const;
  // Of the grammar and of all that is kept for it.
  std::size_t bytes() const;
  // How many plain characters a state of free text takes before the count of its string is up.
  std::uint32_t plain_run(std::uint32_t state) const { return plain_run_[state]; }

  // What its answers remember of their way counts with it; null: there is no limit.
  FormBytes* memory() const { return memory_.get(); }

  // Added tokens the grammar names, special or not, and how it writes them.
  struct Tag {
    TokenId token;
    std::string_view text;
  };
  std::span<const Tag> tags() const { return tags_; }

 private:
  std::shared_ptr<const Local> compute(std::uint32_t state, MaskBudget& budget) const;
  void keep(std::uint32_t key, const std::shared_ptr<const Local>& made) const;
  void find_free_text();

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Grammar> grammar_;
  std::vector<Tag> tags_;
  std::vector<std::uint32_t> plain_run_;
  std::vector<std::uint32_t> class_of_;  // by state: equal for states no token can tell apart
  std::shared_ptr<FormBytes> memory_;
  std::size_t own_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::uint32_t, std::shared_ptr<const Local>> known_;
  mutable std::size_t known_bytes_ = 0;
};

// Adds the tokens that read on from `set` below node `from` of the trie to `bits`. `leavings` (or null) gets
// the nodes at which the lowest rule may have ended.
void walk_trie(const Masks& masks, Matcher& matcher, Matcher::SetId set, std::uint32_t from,
               std::span<std::uint64_t> bits, std::vector<std::uint32_t>* leavings, MaskBudget& budget);

}  // namespace fourfold::constrain
