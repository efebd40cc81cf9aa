#include "backend/ranks/ranks.h"

#include <algorithm>

#include "backend/ranks/rank_threads.h"
#include "base/check.h"
#include "base/format.h"

namespace fourfold::backend {
namespace {

using Hurry = RankThreads::Hurry;

template <class T>
void copy_to(std::vector<T>& to, std::span<const T> from) {
  to.assign(from.begin(), from.end());
}

// A step in memory of its own: a rank that is left behind may read it after the caller has gone.
struct StepCopy {
  std::vector<std::int32_t> tokens, pages, logits_rows, hidden_rows;
  std::vector<SequenceRows> sequences;
  std::vector<Choice> choices;
  std::int64_t token_limit = 0;
  std::vector<int> counts;
  Pass pass = Pass::main;

  void take(Pass new_pass, const Batch& batch) {
    pass = new_pass;
    copy_to(tokens, batch.tokens), copy_to(pages, batch.pages), copy_to(sequences, batch.sequences);
    copy_to(logits_rows, batch.logits_rows), copy_to(hidden_rows, batch.hidden_rows);
  }
  void take(const Choices& given) { copy_to(choices, given.rows), token_limit = given.token_limit; }
  Batch batch() const { return {tokens, sequences, pages, logits_rows, hidden_rows}; }
  Choices all_choices() const { return {token_limit, choices}; }
};

// What a rank gave back.
struct Answer {
  bool done = false;  // false: this backend cannot
  std::vector<float> logits;
  std::vector<std::int32_t> tokens;
};

// All that the ranks' threads touch.
struct Hall {
  std::vector<Rank> ranks;
  Capacity capacity;
  std::vector<std::unique_ptr<Prepared>> prepared;  // goes before the backends
  StepCopy step;
  std::vector<Answer> answers;
  std::vector<SeenToken> history;
};

// One notice of several ranks.
struct SharedNotice {
  std::string kind;        // the text without its numbers
  std::string text;        // the first rank's
  std::vector<int> ranks;  // that say it
  bool same_numbers = true;
};

std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c < '0' || c > '9') out += c;
  return out;
}

// Behind what earlier ranks said: to the same text, else to one of the kind, else by itself.
void add_notice(std::vector<SharedNotice>& all, int rank, const std::string& text) {
  const std::string kind = without_numbers(text);
  const auto find = [&](auto is_it) {
    return std::ranges::find_if(
        all, [&](const SharedNotice& one) { return one.ranks.back() != rank && is_it(one); });
  };
  auto found = find([&](const SharedNotice& one) { return one.text == text; });
  if (found == all.end()) found = find([&](const SharedNotice& one) { return one.kind == kind; });
  if (found == all.end()) return all.push_back({kind, text, {rank}});
  found->ranks.push_back(rank);
  found->same_numbers = found->same_numbers && found->text == text;
}

std::string words_of(const SharedNotice& notice, int rank_count) {
  const bool by_all = std::ssize(notice.ranks) == rank_count;
  if (by_all && notice.same_numbers) return notice.text;
  const std::string who = by_all ? "every rank" : names_of_ranks(notice.ranks);
  if (notice.same_numbers) return format("{}: {}", who, notice.text);
  return format("{}, each with numbers of its own; rank {}'s: {}", who, notice.ranks.front(), notice.text);
}

class PreparedRanks final : public Prepared {
 public:
  PreparedRanks(std::vector<Rank> ranks, const Capacity& capacity, RankOptions options)
      : hall_(std::make_shared<Hall>()),
        away_(options.away),
        mend_(options.mend),
        threads_(static_cast<int>(ranks.size()), std::move(options), hall_) {
    hall_->prepared.resize(ranks.size());
    hall_->answers.resize(ranks.size());
    hall_->ranks = std::move(ranks);
    hall_->capacity = capacity;
    each(Hurry::none, [](Hall& hall, std::size_t rank) {
      Rank& made = hall.ranks[rank];
      hall.prepared[rank] = made.backend->prepare(std::move(made.program), hall.capacity);
    });
    collect_memory();
    collect_notices();
  }

  const Program& program() const override { return first().program(); }
  const Capacity& capacity() const override { return hall_->capacity; }
  std::span<const float> value(ValueId id) const override { return first().value(id); }
  std::int64_t resumable_from(std::int32_t slot) const override { return first().resumable_from(slot); }
  std::int64_t history_limit() const override { return first().history_limit(); }
  bool roles_agree() const override { return first().roles_agree(); }
  std::span<const MemoryUse> memory() const override { return memory_; }
  std::span<const std::string> notices() const override { return notices_; }
  std::string away() const override { return away_ ? away_() : std::string(); }
  // Rank 0 is in this process: what failed there fails again.
  bool comes_back() const override { return mend_ && threads_.lost_rank() != 0; }
  bool restore() override {
    if (!comes_back() || !threads_.all_back() || !mend_()) return false;
    threads_.mend();
    return true;
  }
  std::int64_t anchor_bytes() const override {
    std::int64_t bytes = 0;
    for (const auto& prepared : hall_->prepared) bytes += prepared->anchor_bytes();
    return bytes;
  }

  void run(Pass pass, const Batch& batch, std::span<float> logits) override;
  bool run_sampled(Pass pass, const Batch& batch, const Choices& choices, const Chosen& chosen) override;
  bool run_drafts(const Batch& batch, const Choices& choices, std::span<const int> counts,
                  std::span<std::int32_t> drafts) override;
  void set_history(std::int32_t slot, std::span<const SeenToken> seen) override {
    threads_.require_all_there();
    copy_to(hall_->history, seen);
    each(Hurry::patience,
         [=](Hall& hall, std::size_t rank) { hall.prepared[rank]->set_history(slot, hall.history); });
  }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override {
    each(Hurry::patience,
         [=](Hall& hall, std::size_t rank) { hall.prepared[rank]->save_anchor(slot, position, anchor); });
  }
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override {
    each(Hurry::patience,
         [=](Hall& hall, std::size_t rank) { hall.prepared[rank]->restore_anchor(anchor, slot, position); });
  }

 private:
  // Calls work(hall, rank) in every rank's thread. It must capture values alone.
  template <class Work>
  void each(Hurry hurry, const Work& work) {
    threads_.run(hurry,
                 [hall = hall_.get(), work](int rank) { work(*hall, static_cast<std::size_t>(rank)); });
  }
  const Prepared& first() const { return *hall_->prepared.front(); }
  // Whether the ranks could do it; all of them, or none.
  bool agree_done();
  void require_same_tokens();
  void collect_memory();
  void collect_notices();

  std::shared_ptr<Hall> hall_;
  std::vector<MemoryUse> memory_;
  std::vector<std::string> notices_;
  std::function<std::string()> away_;
  std::function<bool()> mend_;
  RankThreads threads_;
};

void PreparedRanks::run(Pass pass, const Batch& batch, std::span<float> logits) {
  threads_.require_all_there();
  hall_->step.take(pass, batch);
  const std::size_t count = logits.size();
  each(Hurry::patience, [count](Hall& hall, std::size_t rank) {
    Answer& answer = hall.answers[rank];
    answer.logits.resize(count);
    hall.prepared[rank]->run(hall.step.pass, hall.step.batch(), answer.logits);
  });
  std::ranges::copy(hall_->answers.front().logits, logits.begin());
}

bool PreparedRanks::run_sampled(Pass pass, const Batch& batch, const Choices& choices, const Chosen& chosen) {
  threads_.require_all_there();
  hall_->step.take(pass, batch);
  hall_->step.take(choices);
  const std::size_t tokens = chosen.tokens.size(), floats = chosen.logits.size();
  each(Hurry::patience, [=](Hall& hall, std::size_t rank) {
    Answer& answer = hall.answers[rank];
    answer.tokens.assign(tokens, kNoToken);
    answer.logits.resize(floats);
    answer.done = hall.prepared[rank]->run_sampled(hall.step.pass, hall.step.batch(), hall.step.all_choices(),
                                                   {answer.tokens, answer.logits});
  });
  if (!agree_done()) return false;
  require_same_tokens();
  const Answer& answer = hall_->answers.front();
  for (std::size_t i = 0; i < tokens; ++i)
    if (!choices.rows[i].wants_logits) chosen.tokens[i] = answer.tokens[i];
  std::ranges::copy(answer.logits, chosen.logits.begin());
  return true;
}

bool PreparedRanks::run_drafts(const Batch& batch, const Choices& choices, std::span<const int> counts,
                               std::span<std::int32_t> drafts) {
  threads_.require_all_there();
  hall_->step.take(Pass::draft, batch);
  hall_->step.take(choices);
  copy_to(hall_->step.counts, counts);
  const std::size_t tokens = drafts.size();
  each(Hurry::patience, [=](Hall& hall, std::size_t rank) {
    Answer& answer = hall.answers[rank];
    answer.tokens.assign(tokens, kNoToken);
    answer.done = hall.prepared[rank]->run_drafts(hall.step.batch(), hall.step.all_choices(),
                                                  hall.step.counts, answer.tokens);
  });
  if (!agree_done()) return false;
  require_same_tokens();
  std::ranges::copy(hall_->answers.front().tokens, drafts.begin());
  return true;
}

bool PreparedRanks::agree_done() {
  const bool done = hall_->answers.front().done;
  for (std::size_t rank = 1; rank < hall_->answers.size(); ++rank)
    if (hall_->answers[rank].done != done)
      threads_.fail_rank(static_cast<int>(rank), format("rank {} {} choose tokens, rank 0 {}", rank,
                                                        done ? "cannot" : "can", done ? "can" : "cannot"));
  return done;
}

// All ranks have the same logits; where memory between them lies, they have not, and that shows here.
void PreparedRanks::require_same_tokens() {
  const std::vector<std::int32_t>& wanted = hall_->answers.front().tokens;
  for (std::size_t rank = 1; rank < hall_->answers.size(); ++rank) {
    const std::vector<std::int32_t>& got = hall_->answers[rank].tokens;
    const auto differs = std::ranges::mismatch(wanted, got);
    if (differs.in1 == wanted.end()) continue;
    threads_.fail_rank(static_cast<int>(rank),
                       format("rank {} chose token {} in place {}, rank 0 chose {}: their logits differ",
                              rank, *differs.in2, differs.in1 - wanted.begin(), *differs.in1));
  }
}

void PreparedRanks::collect_memory() {
  for (std::size_t rank = 0; rank < hall_->prepared.size(); ++rank)
    for (const MemoryUse& use : hall_->prepared[rank]->memory())
      memory_.push_back({format("rank {} {}", rank, use.what), use.bytes});
}

void PreparedRanks::collect_notices() {
  std::vector<SharedNotice> all;
  for (std::size_t rank = 0; rank < hall_->prepared.size(); ++rank)
    for (const std::string& text : hall_->prepared[rank]->notices())
      add_notice(all, static_cast<int>(rank), text);
  for (const SharedNotice& notice : all)
    notices_.push_back(words_of(notice, static_cast<int>(hall_->prepared.size())));
}

}  // namespace

std::string names_of_ranks(std::span<const int> ranks) {
  check(!ranks.empty(), "there is a rank to name");
  if (ranks.size() == 1) return format("rank {}", ranks.front());
  const auto between = static_cast<std::size_t>(ranks.back() - ranks.front());
  if (ranks.size() > 2 && between == ranks.size() - 1)
    return format("ranks {} to {}", ranks.front(), ranks.back());
  std::string text = format("ranks {}", ranks.front());
  for (const int rank : ranks.subspan(1)) text += format("{}{}", rank == ranks.back() ? " and " : ", ", rank);
  return text;
}

std::unique_ptr<Prepared> prepare_ranks(std::vector<Rank> ranks, const Capacity& capacity,
                                        RankOptions options) {
  check(!ranks.empty(), "there is a rank");
  for (std::size_t i = 0; i < ranks.size(); ++i)
    check(ranks[i].program.part.rank == static_cast<int>(i) &&
              ranks[i].program.part.count == static_cast<int>(ranks.size()),
          "each rank has its part", i, ranks[i].program.part.rank, ranks[i].program.part.count);
  return std::make_unique<PreparedRanks>(std::move(ranks), capacity, std::move(options));
}

}  // namespace fourfold::backend
