// The side of the server: where ranks of other machines join, and what stands for each of them behind the
// door (backend/ranks). A rank here is a Backend like any other: a call of its Prepared goes to the machine
// that has the part, and what that machine brings to a sum is brought to the collective of this process. So
// sums are those of one process, in the order of ranks, and whoever runs the steps knows nothing of machines.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/collective.h"
#include "nodes/link.h"
#include "nodes/messages.h"
#include "nodes/token.h"

namespace fourfold::nodes {

struct LeaderOptions {
  Address listen;
  Token token;
  std::string version;
  Settings settings;  // of all ranks alike; each gets its number
  ModelSums model;
  // Of all bytes, asked for once somebody has come, from any thread: the ranks sum theirs meanwhile. Ends
  // soon after stops() is true, with an exception. And a tensor's name.
  std::function<TensorSums(const std::function<bool()>& stops)> sum_tensors = {};
  std::function<std::string(std::size_t tensor)> tensor_name = {};
  std::shared_ptr<backend::Collective> collective;
  // The ranks' steps meet without the leader: those that wait for a lost rank are told by it.
  bool meets_elsewhere = false;
  LinkTiming timing = {};
  // Until all have joined, at the start. How long they load is theirs: they are heard of.
  std::chrono::milliseconds join_patience = std::chrono::minutes(10);
  // Asked a few times a second: true ends those waits.
  std::function<bool()> is_stopped = {};
  // One line, from any thread: who came, who was refused, who is lost.
  std::function<void(const std::string& line)> log = {};
};

// Outlives what it makes. Rank 0 is of this process.
class Leader {
 public:
  // Listens from now on. Throws io.
  explicit Leader(LeaderOptions options);
  ~Leader();  // the ranks are told that it ends

  std::uint16_t port() const;
  // Its prepare() waits for the rank: until it has joined, and then until it has loaded.
  std::shared_ptr<backend::Backend> rank(int rank);

  // Whether a rank has a connection. The answer outlives the leader.
  std::function<bool(int rank)> presence() const;

  // The three of backend::RankOptions.
  std::string away() const;
  bool mend();
  void give_up(int rank, const std::string& why);

 private:
  struct Body;
  std::shared_ptr<Body> body_;
};

}  // namespace fourfold::nodes
