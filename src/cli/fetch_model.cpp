#include "cli/fetch_model.h"

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/byte_bar.h"
#include "cli/find_model.h"
#include "cli/load_model.h"
#include "cli/terminal_text.h"
#include "hub/cache.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;

// Empty: it must be fetched.
fs::path whole_in_cache(const std::string& model) {
  try {
    const fs::path snapshot = checkpoint::find_model(model, checkpoint::hub_environment());
    return hub::has_weights(snapshot) ? snapshot : fs::path();
  } catch (const Error& error) {
    if (error.code() != Code::invalid_request && error.code() != Code::bad_checkpoint) throw;
    return {};
  }
}

}  // namespace

hub::Pulled pull_model(const checkpoint::HubName& hub, const Console& console) {
  hub::Settings settings = hub::settings_from_environment();
  settings.user_agent = "fourfold/" + version();
  ByteBar bar(console, "fetching");
  const auto say = [&](const std::string& text) {
    bar.clear();
    console.err << "fourfold: " << terminal_safe(text) << "\n" << std::flush;
  };
  return hub::pull(hub, settings,
                   {.on_fact = say,
                    .on_notice = say,
                    .on_progress = [&](std::uint64_t here, std::uint64_t done, std::uint64_t total) {
                      bar.update(done, total, here);
                    }});
}

fs::path fetch_model(const std::string& model, const Console& console) {
  const auto hub = is_built_in(model) ? std::nullopt : checkpoint::as_hub_name(model);
  if (!hub) return find_model(model);
  if (const fs::path found = whole_in_cache(model); !found.empty()) return found;
  try {
    return pull_model(*hub, console).snapshot;
  } catch (const Error& error) {
    if (error.code() != Code::invalid_request) throw;
    const std::string meant = meant_model(model);
    if (meant.empty() || meant == model) throw;
    throw Error(error.code(), error.what(), fourfold::format("Did you mean {}? {}", meant, error.hint()));
  }
}

std::unique_ptr<OpenModel> fetch_and_open_model(const std::string& model, const Console& console,
                                                bool strict) {
  return open_model(fetch_model(model, console).string(), console, strict);
}

}  // namespace fourfold::cli
