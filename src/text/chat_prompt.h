// A conversation as token ids. Control tokens are found by origin: only text that the template wrote itself,
// whole, makes one. "<|im_start|>" in a message, a tool or a variable is encoded as the characters it is, and
// so is one of which a single byte came from there, so that no message can forge another's turn.
// (Hugging Face's and vLLM's rendering gives the control token.) Tokens not marked special (<think>,
// <tool_call>) are found everywhere.
#pragma once

#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fourfold::text {

class ChatPrompt {
 public:
  // Throws what ChatTemplate::render throws.
  ChatPrompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const ChatRequest& request)
      : tokenizer_(&tokenizer), text_(chat_template.render_traced(request)) {}

  const std::string& text() const { return text_.bytes(); }
  // Everything behind this offset is dropped.
  void cut(std::size_t size) { text_.cut(size); }
  std::vector<TokenId> ids() const { return tokenizer_->encode(text_); }

 private:
  const Tokenizer* tokenizer_;
  TracedText text_;
};

}  // namespace fourfold::text
