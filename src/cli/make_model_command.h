// `fourfold make-model`: a valid checkpoint of random numbers with a tokenizer, for tests and benches; or one
// whose weights follow a script, for tests of what talks to a server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct MakeModelOptions {
  std::string out;
  std::string shape = "tiny";
  std::string format = "modelopt";
  std::uint64_t seed = 0;
  std::optional<int> layers;  // else as the shape has
  bool sparse = false;
  // A model that says what a script has instead of random words: the script, and the folder whose tokenizer
  // and chat template it speaks through.
  std::string script;
  std::string text_of;
};

std::string shape_names();  // that --shape may be
int run_make_model(const MakeModelOptions& options, const Console& console);

}  // namespace fourfold::cli
