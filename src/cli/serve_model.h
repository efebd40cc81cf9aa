// From MODEL to what a server needs of it: what it asks of an engine, the text side, the names it answers to.
#pragma once

#include "cli/load_model.h"
#include "cli/serve_command.h"
#include "library/open_engine.h"
#include "server/served_model.h"

namespace fourfold::cli {

library::EngineSettings engine_settings(const ServeOptions& options, const OpenModel& model);

server::ServedModel served_model(const ServeOptions& options, const OpenModel& model,
                                 const library::EngineRoom& room);

// Drafts a step; EngineOptions::kMtpAuto for auto. Throws invalid_request.
int parse_mtp(const std::string& text, bool model_drafts);

}  // namespace fourfold::cli
