// Tool calls in a model's answer, as text comes, in each of the formats of tool_format.h, whichever the
// template shows: Qwen3.5's tags, and behind the same <tool_call> Qwen3's JSON. What comes out is OpenAI's: a
// name, then the text of one JSON object in pieces. Tagged values are typed by the tool's own schema.
//
// Models are careless; what is unambiguous is accepted: closing tags that are missing, calls without
// <tool_call>, spaces inside the tags. The answer is the same however the text is cut.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace fourfold::text {

// The JSON types a parameter may have, as bits.
enum ToolType : unsigned {
  kToolNull = 1,
  kToolInteger = 2,
  kToolNumber = 4,
  kToolBoolean = 8,
  kToolObject = 16,
  kToolArray = 32,
  kToolString = 64,
};

class ToolSchemas {
 public:
  // `parameters` is the JSON schema of the arguments object.
  void add(std::string name, jinja::Value parameters);
  bool empty() const { return schemas_.empty(); }
  // By type, enum, const, anyOf, oneOf, allOf and references within the schema; a string where it says
  // nothing.
  unsigned types_of(std::string_view function, std::string_view parameter) const;

 private:
  std::map<std::string, jinja::Value, std::less<>> schemas_;
};

// A parameter's text as JSON: the first of its types that can read it, in the order of ToolType; a string
// otherwise.
std::string typed_json(std::string_view text, unsigned types);

struct ToolEvent {
  enum class Kind { text, begin, arguments, end };
  Kind kind;
  std::string text;  // begin: the name; arguments: the next piece of the object; end: nothing
};

class ToolCallParser {
 public:
  // The schemas must outlive it.
  explicit ToolCallParser(const ToolSchemas& schemas) : schemas_(&schemas) {}

  std::vector<ToolEvent> push(std::string_view text);
  // The end of the answer closes a call that is open, unless the answer was cut off: then its arguments stay
  // unfinished JSON, so that half a call is not run.
  std::vector<ToolEvent> finish(bool cut_off);
  bool in_call() const { return in_call_; }

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

  void say(std::string_view text);
  void begin_call(std::string name);
  void end_call();
  void begin_value(std::string key);
  void add_value(std::string_view text);
  void end_value();
  bool json_call(std::string_view text);
  void end_json();
  void emit(ToolEvent::Kind kind, std::string text);

  const ToolSchemas* schemas_;
  State state_ = State::content;
  std::string held_;          // not yet understood
  std::size_t searched_ = 0;  // of it, in a call in JSON: no closing tag begins before
  bool in_string_ = false;    // there
  std::vector<ToolEvent> events_;

  bool said_ = false;    // something other than space, since the beginning or the last call
  std::string space_;    // held back until something is said
  std::string opening_;  // what is shown if <tool_call> opens nothing
  bool calls_seen_ = false;

  bool in_call_ = false;
  std::string function_;
  std::set<std::string> keys_;  // of this call
  bool streams_value_ = false, skips_value_ = false, value_starts_ = false;
  unsigned value_types_ = 0;
  std::string value_key_, value_;
};

}  // namespace fourfold::text
