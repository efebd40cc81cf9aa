#include "cli/serve_model.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "cli/answer.h"
#include "engine/engine.h"
#include "server/api/form_cache.h"
#include "server/api/response_store.h"
#include "text/tokenizer_info.h"

namespace fourfold::cli {
namespace {

std::string name_of(const ServeOptions& options, const OpenModel& model) {
  // A folder's name says less than a hub's, but more than its whole path.
  const bool is_hub_name = !options.model.empty() && options.model.find('/') != std::string::npos &&
                           !std::filesystem::exists(options.model);
  if (is_hub_name) return options.model;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(model.folder);
  return folder.filename().empty() ? "model" : folder.filename().string();
}

}  // namespace

server::ServedModel served_model(const ServeOptions& options, const OpenModel& model,
                                 const library::EngineRoom& room) {
  text::Tokenizer tokenizer = load_tokenizer(model.folder);
  const engine::Request request = make_request({}, model, &tokenizer);
  server::ServedModel out{.names = options.served_names,
                          .created = std::time(nullptr),
                          .tokenizer = std::move(tokenizer),
                          .chat_template = text::ChatTemplate::load(model.folder),
                          .limits = limits_of(model),
                          .defaults = request.params,
                          .stop_ids = request.stop_ids,
                          .token_limit = request.token_limit};
  if (out.names.empty()) out.names.push_back(name_of(options, model));
  out.limits.position_limit = room.context;
  out.context_most = model.config.position_limit;
  out.strict = options.backend.strict;
  const std::string_view eos =
      out.stop_ids.empty() ? "" : std::string_view(out.tokenizer.token_bytes(out.stop_ids.front()));
  out.tokenizer_info = text::tokenizer_info(model.folder, out.chat_template, eos);
  server::api::prepare_forms(out);
  if (options.store_responses_mb > 0)
    out.responses = std::make_shared<server::api::ResponseStore>(
        static_cast<std::size_t>(options.store_responses_mb) << 20);
  return out;
}

library::EngineSettings engine_settings(const ServeOptions& options, const OpenModel& model) {
  return {.backend = options.backend,
          .max_context = options.max_context,
          .kv_tokens = options.kv_tokens,
          .max_sequences = options.max_sequences,
          .max_queue = options.max_queue,
          .step_rows = options.step_rows,
          .mtp = parse_mtp(options.mtp, model.has_mtp()),
          .prefix_cache_bytes = options.prefix_cache_mb < 0 ? -1 : options.prefix_cache_mb * 1'000'000};
}

int parse_mtp(const std::string& text, bool model_drafts) {
  if (text == "auto") return model_drafts ? engine::EngineOptions::kMtpAuto : 0;
  int count = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (status != std::errc{} || end != text.data() + text.size() || count < 0 ||
      count > engine::kDraftCountMax)
    fail(Code::invalid_request, "--mtp {}: 0 to {}, or auto", text, engine::kDraftCountMax);
  if (count > 0 && !model_drafts)
    fail(Code::invalid_request, "--mtp {}: this checkpoint has no MTP layer", count);
  return count;
}

}  // namespace fourfold::cli
