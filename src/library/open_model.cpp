#include "library/open_model.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/answer_ends.h"

namespace fourfold::library {
namespace {

// Values outside the open range mean "off".
sample::Params suggested_params(const std::optional<checkpoint::GenerationDefaults>& file) {
  const checkpoint::GenerationDefaults defaults = file.value_or(checkpoint::GenerationDefaults{});
  sample::Params params;
  const bool greedy = defaults.do_sample.has_value() && !*defaults.do_sample;
  params.temperature = greedy ? 0 : defaults.temperature.value_or(1);
  params.top_k = std::max<std::int64_t>(defaults.top_k.value_or(0), 0);
  const double top_p = defaults.top_p.value_or(1);
  params.top_p = top_p <= 0 ? 1 : top_p;
  params.min_p = std::max(defaults.min_p.value_or(0), 0.0);
  params.repetition_penalty = defaults.repetition_penalty.value_or(1);
  return params;
}

}  // namespace

OpenModel::OpenModel(std::filesystem::path model_folder)
    : folder(std::move(model_folder)),
      config(checkpoint::read_model_config(folder)),
      defaults(checkpoint::read_generation_defaults(folder)),
      checkpoint(folder),
      bound(checkpoint::bind_model(checkpoint, config)) {}

void mention_contents(const OpenModel& model, const Listener& listener) {
  for (const std::string& field : model.config.unknown_fields)
    listener.notice(fourfold::format("config.json: the field '{}' is not known; it was not used", field));
  const auto& folded = model.bound.folded;
  if (folded.empty()) return;
  listener.notice(
      fourfold::format("{} matrices (the first: {}) are stored as NVFP4 with factors for their inputs "
                       "(pre_quant_scale, AWQ); they were multiplied out and are no longer NVFP4",
                       folded.size(), folded.front().name));
}

engine::ModelLimits limits_of(const OpenModel& model) {
  return {model.config.vocab_size, model.config.position_limit, model.has_mtp()};
}

RequestDefaults request_defaults(const OpenModel& model, const text::Tokenizer* tokenizer) {
  RequestDefaults out;
  out.params = suggested_params(model.defaults);
  const auto add_stop = [&](std::int64_t id) {
    if (id < model.config.vocab_size) out.stop_ids.push_back(static_cast<engine::TokenId>(id));
  };
  if (model.defaults) std::ranges::for_each(model.defaults->stop_ids, add_stop);
  std::ranges::for_each(model.config.eos_ids, add_stop);
  if (tokenizer != nullptr)
    for (const text::TokenId id : text::answer_ends(*tokenizer))
      if (std::ranges::find(out.stop_ids, id) == out.stop_ids.end()) add_stop(id);
  out.token_limit = model.config.vocab_size;
  if (tokenizer != nullptr) out.token_limit = std::min<std::int64_t>(out.token_limit, tokenizer->id_limit());
  return out;
}

std::uint64_t draw_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) >> 1;
}

void require_utf8(std::string_view text, std::string_view what) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = check_utf8_step(text.substr(at));
    if (step.state != Utf8State::valid)
      fail(Code::invalid_request, "{} is not UTF-8: byte {} of {} is {}", what, at, text.size(),
           static_cast<int>(static_cast<unsigned char>(text[at])));
    at += step.bytes;
  }
}

}  // namespace fourfold::library
