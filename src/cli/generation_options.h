// How an answer is made, as the command line says it. What is left out comes from the model's
// generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "library/backend_options.h"

namespace fourfold::cli {

inline constexpr std::int64_t kMaxTokens = 4096;  // of an answer, when nobody says; or what there is room for

struct GenerationOptions {
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::string logit_bias;  // "50=-100,7=1.5"
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stops;
  int mtp = 0;
  std::string drafts = "chosen";  // chosen or drawn
  std::string system;
  bool thinking = false, no_thinking = false;  // neither: as the template has it
  bool no_wrap = false;                        // at a terminal: break no lines between words
  library::BackendOptions backend;
};

}  // namespace fourfold::cli
