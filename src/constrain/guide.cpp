// One answer on its way through a grammar.
#include "constrain/guide.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"
#include "constrain/regex.h"

namespace fourfold::constrain {
namespace {

constexpr std::size_t kRememberedBytesMax = std::size_t{2} << 20;  // of steps, an answer
constexpr std::size_t kChargedBytes = std::size_t{64} << 10;       // of them at once

void allow(std::span<std::uint64_t> bits, TokenId token) {
  const auto word = static_cast<std::size_t>(token) / 64;
  if (word < bits.size()) bits[word] |= std::uint64_t{1} << (token % 64);
}

class GrammarGuide final : public engine::TokenGuide {
 public:
  GrammarGuide(std::shared_ptr<const Masks> masks, GuideStart start)
      : masks_(std::move(masks)), start_(std::move(start)), matcher_(masks_->grammar(), &budget_) {
    if (!start_.header.empty()) {
      phase_ = Phase::header;
      open_ = {&start_.header, &start_.thought};
    } else if (!start_.after) {
      begin();
    }
  }
  ~GrammarGuide() override {
    if (masks_->memory() != nullptr) masks_->memory()->give(charged_);
  }

  void allowed(std::span<std::uint64_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0);
    const Vocabulary& vocabulary = masks_->vocabulary();
    check(bits.size() >= vocabulary.word_count(), "the caller's words cover the vocabulary", bits.size(),
          vocabulary.word_count());
    if (phase_ == Phase::before) return allow_anything(bits);
    if (phase_ == Phase::header) {
      for (const auto* tokens : open_) allow(bits, (*tokens)[header_at_]);
      return;
    }
    if (phase_ == Phase::inside) {
      budget_.begin_token();
      if (matcher_.bytes() > kRememberedBytesMax + 2 * needed_bytes_) {
        set_ = matcher_.keep_only(set_);
        needed_bytes_ = matcher_.bytes();  // a text deep in brackets needs much, and forgets less often
      }
      if (!charge()) {
        set_ = matcher_.keep_only(set_);
        charge();
      }
      for (std::size_t i = 0; i < matcher_.kernel(set_).size(); ++i)
        allow_from(matcher_.kernel(set_)[i], bits);
      for (const Masks::Tag& tag : masks_->tags())
        if (after(tag.text) != Matcher::kDead) allow(bits, tag.token);
    }
    if (phase_ == Phase::done || matcher_.may_end(set_))
      for (const TokenId stop : vocabulary.stop_ids()) allow(bits, stop);
  }

  void accept(TokenId token) override {
    if (phase_ == Phase::done) return;
    if (phase_ == Phase::header) return accept_header(token);
    if (phase_ == Phase::before) {
      if (token != start_.after) return;
      if (start_.header.empty()) return begin();
      phase_ = Phase::header;
      open_ = {&start_.header_again};
      header_at_ = 0;
      return;
    }
    if (masks_->vocabulary().is_stop(token)) {
      if (!matcher_.may_end(set_)) lose();
      phase_ = Phase::done;
      return;
    }
    set_ = after(written(token));
    if (set_ == Matcher::kDead) lose();
  }

 private:
  enum class Phase { header, before, inside, done };

  void accept_header(TokenId token) {
    std::erase_if(open_, [&](const auto* tokens) { return (*tokens)[header_at_] != token; });
    if (open_.empty()) lose();
    ++header_at_;
    for (const auto* tokens : open_) {
      if (header_at_ < tokens->size()) continue;
      if (tokens != &start_.thought) return begin();
      phase_ = Phase::before;
      return;
    }
  }

  // Of very many readings at once some are let go (matcher.cpp), and the token may have belonged to one of
  // them.
  [[noreturn]] static void lose() {
    fail_with_hint(Code::internal, "Make its alternatives differ earlier.",
                   "the answer's form can be read in too many ways at once");
  }

  // What the matcher remembers, as part of what all forms take. False where there is no room: then it
  // remembers what it needs, and the answer goes on.
  bool charge() {
    FormBytes* memory = masks_->memory();
    const std::size_t now = matcher_.bytes() / kChargedBytes * kChargedBytes;
    if (memory == nullptr || now == charged_) return true;
    if (now > charged_ && !memory->take(now - charged_)) return false;
    if (now < charged_) memory->give(charged_ - now);
    charged_ = now;
    return true;
  }

  void begin() {
    phase_ = Phase::inside;
    const Grammar& grammar = masks_->grammar();
    set_ = matcher_.start_at(start_.newlines ? grammar.start_after_newlines() : grammar.start());
  }

  std::string_view written(TokenId token) const {
    for (const Masks::Tag& tag : masks_->tags())
      if (tag.token == token) return tag.text;
    return masks_->vocabulary().bytes(token);
  }

  Matcher::SetId after(std::string_view text) {
    if (text.empty()) return Matcher::kDead;
    Matcher::SetId set = set_;
    for (const char c : text) {
      set = matcher_.step(set, static_cast<std::uint8_t>(c));
      if (set == Matcher::kDead) break;
    }
    return set;
  }

  void allow_anything(std::span<std::uint64_t> bits) const {
    const std::span<const std::uint64_t> ordinary = masks_->vocabulary().ordinary();
    std::copy(ordinary.begin(), ordinary.end(), bits.begin());
    allow(bits, *start_.after);
    for (const TokenId token : start_.not_before)
      if (token >= 0 && static_cast<std::size_t>(token) / 64 < bits.size())
        bits[static_cast<std::size_t>(token) / 64] &= ~(std::uint64_t{1} << (token % 64));
  }

  // What may follow one reading: the tokens that stay inside its rule are known for its state; those that
  // leave it go on where the rule was called.
  void allow_from(Matcher::Reading reading, std::span<std::uint64_t> bits) {
    const auto local = masks_->local(reading.state, budget_);
    budget_.spend(std::ssize(local->bits) / 4 + std::ssize(local->tokens) + std::ssize(local->leavings));
    for (std::size_t i = 0; i < local->bits.size(); ++i) bits[i] |= local->bits[i];
    for (const TokenId token : local->tokens) allow(bits, token);
    if (local->leavings.empty()) return;
    const Matcher::SetId back = matcher_.after_return(reading.stack);
    if (back == Matcher::kDead) return;
    for (const std::uint32_t node : local->leavings)
      walk_trie(*masks_, matcher_, back, node, bits, nullptr, budget_);
  }

  std::shared_ptr<const Masks> masks_;
  GuideStart start_;
  MaskBudget budget_;
  Matcher matcher_;
  Matcher::SetId set_ = 0;
  std::size_t needed_bytes_ = 0, charged_ = 0;
  Phase phase_ = Phase::before;
  std::vector<const std::vector<TokenId>*> open_;  // headers that may still come
  std::size_t header_at_ = 0;
};

}  // namespace

std::unique_ptr<engine::TokenGuide> make_guide(std::shared_ptr<const Masks> masks, GuideStart start) {
  return std::make_unique<GrammarGuide>(std::move(masks), std::move(start));
}

std::unique_ptr<engine::TokenGuide> make_guide(std::shared_ptr<const Vocabulary> vocabulary,
                                               std::shared_ptr<const Grammar> grammar, GuideStart start) {
  return make_guide(std::make_shared<const Masks>(std::move(vocabulary), std::move(grammar)),
                    std::move(start));
}

std::shared_ptr<const Grammar> compile_regex(std::string_view pattern, const Limits& limits) {
  if (pattern.size() > limits.text_bytes_max)
    fail(Code::invalid_request, "a regular expression of {} bytes; at most {}", pattern.size(),
         limits.text_bytes_max);
  GrammarBuilder builder(limits);
  return builder.finish(
      parse_regex(builder.pool(), pattern, RegexUse::whole, Writing::plain, "the regular expression"));
}

std::shared_ptr<const Grammar> compile_choice(std::span<const std::string> choices, const Limits& limits) {
  std::size_t bytes = 0;
  for (const std::string& choice : choices) bytes += choice.size();
  if (bytes > limits.text_bytes_max)
    fail(Code::invalid_request, "choices of {} bytes; at most {}", bytes, limits.text_bytes_max);
  if (choices.empty()) fail(Code::invalid_request, "there must be something to choose from");
  GrammarBuilder builder(limits);
  std::vector<ExprId> ways;
  for (const std::string& choice : choices) {
    if (!is_valid_utf8(choice)) fail(Code::invalid_request, "a choice is not valid UTF-8");
    ways.push_back(builder.pool().text(choice));
  }
  return builder.finish(builder.pool().either(ways));
}

}  // namespace fourfold::constrain
