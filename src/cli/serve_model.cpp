#include "cli/serve_model.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/find_model.h"
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

namespace {

// A folder of this machine is looked for in the same place of the others.
std::string model_elsewhere(const std::string& model) {
  std::error_code ignored;
  if (is_built_in(model)) return kBuiltInModel;
  return std::filesystem::exists(model, ignored)
             ? std::filesystem::absolute(model).lexically_normal().string()
             : model;
}

void require_nodes(const ServeOptions& options) {
  const auto refuse = [&](bool given, const char* option) {
    if (given)
      fail(Code::invalid_request, "{}: it is for ranks on other machines, and there is no --nodes", option);
  };
  refuse(!options.rank_listen.empty(), "--rank-listen");
  refuse(!options.token_file.empty(), "--token-file");
  refuse(options.collective != "auto", "--collective");
}

}  // namespace

std::optional<library::NodeOptions> node_options(const ServeOptions& options) {
  if (options.nodes.empty()) {
    require_nodes(options);
    return std::nullopt;
  }
  library::NodeOptions nodes{.hosts = {},
                             .listen = options.rank_listen,
                             .token_file = options.token_file,
                             .program = options.rank_program,
                             .collective = options.collective,
                             .model = model_elsewhere(options.model),
                             .version = version()};
  if (options.nodes == "by-hand") return nodes;
  for (std::size_t begin = 0; begin <= options.nodes.size();) {
    const std::size_t end = std::min(options.nodes.find(',', begin), options.nodes.size());
    nodes.hosts.push_back(options.nodes.substr(begin, end - begin));
    begin = end + 1;
  }
  return nodes;
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
