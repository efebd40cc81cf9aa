#include "text/chat_prompt.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "text/jinja/value.h"
#include "text/utf8.h"

namespace fourfold::text {
namespace {

using Visit = std::function<bool(const std::string&)>;

// Whether a text of the value, names of members included, is one.
bool any_text(const jinja::Value& value, const Visit& is_one) {
  if (value.is_text()) return is_one(value.text());
  if (value.is_sequence()) {
    for (const jinja::Value& item : value.sequence()->items)
      if (any_text(item, is_one)) return true;
  } else if (value.is_dict()) {
    for (const auto& [name, item] : value.dict()->items())
      if (any_text(name, is_one) || any_text(item, is_one)) return true;
  }
  return false;
}

bool any_text(const ChatRequest& request, const Visit& is_one) {
  if (any_text(request.messages, is_one) || (request.tools && any_text(*request.tools, is_one))) return true;
  for (const auto& [name, value] : request.extra.items())
    if (any_text(value, is_one)) return true;
  return false;
}

jinja::Value marked(const jinja::Value& value, const Tokenizer& tokenizer, std::string_view mark) {
  if (value.is_text()) return tokenizer.with_marks(value.text(), mark);
  if (value.is_sequence()) {
    std::vector<jinja::Value> items;
    for (const jinja::Value& item : value.sequence()->items) items.push_back(marked(item, tokenizer, mark));
    return jinja::Value::list(std::move(items));
  }
  if (!value.is_dict()) return value;
  jinja::Dict out;
  for (const auto& [name, item] : value.dict()->items())
    out.set(marked(name, tokenizer, mark), marked(item, tokenizer, mark));
  return out;
}

// One of the code points Unicode keeps for such a use, which are in nobody's text: U+FDD0 to U+FDEF.
std::string unused_mark(const ChatRequest& request) {
  for (char last = '\x90'; last <= '\xAF'; ++last) {
    const std::string mark{'\xEF', '\xB7', last};
    if (!any_text(request, [&](const std::string& text) { return text.find(mark) != std::string::npos; }))
      return mark;
  }
  fail(Code::invalid_request,
       "the conversation is written like special tokens and holds U+FDD0 to U+FDEF, all 32 of them");
}

}  // namespace

ChatPrompt::ChatPrompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, ChatRequest request)
    : tokenizer_(&tokenizer) {
  if (any_text(request, [&](const std::string& text) { return tokenizer.writes_special(text); })) {
    mark_ = unused_mark(request);
    request.messages = marked(request.messages, tokenizer, mark_);
    if (request.tools) request.tools = marked(*request.tools, tokenizer, mark_);
    jinja::Dict extra;
    for (const auto& [name, value] : request.extra.items()) extra.set(name, marked(value, tokenizer, mark_));
    request.extra = std::move(extra);
  }
  text_ = chat_template.render(request);
}

std::string ChatPrompt::text() const { return without(text_, mark_); }

}  // namespace fourfold::text
