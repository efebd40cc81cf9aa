// One answer on its way from tokens to what a client sees: thinking, text, tool calls, and how it ended.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer_text.h"
#include "engine/engine.h"
#include "server/served_model.h"
#include "text/tool_calls.h"

namespace fourfold::server::api {

struct ChoiceOptions {
  std::vector<std::string> stops;
  bool split_thinking = false, starts_thinking = false;
  const text::ToolSchemas* schemas = nullptr;          // calls are read when given; must outlive the choice
  text::CallFormat format = text::CallFormat::tagged;  // of the calls
  std::vector<text::TokenId> header = {};              // engine::AnswerTextOptions
  bool one_call = false;                               // the answer ends with its first call
  bool guided = false;                                 // to a form that begins behind the token </think>
  bool keep_logprobs = false, keep_ids = false;
  bool logprobs_with_text = false;               // with the events and items of text, no others
  std::int64_t min_tokens = 0;                   // engine::AnswerTextOptions
  bool show_stop = false, show_special = false;  // likewise; a stop id is shown as well
  std::string_view call_prefix = "call_";        // of the ids of calls
};

enum class EventKind { thinking, text, call_begin, call_arguments, call_end };

struct AnswerEvent {
  EventKind kind;
  std::string text;                            // call_begin: the name
  std::string call_id;                         // call_begin
  std::vector<sample::Sampled> logprobs = {};  // text, where options.logprobs_with_text
};

// What an answer holds, in its order.
struct AnswerItem {
  EventKind kind;    // thinking, text or call_begin
  std::string text;  // of a call: its arguments
  std::string name, call_id;
  bool complete = true;                        // of a call: its arguments are a whole object
  std::vector<sample::Sampled> logprobs = {};  // text, where options.logprobs_with_text
};

enum class Ending { none, stop, stop_string, length, failed };

class Choice {
 public:
  Choice(const text::Tokenizer& tokenizer, ChoiceOptions options);

  // What a delivery adds; neighbours of one kind are one event.
  std::vector<AnswerEvent> take(const engine::Delivery& delivery);

  Ending ending() const { return ending_; }
  bool ended() const { return ending_ != Ending::none; }
  // Ended here, and not by the engine.
  bool satisfied() const { return satisfied_; }
  void give_up() { ending_ = Ending::failed, satisfied_ = true; }
  const std::string& stop() const { return text_.stop(); }
  engine::Finish finish() const { return finish_; }
  const std::string& error() const { return error_; }
  engine::Trouble trouble() const { return trouble_; }

  std::int64_t token_count() const { return token_count_; }
  std::int64_t thinking_count() const { return thinking_count_; }
  const engine::Usage& usage() const { return usage_; }
  bool made_calls() const { return call_count_ > 0; }
  const std::vector<AnswerItem>& items() const { return items_; }

  // Log-probabilities of the tokens since the last call, none with options.logprobs_with_text; and their
  // ids, where a stop id counts too.
  std::vector<sample::Sampled> take_logprobs();
  std::vector<text::TokenId> take_ids();
  // Of every token of the prompt but its first, where they were asked for.
  const std::vector<sample::Logprobs>& prompt_logprobs() const { return prompt_logprobs_; }

 private:
  void push(const sample::Sampled& sampled);
  void add(const engine::AnswerPiece& piece);
  void add_tool_events(std::vector<text::ToolEvent> events);
  void emit(EventKind kind, std::string text, std::string call_id = {});
  void end(const engine::Delivery& delivery);

  ChoiceOptions options_;
  engine::AnswerText text_;
  std::unique_ptr<text::ToolCallParser> calls_;
  std::vector<AnswerEvent> events_;
  std::vector<AnswerItem> items_;
  std::vector<sample::Sampled> logprobs_;
  std::vector<text::TokenId> ids_;
  std::vector<sample::Logprobs> prompt_logprobs_;
  std::int64_t token_count_ = 0, thinking_count_ = 0;
  int call_count_ = 0;
  engine::Usage usage_;
  Ending ending_ = Ending::none;
  bool satisfied_ = false;
  engine::Finish finish_ = engine::Finish::running;
  std::string error_;
  engine::Trouble trouble_ = engine::Trouble::none;
};

// "call_" and letters that no other call gets.
std::string new_id(std::string_view prefix);

}  // namespace fourfold::server::api
