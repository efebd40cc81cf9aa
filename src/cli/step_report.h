// `fourfold plan --model MODEL --gpu NAME`: a predicted step as a page and as JSON.
#pragma once

#include "base/json_writer.h"
#include "cli/console.h"
#include "library/plan_step.h"

namespace fourfold::cli {

void print_step(const library::StepQuestion& question, const library::StepAnswer& answer,
                const Console& console);
void write_step(const library::StepQuestion& question, const library::StepAnswer& answer, JsonWriter& json);

}  // namespace fourfold::cli
