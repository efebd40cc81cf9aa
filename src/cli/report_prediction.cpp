#include "cli/report_prediction.h"

#include <sstream>

#include "base/error.h"
#include "base/published_shapes.h"
#include "cli/parse.h"
#include "cli/plan_model_command.h"
#include "kernels/launch/sim_machine.h"
#include "library/predict_layer.h"
#include "plan/products.h"

namespace fourfold::cli {
void add_prediction(const Prediction& prediction, const char* name, double unit, boost::json::object& line) {
  if (prediction.none.empty()) {
    line[name] = {unit * prediction.low_ms, unit * prediction.high_ms};
    line["predicted_by"] = prediction.by;
  } else {
    line[name] = nullptr;
    line["not_predicted"] = prediction.none;
  }
}

Prediction predict_line(const PredictedLine& line) {
  Prediction out;
  const plan::Product* product = plan::find_product(line.gpu);
  if (product == nullptr) {
    out.none = fourfold::format("{} is not in the table of products", line.gpu);
    return out;
  }
  PlanModelOptions options;
  // A rank of four, timed without the others, as `bench model` has it.
  const bool is_rank = line.shape == kQwen397bTp4.name;
  options.model = is_rank ? kQwen397b.name : line.shape;
  options.ranks = is_rank ? 4 : 1;
  options.experts = is_rank ? "tp" : "auto";
  options.gpu = product->name;
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
    const plan::Range us = is_prompt ? predicted.prompt_alone_us : predicted.alone_us;
    out.low_ms = us.low / 1e3;
    out.high_ms = us.high / 1e3;
  } catch (const Error& error) {
    out.none = error.what();
  }
  const std::string which = is_prompt
                                ? fourfold::format("--prompt {}", options.prompt)
                                : fourfold::format("--users {} --context {}", options.users, options.context);
  out.by = fourfold::format("fourfold plan --predict --model {} --gpu {} --dense {} --kv bf16 {}{}",
                            options.model, shell_word(options.gpu), options.dense, which,
                            is_rank ? " --tp 4 --experts tp, without sums between GPUs" : "");
  return out;
}

std::vector<Prediction> predict_layers(const ReportDevice& device, const std::vector<PredictedLayer>& lines) {
  const plan::Product* product = plan::find_product(device.name);
  const plan::ArchFacts* arch = plan::find_arch(device.arch);
  std::vector<Prediction> out(lines.size());
  if (product == nullptr || arch == nullptr) {
    for (Prediction& prediction : out)
      prediction.none = fourfold::format("{} is not in the table of products", device.name);
    return out;
  }
  sim::Device memory;
  const auto machine =
      kernels::make_sim_machine(memory, {.arch = arch, .persistent_blocks = device.sm_count});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    moe_layer::Request request;
    request.shape = parse_layer_shape(lines[i].shape);
    request.format = parse_format(lines[i].format);
    request.activations = parse_activations(lines[i].activations);
    request.tokens = lines[i].tokens;
    request.role = lines[i].role == "decode" ? moe_layer::Role::decode : moe_layer::Role::prefill;
    const plan::Routing routing = lines[i].routing == "zipf"   ? plan::Routing::zipf
                                  : lines[i].routing == "same" ? plan::Routing::same
                                                               : plan::Routing::uniform;
    out[i].none = library::why_no_layer_time(*product, request);
    if (!out[i].none.empty()) continue;
    const plan::Range us = library::predict_layer_us(*product, *machine, request, routing);
    out[i].low_ms = us.low / 1e3;
    out[i].high_ms = us.high / 1e3;
    out[i].by = "the model of `fourfold plan --predict`";
  }
  return out;
}

}  // namespace fourfold::cli
