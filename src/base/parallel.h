// Spreads independent work over the machine's cores. Threads live for one call: the callers (quantising,
// loading, verifying) work for milliseconds and more, and no pool means no state to shut down.
#pragma once

#include <cstdint>
#include <functional>

namespace fourfold {

// Calls run(begin, end) until [0, count) is covered, each range at most `grain` long, on up to one thread per
// core with the caller among them. An exception stops further ranges from starting and reaches the caller; of
// several, the one from the lowest range, so the same input reports the same error. A call from inside run()
// does its ranges in place.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& run);

}  // namespace fourfold
