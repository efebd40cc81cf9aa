// What the status page shows, and what /version, /server_info and /get_load say.
#pragma once

#include <string>

#include "server/http_server.h"
#include "server/metrics.h"
#include "server/served_model.h"

namespace fourfold::server {

std::string version_json(const ServerFacts& facts);
// In SGLang's words: its router takes a worker's model from the first, and its load from the second.
std::string server_info_json(const engine::EngineStatus& status, const ServerFacts& facts,
                             const ServedModel& model);
std::string load_json(const engine::EngineStatus& status);
std::string status_json(const engine::EngineStatus& status, const Metrics& metrics, const HttpCounts& counts,
                        const ServerFacts& facts, const ServedModel& model);

}  // namespace fourfold::server
