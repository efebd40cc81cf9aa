// What a parser of tool calls found, as events: text without the blanks around calls, names, and arguments as
// pieces of one JSON object. Values between tags are typed by the tool's schema; strings stream.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls.h"

namespace fourfold::text {

class CallWriter {
 public:
  // The schemas must outlive it.
  explicit CallWriter(const ToolSchemas& schemas) : schemas_(&schemas) {}

  void say(std::string_view text);

  void begin_call(std::string name);
  // The object of the values so far ends, and the call.
  void end_call();
  void begin_value(std::string key);
  void add_value(std::string_view text);
  void end_value();

  // A call whose arguments come as JSON.
  void add_arguments(std::string_view json);
  void end_json_call();
  // It gets no end: half a call is not run.
  void leave_call() { in_call_ = false; }

  // At the end of the answer: blanks are text where nothing was called.
  void finish();

  bool in_call() const { return in_call_; }
  bool calls_seen() const { return calls_seen_; }
  std::vector<ToolEvent> take();

 private:
  void emit(ToolEvent::Kind kind, std::string text);

  const ToolSchemas* schemas_;
  std::vector<ToolEvent> events_;

  bool said_ = false;  // something other than space, since the beginning or the last call
  std::string space_;  // held back until something is said
  bool calls_seen_ = false, in_call_ = false;

  std::string function_;
  std::set<std::string> keys_;  // of this call
  bool streams_value_ = false, skips_value_ = false;
  unsigned value_types_ = 0;
  std::string value_key_;
  std::string value_;  // of a string that streams: a character that has not ended
};

}  // namespace fourfold::text
