// Calls as Qwen writes them: Qwen3.5's tags, and behind the same <tool_call> Qwen3's JSON, whichever comes.
// Accepted: closing tags that are missing, calls without <tool_call>, spaces inside the tags.
#pragma once

#include <string>

#include "text/call_writer.h"

namespace fourfold::text {

class QwenCallParser final : public ToolCallParser {
 public:
  explicit QwenCallParser(const ToolSchemas& schemas) : out_(schemas) {}

  std::vector<ToolEvent> push(std::string_view text) override;
  std::vector<ToolEvent> finish(bool cut_off) override;
  bool in_call() const override { return out_.in_call(); }

 private:
  enum class State { content, opened, json, name, parameters, key, value };

  bool step();  // false: more text is needed
  bool step_content();
  bool step_opened();
  bool step_json();
  bool step_name();
  bool step_parameters();
  bool step_key();
  bool step_value();
  bool json_call(std::string_view text);
  void end_json();

  CallWriter out_;
  State state_ = State::content;
  std::string held_;          // not yet understood
  std::size_t searched_ = 0;  // of it, in a call in JSON: no closing tag begins before
  bool in_string_ = false;    // there
  std::string opening_;       // what is shown if <tool_call> opens nothing
  bool value_starts_ = false;
};

}  // namespace fourfold::text
