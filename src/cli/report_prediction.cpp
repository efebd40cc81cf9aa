#include "cli/report_prediction.h"

#include <sstream>

#include "base/error.h"
#include "checkpoint/write/model_shape.h"
#include "cli/parse.h"
#include "cli/plan_model_command.h"
#include "plan/products.h"

namespace fourfold::cli {
namespace {

std::string why_not(const PredictedLine& line) {
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
  options.predict = true;
  const bool is_prompt = line.what == "prompt";
  if (is_prompt)
    options.prompt = static_cast<int>(line.context);
  else
    options.users = line.users, options.context = line.context;
  try {
    std::ostringstream unread;
    const library::Prediction predicted = predict_model_step(options, {unread, unread}).step;
    const plan::Range us = is_prompt ? predicted.prompt_us : predicted.step_us;
    out.low_ms = us.low / 1e3;
    out.high_ms = us.high / 1e3;
  } catch (const Error& error) {
    out.none = error.what();
  }
  const std::string which = is_prompt
                                ? fourfold::format("--prompt {}", options.prompt)
                                : fourfold::format("--users {} --context {}", options.users, options.context);
  out.by = fourfold::format("fourfold plan --predict --model {} --gpu {} --dense {} --kv bf16 {}",
                            options.model, shell_word(options.gpu), options.dense, which);
  return out;
}

}  // namespace fourfold::cli
