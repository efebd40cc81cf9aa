// Ranks on several machines, both sides: the server's, where they join and from where they are started, and
// that of `fourfold rank`.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "library/prepare_model.h"
#include "nodes/launcher.h"
#include "nodes/leader.h"
#include "nodes/worker.h"

namespace fourfold::library {

// Ranks that compute on this machine: all of --tp, or those that --nodes does not give away.
int ranks_here(const BackendOptions& options);

// Throws invalid_request and unsupported_op for what ranks on other machines cannot do.
void require_known_nodes(const BackendOptions& options);

struct NodeRanks {
  std::unique_ptr<nodes::Launcher> launcher;  // goes last: those it started have been told
  std::unique_ptr<nodes::Leader> leader;
};

// What every rank has.
struct NodeRoom {
  backend::Capacity capacity;
  std::string machine;     // its GPU (machine_words); empty: a CPU
  std::string collective;  // how GPUs meet (choose_collective)
};

// Listens, and starts those that are to be started; the others are told how, by the listener.
std::shared_ptr<NodeRanks> open_node_ranks(const OpenModel& model, const BackendOptions& options,
                                           const NodeRoom& room,
                                           const std::shared_ptr<backend::Collective>& collective,
                                           const Listener& listener);

// Rank 0, whose failure to load ends the wait for the others.
std::shared_ptr<backend::Backend> first_rank(std::shared_ptr<backend::Backend> backend,
                                             std::shared_ptr<NodeRanks> nodes);

// The model's checksums that every rank must have.
nodes::ModelSums model_sums(const OpenModel& model);

struct RankSetup {
  int threads = 0;    // 0: one per core
  int first_cpu = 0;  // of those this process may use: where several ranks are on one machine
  int gpu = 0;        // which of this machine's, where the leader's backend has them
  // MODEL as this machine finds it. given: the leader's word for it.
  std::function<std::unique_ptr<OpenModel>(const std::string& given)> open;
  Listener listener = {};
};
// How `fourfold rank` opens and loads what the leader says. The setup must outlive it.
nodes::RankModel rank_model(const RankSetup& setup);

}  // namespace fourfold::library
