// Several ranks behind one door: each holds its part of a model (model/shard.h), has a thread of its own and
// runs every step; together they are one Prepared. What is behind a rank does not matter: the CPU, the
// reference, or one GPU of several.
//
// Never a wrong token: a rank that throws or stops coming ends the step for all of them with device_lost,
// which names the rank and where it was; every later call throws the same, until restore() where ranks come
// back. The same batch refused by all ranks (invalid_request) is refused to the caller, and changes nothing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace fourfold::backend {

// What one rank is made of. Everything it uses must live as long as `keeps`, which the rank's thread holds:
// a thread that has stopped for good cannot be ended, only left behind with what it may still touch.
struct Rank {
  std::shared_ptr<Backend> backend;
  Program program;                         // its part: program.part says which
  std::shared_ptr<const void> keeps = {};  // weights the program points into
};

struct RankOptions {
  // How long a rank may be behind the others, and how long those that are told to stop may take to do so.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  // Called once, from any thread, when a rank has failed: whoever has ranks wait outside Collective (kernels
  // that look for a flag) makes them stop. Collective::give_up is such a function.
  std::function<void(int rank, const std::string& why)> give_up = {};
  // Ranks that come and go (nodes/leader.h). away: why one is not there now; mend: whether all are there
  // again, and ready for the first step of a new group. Without them a rank is lost for good.
  std::function<std::string()> away = {};
  std::function<bool()> mend = {};
};

// "rank 0", "ranks 0 and 2", "ranks 1 to 3": ascending, one at least.
std::string names_of_ranks(std::span<const int> ranks);

// Prepares all ranks at the same time, each in its own thread: the pages of the checkpoint that several ranks
// read are read once. program() and value() are those of rank 0, whose values between the all-reduces are its
// part. notices() are each said once, with the ranks that have them; where those have numbers of their own
// (parts of a model are not all of one size), with the first one's. Throws what a rank threw, with the rank
// named.
std::unique_ptr<Prepared> prepare_ranks(std::vector<Rank> ranks, const Capacity& capacity,
                                        RankOptions options);

}  // namespace fourfold::backend
