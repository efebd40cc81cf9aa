// What is asked. Random words of a fixed seed repeat exactly and say nothing about drafts; prompts of the
// kinds people send (natural_prompts.cpp) say what drafts are worth. Each request gets its own beginning, so
// that no prefix cache answers for the model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fourfold::loadgen {

struct NaturalPrompt {
  std::string_view kind;  // code, prose, translation or json
  std::string_view text;
};
std::span<const NaturalPrompt> natural_prompts();

enum class PromptKind { random, natural, brief };
std::string_view prompt_kind_name(PromptKind kind);
PromptKind parse_prompt_kind(std::string_view text);

// Text of about `words` words for request `index`; natural and brief prompts are as long as they are with 0
// words, and otherwise stand at the end of that many words of notes.
std::string prompt_text(PromptKind kind, std::uint64_t seed, std::uint64_t index, std::int64_t words);

// Tokens of a text by the server's own tokenizer; nothing when it cannot be asked.
using CountTokens = std::function<std::optional<std::int64_t>(std::string_view text)>;

struct SizedPrompt {
  std::string text;
  std::optional<std::int64_t> tokens;  // counted; nothing: estimated
};

// A prompt of `tokens` tokens, or the nearest below that words can make. Without a counter the length is
// estimated by tokens_per_word. 0 tokens: as long as it is.
SizedPrompt sized_prompt(PromptKind kind, std::uint64_t seed, std::uint64_t index, std::int64_t tokens,
                         double tokens_per_word, const CountTokens& count);

}  // namespace fourfold::loadgen
