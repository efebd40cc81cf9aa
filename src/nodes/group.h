// The ranks that are on other machines, as the leader knows them: who is there, who loads, who is lost.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nodes/link.h"
#include "nodes/messages.h"

namespace fourfold::nodes {

class Group {
 public:
  explicit Group(int rank_count) : places_(static_cast<std::size_t>(rank_count)) {}

  int rank_count() const { return static_cast<int>(places_.size()); }
  // A free place for whoever wants this one (-1: any), which is taken until leave(). Throws Refused.
  int take(int wanted);
  void leave(int rank);
  // It has joined, and loads; then it is ready.
  void begin(int rank, std::shared_ptr<Link> link);
  void finish(int rank, Loaded loaded);
  // One that was begun is lost: of those that were ready, which it answers, it is said until mend(). Its
  // place stays taken until leave().
  bool lose(int rank, const std::string& why);

  // Throws io when it has not joined within this time, RankLost behind end_waits().
  Loaded wait_until_ready(int rank, std::chrono::milliseconds patience, const std::string& hint);
  // Rank 0 cannot be: nobody needs to be waited for.
  void end_waits(const std::string& why);
  // The connection of one that is ready. Throws RankLost when this one is away, or another was since mend().
  std::shared_ptr<Link> link(int rank) const;
  // Also of one that is not ready; null: none.
  std::shared_ptr<Link> any_link(int rank) const;
  std::vector<std::shared_ptr<Link>> links() const;

  std::string away() const;
  // Whether all are ready: then what was lost is forgotten.
  bool mend();

 private:
  enum class State { free, taken, loading, ready };
  struct Place {
    State state = State::free;
    std::shared_ptr<Link> link;
    Loaded loaded;
    std::string lost;    // why, since mend()
    std::string failed;  // why it did not get ready the last time
  };
  std::string away_locked() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> places_;  // the first is this process, and stays free
  std::string in_vain_;        // why nobody is waited for any more
};

}  // namespace fourfold::nodes
