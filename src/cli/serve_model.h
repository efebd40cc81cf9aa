// From MODEL to what a server needs of it: room for many sequences, the text side, the names it answers to.
#pragma once

#include <memory>

#include "cli/load_model.h"
#include "cli/serve_command.h"
#include "server/served_model.h"

namespace fourfold::cli {

// How much of everything; what is 0 or absent in the options is chosen by the backend and its memory.
struct ServeRoom {
  backend::Capacity capacity;
  std::int64_t context = 0;    // tokens of one request
  std::int64_t sequences = 0;  // at once
};

// Throws invalid_request for options the model cannot have, out_of_memory when not even one request fits.
ServeRoom room_for_many(const ServeOptions& options, const OpenModel& model);

server::ServedModel served_model(const ServeOptions& options, const OpenModel& model, const ServeRoom& room);

// Drafts a step; EngineOptions::kMtpAuto for auto. Throws invalid_request.
int parse_mtp(const std::string& text, bool model_drafts);

}  // namespace fourfold::cli
