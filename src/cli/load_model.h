// From the word MODEL on the command line to something that runs, with progress and notices on stderr. Shared
// by every command that takes a MODEL; library/prepare_model.h does the work.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/byte_bar.h"
#include "cli/console.h"
#include "cli/file_signals.h"
#include "library/prepare_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fourfold::cli {

using library::BackendOptions;
using library::limits_of;
using library::on_machine;
using library::OpenModel;
using library::PreparedModel;
using library::require_utf8;

// MODEL as find_model.h finds it. Config fields that are neither used nor known become a notice on stderr,
// and an error under --strict.
std::unique_ptr<OpenModel> open_model(const std::string& model, const Console& console, bool strict = false);

// Shows on stderr what loading a model says, and how far it is, with GB/s and time left. Notices are errors
// under --strict.
class LoadDisplay {
 public:
  LoadDisplay(const BackendOptions& options, const Console& console);
  // Refers to the display.
  library::Listener listener();

 private:
  const Console& console_;
  bool strict_;
  ByteBar bar_;
  // While a packed copy is written an interrupt must be able to take it away again.
  std::optional<FileSignals> signals_;
};

// With --explain the kernels of each new step are shown on stderr. The console must outlive the backend.
BackendOptions with_explain(const BackendOptions& options, const Console& console);

// library::prepare_model with both. The model must outlive what comes back.
PreparedModel prepare_model(const OpenModel& model, const BackendOptions& options,
                            const backend::Capacity& capacity, const Console& console);

// Throws bad_checkpoint when the folder has no tokenizer.json; the hint says what works without one.
text::Tokenizer load_tokenizer(const std::filesystem::path& folder);

}  // namespace fourfold::cli
