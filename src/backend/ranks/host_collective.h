// The collective of ranks that are threads of one process: through mailboxes in host memory. Two of them in
// turn, so that one meeting a call is enough: whoever writes a mailbox again has met all ranks at the call
// between, and they came there after they had read it.
#pragma once

#include <chrono>
#include <memory>

#include "backend/collective.h"

namespace fourfold::backend {

// patience: how long a rank waits for another before it gives it up.
std::shared_ptr<Collective> make_host_collective(int rank_count, std::chrono::milliseconds patience);

}  // namespace fourfold::backend
