// Calls between the marks of GLM, MiniMax, DeepSeek, Kimi and Mistral (tool_format.h): arguments between
// tags, or as JSON, which is passed on as it comes.
//
// What opens no call is text. Accepted: closing marks that are missing, calls without their section. A mark
// inside a value belongs to the value where the value's own end still comes; inside a string of JSON always.
#pragma once

#include <optional>
#include <string>

#include "text/call_writer.h"

namespace fourfold::text {

class MarkedCallParser final : public ToolCallParser {
 public:
  MarkedCallParser(CallFormat format, const ToolSchemas& schemas)
      : marks_(marks_of(format)), schemas_(&schemas), out_(schemas) {}

  std::vector<ToolEvent> push(std::string_view text) override;
  std::vector<ToolEvent> finish(bool cut_off) override;
  bool in_call() const override { return out_.in_call(); }

 private:
  enum class State { content, section, name, keys, key, value, json_begin, json, json_end };
  enum class Next { again, more, no_call };  // more: text is needed

  Next step();
  Next step_content();
  Next step_section();
  Next step_name();
  Next step_keys();
  Next step_key();
  Next step_value();
  Next step_json_begin();
  Next step_json();
  Next step_json_end();
  void run();

  Next name_before_tags();
  Next name_in_quotes();
  Next name_before_json();
  void open(std::string_view mark);
  Next begin(std::string_view name, std::size_t used, State next);
  // A line break before a mark that is not the value's own is not the value's.
  void end_value(std::size_t at, bool has_mark);

  CallMarks marks_;
  const ToolSchemas* schemas_;
  CallWriter out_;
  State state_ = State::content;
  std::string held_;     // not yet understood
  std::string opening_;  // what is shown if it opens no call
  std::string name_;     // of a call whose JSON is about to begin

  std::size_t searched_ = 0;            // of a held value: no mark begins before
  std::optional<std::size_t> perhaps_;  // where the value ends if its own end does not come

  std::string json_;  // of this call
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, fenced_ = false;
};

}  // namespace fourfold::text
