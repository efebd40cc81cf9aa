// The tensors of a checkpoint while they are being bound: who has been taken, and what was wrong. Used by the
// binder alone.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/problem_list.h"
#include "checkpoint/shard_index.h"

namespace fourfold::checkpoint {

class TensorPool {
 public:
  explicit TensorPool(const Checkpoint& checkpoint);

  const Checkpoint& checkpoint() const { return checkpoint_; }

  bool has(std::string_view name) const { return checkpoint_.find(name) != nullptr; }
  bool has_prefix(std::string_view prefix) const;
  // The number after `prefix` of the highest-numbered name plus one: "mtp.layers." -> how many layers there
  // are.
  std::int64_t count_numbered(std::string_view prefix) const;

  // Null when there is none; what is given is marked as used.
  const TensorView* take_if_present(std::string_view name);
  // As above, and a missing tensor is noted.
  const TensorView* take(std::string_view name);

  void misshapen(const TensorView& tensor, std::string_view wanted);
  void unusable(std::string_view name, std::string_view why);

  // Marks tensors that are known to be of no use here. Gives "pattern (n tensors)", or nothing when there are
  // none.
  std::vector<std::string> skip_unused();
  void skip(std::string_view name) { take_if_present(name); }
  // All that begin so; skip_unused() tells of them as well.
  void skip_prefix(std::string_view prefix);

  // A matrix that is made here and not in the files, for as long as the model is bound.
  struct Folded {
    std::string name;
    std::shared_ptr<const float[]> memory;
    std::span<const float> values;  // there
  };
  void keep(Folded folded) { folded_.push_back(std::move(folded)); }
  const std::vector<Folded>& folded() const { return folded_; }

  // What was not taken is left over; throws bad_checkpoint when there is any problem.
  void finish();

 private:
  static constexpr std::int64_t kMissingMax = 100'000;

  void fail_if_any() const;
  void skip_all(std::string_view prefix, std::string_view suffix, std::string_view pattern);

  const Checkpoint& checkpoint_;
  std::vector<bool> used_;
  std::vector<std::string> skipped_;
  std::vector<Folded> folded_;
  ProblemList problems_;
  std::int64_t missing_count_ = 0;
};

}  // namespace fourfold::checkpoint
