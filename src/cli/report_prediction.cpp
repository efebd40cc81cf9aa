#include "cli/report_prediction.h"

#include <sstream>

#include "base/error.h"
#include "checkpoint/write/model_shape.h"
#include "cli/parse.h"
#include "cli/plan_model_command.h"
#include "plan/products.h"
#include "plan/step_time.h"

namespace fourfold::cli {
namespace {

std::string why_not(const PredictedLine& line) {
  if (line.what != "decode") return "only steps of generated rows are predicted";
  if (line.users > plan::kPredictedRowsMost)
    return fourfold::format("steps of more than {} rows are not predicted", plan::kPredictedRowsMost);
  if (plan::find_product(line.gpu) == nullptr)
    return fourfold::format("{} is not in the table of products", line.gpu);
  for (const checkpoint::ModelShape& shape : checkpoint::known_shapes())
    if (shape.name == line.shape) return {};
  return fourfold::format("{} is a part of a model, and steps of whole ones are predicted", line.shape);
}

}  // namespace

Prediction predict_line(const PredictedLine& line) {
  Prediction out;
  out.none = why_not(line);
  if (!out.none.empty()) return out;
  PlanModelOptions options;
  options.model = line.shape;
  options.gpu = plan::find_product(line.gpu)->name;
  options.dense = line.dense == "bf16" ? "keep" : line.dense;
  options.kv = "bf16";
  options.users = line.users;
  options.context = line.context;
  try {
    std::ostringstream unread;
    const library::StepAnswer answer = predict_model_step(options, {unread, unread});
    out.low_ms = answer.us.low / 1e3;
    out.high_ms = answer.us.high / 1e3;
  } catch (const Error& error) {
    out.none = error.what();
  }
  out.by =
      fourfold::format("fourfold plan --model {} --gpu {} --dense {} --kv bf16 --users {} --context {}",
                       options.model, shell_word(options.gpu), options.dense, options.users, options.context);
  return out;
}

}  // namespace fourfold::cli
