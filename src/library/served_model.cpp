#include "library/served_model.h"

#include <ctime>
#include <filesystem>
#include <string_view>
#include <utility>

#include "server/api/response_store.h"
#include "text/tokenizer_info.h"

namespace fourfold::library {
namespace {

// A folder's name says less than a hub's, but more than its whole path.
std::string name_of(const OpenModel& model) {
  const std::filesystem::path folder = std::filesystem::weakly_canonical(model.folder);
  return folder.filename().empty() ? "model" : folder.filename().string();
}

}  // namespace

server::ServedModel served_model(const OpenModel& model, text::Tokenizer tokenizer,
                                 const ServedOptions& options) {
  RequestDefaults defaults = request_defaults(model, &tokenizer);
  defaults.params.seed = draw_seed();
  server::ServedModel out{.names = options.names,
                          .created = std::time(nullptr),
                          .tokenizer = std::move(tokenizer),
                          .chat_template = text::ChatTemplate::load(model.folder),
                          .limits = limits_of(model),
                          .defaults = std::move(defaults.params),
                          .stop_ids = std::move(defaults.stop_ids),
                          .token_limit = defaults.token_limit};
  if (out.names.empty()) out.names.push_back(name_of(model));
  out.limits.position_limit = options.context;
  out.context_most = model.config.position_limit;
  out.strict = options.strict;
  const std::string_view eos =
      out.stop_ids.empty() ? "" : std::string_view(out.tokenizer.token_bytes(out.stop_ids.front()));
  out.tokenizer_info = text::tokenizer_info(model.folder, out.chat_template, eos);
  if (options.store_responses_mb > 0)
    out.responses = std::make_shared<server::api::ResponseStore>(
        static_cast<std::size_t>(options.store_responses_mb) << 20);
  return out;
}

}  // namespace fourfold::library
