// One rank of another machine as a Backend of this process; see leader.h.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/collective.h"
#include "nodes/group.h"

namespace fourfold::nodes {

struct RemoteRank {
  int rank = 0;
  std::shared_ptr<Group> group;
  std::shared_ptr<backend::Collective> collective;
  std::chrono::milliseconds join_patience{};
  std::string join_hint;
};

std::shared_ptr<backend::Backend> make_remote_rank(RemoteRank rank);

}  // namespace fourfold::nodes
