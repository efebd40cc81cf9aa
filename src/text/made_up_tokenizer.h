// The text side of a model of random numbers: a tokenizer.json whose tokens are syllables of no language, a
// chat template and the files around them. Every id of the vocabulary has a token, so that random answers can
// be read (and cannot be mistaken for sense).
#pragma once

#include <cstdint>
#include <string>

#include "text/bpe.h"

namespace fourfold::text {

struct MadeUpTokens {
  TokenId end_of_text = 0;    // <|endoftext|>
  TokenId end_of_turn = 0;    // <|im_end|>
  std::int64_t id_limit = 0;  // one more than the largest id that has a token
};

// What make_tokenizer_json gives these tokens. Throws invalid_request for a vocabulary without room for the
// 256 bytes and the special tokens.
MadeUpTokens made_up_tokens(std::int64_t vocab_size);

// Byte-level BPE with Qwen3.5's splitting rule and special tokens; the latter have the published ids where
// the vocabulary has the published size.
std::string make_tokenizer_json(std::int64_t vocab_size);

// ChatML with thinking, as the family writes it: chat_template.jinja.
std::string make_chat_template();
// tokenizer_config.json and generation_config.json.
std::string make_tokenizer_config();
std::string make_generation_config(std::int64_t vocab_size);

}  // namespace fourfold::text
