// Turns a stream of token ids into text as it comes. A character may be spread over several tokens: its bytes
// are held until it is whole, so that no piece handed out ever ends inside a character. All pieces together
// are exactly what Tokenizer::decode gives for the whole sequence.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace fourfold::text {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  // The text that is certain with this token; may be empty.
  std::string push(TokenId id);
  // What is left at the end: one U+FFFD if the stream broke off inside a character, else nothing.
  std::string finish();
  // True while bytes of an unfinished character are held.
  bool holds_bytes() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;  // at most three bytes between calls
};

}  // namespace fourfold::text
