// Masks of states.
#include "constrain/masks.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.h"
#include "base/json_escape.h"
#include "constrain/token_classes.h"

namespace fourfold::constrain {
namespace {

constexpr std::size_t kKnownBytesMax = std::size_t{32} << 20;  // then they are computed anew

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
      taken += !needs_json_escape(static_cast<char32_t>(byte));
  }
  return taken == 0x60 - 2 ? next : std::nullopt;
}

bool takes_plain_text(const Masks& masks, const Matcher& matcher, Matcher::SetId set,
                      std::uint32_t characters) {
  const auto kernel = matcher.kernel(set);
  return std::any_of(kernel.begin(), kernel.end(), [&](const Matcher::Reading& reading) {
    return masks.plain_run(reading.state) >= std::max<std::uint32_t>(characters, 1);
  });
}

}  // namespace

void walk_trie(const Masks& masks, Matcher& matcher, Matcher::SetId set, std::uint32_t from,
               std::span<std::uint64_t> bits, std::vector<std::uint32_t>* leavings, MaskBudget& budget) {
  const Vocabulary& vocabulary = masks.vocabulary();
  const Vocabulary::Node& top = vocabulary.node(from);
  std::vector<Matcher::SetId> path(static_cast<std::size_t>(vocabulary.depth_max()) + 1);
  path[top.depth] = set;
  const auto allow = [&](std::span<const TokenId> tokens) {
    for (const TokenId token : tokens)
      bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
  };
  for (std::uint32_t at = from + 1; at < top.skip;) {
    const Vocabulary::Node& node = vocabulary.node(at);
    budget.spend(1);
    const Matcher::SetId now = matcher.step(path[node.depth - 1u], node.byte);
    if (now == Matcher::kDead) {
      at = node.skip;
      continue;
    }
    if (node.plain_characters < 255 && takes_plain_text(masks, matcher, now, node.plain_characters)) {
      allow(vocabulary.tokens(at, node.skip));
      at = node.skip;
      continue;
    }
    path[node.depth] = now;
    allow(vocabulary.tokens(at, at + 1));
    if (leavings && node.skip > at + 1 && matcher.may_end(now)) leavings->push_back(at);
    ++at;
  }
}

bool FormBytes::take(std::size_t bytes) {
  std::size_t used = used_;
  do {
    if (bytes > max_ || used > max_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  if (!whole_ || whole_->take(bytes)) return true;
  used_ -= bytes;
  return false;
}

void FormBytes::give(std::size_t bytes) {
  used_ -= bytes;
  if (whole_) whole_->give(bytes);
}

Masks::Masks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar,
             std::shared_ptr<FormBytes> memory)
    : vocabulary_(std::move(vocabulary)), grammar_(std::move(grammar)), memory_(std::move(memory)) {
  for (const std::string& text : grammar_->tags()) {
    auto token = vocabulary_->tag(text);
    if (!token) token = vocabulary_->tag(control_mark(text));
    if (token) tags_.push_back({*token, text});
  }
  const std::size_t own = grammar_->bytes() + std::size_t{grammar_->state_count()} *
                                                  (sizeof(plain_run_[0]) + sizeof(class_of_[0]));
  if (memory_ && !memory_->take(own))
    fail(Code::over_capacity,
         "the forms of all answers that wait or are being written take more than {} MiB together",
         memory_->max() >> 20);
  own_bytes_ = own;
  find_free_text();
  class_of_ = token_classes(*grammar_, vocabulary_->depth_max());
}

Masks::~Masks() {
  if (memory_) memory_->give(own_bytes_ + known_bytes_);
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

std::size_t Masks::bytes() const {
  const std::lock_guard lock(mutex_);
  return own_bytes_ + known_bytes_;
}

std::shared_ptr<const Masks::Local> Masks::local(std::uint32_t state, MaskBudget& budget) const {
  const std::uint32_t key = class_of_[state];
  {
    const std::lock_guard lock(mutex_);
    if (const auto place = known_.find(key); place != known_.end()) return place->second;
  }
  auto made = compute(state, budget);
  keep(key, made);
  return made;
}

// Where there is no room all that is known is forgotten: it can be computed anew.
void Masks::keep(std::uint32_t key, const std::shared_ptr<const Local>& made) const {
  const std::size_t bytes = size_of(*made);
  const std::lock_guard lock(mutex_);
  const auto has_room = [&] {
    return known_bytes_ + bytes <= kKnownBytesMax && (!memory_ || memory_->take(bytes));
  };
  if (known_.contains(key)) return;
  if (!has_room()) {
    known_.clear();
    if (memory_) memory_->give(known_bytes_);
    known_bytes_ = 0;
    if (!has_room()) return;
  }
  known_.emplace(key, made);
  known_bytes_ += bytes;
}

std::shared_ptr<const Masks::Local> Masks::compute(std::uint32_t state, MaskBudget& budget) const {
  auto local = std::make_shared<Local>();
  Matcher matcher(*grammar_, &budget);
  local->bits.assign(vocabulary_->word_count(), 0);
  walk_trie(*this, matcher, matcher.start_at(state), 0, local->bits, &local->leavings, budget);
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
  constexpr std::int64_t work_max = 10'000'000;  // the rest when it is needed
  std::int64_t work = 0;
  const auto make = [&](std::uint32_t state) {
    MaskBudget budget;
    local(state, budget);
    work += budget.spent_on_token();
  };
  make(grammar_->start());
  const auto known_count = [this] {
    const std::lock_guard lock(mutex_);
    return known_.size();
  };
  for (std::uint32_t state = 0;
       state < grammar_->state_count() && known_count() < states_max && work < work_max; ++state) {
    int bytes = 0;
    for (const Grammar::Edge& edge : grammar_->edges(state)) bytes += edge.high - edge.low + 1;
    if (bytes >= bytes_min) make(state);
  }
}

}  // namespace fourfold::constrain
