// The command line of `fourfold serve` in the library's words: what is asked of an engine, and of the text
// side.
#pragma once

#include "cli/load_model.h"
#include "cli/serve_command.h"
#include "library/open_engine.h"
#include "library/served_model.h"

namespace fourfold::cli {

library::EngineSettings engine_settings(const ServeOptions& options, const OpenModel& model);

// --nodes and what goes with it. Throws invalid_request.
std::optional<library::NodeOptions> node_options(const ServeOptions& options);

server::ServedModel served_model(const ServeOptions& options, const OpenModel& model);

// Drafts a step; EngineOptions::kMtpAuto for auto. Throws invalid_request.
int parse_mtp(const std::string& text, bool model_drafts);

}  // namespace fourfold::cli
