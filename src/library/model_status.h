// What an embedded model says of itself, as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "engine/request.h"
#include "events/publisher.h"

namespace fourfold::library {

// publisher: null where nobody is told of cached blocks.
std::string model_status(const engine::EngineStatus& status, std::int64_t context,
                         const events::Publisher* publisher);

}  // namespace fourfold::library
