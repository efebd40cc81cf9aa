// One thread a rank, and jobs that all of them do at the same time. Watches over them: a rank that throws, or
// is not done when the others have been for a while, is the end of all of them.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/ranks/ranks.h"

namespace fourfold::backend {

class RankThreads {
 public:
  // What a rank does; `rank` counts from 0. Whatever it uses is in memory that a rank left behind may still
  // touch: see Rank::keeps.
  using Job = std::function<void(int rank)>;

  // keeps: held by each thread until it ends.
  RankThreads(int rank_count, RankOptions options, std::shared_ptr<const void> keeps);
  // Ranks that have not come back are left behind.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Whether slow ranks are given up: no while a model is loaded, and then what a rank throws keeps its code.
  enum class Hurry { none, patience };
  // Throws RankLost when a rank failed, now or before. When all ranks refuse alike (a request that is not
  // valid, a model that none can run) it throws what they threw, and they can go on.
  void run(Hurry hurry, Job job);
  // Throws what run() would when a rank has failed before: until then nothing that ranks read may be changed.
  void require_all_there() const;
  // As if this rank had thrown it, for whoever finds out otherwise. Throws RankLost.
  [[noreturn]] void fail_rank(int rank, const std::string& why);
  // Which rank has failed; kNoRank: none, or none alone.
  int lost_rank() const;
  // Whether no rank is still in a job, of those that are left behind one may be; and whether give_up has
  // returned: told later, it would end a step of ranks that have begun anew.
  bool all_back() const;
  // Forgets a failure. All ranks are back.
  void mend();

 private:
  struct Shared;
  void stop();

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace fourfold::backend
