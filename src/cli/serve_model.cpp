#include "cli/serve_model.h"

#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "engine/engine.h"
#include "server/api/form_cache.h"

namespace fourfold::cli {
server::ServedModel served_model(const ServeOptions& options, const OpenModel& model) {
  library::ServedOptions served{.names = options.served_names,
                                .context = library::context_of(model, engine_settings(options, model)),
                                .strict = options.backend.strict,
                                .store_responses_mb = options.store_responses_mb};
  const bool is_hub_name =
      options.model.find('/') != std::string::npos && !std::filesystem::exists(options.model);
  if (served.names.empty() && is_hub_name) served.names.push_back(options.model);
  server::ServedModel out = library::served_model(model, load_tokenizer(model.folder), served);
  server::api::prepare_forms(out);
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
