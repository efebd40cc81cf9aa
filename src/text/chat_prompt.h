// A conversation as token ids. What people wrote stays text: "<|im_start|>" in a message is encoded as the
// characters it is and not as the control token, so that nobody can forge a turn of somebody else's. (Hugging
// Face's and vLLM's rendering gives the control token.) Tokens not marked special (<think>, <tool_call>) are
// found everywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fourfold::text {

class ChatPrompt {
 public:
  // Throws what ChatTemplate::render throws.
  ChatPrompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, ChatRequest request);

  // As the template wrote it, but for marks inside of what is written like a special token.
  const std::string& marked_text() const { return text_; }
  // Everything behind this place is dropped.
  void cut(std::size_t size) { text_.resize(size); }
  std::string text() const;
  std::vector<TokenId> ids() const { return tokenizer_->encode(text_, {.mark = mark_}); }

 private:
  const Tokenizer* tokenizer_;
  std::string mark_;  // empty: nothing had to be marked
  std::string text_;
};

}  // namespace fourfold::text
