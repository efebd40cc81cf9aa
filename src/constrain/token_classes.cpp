// Moore's refinement, as many rounds as tokens have bytes: after r rounds two states have the same number
// when no text of at most r bytes tells them apart. A round looks only at states before one that was given a
// new number, so a chain of counts costs one state a round.
#include "constrain/token_classes.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace fourfold::constrain {
namespace {

// Refining a grammar made for it takes longer than it saves; then every state has its own number.
constexpr std::int64_t kWorkMax = 8'000'000;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash ^= value;
  hash *= 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 31);
}

class Refinement {
 public:
  explicit Refinement(const Grammar& grammar) : grammar_(grammar), class_of_(grammar.state_count(), 0) {}

  std::vector<std::uint32_t> run(int rounds) {
    find_sources();
    std::vector<std::uint32_t> todo(class_of_.size());
    std::iota(todo.begin(), todo.end(), 0u);
    members_.assign(1, static_cast<std::uint32_t>(todo.size()));
    for (int round = 0; round <= rounds && !todo.empty(); ++round) {
      todo = before(split(todo));
      if (work_ > kWorkMax) {
        std::iota(class_of_.begin(), class_of_.end(), 0u);
        break;
      }
    }
    return std::move(class_of_);
  }

 private:
  // The states with an edge or a call that comes to a state.
  void find_sources() {
    const std::uint32_t count = grammar_.state_count();
    source_begin_.assign(count + 1, 0);
    const auto each = [&](auto&& act) {
      for (std::uint32_t state = 0; state < count; ++state) {
        for (const Grammar::Edge& edge : grammar_.edges(state)) act(state, edge.to);
        for (const Grammar::Call& call : grammar_.calls(state)) act(state, call.to);
      }
    };
    each([&](std::uint32_t, std::uint32_t to) { ++source_begin_[to + 1]; });
    std::partial_sum(source_begin_.begin(), source_begin_.end(), source_begin_.begin());
    sources_.resize(source_begin_.back());
    std::vector<std::uint32_t> next(source_begin_.begin(), source_begin_.end() - 1);
    each([&](std::uint32_t from, std::uint32_t to) { sources_[next[to]++] = from; });
    work_ += static_cast<std::int64_t>(sources_.size()) + count;
  }

  std::uint64_t signature(std::uint32_t state) {
    std::uint64_t hash = mixed(1, grammar_.is_final(state) + (grammar_.only_ends(state) ? 2u : 0u));
    for (const Grammar::Edge& edge : grammar_.edges(state))
      hash = mixed(mixed(hash, edge.low * 256u + edge.high), class_of_[edge.to]);
    for (const Grammar::Call& call : grammar_.calls(state))
      hash = mixed(mixed(hash, 0x10000 + std::uint64_t{call.rule}), class_of_[call.to]);
    work_ += 10 + std::ssize(grammar_.edges(state)) + std::ssize(grammar_.calls(state));
    return hash;
  }

  // Gives those states of a class that now differ new numbers; who keeps the old one is not looked at again.
  std::vector<std::uint32_t> split(const std::vector<std::uint32_t>& todo) {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint32_t>> groups;
    for (const std::uint32_t state : todo) groups[{class_of_[state], signature(state)}].push_back(state);
    std::vector<std::uint32_t> changed;
    for (auto group = groups.begin(); group != groups.end();) {
      const std::uint32_t old = group->first.first;
      auto end = group;
      std::size_t count = 0;
      auto largest = group;
      for (; end != groups.end() && end->first.first == old; ++end) {
        count += end->second.size();
        if (end->second.size() > largest->second.size()) largest = end;
      }
      const bool others_stay = count < members_[old];
      for (; group != end; ++group) {
        if (!others_stay && group == largest) continue;
        const auto fresh = static_cast<std::uint32_t>(members_.size());
        members_.push_back(static_cast<std::uint32_t>(group->second.size()));
        members_[old] -= members_.back();
        for (const std::uint32_t state : group->second) class_of_[state] = fresh;
        changed.insert(changed.end(), group->second.begin(), group->second.end());
      }
    }
    return changed;
  }

  std::vector<std::uint32_t> before(const std::vector<std::uint32_t>& changed) {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t state : changed)
      out.insert(out.end(), sources_.begin() + source_begin_[state],
                 sources_.begin() + source_begin_[state + 1]);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  const Grammar& grammar_;
  std::vector<std::uint32_t> class_of_;
  std::vector<std::uint32_t> members_;  // how many states have a number
  std::vector<std::uint32_t> source_begin_, sources_;
  std::int64_t work_ = 0;
};

}  // namespace

std::vector<std::uint32_t> token_classes(const Grammar& grammar, int bytes_max) {
  return Refinement(grammar).run(bytes_max);
}

}  // namespace fourfold::constrain
