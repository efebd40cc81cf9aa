#include "backend/ranks/host_collective.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"

namespace fourfold::backend {
namespace {

class HostCollective final : public Collective {
 public:
  HostCollective(int rank_count, std::chrono::milliseconds patience)
      : patience_(patience), ranks_(static_cast<std::size_t>(rank_count)) {}

  int rank_count() const override { return static_cast<int>(ranks_.size()); }

  void all_reduce(int rank, std::string_view where, std::span<const float> in,
                  std::span<float> out) override {
    check(out.size() == in.size(), "a sum has the size of its parts", out.size(), in.size());
    const std::size_t box = meet(rank, where, in);
    std::ranges::copy(sent(0, box, in.size()), out.begin());
    for (std::size_t other = 1; other < ranks_.size(); ++other) {
      const std::span<const float> part = sent(other, box, in.size());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += part[i];
    }
  }

  void all_gather(int rank, std::string_view where, std::int64_t row_count, std::span<const float> in,
                  std::span<float> out) override {
    check(out.size() == in.size() * ranks_.size(), "all ranks' columns fit", out.size(), in.size());
    const std::size_t box = meet(rank, where, in);
    if (in.empty()) return;
    const std::size_t columns = in.size() / static_cast<std::size_t>(row_count);
    for (std::size_t other = 0; other < ranks_.size(); ++other) {
      const std::span<const float> part = sent(other, box, in.size());
      for (std::size_t row = 0; row * columns < in.size(); ++row)
        std::ranges::copy(part.subspan(row * columns, columns),
                          out.begin() + static_cast<std::ptrdiff_t>((row * ranks_.size() + other) * columns));
    }
  }

  void give_up(int rank, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    fail_locked({rank, why});
  }

  void mend() override {
    const std::lock_guard lock(mutex_);
    failure_.reset();
    ++generation_;
    // Ranks that failed in different calls count alike again.
    for (Member& member : ranks_) member.calls = 0, member.where.clear();
  }

  void require_all_there(int) override {
    const std::lock_guard lock(mutex_);
    if (failure_) throw RankLost(failure_->rank, failure_->why);
  }

  std::uint64_t generation() const override {
    const std::lock_guard lock(mutex_);
    return generation_;
  }

 private:
  struct Member {
    std::int64_t calls = 0;  // begun
    std::string where;       // the last one
    std::vector<float> boxes[2];
  };
  struct Failure {
    int rank;
    std::string why;
  };

  // Leaves the rank's values in a mailbox and waits for the others; which mailbox they are in.
  std::size_t meet(int rank, std::string_view where, std::span<const float> in) {
    Member& me = ranks_[static_cast<std::size_t>(rank)];
    const std::int64_t call = me.calls;  // changed by this rank alone
    const auto box = static_cast<std::size_t>(call % 2);
    me.boxes[box].assign(in.begin(), in.end());
    std::unique_lock lock(mutex_);
    me.calls = call + 1;
    me.where = where;
    came_.notify_all();
    const auto is_behind = [&](const Member& member) { return member.calls <= call; };
    const bool came = came_.wait_for(
        lock, patience_, [&] { return failure_.has_value() || std::ranges::none_of(ranks_, is_behind); });
    if (!came) {
      const auto missing = std::ranges::find_if(ranks_, is_behind) - ranks_.begin();
      const std::string& last = ranks_[static_cast<std::size_t>(missing)].where;
      fail_locked({static_cast<int>(missing),
                   format("rank {} of {} has not come to {} within {} ms; it was last at {}", missing,
                          ranks_.size(), where, patience_.count(), last.empty() ? "the start" : last)});
    }
    if (failure_) throw RankLost(failure_->rank, failure_->why);
    return box;
  }

  void fail_locked(Failure failure) {
    if (!failure_) failure_ = std::move(failure);
    came_.notify_all();
  }

  // A rank may be of another machine: what it sends is not ours to be sure of.
  std::span<const float> sent(std::size_t rank, std::size_t box, std::size_t size) const {
    const std::vector<float>& values = ranks_[rank].boxes[box];
    if (values.size() != size)
      throw RankLost(static_cast<int>(rank), format("rank {} of {} sent {} values where others sent {}", rank,
                                                    ranks_.size(), values.size(), size));
    return values;
  }

  std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Member> ranks_;
  std::optional<Failure> failure_;
  std::uint64_t generation_ = 0;  // how often it was mended
};

}  // namespace

std::shared_ptr<Collective> make_host_collective(int rank_count, std::chrono::milliseconds patience) {
  check(rank_count > 0, "there is a rank", rank_count);
  return std::make_shared<HostCollective>(rank_count, patience);
}

}  // namespace fourfold::backend
