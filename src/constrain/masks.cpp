// Masks of states.
#include "constrain/masks.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.h"

namespace fourfold::constrain {
namespace {

constexpr std::size_t kKnownBytesMax = std::size_t{64} << 20;  // then they are computed anew

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash ^= value;
  hash *= 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 31);
}

std::size_t size_of(const Masks::Local& local) {
  return local.bits.size() * sizeof(std::uint64_t) + local.tokens.size() * sizeof(TokenId) +
         local.leavings.size() * sizeof(std::uint32_t) + 128;
}

// Where a state of free text comes to with any plain character; none for other states.
std::optional<std::uint32_t> next_of_free_text(const Grammar& grammar, std::uint32_t state) {
  if (grammar.is_final(state)) return std::nullopt;
  std::optional<std::uint32_t> next;
  for (const Grammar::Call& call : grammar.calls(state))
    if (call.rule == grammar.long_character()) next = call.to;
  if (!next) return std::nullopt;
  int taken = 0;
  for (const Grammar::Edge& edge : grammar.edges(state)) {
    if (edge.to != *next) continue;
    for (int byte = std::max<int>(edge.low, 0x20); byte <= std::min<int>(edge.high, 0x7F); ++byte)
      taken += byte != '"' && byte != '\\';
  }
  return taken == 0x60 - 2 ? next : std::nullopt;
}

bool takes_plain_text(const Masks& masks, const Runner& runner, Runner::SetId set, std::uint32_t characters) {
  const auto kernel = runner.kernel(set);
  return std::any_of(kernel.begin(), kernel.end(), [&](const Runner::Reading& reading) {
    return masks.plain_run(reading.state) >= std::max<std::uint32_t>(characters, 1);
  });
}

}  // namespace

void walk_trie(const Masks& masks, Runner& runner, Runner::SetId set, std::uint32_t from,
               std::span<std::uint64_t> bits, std::vector<std::uint32_t>* leavings, MaskBudget& budget) {
  const Vocabulary& vocabulary = masks.vocabulary();
  const Vocabulary::Node& top = vocabulary.node(from);
  std::vector<Runner::SetId> path(static_cast<std::size_t>(vocabulary.depth_max()) + 1);
  path[top.depth] = set;
  const auto allow = [&](std::span<const TokenId> tokens) {
    for (const TokenId token : tokens)
      bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
  };
  for (std::uint32_t at = from + 1; at < top.skip;) {
    const Vocabulary::Node& node = vocabulary.node(at);
    const std::int64_t before = runner.work();
    const Runner::SetId now = runner.step(path[node.depth - 1u], node.byte);
    budget.spend(1 + runner.work() - before);
    if (now == Runner::kDead) {
      at = node.skip;
      continue;
    }
    if (node.plain_characters < 255 && takes_plain_text(masks, runner, now, node.plain_characters)) {
      allow(vocabulary.tokens(at, node.skip));
      at = node.skip;
      continue;
    }
    path[node.depth] = now;
    allow(vocabulary.tokens(at, at + 1));
    if (leavings && node.skip > at + 1 && runner.may_end(now)) leavings->push_back(at);
    ++at;
  }
}

void MaskBudget::refuse() const {
  fail_with_hint(Code::invalid_request, "Make its alternatives differ earlier.",
                 "to follow the form of the answer takes more than {} steps for one token", steps_);
}

Masks::Masks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar)
    : vocabulary_(std::move(vocabulary)), grammar_(std::move(grammar)) {
  for (const std::string& text : grammar_->tags())
    if (const auto token = vocabulary_->tag(text)) tags_.push_back(*token);
  find_free_text();
  classify();
}

// States that take every plain character and come to one state with each; how long a chain of them is.
void Masks::find_free_text() {
  constexpr std::uint32_t unknown = 0xFFFFFFFF, endless = 0xFFFFFFFE;
  plain_run_.assign(grammar_->state_count(), grammar_->long_character() == 0 ? 0 : unknown);
  std::vector<std::uint32_t> chain;
  for (std::uint32_t first = 0; first < grammar_->state_count(); ++first) {
    std::uint32_t state = first;
    while (plain_run_[state] == unknown) {
      const std::optional<std::uint32_t> next = next_of_free_text(*grammar_, state);
      if (!next || *next == state) {
        plain_run_[state] = next ? endless : 0;
        break;
      }
      plain_run_[state] = 0;  // should the chain come back to itself: not a count, left alone
      chain.push_back(state);
      state = *next;
    }
    std::uint32_t run = plain_run_[state];
    for (; !chain.empty(); chain.pop_back()) {
      if (run != endless) ++run;
      plain_run_[chain.back()] = run;
    }
  }
}

// A string of at most 1,000 characters has a state for each count, but no token can tell 900 characters left
// from 901. After r rounds two states have the same number when no text of at most r bytes tells them apart.
void Masks::classify() {
  const std::uint32_t count = grammar_->state_count();
  // Rounds over very large grammars would take longer than they save.
  constexpr std::int64_t work_max = 8'000'000;
  if (std::int64_t{count} * vocabulary_->depth_max() > work_max) {
    for (std::uint32_t state = 0; state < count; ++state) class_of_.push_back(state);
    return;
  }
  class_of_.assign(count, 0);
  std::vector<std::uint64_t> next(count);
  for (int round = 0; round <= vocabulary_->depth_max(); ++round) {
    for (std::uint32_t state = 0; state < count; ++state) {
      std::uint64_t hash = mixed(1, grammar_->is_final(state) + (grammar_->only_ends(state) ? 2u : 0u));
      for (const Grammar::Edge& edge : grammar_->edges(state))
        hash = mixed(mixed(hash, edge.low * 256u + edge.high), class_of_[edge.to]);
      for (const Grammar::Call& call : grammar_->calls(state))
        hash = mixed(mixed(hash, 0x10000 + std::uint64_t{call.rule}), class_of_[call.to]);
      next[state] = hash;
    }
    class_of_.swap(next);
  }
}

std::size_t Masks::bytes() const {
  const std::size_t own = plain_run_.size() * sizeof(plain_run_[0]) + class_of_.size() * sizeof(class_of_[0]);
  const std::lock_guard lock(mutex_);
  return grammar_->bytes() + own + known_bytes_;
}

std::shared_ptr<const Masks::Local> Masks::local(std::uint32_t state, MaskBudget& budget) const {
  const std::uint64_t key = class_of_[state];
  {
    const std::lock_guard lock(mutex_);
    if (const auto place = known_.find(key); place != known_.end()) return place->second;
  }
  auto made = compute(state, budget);
  const std::lock_guard lock(mutex_);
  if (known_bytes_ > kKnownBytesMax) {
    known_.clear();
    known_bytes_ = 0;
  }
  const auto [place, is_new] = known_.try_emplace(key, made);
  if (is_new) known_bytes_ += size_of(*made);
  return place->second;
}

std::shared_ptr<const Masks::Local> Masks::compute(std::uint32_t state, MaskBudget& budget) const {
  auto local = std::make_shared<Local>();
  Runner runner(*grammar_);
  local->bits.assign(vocabulary_->word_count(), 0);
  walk_trie(*this, runner, runner.start_at(state), 0, local->bits, &local->leavings, budget);
  std::size_t count = 0;
  for (const std::uint64_t word : local->bits) count += static_cast<std::size_t>(std::popcount(word));
  if (count > local->bits.size()) return local;
  for (std::size_t i = 0; i < local->bits.size(); ++i)
    for (std::uint64_t word = local->bits[i]; word != 0; word &= word - 1)
      local->tokens.push_back(
          static_cast<TokenId>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
  local->bits = {};
  return local;
}

void Masks::warm_up() const {
  // States that take many different bytes are those whose walk is long.
  constexpr int bytes_min = 64;
  constexpr std::size_t states_max = 8;
  const auto make = [this](std::uint32_t state) {
    MaskBudget budget;
    local(state, budget);
  };
  make(grammar_->start());
  const auto known_count = [this] {
    const std::lock_guard lock(mutex_);
    return known_.size();
  };
  for (std::uint32_t state = 0; state < grammar_->state_count() && known_count() < states_max; ++state) {
    int bytes = 0;
    for (const Grammar::Edge& edge : grammar_->edges(state)) bytes += edge.high - edge.low + 1;
    if (bytes >= bytes_min) make(state);
  }
}

}  // namespace fourfold::constrain
