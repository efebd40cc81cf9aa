// --url: a short measured run against an OpenAI-compatible server. Real prompts, one user, thinking off and
// on; the two differ because thinking tokens are drafted more easily.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "doctor/facts.h"

namespace fourfold::doctor {

struct LiveOptions {
  int max_tokens = 128;
  std::chrono::milliseconds limit{12'000};  // for one answer; four are asked for
};

// Sets urls and url.N.* for one or two addresses, one after the other. A server that cannot be measured is a
// finding, not an error; an address that is none throws invalid_request.
void measure_servers(const std::vector<std::string>& urls, const LiveOptions& options, Facts& facts);

}  // namespace fourfold::doctor
