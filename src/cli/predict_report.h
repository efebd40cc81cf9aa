// `fourfold plan --predict`: a predicted step or prompt, kernel row by kernel row, as a page and as JSON.
#pragma once

#include "base/json_writer.h"
#include "cli/console.h"
#include "library/predict.h"

namespace fourfold::cli {

void print_prediction(const library::StepQuestion& question, const library::Prediction& prediction,
                      const Console& console);
void write_prediction(const library::StepQuestion& question, const library::Prediction& prediction,
                      JsonWriter& json);

}  // namespace fourfold::cli
