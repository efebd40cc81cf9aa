#include "cli/load_model.h"

#include <memory>
#include <mutex>

#include "base/error.h"
#include "cli/find_model.h"

namespace fourfold::cli {

std::unique_ptr<OpenModel> open_model(const std::string& model, const Console& console, bool strict) {
  auto opened = std::make_unique<OpenModel>(find_model(model));
  library::mention_contents(*opened,
                            {.on_notice = [&](const std::string& text) { notice(console, text, strict); }});
  return opened;
}

LoadDisplay::LoadDisplay(const BackendOptions& options, const Console& console)
    : console_(console), strict_(options.strict), bar_(console, "loading") {
  if (!options.cache.empty()) signals_.emplace();
}

library::Listener LoadDisplay::listener() {
  return {.on_fact =
              [this](const std::string& text) {
                bar_.clear();
                console_.err << "fourfold: " << text << "\n";
              },
          .on_notice =
              [this](const std::string& text) {
                bar_.clear();
                notice(console_, text, strict_);
              },
          .on_progress =
              [this](std::uint64_t done, std::uint64_t total) {
                if (signals_) FileSignals::stop_if_asked();
                bar_.update(done, total);
              }};
}

BackendOptions with_explain(const BackendOptions& options, const Console& console) {
  BackendOptions out = options;
  if (options.explain)
    out.on_kernels = [&console, tell = options.on_kernels,
                      turn = std::make_shared<std::mutex>()](const std::string& text) {
      if (tell) tell(text);
      const std::lock_guard lock(*turn);
      // It comes in the middle of an answer.
      console.err << (console.out_is_terminal ? "\n" : "") << "fourfold: " << text << std::flush;
    };
  return out;
}

PreparedModel prepare_model(const OpenModel& model, const BackendOptions& options,
                            const backend::Capacity& capacity, const Console& console) {
  LoadDisplay display(options, console);
  return library::prepare_model(model, with_explain(options, console), capacity, display.listener());
}

text::Tokenizer load_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    fail_with_hint(Code::bad_checkpoint,
                   "Give token ids with --ids 1,2,3, or add the model's tokenizer.json.",
                   "{}: there is no tokenizer.json in this folder", folder.string());
  return text::Tokenizer::load(file);
}

}  // namespace fourfold::cli
