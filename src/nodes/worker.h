// The side of a rank on its own machine: joins the leader, loads its part, and does what it is asked until
// the leader ends. When the leader is lost it keeps its part and joins again.
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

struct WorkerOptions {
  Address leader;
  Token token;
  std::string version;
  int rank = -1;  // any
  LinkTiming timing = {};
  // For a leader that is not there, or has no place just now.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  std::function<void(const std::string& line)> log = {};
};

// What a rank has of a model; the library puts it together.
struct RankModel {
  std::function<ModelSums(const Settings&)> open;
  // Behind open(): of all bytes of it.
  std::function<TensorSums()> sum;
  // Behind sum(). What it makes meets the others by the collective.
  std::function<std::shared_ptr<backend::Prepared>(const Settings&, std::shared_ptr<backend::Collective>)>
      load;
};

// Returns when the leader has ended. Throws Refused with the leader's sentence, LinkLost when there has been
// no leader for too long, and what the model throws.
void run_worker(const WorkerOptions& options, const RankModel& model);

}  // namespace fourfold::nodes
