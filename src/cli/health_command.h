// `fourfold health`: whether a server is well, as an exit code; what containers ask.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct HealthOptions {
  std::string url = "http://127.0.0.1:8000";
  bool ready = false;  // also whether it takes requests now
  std::string api_key_file;
  int seconds = 5;
};

// kFine: it is. kMiss: it says no, or nothing.
int run_health(const HealthOptions& options, const Console& console);

}  // namespace fourfold::cli
