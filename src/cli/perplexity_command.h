// `fourfold perplexity`: how well a model knows a text, in a backend's own arithmetic.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"
#include "library/backend_options.h"

namespace fourfold::cli {

struct PerplexityOptions {
  std::string model;
  std::string file;  // UTF-8 text
  std::int64_t window = 1024;
  std::int64_t tokens_max = 0;  // 0: the whole text
  library::BackendOptions backend;
  bool json = false;
};

int run_perplexity(const PerplexityOptions& options, const Console& console);

}  // namespace fourfold::cli
