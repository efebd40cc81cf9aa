// The tokens a model thinks between.
#pragma once

#include <string_view>

#include "text/tokenizer.h"

namespace fourfold::text {

struct ThinkTags {
  std::string_view begin = "<think>", end = "</think>";
};

// Mistral's tokenizers have their own.
inline ThinkTags think_tags(const Tokenizer& tokenizer) {
  const ThinkTags usual, mistral{"[THINK]", "[/THINK]"};
  return !tokenizer.added_token(usual.end) && tokenizer.added_token(mistral.end) ? mistral : usual;
}

}  // namespace fourfold::text
