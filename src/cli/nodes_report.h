// `fourfold plan --model MODEL --nodes N --link 10gbe`: what the sums of a step take between machines.
#pragma once

#include <string>

#include "backend/program.h"
#include "base/json_writer.h"
#include "cli/console.h"
#include "library/predict.h"
#include "plan/wire_time.h"

namespace fourfold::cli {

// Throws invalid_request for a link that is none between machines.
plan::Wire parse_wire(const std::string& link);

// program: of one rank of so many. step: what one rank's GPU computes, where one was named; null: none was.
void print_nodes(const backend::Program& program, plan::Wire wire, const library::Prediction* step,
                 const Console& console);
void write_nodes(const backend::Program& program, plan::Wire wire, const library::Prediction* step,
                 JsonWriter& json);

}  // namespace fourfold::cli
