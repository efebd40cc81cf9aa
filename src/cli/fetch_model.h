// MODEL for the commands that fetch what is missing: run, chat, serve and pull.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/hub_cache.h"
#include "cli/console.h"
#include "hub/pull.h"
#include "library/open_model.h"

namespace fourfold::cli {

// As find_model() finds it. A hub name that is not in the cache, or is there without all of its weights, is
// fetched first; what is there is taken as it is, and the hub is not asked.
std::filesystem::path fetch_model(const std::string& model, const Console& console);

// As open_model() of load_model.h, with fetch_model().
std::unique_ptr<library::OpenModel> fetch_and_open_model(const std::string& model, const Console& console,
                                                         bool strict);

// hub::pull with progress and notices on stderr.
hub::Pulled pull_model(const checkpoint::HubName& hub, const Console& console);

}  // namespace fourfold::cli
