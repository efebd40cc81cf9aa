// What the status page shows, and what /version says.
#pragma once

#include <string>

#include "server/http_server.h"
#include "server/metrics.h"
#include "server/served_model.h"

namespace fourfold::server {

std::string version_json(const ServerFacts& facts);
std::string status_json(const engine::EngineStatus& status, const Metrics& metrics, const HttpCounts& counts,
                        const ServerFacts& facts, const ServedModel& model);

}  // namespace fourfold::server
