#include "backend/ranks/rank_threads.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>

#include "backend/collective.h"
#include "base/check.h"

namespace fourfold::backend {
namespace {

struct Lost {
  int rank;
  std::string why;
  Code code = Code::device_lost;
  std::string hint = {};
};

// What an exception says of a rank: others' failures are told as they are.
Lost told_by(int rank, int rank_count, const std::exception_ptr& thrown) {
  const auto own = [&](const std::string& why) {
    return Lost{rank, format("rank {} of {} failed: {}", rank, rank_count, why)};
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const RankLost& lost) {
    return {lost.rank(), lost.what()};
  } catch (const Error& error) {
    return {rank, own(error.what()).why, error.code(), error.hint()};
  } catch (const std::exception& error) {
    return own(error.what());
  } catch (...) {
    return own("something that is no std::exception was thrown");
  }
}

// Errors of one code: a request that is refused, a model that cannot be run. Anything else is a rank's own.
std::optional<Code> refusal(const std::exception_ptr& thrown) {
  if (!thrown) return std::nullopt;
  try {
    std::rethrow_exception(thrown);
  } catch (const RankLost&) {
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() == Code::device_lost || error.code() == Code::internal) return std::nullopt;
    return error.code();
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

// Held by the threads and by their owner; the last of them lets it go.
struct RankThreads::Shared {
  Shared(int rank_count, RankOptions given, std::shared_ptr<const void> kept)
      : options(std::move(given)), keeps(std::move(kept)), ranks(static_cast<std::size_t>(rank_count)) {}

  struct Member {
    bool busy = false;
    std::exception_ptr thrown;
  };

  RankOptions options;
  std::shared_ptr<const void> keeps;
  std::mutex mutex;
  std::condition_variable begins, ends;
  std::vector<Member> ranks;
  Job job;
  Hurry hurry = Hurry::none;  // of the job
  bool stops = false;
  std::optional<Lost> lost;
  bool is_telling = false;  // give_up is under way, in whichever thread

  int rank_count() const { return static_cast<int>(ranks.size()); }
  bool all_back() const { return std::ranges::none_of(ranks, &Member::busy); }
  bool any_back() const { return !std::ranges::all_of(ranks, &Member::busy); }

  // The first failure stays, and is passed on to those who wait elsewhere.
  void lose(std::unique_lock<std::mutex>& lock, Lost failure) {
    if (lost) return;
    lost = std::move(failure);
    if (options.give_up) {
      const Lost told = *lost;
      is_telling = true;
      lock.unlock();
      // Whoever cannot be told notices by itself; a flag that stayed would keep the ranks from beginning
      // anew.
      try {
        options.give_up(told.rank, told.why);
      } catch (...) {
      }
      lock.lock();
      is_telling = false;
    }
    ends.notify_all();
  }

  // Whoever waited in vain for a rank that had refused its work knows less than that rank does.
  Lost heard(const Lost& failure) const {
    if (failure.rank == kNoRank) return failure;
    const Member& named = ranks.at(static_cast<std::size_t>(failure.rank));
    return !named.busy && refusal(named.thrown) ? told_by(failure.rank, rank_count(), named.thrown) : failure;
  }

  void work(int rank) {
    Member& me = ranks[static_cast<std::size_t>(rank)];
    std::unique_lock lock(mutex);
    for (;;) {
      begins.wait(lock, [&] { return stops || me.busy; });
      if (!me.busy) return;
      const Job todo = job;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        todo(rank);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      me.thrown = thrown;
      me.busy = false;
      // What all ranks refuse is no failure; whether they do is seen when all are back.
      if (thrown && !refusal(thrown)) lose(lock, heard(told_by(rank, rank_count(), thrown)));
      ends.notify_all();
    }
  }

  bool only_lost_is_away() const {
    for (int rank = 0; rank < rank_count(); ++rank)
      if (ranks[static_cast<std::size_t>(rank)].busy && rank != lost->rank) return false;
    return true;
  }

  // Waits for all ranks, and for slow ones no longer than the options say.
  void wait_for_all(std::unique_lock<std::mutex>& lock) {
    using Clock = std::chrono::steady_clock;
    constexpr Clock::time_point never{};
    Clock::time_point deadline = never;
    while (!all_back() || is_telling) {
      if (is_telling) {  // whoever hears of a failure finds that all have been told
        ends.wait(lock);
        continue;
      }
      // While it is loaded a model may take its time, and a loader that was left behind would read what is
      // gone.
      if (hurry == Hurry::none) {
        ends.wait(lock);
        continue;
      }
      if (lost && only_lost_is_away()) return;
      // Behind the others, or told to stop.
      if (deadline == never && (lost || any_back())) deadline = Clock::now() + options.patience;
      if (deadline == never) {
        ends.wait(lock);
      } else if (ends.wait_until(lock, deadline) == std::cv_status::timeout && !all_back()) {
        if (lost) return;  // whoever is not back is left behind
        lose(lock, late());
        deadline = never;
      }
    }
  }

  // Whom the others have waited for: a rank that refused what they did not, else the first that is not back.
  Lost late() const {
    for (int rank = 0; rank < rank_count(); ++rank)
      if (const Member& member = ranks[static_cast<std::size_t>(rank)]; !member.busy && member.thrown)
        return told_by(rank, rank_count(), member.thrown);
    const auto rank = std::ranges::find_if(ranks, &Member::busy) - ranks.begin();
    return {static_cast<int>(rank), format("rank {} of {} was not done {} ms after the first of them", rank,
                                           rank_count(), options.patience.count())};
  }

  // All ranks are back and some threw: the same refusal by all of them is thrown as it is.
  void judge(std::unique_lock<std::mutex>& lock) {
    const auto first =
        std::ranges::find_if(ranks, [](const Member& member) { return member.thrown != nullptr; });
    if (first == ranks.end()) return;
    const std::optional<Code> code = refusal(ranks.front().thrown);
    if (code && std::ranges::all_of(ranks, [&](const Member& m) { return refusal(m.thrown) == code; }))
      std::rethrow_exception(ranks.front().thrown);
    lose(lock, told_by(static_cast<int>(first - ranks.begin()), rank_count(), first->thrown));
  }

  // A step that some ranks ran and others refused is lost, whatever they said.
  [[noreturn]] void raise() const {
    if (hurry == Hurry::none && lost->code != Code::device_lost)
      throw Error(lost->code, lost->why, lost->hint);
    throw RankLost(lost->rank, lost->why);
  }
};

RankThreads::RankThreads(int rank_count, RankOptions options, std::shared_ptr<const void> keeps)
    : shared_(std::make_shared<Shared>(rank_count, std::move(options), std::move(keeps))) {
  check(rank_count > 0, "there is a rank", rank_count);
  try {
    for (int rank = 0; rank < rank_count; ++rank)
      threads_.emplace_back([shared = shared_, rank] { shared->work(rank); });
  } catch (const std::system_error& error) {
    stop();
    fail_with_hint(Code::out_of_memory, "Use fewer ranks, or allow this process more threads.",
                   "the system has no thread for rank {} of {}: {}", threads_.size(), rank_count,
                   error.what());
  }
}

RankThreads::~RankThreads() { stop(); }

void RankThreads::stop() {
  std::unique_lock lock(shared_->mutex);
  shared_->stops = true;
  shared_->begins.notify_all();
  for (std::size_t rank = 0; rank < threads_.size(); ++rank) {
    if (shared_->ranks[rank].busy) {
      threads_[rank].detach();
      continue;
    }
    lock.unlock();
    threads_[rank].join();
    lock.lock();
  }
}

void RankThreads::run(Hurry hurry, Job job) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->lost) shared_->raise();
  shared_->job = std::move(job);
  shared_->hurry = hurry;
  for (Shared::Member& member : shared_->ranks) member = {.busy = true, .thrown = nullptr};
  shared_->begins.notify_all();
  shared_->wait_for_all(lock);
  if (!shared_->lost) shared_->judge(lock);
  if (shared_->lost) shared_->raise();
}

void RankThreads::require_all_there() const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->lost) shared_->raise();
}

int RankThreads::lost_rank() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->lost ? shared_->lost->rank : -1;
}

bool RankThreads::all_back() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->all_back() && !shared_->is_telling;
}

void RankThreads::mend() {
  const std::lock_guard lock(shared_->mutex);
  check(shared_->all_back() && !shared_->is_telling, "no rank is in a job, and all know of the failure");
  shared_->lost.reset();
}

void RankThreads::fail_rank(int rank, const std::string& why) {
  std::unique_lock lock(shared_->mutex);
  shared_->lose(lock, {rank, why});
  shared_->raise();
}

}  // namespace fourfold::backend
